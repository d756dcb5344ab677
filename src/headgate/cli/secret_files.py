"""Warns of secret files that other users of the machine can read, for commands that run for long."""

from pathlib import Path

import structlog

from headgate.config import Config, exposed_files

log = structlog.get_logger()


def warn_of_open_files(config: Config, file: Path | None) -> None:
    """Log a warning for each; `file` is the configuration itself, which may hold credentials."""
    for warning in exposed_files.warnings(config, file):
        log.warning("secret file open to other users", key=warning.paths[0], problem=warning.text)
