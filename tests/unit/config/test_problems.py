"""Every problem that a file or the environment can have: a new case is a new table in the data file."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from headgate.config import check

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[2] / "fixtures" / "config" / "problems.toml").read_text("utf-8")
)["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_configuration_has_exactly_these_problems(case: dict[str, Any], tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.write_text("secret\n")
    file = tmp_path / "headgate.toml"
    file.write_text(case["file"].replace("HERE", str(here)), "utf-8")
    found = check(file, case.get("env", {}))
    expected = [(str(file) if path == "FILE" else path, text) for path, text in case["problems"]]
    assert [problem.path for problem in found] == [path for path, _ in expected]
    for problem, (_, text) in zip(found, expected, strict=True):
        assert text in problem.text
        assert problem.text.isprintable()
        assert "secret" not in problem.text
