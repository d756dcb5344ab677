"""Checks the files that a configuration names, and reads secrets.

A secret goes into a `Secret` and nowhere else; no error shows it, nor the path of a secret file, because a password
in place of the path is a common mistake.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from headgate.base.errors import UsageError
from headgate.config.model import Config
from headgate.config.problems import Violation

MAX_SECRET_BYTES = 4096
_OPEN_TO_OTHERS = stat.S_IWGRP | stat.S_IRWXO


class Secret:
    """A text that neither `str` nor `repr` shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret('**********')"


def violations(config: Config) -> Iterator[Violation]:
    """Violations for named files that this process cannot read."""
    plain = {
        "gateway.tls_cert": config.gateway.tls_cert,
        "gateway.tls_key": config.gateway.tls_key,
        "gateway.tls_client_ca": config.gateway.tls_client_ca,
        "upstream.tls_ca": config.upstream.tls_ca,
        "web.tls_cert": config.web.tls_cert,
        "web.tls_key": config.web.tls_key,
        "web.tokens_file": config.web.tokens_file,
        "web.gateway_tls_ca": config.web.gateway_tls_ca,
    }
    for key, path in plain.items():
        if path is not None and (trouble := _unreadable(path)) is not None:
            yield Violation((key,), trouble)
    if config.upstream.service_password_file is not None:
        try:
            read_secret(config.upstream.service_password_file)
        except UsageError as error:
            yield Violation(("upstream.service_password_file",), str(error))


def exposure(path: Path) -> str | None:
    """A warning for a secret file that is open to other users; None for one that is not, or cannot be read."""
    with suppress(OSError):
        if (mode := stat.S_IMODE(path.stat().st_mode)) & _OPEN_TO_OTHERS:
            return f"other users can read or change the file (mode {mode:03o}): make it chmod 600, or 640"
    return None


def read_secret(path: Path) -> Secret:
    """The only line of a secret file; `UsageError` when there is none."""
    if (trouble := _unreadable(path)) is not None:
        raise UsageError(trouble)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        text = content.decode()
    except OSError:
        raise UsageError("the file cannot be read: grant this user read permission") from None
    except UnicodeDecodeError:
        raise UsageError("the file is not UTF-8 text: write the secret alone on its first line") from None
    if len(content) > MAX_SECRET_BYTES:
        raise UsageError(f"the file has more than {MAX_SECRET_BYTES} bytes: write the secret alone on its first line")
    secret, _, rest = text.partition("\n")
    if rest.strip():
        raise UsageError("the file has more than one line: write the secret alone on its first line")
    if not secret.rstrip("\r"):
        raise UsageError("the file's first line is empty: write the secret there")
    return Secret(secret.rstrip("\r"))


def _unreadable(path: Path) -> str | None:
    try:
        if not path.exists():
            return "no such file: create it, or correct the path (relative paths start in the working directory)"
        if path.is_dir():
            return "is a folder: name the file itself"
        if not os.access(path, os.R_OK):
            return "the file cannot be read: grant this user read permission"
    except (OSError, ValueError):
        return "the path is not valid: correct it"
    return None
