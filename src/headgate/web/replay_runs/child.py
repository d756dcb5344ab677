"""The process of one replay that was started on the page: `python -m headgate.web.replay_runs.child`.

It is given its job and its commands on standard input, and reports on standard output. It stops between two
transactions, so a replay that ends for any reason goes on where it was: with the end of the web server, which closes
the pipe, with SIGTERM, or with the command `stop`.
"""

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO, RawIOBase
from typing import Any, Final, assert_never

import structlog

from headgate.base.clock import SystemClock
from headgate.base.errors import HeadgateError
from headgate.dead_letters.model.plans import ReplayPlan
from headgate.dead_letters.plan_store import load_plan, plan_records
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replay_run import BreakerWatch, audited, checked_replayer
from headgate.dead_letters.replayer import ReplayOptions, ReplayResult
from headgate.share_groups.admin import WatchedBreaker
from headgate.tables.reader import TableReader
from headgate.web.replay_runs.job import (
    MAX_LINE,
    RESULT_FIELDS,
    SERVER_ENDED,
    ReplayCommand,
    ReplayJob,
    ReplayKind,
    client_settings_of,
)

_EVERY_S: Final = 0.2
_LONGEST_TEXT: Final = 8 * 1024


class ProgressPipe:
    """Writes reports; a web server that has gone does not end the replay, which is about to stop."""

    def __init__(self, pipe: RawIOBase) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._reported_at, self._reported_state = 0.0, ""

    def progress(self, result: ReplayResult) -> None:
        """Report now and then, and each change of the state."""
        now = time.monotonic()
        if self._reported_state != result.state or now - self._reported_at >= _EVERY_S:
            self._reported_at, self._reported_state = now, result.state
            self.report("progress", result)

    def note(self, text: str) -> None:
        self.report("note", text=text[:_LONGEST_TEXT])

    def report(self, event: str, result: ReplayResult | None = None, **more: Any) -> None:
        document: dict[str, Any] = {"event": event, **more}
        if result is not None:
            document |= {name: getattr(result, name) for name in RESULT_FIELDS}
        with self._lock, suppress(OSError):
            self._pipe.write(json.dumps(document).encode() + b"\n")


def main() -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would have the operator's password
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    control = ReplayControl()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the web server, which stops its replays
    signal.signal(signal.SIGTERM, lambda *_: control.stop("terminated"))
    pipe = ProgressPipe(FileIO(sys.stdout.fileno(), "wb", closefd=False))
    # Not buffered: the end of the process does not wait for a thread that reads from it.
    commands = FileIO(sys.stdin.fileno(), closefd=False)
    line = commands.readline(MAX_LINE)
    if not line.endswith(b"\n"):  # the web server ended meanwhile
        return 1
    threading.Thread(target=_obey, args=(commands, control), name="headgate-commands", daemon=True).start()
    try:
        result = run_job(ReplayJob.decode(line), control, pipe)
    except HeadgateError as failure:
        pipe.report("failed", error=str(failure)[:_LONGEST_TEXT])
        return 1
    pipe.report("ended", result)
    return 0


def _obey(commands: RawIOBase, control: ReplayControl) -> None:
    """Take commands until the pipe ends."""
    while line := commands.readline(MAX_LINE):
        word, _, why = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
        if word == ReplayCommand.PAUSE:
            control.pause()
        elif word == ReplayCommand.RESUME:
            control.resume()
        elif word == ReplayCommand.STOP:
            control.stop(why)
    control.stop(SERVER_ENDED)


def run_job(job: ReplayJob, control: ReplayControl, pipe: ProgressPipe) -> ReplayResult:
    """Do the job; a `HeadgateError` when it cannot be done or failed."""
    settings = client_settings_of(job.gateway, job.credentials)
    reader = TableReader(job.tables)
    try:
        plan = load_plan(reader, job.plan)
        replayer = checked_replayer(
            plan,
            job.rules,
            settings,
            clock=SystemClock(),
            options=ReplayOptions(by=job.by, rate=job.rate, timestamps=job.timestamps),
            control=control,
            on_progress=pipe.progress,
        )
        records = plan_records(reader, plan)
        match job.kind:
            case ReplayKind.DRY_RUN:
                return replayer.check(records)
            case ReplayKind.ABORT:
                with audited(job.tables, settings, plan, pipe.note):
                    return replayer.abort()
            case ReplayKind.REPLAY:
                with _watching(job, plan, control, pipe), audited(job.tables, settings, plan, pipe.note):
                    return replayer.run(records)
            case _:
                assert_never(job.kind)
    finally:
        reader.close()


@contextmanager
def _watching(job: ReplayJob, plan: ReplayPlan, control: ReplayControl, pipe: ProgressPipe) -> Iterator[None]:
    breaker = WatchedBreaker(job.gateway.dialler(job.credentials), plan.group)
    watch = BreakerWatch(plan.group, control, breaker, pipe.note)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


if __name__ == "__main__":
    exit_code = main()
    sys.stderr.flush()
    os._exit(exit_code)  # everything is committed: threads and libraries are not waited for
