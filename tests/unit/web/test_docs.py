"""`docs/web.md`: its paths respond, its tokens file is valid, and its commands exist. `docs/api.md`: its answers."""

import re
from pathlib import Path

import pytest

from headgate.cli.main import parse_arguments
from headgate.web.tokens import TokenScope, read_tokens
from tests.unit.web.api_stage import ApiStage
from tests.unit.web.stage import Stage

DOC, API = ((Path(__file__).parents[3] / "docs" / page).read_text("utf-8") for page in ("web.md", "api.md"))
EXAMPLES = re.findall(r'```console\n\$ curl -s "\$API/([^"?]*)\??([^"]*)"\n(.*?)```', API, flags=re.DOTALL)
API_PATHS = re.findall(r"^\| `(?:GET|POST) (/api/[^`]*)`", API, flags=re.MULTILINE)
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


@pytest.mark.parametrize(("path", "query", "shown"), EXAMPLES)
async def test_the_answers_of_the_api_page_are_real(shop: ApiStage, path: str, query: str, shown: str) -> None:
    answer = await shop.request("GET", f"/api/v1/{path}", query)
    assert (answer.status, answer.body.decode().splitlines()) == (200, shown.splitlines())


def test_the_api_page_has_answers_of_most_resources() -> None:
    assert len(EXAMPLES) >= 12


async def test_the_api_page_has_every_path_of_the_openapi_document(shop: ApiStage) -> None:
    known = {
        re.sub(r"\{[^}]*\}", "NAME", path)
        for path in (await shop.json("openapi.json"))["paths"]
        if path.startswith("/api/v1/")
    }
    assert set(API_PATHS) - {"/api/v1/openapi.json"} == known
