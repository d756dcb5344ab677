"""Whatever a name holds, an event is one line without control characters."""

import io
import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli import logs

HOSTILE = [
    "line\nbreak",
    "\x1b[31mred\x1b[0m",
    "nul\x00",
    "next\x85line",
    "separator\u2028paragraph\u2029",
    "right to left \u202e",
    "zero width \u200b",
    "lone \udcff surrogate",
    'quote" level=error event="forged',
]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What the process writes to standard error."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure()
    yield stream
    structlog.reset_defaults()


@pytest.mark.parametrize("name", HOSTILE)
def test_an_event_is_one_line_whatever_a_client_is_called(name: str, written: io.StringIO) -> None:
    structlog.get_logger().info("connection ended", peer=name, detail=name)
    text = written.getvalue()
    assert text.endswith("\n")
    line = text[:-1]
    assert line.isprintable()
    assert line.count("event=") == 1 + 2 * name.count("event=")
    assert " level=info " in line


def test_a_traceback_is_part_of_its_line(written: io.StringIO) -> None:
    try:
        int("bad\nnumber")
    except ValueError as failure:
        structlog.get_logger().error("it failed", exc_info=failure)
    [line, end] = written.getvalue().split("\n")
    assert line.isprintable()
    assert "Traceback" in line
    assert "ValueError: invalid literal" in line
    assert not end


def test_timestamp_level_and_event_come_first(written: io.StringIO) -> None:
    structlog.get_logger().warning("port opened", node=7)
    assert [part.partition("=")[0] for part in written.getvalue().split()][:3] == ["timestamp", "level", "event"]
    assert written.getvalue().endswith(' event="port opened" node=7\n')


def test_debug_is_not_written_unless_it_was_asked_for(written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    structlog.get_logger().debug("for each record")
    assert written.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", written)
    logs.configure("debug")
    structlog.get_logger().debug("for each record")
    assert written.getvalue()


@given(st.text())
def test_what_is_printable_stays_and_the_rest_is_escaped(text: str) -> None:
    escaped = logs.escaped(text)
    assert escaped.isprintable()
    if text.isprintable():
        assert escaped == text
