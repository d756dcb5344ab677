"""Owns the replay processes of the web server: starts them, passes commands on, and stops them when it ends.

A process has the rights of its operator. It is stopped by closing its pipe, which the kernel does too when the web
server is killed: it ends after the running transaction, and its plan can be replayed further.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, get_args

import structlog

from headgate.base.clock import Clock
from headgate.facts.decisions import ReplayState
from headgate.web.operations import OperationError
from headgate.web.replay_runs.job import (
    MAX_LINE,
    RESULT_FIELDS,
    SERVER_ENDED,
    ReplayCommand,
    ReplayJob,
    ReplayKind,
)

log = structlog.get_logger()

MOST_RUNNING: Final = 4
_MOST_KEPT: Final = 100
_MOST_NOTES: Final = 20
_SHOWN_LINE: Final = 200
_STATES: Final[tuple[str, ...]] = get_args(ReplayState)
_END_S: Final = 10.0
# -P: no code is imported from the folder in which the server was started.
COMMAND: Final = (sys.executable, "-P", "-m", "headgate.web.replay_runs.child")
# Nothing that a library takes a password or code from; the rest of the environment has secrets of others.
_ENVIRONMENT: Final = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "PYTHONPATH"),
    # The role by which the server reads tables on an object store, where it has one.
    *("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
)


@dataclass(slots=True, kw_only=True)
class ReplayRun:
    """One process, and what it reported last; `state` is STARTING before it did."""

    plan: str
    group: str
    kind: ReplayKind
    rate: float | None
    timestamps: str
    by: str
    caller: str  # who started it
    at: int  # of the last report
    state: str = "STARTING"
    written: int = 0
    parked: int = 0
    skipped: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    stopped_by: str | None = None
    error: str | None = None
    notes: list[str] = field(default_factory=list)
    is_running: bool = True


class ReplaySupervisor:
    """Used on the event loop. The last runs are kept in memory; the trail of a replay is in Kafka."""

    def __init__(
        self,
        clock: Clock,
        command: Sequence[str] = COMMAND,
        *,
        most_running: int = MOST_RUNNING,
        most_kept: int = _MOST_KEPT,
        end_s: float = _END_S,
    ) -> None:
        self._most_running = most_running
        self._most_kept = most_kept
        self._end_s = end_s
        self._clock = clock
        self._command = tuple(command)
        self.changes = 0
        self._runs: OrderedDict[tuple[str, bool], ReplayRun] = OrderedDict()  # by plan, and whether it is a dry run
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False

    @property
    def running(self) -> int:
        return len(self._tasks)

    def runs(self) -> list[ReplayRun]:
        """The last run of each plan, without dry runs."""
        return [run for (_, is_dry), run in self._runs.items() if not is_dry]

    def run_of(self, plan: str, *, dry: bool = False) -> ReplayRun | None:
        return self._runs.get((plan, dry))

    def start(self, job: ReplayJob, group: str, caller: str) -> ReplayRun:
        """Start a process for the plan; `OperationError` when there is one, or too many."""
        if self._is_closing:
            raise OperationError(HTTPStatus.SERVICE_UNAVAILABLE, "The server is ending: try again in a moment")
        if job.plan in self._tasks:
            raise OperationError(HTTPStatus.CONFLICT, f"Plan {job.plan} is being replayed by this server already")
        if len(self._tasks) >= self._most_running:
            text = f"{self._most_running} replays run here already: wait for one of them, or stop it"
            raise OperationError(HTTPStatus.SERVICE_UNAVAILABLE, text)
        run = ReplayRun(
            plan=job.plan,
            group=group,
            kind=job.kind,
            rate=job.rate,
            timestamps=job.timestamps,
            by=job.by,
            caller=caller,
            at=self._clock.epoch_ms(),
        )
        key = (job.plan, job.kind is ReplayKind.DRY_RUN)
        self._runs.pop(key, None)
        self._runs[key] = run
        ended = [one for one, kept in self._runs.items() if not kept.is_running]
        for oldest in ended[: max(0, len(self._runs) - self._most_kept)]:
            del self._runs[oldest]
        self._tasks[job.plan] = asyncio.create_task(self._supervise(job, run))
        self.changes += 1
        return run

    async def command(self, plan: str, command: ReplayCommand, why: str = "") -> ReplayRun:
        """Pass a command on; `OperationError` when no process of this server replays the plan."""
        process = self._processes.get(plan)
        run = self.running_run(plan)
        if process is None or process.stdin is None or run is None:
            text = (
                f"Plan {plan} is not replayed by this server. A replay that a command runs takes signals: "
                "kill -USR1 PID pauses it, -USR2 lets it go on, -TERM stops it"
            )
            raise OperationError(HTTPStatus.CONFLICT, text)
        line = f"{command.value} {why}".strip().replace("\n", " ")
        await _write(process.stdin, line.encode() + b"\n")
        return run

    def is_running(self, plan: str) -> bool:
        return plan in self._tasks

    def running_run(self, plan: str) -> ReplayRun | None:
        return next((one for one in reversed(self._runs.values()) if one.plan == plan and one.is_running), None)

    async def end(self, plan: str, why: str) -> None:
        """Stop the process of the plan, which is to be aborted: one that does not end within some seconds is killed.

        What its open transaction has is not committed, and an abort fences it.
        """
        task = self._tasks.get(plan)
        if task is None:
            return
        with contextlib.suppress(OperationError):
            await self.command(plan, ReplayCommand.STOP, why)
        _, late = await asyncio.wait([task], timeout=self._end_s)
        process = self._processes.get(plan)
        if late and process is not None:
            log.warning("replay killed", plan=plan)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.wait(late, timeout=self._end_s)

    async def close(self) -> None:
        """Stop all replays after their running transaction, and wait some seconds for that."""
        self._is_closing = True
        for plan in list(self._processes):
            with contextlib.suppress(OperationError):
                await self.command(plan, ReplayCommand.STOP, SERVER_ENDED)
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks.values(), timeout=self._end_s)
        for task in late:  # the end of its pipe stops the process too
            task.cancel()
        if late:
            await asyncio.wait(late)
            log.warning("replays have not stopped in time", replays=len(late))

    async def _supervise(self, job: ReplayJob, run: ReplayRun) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=_environment(os.environ),
                start_new_session=True,  # Ctrl-C at the terminal is for the web server
                limit=MAX_LINE,
            )
            self._processes[job.plan] = process
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                await _write(process.stdin, job.encode())
                is_over = False
                while line := await process.stdout.readline():
                    is_over = take_report(run, line) or is_over
                    self._on_change(run)
                code = await process.wait()
                if not is_over:
                    run.state, run.error = "FAILED", f"the process of the replay ended with code {code}: see the log"
            finally:
                process.stdin.close()
        except (OSError, ValueError) as failure:  # no process could be started, or a line is too long
            run.state, run.error = "FAILED", f"the process of the replay failed: {failure}"
        finally:
            run.is_running = False
            self._on_change(run)
            self._processes.pop(job.plan, None)
            self._tasks.pop(job.plan, None)
            log.info("replay ended", plan=run.plan, kind=run.kind.value, state=run.state, by=run.by, error=run.error)

    def _on_change(self, run: ReplayRun) -> None:
        run.at = self._clock.epoch_ms()
        self.changes += 1


async def _write(pipe: asyncio.StreamWriter, content: bytes) -> None:
    """Nothing is written, and nothing raised, when the process has just ended: its reports say so."""
    if pipe.is_closing():  # the event loop raises a RuntimeError for a write to a pipe that is closed
        return
    with contextlib.suppress(ConnectionError):
        pipe.write(content)
        await pipe.drain()


def take_report(run: ReplayRun, line: bytes) -> bool:
    """Take in one report; whether it is the last one. A line that is no report, as of a library, changes nothing."""
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        report = None
    match report:
        case {"event": "note", "text": str(text)}:
            run.notes = [*run.notes, text][-_MOST_NOTES:]
            return False
        case {"event": "failed", "error": str(error)}:
            run.state, run.error = "FAILED", error
            return True
        case {"event": "progress" | "ended" as event, **fields} if _is_result(fields):
            for name in RESULT_FIELDS:
                setattr(run, name, fields[name])
            if event == "ended" and run.kind is ReplayKind.DRY_RUN:
                run.state = "DONE" if run.stopped_by is None else "PAUSED"
            elif run.kind is ReplayKind.DRY_RUN:
                run.state = "RUNNING"
            return bool(event == "ended")
        case _:
            log.warning("replay process printed an unknown line", plan=run.plan, line=repr(line[:_SHOWN_LINE]))
            return False


def _is_result(fields: Mapping[Any, Any]) -> bool:
    """Whether these are the fields of a result, each with its type."""
    reasons, stopped_by = fields.get("reasons"), fields.get("stopped_by")
    return (
        fields.get("state") in _STATES
        and all(type(fields.get(name)) is int for name in ("written", "parked", "skipped"))
        and isinstance(reasons, dict)
        and all(type(number) is int for number in reasons.values())
        and (stopped_by is None or isinstance(stopped_by, str))
        and fields.keys() >= set(RESULT_FIELDS)
    )


def _environment(of_server: Mapping[str, str]) -> dict[str, str]:
    return {name: of_server[name] for name in _ENVIRONMENT if name in of_server}
