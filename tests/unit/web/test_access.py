"""Who may call: hosts, this machine, tokens and their scopes."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headgate.web.application import requested_host
from headgate.web.tokens import TokenScope, add_token
from tests.unit.web.stage import NOW_MS, Stage

TOPICS, RESET = "/connectors/src/topics", "/connectors/src/topics/reset"
LATER = datetime.fromtimestamp(NOW_MS / 1000 + 3600, UTC)


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.main.use("src", "a")
    return found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8080"])
async def test_allowed_hosts(stage: Stage, host: str) -> None:
    assert (await stage.call("GET", TOPICS, host=(host,))).status == 200


HOSTILE = (
    "evil.example evil.example:8080 127.0.0.1.evil.example localhost:8080:1 localhost:x localhost@evil.example ::1"
)


@pytest.mark.parametrize(
    "host",
    [(), ("",), *((one,) for one in HOSTILE.split()), ("localhost", "evil.example"), ("evil.example", "localhost")],
)
async def test_another_host_is_refused_before_anything_happens(stage: Stage, host: tuple[str, ...]) -> None:
    answer = await stage.call("PUT", RESET, host=host)
    assert (answer.status, answer.json["error_code"]) == (400, 400)
    assert stage.main.topics.of("src") == ("a",)


def test_a_final_dot_of_the_host_is_ignored() -> None:
    assert requested_host(["localhost.:8080"]) == "localhost"


@pytest.mark.parametrize("client", ["127.0.0.1", "127.3.2.1", "::1"])
async def test_without_tokens_local_clients_may_reset(stage: Stage, client: str) -> None:
    assert (await stage.call("PUT", RESET, client=client)).status == 202


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("192.0.2.1", {}),
        ("", {}),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.1"}),
        ("127.0.0.1", {"Forwarded": "for=192.0.2.1"}),
        ("127.0.0.1", {"Via": "1.1 proxy"}),
    ],
)
async def test_without_tokens_other_clients_may_not_reset(stage: Stage, client: str, headers: dict[str, str]) -> None:
    answer = await stage.call("PUT", RESET, client=client, headers=headers)
    assert answer.status == 403
    assert stage.main.topics.of("src") == ("a",)


async def test_with_a_tokens_file_a_reset_needs_the_scope_operate(stage: Stage, tmp_path: Path) -> None:
    stage.tokens_file = tmp_path / "tokens.toml"
    reader = add_token(stage.tokens_file, name="reader", scope=TokenScope.READ, expires=LATER)
    operator = add_token(stage.tokens_file, name="operator", scope=TokenScope.OPERATE, expires=LATER)
    refused = await stage.call("PUT", RESET)
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    for wrong in (operator[:-1], operator + "x", "", "x" * 100_000, "é"):
        assert (await stage.call("PUT", RESET, headers=bearer(wrong))).status == 401
    assert (await stage.call("PUT", RESET, headers={"Authorization": f"Basic {operator}"})).status == 401
    assert (await stage.call("PUT", RESET, headers=bearer(reader))).status == 403
    assert stage.main.topics.of("src") == ("a",)
    assert (await stage.call("PUT", RESET, headers=bearer(operator), client="192.0.2.1")).status == 202


async def test_a_token_ends_when_it_expires_and_when_it_is_removed(stage: Stage, tmp_path: Path) -> None:
    stage.tokens_file = tmp_path / "tokens.toml"
    token = add_token(stage.tokens_file, name="operator", scope=TokenScope.OPERATE, expires=LATER)
    stage.clock.now_ms = int(LATER.timestamp() * 1000) - 1
    assert (await stage.call("PUT", RESET, headers=bearer(token))).status == 202
    stage.clock.now_ms += 1
    assert (await stage.call("PUT", RESET, headers=bearer(token))).status == 401
    stage.clock.now_ms = NOW_MS
    stage.tokens_file.write_text("")
    assert (await stage.call("PUT", RESET, headers=bearer(token))).status == 401


async def test_on_another_address_than_loopback_reading_needs_a_token(stage: Stage, tmp_path: Path) -> None:
    stage.tokens_file, stage.is_read_open = tmp_path / "tokens.toml", False
    tokens = [add_token(stage.tokens_file, name=scope, scope=scope, expires=LATER) for scope in TokenScope]
    for path in (TOPICS, f"/connect/main{TOPICS}", "/api/v1/connectors", "/api/v1/health"):
        assert (await stage.call("GET", path)).status == 401
        for token in tokens:
            assert (await stage.call("GET", path, headers=bearer(token))).status == 200


async def test_an_invalid_tokens_file_refuses_all_tokens(stage: Stage, tmp_path: Path) -> None:
    stage.tokens_file = tmp_path / "tokens.toml"
    token = add_token(stage.tokens_file, name="operator", scope=TokenScope.OPERATE, expires=LATER)
    stage.tokens_file.write_text(stage.tokens_file.read_text() + "\n[tokens")
    answer = await stage.call("PUT", RESET, headers=bearer(token))
    assert answer.status == 503
    assert stage.main.topics.of("src") == ("a",)
