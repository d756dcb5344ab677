"""The tokens file: what may stand in it, and that it never holds a token."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.base.errors import UsageError
from headgate.cli.main import main
from headgate.web.tokens import TokenScope, add_token, find_token, read_tokens

EXPIRES = datetime(2027, 2, 13, tzinfo=UTC)
HASH = "0" * 64
GOOD = f'[tokens.a]\nsha256 = "{HASH}"\nscopes = ["read"]\nexpires = 2027-02-13T00:00:00Z\n'


def test_a_new_token_is_found_by_itself_alone_and_is_not_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    first = add_token(file, name="first", scope=TokenScope.READ, expires=EXPIRES)
    second = add_token(file, name="second", scope=TokenScope.OPERATE, expires=EXPIRES)
    text = file.read_text()
    assert first not in text
    assert second not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    tokens = read_tokens(file)
    now = int(EXPIRES.timestamp() * 1000) - 1
    found = [find_token(tokens, given, now_ms=now) for given in (first, second, "other")]
    assert [token.name if token else None for token in found] == ["first", "second", None]
    assert find_token(tokens, first, now_ms=now + 1) is None


def test_the_scope_operate_includes_read_and_not_vice_versa(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    for scope in TokenScope:
        add_token(file, name=scope, scope=scope, expires=EXPIRES)
    reader, operator = read_tokens(file)
    assert [reader.may(TokenScope.READ), reader.may(TokenScope.OPERATE)] == [True, False]
    assert [operator.may(TokenScope.READ), operator.may(TokenScope.OPERATE)] == [True, True]


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "a = 1",
        "tokens = 1",
        "[tokens]\na = 1",
        GOOD.replace("tokens.a", 'tokens."a b"'),
        GOOD.replace(HASH, HASH[1:]),
        GOOD.replace(HASH, "G" * 64),
        GOOD.replace('["read"]', "[]"),
        GOOD.replace('["read"]', '"read"'),
        GOOD.replace('["read"]', '["admin"]'),
        GOOD.replace("2027-02-13T00:00:00Z", "2027-02-13T00:00:00"),
        GOOD.replace("2027-02-13T00:00:00Z", '"never"'),
        GOOD.replace("expires = 2027-02-13T00:00:00Z\n", ""),
        GOOD + "more = 1\n",
        GOOD + "#" * 1024 * 1024,
        "\udcff",
    ],
)
def test_an_invalid_file_is_refused_as_a_whole(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError):
        read_tokens(file)


def test_names_are_unique_and_restricted(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, name="a", scope=TokenScope.READ, expires=EXPIRES)
    with pytest.raises(UsageError, match="already"):
        add_token(file, name="a", scope=TokenScope.OPERATE, expires=EXPIRES)
    with pytest.raises(UsageError, match="letters"):
        add_token(file, name="b]\n", scope=TokenScope.READ, expires=EXPIRES)


def test_the_command_prints_a_token_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens.toml"
    assert main(["web", "token", str(file), "--name", "ops", "--scope", "operate", "--days", "3"]) == 0
    given = capsys.readouterr().out.strip()
    (token,) = read_tokens(file)
    in_two_days = datetime.now(UTC) + timedelta(days=2)
    assert find_token([token], given, now_ms=int(in_two_days.timestamp() * 1000)) == token
    assert find_token([token], given, now_ms=int((in_two_days + timedelta(days=2)).timestamp() * 1000)) is None
    assert main(["web", "token", str(file), "--name", "more", "--days", "0"]) == 2
    assert main(["web"]) == 2


def test_names_limit_a_token_to_patterns(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    names = ["shop-*", 'a"b\\c', "ünïcode", "[x]"]
    add_token(file, name="team", scope=TokenScope.READ, expires=EXPIRES, names=names)
    add_token(file, name="all", scope=TokenScope.READ, expires=EXPIRES)
    team, whole = read_tokens(file)
    assert team.names.patterns == tuple(names)
    assert team.names.are_limited
    assert [team.names.has(name) for name in ("shop-app", "shop", "Shop-app", "[x]", "x")] == [
        *(True, False, False, True, False),
    ]
    assert not whole.names.are_limited
    assert whole.names.has("anything")


@pytest.mark.parametrize("names", ["[]", '"shop"', "[1]", '[""]', '["a\\nb"]', f'["{"x" * 256}"]'])
def test_names_that_are_not_a_list_of_patterns_are_refused(tmp_path: Path, names: str) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, name="team", scope=TokenScope.READ, expires=EXPIRES)
    file.write_text(file.read_text() + f"names = {names}\n")
    with pytest.raises(UsageError, match=r"tokens\.team\.names must be a list"):
        read_tokens(file)
