"""The supervisor: holds the ports, starts the workers, starts a dead one again, and adds up what they count.

It carries no client bytes. Each worker is a process of its own that inherits the listening sockets and a piece of
shared memory for the connection limits, and reports over a socket pair its counters and its problems. Workers are
replaced one after the other: the new one serves before the old one drains, so that no client is refused, and one that
cannot serve does not replace the old one.
"""

import asyncio
import os
import pickle
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from mmap import mmap

import structlog

from headgate.base.ids import NodeId
from headgate.base.tasks import TaskSet
from headgate.config.model import Config
from headgate.proxy.endpoints import PeerSockets
from headgate.proxy.features import MetricFamily
from headgate.proxy.listeners import ConnectionLimits, Inheritance, belongs, bind_all, new_key, table_bytes
from headgate.proxy.metric_series import SeriesLimit
from headgate.proxy.metrics import MetricsPage, Snapshot
from headgate.proxy.status import StatusPages
from headgate.proxy.worker_reports import LARGEST_LINE, decode_report, read_reports

log = structlog.get_logger()

_FIRST_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 5.0
_CHECKS_OF_SILENCE = 30  # while a worker may be silent
KILL_AFTER_DRAIN_SECONDS = 5.0
# glibc gives threads arenas of their own, up to eight a core, and librdkafka has dozens of threads.
_WORKER_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}
_RESTARTS = ("headgate_worker_restarts", ())
_START_FAILURES = ("headgate_worker_start_failures", ())
_SKIPPED_REPORTS = ("headgate_worker_reports_skipped", ())

StartProcess = Callable[..., Awaitable[asyncio.subprocess.Process]]  # as `asyncio.create_subprocess_exec`


@dataclass(slots=True)
class Silence:
    """How long a worker has not reported, in seconds in which the supervisor itself ran.

    Time beyond `interval_s` between two checks is not counted: the supervisor was stopped or starved of CPU, and so,
    perhaps, were its workers.
    """

    interval_s: float
    seconds: float = 0.0

    def add(self, elapsed_s: float) -> None:
        self.seconds += min(elapsed_s, self.interval_s)


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One worker process and what it last reported."""

    index: int
    caps_row: int
    process: asyncio.subprocess.Process
    heard_at: float  # of its last report
    silence: Silence
    has_reported: bool = False
    samples: Snapshot = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)
    serves: asyncio.Event = field(default_factory=asyncio.Event)  # it has reported that nothing is wrong
    is_hung: bool = False  # it is being ended for its silence
    leaves: bool = False  # it was told to end: another has its place, or all end

    def hear(self, now: float) -> None:
        """It has reported, readable or not."""
        self.heard_at = now
        self.silence.seconds = 0.0
        self.has_reported = True

    def take(self, line: bytes) -> None:
        self.samples, self.problems, self.details = decode_report(line)
        if not self.problems:
            self.serves.set()


@dataclass(frozen=True, slots=True)
class _Place:
    """A place among the workers: `turn` asks for another worker there, `exchanged` says that this is over."""

    index: int
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    exchanged: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """The life of all workers; `run` ends when `stopped` is set and every worker has drained.

    A worker that has not reported for `silent_s` makes the gateway not ready; after `hung_s`, or `start_s` before its
    first report, it is ended and replaced. A replacement may take `ready_s` until it serves. A worker that has not
    ended `kill_s` after its time to drain is killed.
    """

    def __init__(
        self,
        config: Config,
        command: Sequence[str],
        families: Sequence[MetricFamily] = (),
        *,
        silent_s: float = 5.0,
        hung_s: float = 30.0,
        start_s: float = 120.0,
        ready_s: float = 30.0,
        kill_s: float = KILL_AFTER_DRAIN_SECONDS,
        start_process: StartProcess = asyncio.create_subprocess_exec,
    ) -> None:
        self._silent_s, self._ready_s, self._kill_s = silent_s, ready_s, kill_s
        self._hung_s, self._start_s = hung_s, start_s
        self._start_process = start_process
        self._page = MetricsPage(families)
        self._series = SeriesLimit(self._page.families)
        self._retired_series = SeriesLimit(self._page.families)
        self._config = config
        self._command = command  # starts a worker, which reads its `Inheritance` from standard input
        self._listeners: dict[NodeId | None, socket.socket] = {}
        self._caps_fd = -1
        self._caps_memory: mmap | None = None
        self._caps_key = new_key()
        self._free_rows = set(range(2 * config.gateway.workers))  # a worker and its replacement count apart
        self.workers: set[WorkerProcess] = set()
        self._retired: Snapshot = {_RESTARTS: 0, _START_FAILURES: 0, _SKIPPED_REPORTS: 0}
        self._start_problems: dict[int, str] = {}  # by place, while no worker can be started there
        self._tasks = TaskSet(lambda failure: log.error("task of the gateway failed", exc_info=failure))
        self._stopping = False
        self._loop = asyncio.get_running_loop()

    @property
    def free_rows(self) -> int:
        """Rows of the connection limits' table that no worker has."""
        return len(self._free_rows)

    def problems(self) -> Mapping[str, str]:
        """Why a client that comes now may not be served: workers that are missing, and what those say that serve.

        A worker that is being replaced, or starts beside the one that it will replace, is no problem.
        """
        if self._stopping:
            return {"gateway": "is draining"}
        problems: dict[str, str] = {}
        for index in range(self._config.gateway.workers):
            here = [worker for worker in self.workers if worker.index == index and not worker.leaves]
            serving = [worker for worker in here if worker.serves.is_set()]
            if not serving:
                problems[f"worker {index}"] = self._start_problems.get(index, "does not serve yet")
            for worker in serving or here:
                problems |= worker.problems
                if (silent := self._loop.time() - worker.heard_at) > self._silent_s:
                    problems[f"worker {index}"] = f"has not reported for {silent:.0f} s"
        return problems

    def details(self) -> Mapping[str, str]:
        """What the workers say that does not keep clients from being served, by worker."""
        return {
            f"worker {worker.index}: {what}": text
            for worker in sorted(self.workers, key=lambda one: (one.index, one.caps_row))
            if not worker.leaves
            for what, text in worker.details.items()
        }

    def snapshot(self) -> Snapshot:
        return self._series.bound(self._page.add([self._retired, *(worker.samples for worker in self.workers)]))

    def _metrics_page(self) -> bytes:
        return self._page.render(self.snapshot(), ready=not self.problems())

    async def run(self, stopped: asyncio.Event, replace: asyncio.Event) -> None:
        """Bind, start, watch; `replace` asks for new workers, `stopped` for the end."""
        # Certificates that no worker could use are refused before anything starts.
        PeerSockets(self._config, self._loop)
        async with AsyncExitStack() as stack:
            self._listeners = bind_all(self._config.gateway)
            stack.callback(self._let_go)
            self._share_memory()
            pages = StatusPages(self._metrics_page, self.problems, self.details)
            await stack.enter_async_context(pages.serving(self._config.metrics.listen))
            async with asyncio.TaskGroup() as group:
                places = [_Place(index) for index in range(self._config.gateway.workers)]
                tasks = [group.create_task(self._keep(place)) for place in places]
                tasks.append(group.create_task(_take_turns(replace, places)))
                tasks.append(group.create_task(self._watch_silence()))
                await stopped.wait()
                self._stopping = True
                for task in tasks:
                    task.cancel()
            await self._tasks.join()  # the last reports of workers that have ended

    # One place among the workers, and who holds it.

    async def _keep(self, place: _Place) -> None:
        """Keep a worker at a place, and exchange it when its turn comes."""
        pause = _FIRST_RETRY_SECONDS
        try:
            worker = await self._start_until_started(place.index)
            while True:
                if await _happens_first(place.turn.wait(), worker.process.wait()):
                    place.turn.clear()
                    worker = await self._exchange(worker, place)
                    continue
                log.error("worker ended, starting another", worker=place.index, exit_code=worker.process.returncode)
                self._retired[_RESTARTS] += 1
                # One that has served is back at once; one that cannot even start is not tried all the time.
                served = worker.serves.is_set()
                pause = _FIRST_RETRY_SECONDS if served else min(pause * 2, _LONGEST_RETRY_SECONDS)
                await asyncio.sleep(pause)
                worker = await self._start_until_started(place.index)
        finally:
            here = [self._end(worker) for worker in self.workers if worker.index == place.index]
            await asyncio.shield(asyncio.gather(*here))

    async def _exchange(self, old: WorkerProcess, place: _Place) -> WorkerProcess:
        """Start a worker beside the old one; the one that serves stays, the other one drains."""
        try:
            new = await self._start(old.index)
        except OSError as failure:
            problem = self._count_failed_start(failure)
            log.error(  # noqa: TRY400 - the problem says it all
                "replacement does not serve, the old worker stays", worker=old.index, problem=problem
            )
            place.exchanged.set()
            return old
        serves_or_ends = _happens_first(new.serves.wait(), new.process.wait())
        await _happens_first(serves_or_ends, asyncio.sleep(self._ready_s))
        staying, leaving = new, old
        # One that does not serve is no worse than an old one that does not either: the cluster may be away.
        if new.process.returncode is not None or not (new.serves.is_set() or old.problems):
            staying, leaving = old, new
            why = "; ".join(f"{what}: {text}" for what, text in new.problems.items())
            log.error("replacement does not serve, the old worker stays", worker=old.index, problem=why or "it ended")
        leaving.leaves = True
        self._tasks.spawn(self._end(leaving)).add_done_callback(lambda _: place.exchanged.set())
        return staying

    async def _start_until_started(self, index: int) -> WorkerProcess:
        """Start a worker; try again while the machine lacks memory, processes or file descriptors."""
        pause = _FIRST_RETRY_SECONDS
        while True:
            try:
                worker = await self._start(index)
            except OSError as failure:
                problem = self._count_failed_start(failure)
                if self._start_problems.get(index) != problem:
                    log.error(  # noqa: TRY400 - the problem says it all
                        "worker cannot be started, trying again", worker=index, problem=problem
                    )
                self._start_problems[index] = problem
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_RETRY_SECONDS)
            else:
                self._start_problems.pop(index, None)
                return worker

    def _count_failed_start(self, failure: OSError) -> str:
        self._retired[_START_FAILURES] += 1
        return f"cannot be started: {failure.strerror or failure}"

    async def _start(self, index: int) -> WorkerProcess:
        own, inherited = socket.socketpair()
        try:
            reader, writer = await asyncio.open_connection(sock=own, limit=LARGEST_LINE)
        except BaseException:
            own.close()
            inherited.close()
            raise
        # From here on nothing is awaited but the process itself: a worker that is there is listened to.
        row = self._free_rows.pop()
        listeners = {
            node: listener.fileno()
            for node, listener in self._listeners.items()
            if belongs(node, index, self._config.gateway.workers)
        }
        inheritance = Inheritance(
            config=self._config,
            worker=index,
            caps_row=row,
            listeners=listeners,
            caps=self._caps_fd,
            caps_key=self._caps_key,
            reports=inherited.fileno(),
        )
        try:
            process = await self._start_process(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                env={**_WORKER_ENVIRONMENT, **os.environ},
                pass_fds=(*listeners.values(), self._caps_fd, inherited.fileno()),
            )
        except BaseException:
            writer.close()
            self._free_rows.add(row)
            raise
        finally:
            inherited.close()
        worker = WorkerProcess(index, row, process, self._loop.time(), Silence(self._hung_s / _CHECKS_OF_SILENCE))
        self.workers.add(worker)
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(inheritance))
        process.stdin.close()
        self._tasks.spawn(self._listen_to(worker, reader, writer))
        return worker

    async def _listen_to(
        self, worker: WorkerProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Take a worker's reports until it ends."""
        has_skipped = False
        try:
            async for line in read_reports(reader):
                worker.hear(self._loop.time())
                if line is not None:
                    worker.take(line)
                    continue
                self._retired[_SKIPPED_REPORTS] += 1
                if not has_skipped:
                    has_skipped = True
                    log.warning("report of a worker is too large, skipped", worker=worker.index)
        except (OSError, ValueError) as failure:
            log.warning("report of a worker cannot be read", worker=worker.index, problem=str(failure))
        finally:
            writer.close()
            await worker.process.wait()
            self.workers.discard(worker)
            counted = self._page.add([self._retired, self._page.counters_of(worker.samples)])
            self._retired = self._page.counters_of(self._retired_series.bound(counted))
            ConnectionLimits(self._config.gateway, memory=self._memory(), row=worker.caps_row).forget_all()
            self._free_rows.add(worker.caps_row)

    async def _end(self, worker: WorkerProcess) -> None:
        """Let it drain, and end it by force when it does not."""
        if worker.process.returncode is None:
            worker.process.send_signal(signal.SIGTERM)
        patience = self._config.gateway.drain_ms / 1000 + self._kill_s
        if not await _happens_first(worker.process.wait(), asyncio.sleep(patience)):
            log.error("worker does not end, killing it", worker=worker.index)
            worker.process.kill()
            await worker.process.wait()

    async def _watch_silence(self) -> None:
        """End workers that hang: their event loop has not reported for a long time, though this one runs."""
        then = self._loop.time()
        while True:
            await asyncio.sleep(self._hung_s / _CHECKS_OF_SILENCE)
            now = self._loop.time()
            for worker in self.workers:
                worker.silence.add(now - then)
                limit = self._hung_s if worker.has_reported else self._start_s
                if worker.silence.seconds > limit and not worker.leaves and not worker.is_hung:
                    worker.is_hung = True
                    self._tasks.spawn(self._end_hung(worker))
            then = now

    async def _end_hung(self, worker: WorkerProcess) -> None:
        """End a worker by force, unless SIGTERM makes it report again: then it may drain. `_keep` starts another."""
        silent = self._loop.time() - worker.heard_at
        log.error("worker hangs, ending it", worker=worker.index, silent_s=round(silent))
        heard_at = worker.heard_at
        worker.process.send_signal(signal.SIGTERM)
        if await _happens_first(worker.process.wait(), asyncio.sleep(self._kill_s)):
            return
        drain_s = self._config.gateway.drain_ms / 1000
        if worker.heard_at == heard_at or not await _happens_first(worker.process.wait(), asyncio.sleep(drain_s)):
            worker.process.kill()

    # What they share.

    def _share_memory(self) -> None:
        size = table_bytes(self._config.gateway, rows=len(self._free_rows))
        self._caps_fd = os.memfd_create("headgate-caps")
        os.ftruncate(self._caps_fd, size)
        self._caps_memory = mmap(self._caps_fd, size)

    def _memory(self) -> memoryview:
        assert self._caps_memory is not None
        return memoryview(self._caps_memory)

    def _let_go(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        if self._caps_fd >= 0:
            os.close(self._caps_fd)


async def _take_turns(replace: asyncio.Event, places: Sequence[_Place]) -> None:
    """Exchange all workers, one after the other, whenever it is asked for."""
    while True:
        await replace.wait()
        replace.clear()
        for place in places:
            place.exchanged.clear()
            place.turn.set()
            await place.exchanged.wait()
        log.info("all workers replaced")


async def _happens_first(one: Awaitable[object], other: Awaitable[object]) -> bool:
    """Wait for whichever comes first; True when it is `one`."""
    first, second = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        return first.done()
    finally:
        first.cancel()
        second.cancel()
