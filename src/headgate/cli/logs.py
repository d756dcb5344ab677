"""Structured logs on standard error: one line for each event, a constant text and then key=value.

Every value is escaped, because clients choose names: a log line never contains a line break or a control character.
Logging never blocks (`log_writer.py`): also messages of libraries, asyncio's among them, go that way.
"""

import atexit
import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any

# structlog loads rich and greenlet where they are installed: 7 MB of each worker, for tracebacks in colour and nothing.
_hidden = [name for name in ("rich", "greenlet") if name not in sys.modules]
sys.modules.update(dict.fromkeys(_hidden))  # type: ignore[arg-type]
import structlog  # noqa: E402

for _name in _hidden:
    del sys.modules[_name]

from headgate.cli.escaping import escaped  # noqa: E402
from headgate.cli.log_writer import LogBudget, LogCause, LogWriter  # noqa: E402

get_logger = structlog.get_logger
log = get_logger()

_SUPPRESSED = "log lines suppressed"
_DROPPED = "log lines dropped"
_CLOSING_S = 1.0
_ORDER = ("timestamp", "level", "event")
_LONGEST = 1000  # clients choose names of 32 KiB


class _Output:
    """The writer of the process; at most one is open."""

    writer: LogWriter | None = None


def configure(level: str = "info", *, now: Callable[[], float] = time.monotonic) -> None:
    """Configure structlog for the whole process."""
    close()
    writer = _Output.writer = LogWriter(
        sys.stderr, LogBudget(now), on_suppressed=_log_suppressed, on_dropped=_log_dropped
    )
    structlog.configure(
        processors=[
            _suppress,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _escape,
            structlog.processors.LogfmtRenderer(key_order=_ORDER, drop_missing=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: _QueuedLogger(writer),
        cache_logger_on_first_use=True,
    )
    logging.getLogger().addHandler(_LIBRARIES)


def flush(timeout_s: float = _CLOSING_S) -> bool:
    """Wait until all lines are written; False if they are not in this time."""
    return _Output.writer is None or _Output.writer.flush(timeout_s)


def close() -> None:
    """Write what waits, for a second at most, and stop writing."""
    logging.getLogger().removeHandler(_LIBRARIES)
    writer, _Output.writer = _Output.writer, None
    if writer is not None:
        writer.close(_CLOSING_S)


atexit.register(close)


class _QueuedLogger:
    """What structlog calls with the text of a line, by the name of its level."""

    def __init__(self, writer: LogWriter) -> None:
        self.msg = writer.write
        self.debug = self.info = self.warning = self.error = self.critical = self.exception = writer.write


class _LibraryHandler(logging.Handler):
    """Without a handler, Python would write the warnings of libraries to standard error, and wait for it."""

    def emit(self, record: logging.LogRecord) -> None:
        log.log(
            record.levelno,
            "message of a library",
            library=record.name,
            message=record.getMessage(),
            exc_info=record.exc_info or None,
        )


_LIBRARIES = _LibraryHandler(logging.WARNING)


def _log_suppressed(of: LogCause, count: int) -> None:
    log.warning("log lines suppressed", of=of.event, cause=of.cause, count=count)


def _log_dropped(count: int) -> None:
    log.warning("log lines dropped", count=count)


def _suppress(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop lines of one event and cause above the budget; they are counted."""
    text = str(event.get("event", ""))
    writer = _Output.writer
    if writer is None or text in (_SUPPRESSED, _DROPPED):
        return event
    if not writer.allows(LogCause(text[:_LONGEST], str(event.get("cause", ""))[:_LONGEST])):
        raise structlog.DropEvent
    return event


def _escape(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        text = str(value)
        if len(text) > _LONGEST and key != "exception":
            text = f"{text[:_LONGEST]}... ({len(text)} characters)"
        event[key] = escaped(text)
    return event
