"""Structured logs on standard error: one line for each event, a constant text and then key=value.

Every value is escaped, because clients choose names: a log line never contains a line break or a control character.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

_ORDER = ("timestamp", "level", "event")
_LONGEST = 1000  # clients choose names of 32 KiB


def configure(level: str = "info") -> None:
    """Configure structlog for the whole process."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _escape,
            structlog.processors.LogfmtRenderer(key_order=_ORDER, drop_missing=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def _escape(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        text = str(value)
        if len(text) > _LONGEST and key != "exception":
            text = f"{text[:_LONGEST]}... ({len(text)} characters)"
        event[key] = escaped(text)
    return event


def escaped(text: str) -> str:
    """The text with all characters that are not printable escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
