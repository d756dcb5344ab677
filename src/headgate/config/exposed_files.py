"""Warns of the secret files of a configuration that other users of the machine can read or change.

No violations: a container's secrets are often mounted with mode 644, into a machine without other users.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from headgate.config.files import exposure
from headgate.config.model import Config
from headgate.config.problems import Violation
from headgate.config.storage import CREDENTIALS


def warnings(config: Config, file: Path | None) -> Iterator[Violation]:
    """A warning for each; `file` is the configuration itself, which may have the credentials of an object store."""
    secrets = {
        "gateway.tls_key": config.gateway.tls_key,
        "upstream.service_password_file": config.upstream.service_password_file,
        "web.tls_key": config.web.tls_key,
        "web.tokens_file": config.web.tokens_file,
        "pipeline.openlineage": config.pipeline.openlineage,  # may have an API key
        "tables.storage": file if file is not None and _has_credentials(file) else None,
    }
    for key, path in secrets.items():
        if path is not None and (trouble := exposure(path)) is not None:
            yield Violation((key,), trouble)


def _has_credentials(file: Path) -> bool:
    """Whether the file itself has credentials: those of the environment are not in it."""
    try:
        with file.open("rb") as opened:
            storage = tomllib.load(opened).get("tables", {}).get("storage", {})
    except (OSError, ValueError):  # changed since it was loaded
        return False
    return any(name in storage for name in CREDENTIALS)
