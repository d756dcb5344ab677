"""`docs/web.md`: its paths respond, its tokens file is valid, and its commands exist."""

import re
from pathlib import Path

import pytest

from headgate.cli.main import parse_arguments
from headgate.web.tokens import TokenScope, read_tokens
from tests.unit.web.stage import Stage

DOC = (Path(__file__).parents[3] / "docs" / "web.md").read_text("utf-8")
PATHS = re.findall(r"^\| `(GET|PUT) (/[^`?]*)", DOC, flags=re.MULTILINE)
COMMANDS = re.findall(r"^    headgate ([^#\n]*)", DOC, flags=re.MULTILINE)


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_every_path_of_the_table_answers(method: str, path: str) -> None:
    assert (await Stage().call(method, path)).status in {200, 202}


def test_there_are_such_paths() -> None:
    assert len(PATHS) >= 4


def test_the_tokens_file_of_the_page_is_read(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", DOC, flags=re.DOTALL)
    assert example is not None
    (tmp_path / "tokens.toml").write_text(example[1])
    (token,) = read_tokens(tmp_path / "tokens.toml")
    assert (token.name, token.scopes) == ("alice", frozenset({TokenScope.OPERATE}))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_is_one(command: str) -> None:
    assert parse_arguments(command.split()).run
