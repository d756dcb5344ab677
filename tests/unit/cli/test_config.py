"""`headgate config check` as an operator sees it."""

import argparse
import json
import os
from pathlib import Path

import pytest

from headgate.cli import config


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADGATE_")]:
        monkeypatch.delenv(name)


def run(*args: str) -> int:
    parser = argparse.ArgumentParser(prog="headgate")
    config.define_arguments(parser.add_subparsers().add_parser("config"))
    parsed = parser.parse_args(["config", "check", *args])
    code: int = parsed.run(parsed)
    return code


def write(folder: Path, text: str) -> str:
    file = folder / "headgate.toml"
    file.write_text(text)
    return str(file)


def test_a_good_file_has_no_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "")
    assert run(file) == 0
    assert capsys.readouterr() == (f"{file}: no problems\n", "")


def test_every_problem_is_a_line_with_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "[gateway]\nnodes = '2-0'\nworkers = 0\n")
    assert run(file) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: gateway.nodes: the range 2-0 is reversed; write 0-2",
        f"{file}: gateway.workers: must be at least 1; it is 0",
    ]


def test_json_is_the_contracts_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "[gateway]\nnodes = '2-0'\n")
    assert run(file, "--json") == 2
    out, err = capsys.readouterr()
    assert json.loads(out) == {"problems": [{"path": "gateway.nodes", "text": "the range 2-0 is reversed; write 0-2"}]}
    assert err == ""
    assert run(write(tmp_path, ""), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"problems": []}


def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "no.toml")
    assert run(missing) == 2
    assert capsys.readouterr().out == f"{missing}: no such file: create it, or correct the path\n"
    file = write(tmp_path, "[gateway\n")
    assert run(file, "--json") == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["path"] == file
    assert problem["text"].startswith("line 1, column 9: not TOML")


def test_the_environment_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_GATEWAY_WORKERS", "0")
    assert run(write(tmp_path, "")) == 2
    assert "(from HEADGATE_GATEWAY_WORKERS)" in capsys.readouterr().out


def test_a_warning_goes_to_standard_error_and_is_no_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "[upstream]\ntls = true\nservice_mechanism = 'none'\n")
    assert run(file, "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"problems": []}
    assert err.startswith(f"{file}: upstream.service_mechanism: warning: ")
