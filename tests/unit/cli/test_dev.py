"""The commands that `headgate dev` prints work when they are pasted in another terminal."""

import sys
from pathlib import Path

import pytest

from headgate.cli.dev import program


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in a folder, which is the working directory."""
    file = tmp_path / ".venv" / "bin" / "headgate"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    return file


def test_a_command_is_printed_as_it_was_started(installed: Path) -> None:
    on_path = {"PATH": str(installed.parent)}
    assert program(".venv/bin/headgate", {}) == ".venv/bin/headgate"
    assert program(str(installed), {}) == ".venv/bin/headgate"
    assert program(str(installed), on_path) == "headgate"
    # Another terminal has no activated environment.
    assert program(str(installed), {**on_path, "VIRTUAL_ENV": "x"}) == ".venv/bin/headgate"
    assert program("/else where/headgate", {}) == "'/else where/headgate'"
    assert program("/src/headgate/cli/main.py", {}) == f"{sys.executable} -m headgate.cli.main"
