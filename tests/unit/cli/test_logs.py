"""Whatever a name holds, an event is one line without control characters."""

import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from threading import Thread
from time import sleep

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli import escaping, logs
from headgate.cli.log_writer import LogBudget, LogCause

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


class StderrDouble(io.StringIO):
    """What was logged: reading it waits for the thread that writes."""

    def getvalue(self) -> str:
        assert logs.flush(30)
        return super().getvalue()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What the process writes to standard error."""
    stream = StderrDouble()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure()
    yield stream
    logs.close()
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
    escaped = escaping.escaped(text)
    assert escaped.isprintable()
    if text.isprintable():
        assert escaped == text


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard error is a pipe that is not read; its other end."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        logs.configure()
        yield reader
        logs.close()
        structlog.reset_defaults()
    os.close(reader)


def read_until(reader: int, event: str) -> list[str]:
    """The lines up to one with this event."""
    lines = [""]
    while event not in lines[-1] and (len(lines) < 2 or event not in lines[-2]):
        *whole, rest = os.read(reader, 1 << 20).decode().split("\n")
        lines[-1:] = [lines[-1] + whole[0], *whole[1:], rest] if whole else [lines[-1] + rest]
    return lines


def test_logging_does_not_wait_for_a_reader_that_stands_still(stuck: int) -> None:
    def work() -> None:
        for number in range(30_000):
            structlog.get_logger().info(f"event {number // 50}", filler="x" * 50)
        logging.getLogger("asyncio").warning("Executing took %d seconds", 5)

    working = Thread(target=work, daemon=True)
    working.start()
    working.join(60)
    is_stuck = working.is_alive()
    lines = read_until(stuck, "log lines dropped")
    assert not is_stuck
    assert 'event="event 0"' in lines[0]
    [dropped] = re.findall(r'event="log lines dropped" count=(\d+)', "\n".join(lines[-2:]))
    assert 18_000 < int(dropped) < 20_002


def test_lines_of_one_cause_do_not_hide_those_of_another_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    stream = StderrDouble()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure(now=lambda: now[0])
    log = structlog.get_logger()
    for number in range(250):
        log.info("connection ended", cause="bad_request", peer=number)
    log.info("connection ended", cause="idle")
    log.info("drained")
    lines = stream.getvalue().splitlines()
    assert sum("cause=bad_request" in line for line in lines) == 100
    assert "cause=idle" in lines[-2]
    assert "drained" in lines[-1]
    now[0] = 10.0
    while "suppressed" not in stream.getvalue():  # though nothing else is logged
        sleep(0.01)
    assert (
        stream.getvalue()
        .splitlines()[-1]
        .endswith('level=warning event="log lines suppressed" of="connection ended" cause=bad_request count=150')
    )
    log.info("connection ended", cause="bad_request", peer="later")
    assert "peer=later" in stream.getvalue()
    logs.close()
    structlog.reset_defaults()


def test_causes_that_clients_make_up_are_bounded() -> None:
    budget = LogBudget(lambda: 0.0)
    allowed = sum(budget.allows(LogCause("event", str(number))) for number in range(5_000))
    assert allowed == 1_000 + 100


def test_the_message_of_a_library_is_one_of_the_log(written: io.StringIO) -> None:
    logging.getLogger("asyncio").warning("socket.send() raised\nexception.")
    logging.getLogger("asyncio").info("not worth a line")
    [line] = written.getvalue().splitlines()
    assert 'level=warning event="message of a library" library=asyncio' in line
    assert "socket.send() raised" in line


def test_all_lines_are_written_when_the_process_ends() -> None:
    code = (
        "import structlog; from headgate.cli import logs; logs.configure(); log = structlog.get_logger()\n"
        "for number in range(90): log.info('one of many', number=number)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert len(done.stderr.splitlines()) == 90
