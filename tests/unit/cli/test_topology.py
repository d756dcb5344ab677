"""`headgate topology parse` from the outside."""

import io
import json
import sys
from pathlib import Path

import pytest

from headgate.cli.main import main

FIXTURES = Path(__file__).parents[2] / "fixtures" / "topologies"


def test_a_real_text_comes_back_as_the_json_of_our_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "parse", "--json", str(FIXTURES / "filter.txt")]) == 0
    shown = json.loads(capsys.readouterr().out)
    nodes = shown["description"]["subtopologies"][0]["nodes"]
    assert [(node["type"], node["successors"]) for node in nodes] == [
        ("source", ["KSTREAM-FILTER-0000000001"]),
        ("processor", ["KSTREAM-SINK-0000000002"]),
        ("sink", []),
    ]
    assert shown["hash"].startswith("sha256:")


def test_a_text_that_is_shown_reads_back_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for _ in range(2):
        main(["topology", "parse", str(FIXTURES / "joins.txt")])
        first = capsys.readouterr().out
        (tmp_path / "again.txt").write_text(first)
    assert main(["topology", "parse", str(tmp_path / "again.txt")]) == 0
    assert capsys.readouterr().out == first


def test_a_line_that_is_not_understood_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Topologies:\n  Nonsense\n")))
    assert main(["topology", "parse", "-"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "headgate: -, line 2, column 3: nodes stand below a 'Sub-topology: ID'\n"


def test_a_file_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "parse", "/nonexistent"]) == 2
    assert "cannot be read" in capsys.readouterr().err
