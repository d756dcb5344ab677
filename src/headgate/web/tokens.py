"""Bearer tokens: a TOML file with their hashes, scopes and times of expiry.

    [tokens.alice]
    sha256 = "9f86d0..."
    scopes = ["operate"]
    expires = 2027-02-13T00:00:00Z

The file contains only the SHA-256 of a token; a token is 32 random bytes, so a fast hash is enough. It is compared with
every entry in constant time. The scope `operate` includes `read`. With `names = ["shop-*"]` a token is limited to the
topics, applications and groups that one of the patterns matches (`visible_names.py`). With a table `kafka` it acts as a
user of the cluster (`operations.py`):

    [tokens.alice.kafka]
    user = "alice"
    mechanism = "SCRAM-SHA-512"
    password_file = "/etc/headgate/alice.password"

The file is read for each request
that needs a token, so that removing an entry has effect immediately.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from headgate.base.errors import UsageError
from headgate.web.visible_names import ALL_NAMES, VisibleNames

_MAX_FILE_BYTES = 1024 * 1024
_MAX_TOKEN = 200
_PREFIX = "headgate_"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASH = re.compile(r"[0-9a-f]{64}")
_MOST_PATTERNS, _LONGEST_PATTERN = 100, 255
_LONGEST_USER = 255


MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLogin:
    """The user of the cluster that a token acts as; the password is read when it is needed."""

    user: str
    mechanism: str
    password_file: Path


class TokenScope(StrEnum):
    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One entry of the file."""

    name: str
    sha256: str
    scopes: frozenset[TokenScope]
    expires_ms: int
    names: VisibleNames = ALL_NAMES
    kafka: KafkaLogin | None = None

    def may(self, scope: TokenScope) -> bool:
        return scope in self.scopes or (scope is TokenScope.READ and TokenScope.OPERATE in self.scopes)


def read_tokens(file: Path) -> tuple[Token, ...]:
    """All entries; `UsageError` if the file is not valid as a whole."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as failure:
        raise UsageError(f"the tokens file cannot be read: {failure.strerror}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise UsageError(f"the tokens file has more than {_MAX_FILE_BYTES} bytes")
    try:
        document = tomllib.loads(content.decode())
    except ValueError:
        raise UsageError("the tokens file is not TOML") from None
    tables = document.pop("tokens", {})
    if document or not isinstance(tables, dict):
        raise UsageError("the tokens file must hold tables [tokens.NAME] and nothing else")
    return tuple(_token(name, table) for name, table in tables.items())


def _token(name: str, table: Any) -> Token:
    where = f"tokens.{name if _NAME.fullmatch(name) else '?'}"
    keys = set(table) if isinstance(table, dict) else set()
    if keys - {"names", "kafka"} != {"sha256", "scopes", "expires"} or where == "tokens.?":
        raise UsageError(
            f"{where} must have a name of letters, digits, _ and -, and the keys sha256, scopes and expires; "
            "names and kafka are the only other keys"
        )
    digest, scopes, expires = table["sha256"], table["scopes"], table["expires"]
    if not isinstance(digest, str) or not _HASH.fullmatch(digest):
        raise UsageError(f"{where}.sha256 must be 64 hexadecimal digits in lower case")
    if not isinstance(scopes, list) or not scopes or not all(scope in tuple(TokenScope) for scope in scopes):
        raise UsageError(f"{where}.scopes must be a list of {', '.join(TokenScope)}")
    if not isinstance(expires, datetime) or expires.tzinfo is None:
        raise UsageError(f"{where}.expires must be a time with a time zone, such as 2027-02-13T00:00:00Z")
    return Token(
        name=name,
        sha256=digest,
        scopes=frozenset(map(TokenScope, scopes)),
        expires_ms=int(expires.timestamp() * 1000),
        names=VisibleNames(_patterns(table["names"], where)) if "names" in table else ALL_NAMES,
        kafka=_login(table["kafka"], f"{where}.kafka") if "kafka" in table else None,
    )


def _login(table: Any, where: str) -> KafkaLogin:
    keys = {"user", "mechanism", "password_file"}
    if not isinstance(table, dict) or set(table) != keys or not all(isinstance(one, str) for one in table.values()):
        raise UsageError(f"{where} must be a table with the texts user, mechanism and password_file")
    if not table["user"] or len(table["user"]) > _LONGEST_USER or not table["user"].isprintable():
        raise UsageError(f"{where}.user must have 1 to {_LONGEST_USER} printable characters")
    if table["mechanism"] not in MECHANISMS:
        raise UsageError(f"{where}.mechanism must be one of {', '.join(MECHANISMS)}")
    return KafkaLogin(user=table["user"], mechanism=table["mechanism"], password_file=Path(table["password_file"]))


def _patterns(names: Any, where: str) -> tuple[str, ...]:
    """An empty list would be a token that sees nothing, which is rather an error of the one who wrote it."""
    if (
        not isinstance(names, list)
        or not 1 <= len(names) <= _MOST_PATTERNS
        or not all(isinstance(one, str) and 1 <= len(one) <= _LONGEST_PATTERN and one.isprintable() for one in names)
    ):
        raise UsageError(
            f"{where}.names must be a list of 1 to {_MOST_PATTERNS} patterns such as shop-*, of at most "
            f"{_LONGEST_PATTERN} characters"
        )
    return tuple(names)


def find_token(tokens: Iterable[Token], given: str, *, now_ms: int) -> Token | None:
    """The entry of this token, unless it has expired, in a time that does not depend on the result."""
    digest = hashlib.sha256(given[:_MAX_TOKEN].encode(errors="replace")).hexdigest()
    found = None
    for token in tokens:
        if hmac.compare_digest(token.sha256, digest) and now_ms < token.expires_ms:
            found = token
    return found


def add_token(file: Path, *, name: str, scope: TokenScope, expires: datetime, names: Sequence[str] = ()) -> str:
    """Append an entry to the file, which is created with mode 0600, and return the new token."""
    if not _NAME.fullmatch(name):
        raise UsageError("the name of a token must have 1 to 64 letters, digits, _ and -")
    limit = f"names = {json.dumps(_patterns(list(names), 'the token'))}\n" if names else ""
    known = read_tokens(file) if file.exists() else ()
    if any(token.name == name for token in known):
        raise UsageError(f"token {name} exists already: remove its table from {file}, or choose another name")
    given = _PREFIX + secrets.token_urlsafe(32)
    digest = hashlib.sha256(given.encode()).hexdigest()
    entry = (
        f'\n[tokens.{name}]\nsha256 = "{digest}"\nscopes = ["{scope}"]\n'
        f"expires = {expires.astimezone(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}\n{limit}"
    )
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as opened:
            opened.write(entry)
    except OSError as failure:
        raise UsageError(f"{file} cannot be written: {failure.strerror}") from None
    return given
