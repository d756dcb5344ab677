"""The supervisor with workers that do what a test says: who is started, who is kept, who is told to go."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.errors import UsageError
from headgate.proxy.metrics import MetricsPage, Snapshot
from headgate.proxy.supervisor import Silence, Supervisor, WorkerProcess
from tests.unit.proxy.stage import config, until

FAKE_WORKER = Path(__file__).with_name("fake_worker.py")
ACCEPTED = ("headgate_connections_accepted", ())
RESTARTS = ("headgate_worker_restarts", ())
TOO_LARGE = ("headgate_worker_reports_skipped", ())
START_FAILURES = ("headgate_worker_start_failures", ())
CONNECTIONS = ("headgate_connections", ())
HURRIED = {"ready_s": 0.3, "kill_s": 0.2}


@dataclass
class Bench:
    """A supervisor at work; `manner` is how workers behave that start from now on."""

    supervisor: Supervisor
    file: Path
    stopped: asyncio.Event
    replace: asyncio.Event

    def manner(self, name: str) -> None:
        self.file.write_text(name, encoding="utf-8")

    @property
    def workers(self) -> list[WorkerProcess]:
        return sorted(self.supervisor.workers, key=lambda worker: (worker.index, worker.process.pid))

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self.workers]

    async def serves(self) -> None:
        await until(lambda: not self.supervisor.problems())

    async def replaced(self, logs: list[EventDict]) -> None:
        """Ask for new workers, and wait until that is over."""
        before = [event["event"] for event in logs].count("all workers replaced")
        self.replace.set()
        await until(lambda: [event["event"] for event in logs].count("all workers replaced") > before)


@asynccontextmanager
async def supervised(
    folder: Path,
    manner: str = "serves",
    timings: Mapping[str, float] = {},
    *,
    shortage: "Shortage | None" = None,
    **settings: Any,
) -> AsyncIterator[Bench]:
    file = folder / "manner"
    file.write_text(manner, encoding="utf-8")
    limits = config(1, **{"drain_ms": 100, **settings})
    command = (sys.executable, "-I", "-S", str(FAKE_WORKER), str(file))
    start_process = asyncio.create_subprocess_exec if shortage is None else shortage
    supervisor = Supervisor(limits, command, (), start_process=start_process, **timings)
    bench = Bench(supervisor, file, asyncio.Event(), asyncio.Event())
    running = asyncio.create_task(supervisor.run(bench.stopped, bench.replace))
    pids: set[int] = set()
    try:
        await until(lambda: running.done() or len(supervisor.workers) == limits.gateway.workers)
        yield bench
        pids = set(bench.pids)
    finally:
        bench.stopped.set()
        async with asyncio.timeout(20):
            await running
    assert not supervisor.workers
    assert not any(map(is_there, pids))


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def environment_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def names(logs: list[EventDict]) -> list[str]:
    return [event["event"] for event in logs]


# What it says of itself.


async def test_it_is_ready_when_every_worker_has_reported_that_nothing_is_wrong(tmp_path: Path) -> None:
    async with supervised(tmp_path, "silent", workers=2) as bench:
        assert bench.supervisor.problems() == {"worker 0": "does not serve yet", "worker 1": "does not serve yet"}
    async with supervised(tmp_path, workers=2) as bench:
        await bench.serves()


async def test_a_workers_problem_is_its_own(tmp_path: Path) -> None:
    async with supervised(tmp_path, "troubled") as bench:
        await until(lambda: "upstream" in bench.supervisor.problems())
        assert bench.supervisor.problems() == {"worker 0": "does not serve yet", "upstream": "is away"}


async def test_details_are_named_by_worker_and_leave_it_ready(tmp_path: Path) -> None:
    async with supervised(tmp_path, "noticing", workers=2) as bench:
        await bench.serves()
        text = "2 cancelled calls have not ended"
        assert bench.supervisor.details() == {f"worker {index}: topology store": text for index in range(2)}
        bench.workers[0].leaves = True
        assert bench.supervisor.details() == {"worker 1: topology store": text}


async def test_samples_are_added_up_over_workers(tmp_path: Path) -> None:
    async with supervised(tmp_path, workers=2) as bench:
        await bench.serves()
        await until(lambda: all(worker.samples.get(ACCEPTED, 0) > 1 for worker in bench.workers))
        parts = [worker.samples[ACCEPTED] for worker in bench.workers]
        assert bench.supervisor.snapshot()[ACCEPTED] == sum(parts)


async def test_samples_of_families_that_only_a_newer_worker_has_are_dropped() -> None:
    page = MetricsPage()
    newer: Snapshot = {ACCEPTED: 1.0, ("headgate_new", ()): 1.0}
    assert page.add([newer, newer]) == {ACCEPTED: 2.0}
    assert page.add([page.counters_of(newer)]) == {ACCEPTED: 1.0}


async def test_a_worker_inherits_its_own_ports_and_no_others(tmp_path: Path) -> None:
    async with supervised(tmp_path, workers=2, nodes=(0, 1, 2)) as bench:
        await bench.serves()
        assert [worker.samples[CONNECTIONS] for worker in bench.workers] == [3, 2]


async def test_the_threads_of_a_worker_share_two_heaps_unless_the_operator_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, expected in ((None, b"2"), ("4", b"4")):
        if given is not None:
            monkeypatch.setenv("MALLOC_ARENA_MAX", given)
        async with supervised(tmp_path) as bench:
            await bench.serves()
            [pid] = bench.pids
            assert b"MALLOC_ARENA_MAX=" + expected in environment_of(pid)


async def test_a_worker_that_falls_silent_is_a_problem(tmp_path: Path) -> None:
    async with supervised(tmp_path, timings={"silent_s": 0.2}) as bench:
        await bench.serves()
        [pid] = bench.pids
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: bench.supervisor.problems() == {"worker 0": "has not reported for 0 s"})
        os.kill(pid, signal.SIGCONT)
        await bench.serves()


# A worker that ends.


async def test_a_worker_that_has_served_is_back_at_once_however_often_it_is_killed(tmp_path: Path) -> None:
    async with supervised(tmp_path) as bench:
        loop = asyncio.get_running_loop()
        for _ in range(6):
            await bench.serves()
            [pid] = bench.pids
            began = loop.time()
            os.kill(pid, signal.SIGKILL)
            await until(lambda pid=pid: bench.pids not in ([], [pid]))  # type: ignore[misc]
        assert loop.time() - began < 2


async def test_a_worker_that_ends_is_started_again_and_counted(tmp_path: Path, logs: list[EventDict]) -> None:
    async with supervised(tmp_path, workers=2) as bench:
        await bench.serves()
        first, second = bench.pids
        os.kill(first, signal.SIGKILL)
        await until(lambda: len(bench.pids) == 2 and first not in bench.pids)
        await bench.serves()
        assert second in bench.pids
        assert bench.supervisor.snapshot()[RESTARTS] == 1
        [event] = [event for event in logs if event["event"] == "worker ended, starting another"]
        assert (event["worker"], event["exit_code"]) == (0, -signal.SIGKILL)


async def test_what_a_dead_worker_had_counted_still_counts_and_what_it_had_open_does_not(tmp_path: Path) -> None:
    async with supervised(tmp_path) as bench:
        await until(lambda: bench.supervisor.snapshot().get(ACCEPTED, 0) >= 3)
        bench.manner("silent")
        [worker] = bench.workers
        os.kill(worker.process.pid, signal.SIGKILL)
        await until(lambda: bench.workers not in ([], [worker]))
        snapshot = bench.supervisor.snapshot()
        assert snapshot[ACCEPTED] == worker.samples[ACCEPTED] >= 3
        assert CONNECTIONS not in snapshot


async def test_a_worker_that_ends_at_once_is_tried_again_and_again_ever_slower(tmp_path: Path) -> None:
    async with supervised(tmp_path, "broken") as bench:
        await until(lambda: bench.supervisor.snapshot()[RESTARTS] >= 2)
        assert bench.supervisor.problems() == {"worker 0": "does not serve yet"}
        bench.manner("serves")
        await bench.serves()


async def test_a_worker_whose_reports_cannot_be_read_is_exchanged(tmp_path: Path, logs: list[EventDict]) -> None:
    async with supervised(tmp_path, "babbling") as bench:
        await until(lambda: bench.supervisor.snapshot()[RESTARTS] >= 1)
        bench.manner("serves")
        await bench.serves()
    assert "report of a worker cannot be read" in names(logs)


async def test_a_defect_while_a_report_is_taken_is_logged_and_the_supervisor_still_ends(
    tmp_path: Path, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(WorkerProcess, "take", fail)
    async with supervised(tmp_path, "serves"):
        await until(lambda: "task of the gateway failed" in names(logs))


async def test_a_report_that_is_too_large_is_skipped_and_the_worker_stays(
    tmp_path: Path, logs: list[EventDict]
) -> None:
    async with supervised(tmp_path, "verbose", {"silent_s": 2.0}) as bench:
        [worker] = bench.workers
        began = worker.heard_at
        await until(lambda: bench.supervisor.snapshot().get(TOO_LARGE, 0) >= 3)
        assert worker.heard_at > began
        assert bench.workers == [worker]
        assert bench.supervisor.snapshot()[RESTARTS] == 0
        assert bench.supervisor.problems() == {"worker 0": "does not serve yet"}
    assert names(logs).count("report of a worker is too large, skipped") == 1


# A worker that cannot be started.


class Shortage:
    """Starting a process fails as long as `failure` is set, as when the machine is out of memory or processes."""

    def __init__(self) -> None:
        self.failure: OSError | None = None
        self.attempts = 0

    async def __call__(self, *command: str, **options: Any) -> asyncio.subprocess.Process:
        self.attempts += 1
        if self.failure is not None:
            raise self.failure
        return await asyncio.create_subprocess_exec(*command, **options)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
async def test_a_worker_that_cannot_be_started_is_tried_again(
    tmp_path: Path, logs: list[EventDict], number: int
) -> None:
    shortage = Shortage()
    async with supervised(tmp_path, shortage=shortage, workers=2) as bench:
        await bench.serves()
        first, second = bench.pids
        shortage.failure = OSError(number, os.strerror(number))
        os.kill(first, signal.SIGKILL)
        await until(lambda: shortage.attempts >= 5)
        assert bench.pids == [second]
        assert bench.supervisor.problems() == {"worker 0": f"cannot be started: {os.strerror(number)}"}
        assert bench.supervisor.snapshot()[START_FAILURES] >= 3
        shortage.failure = None
        await bench.serves()
        assert second in bench.pids
        assert bench.supervisor.free_rows == 2
    assert "worker cannot be started, trying again" in names(logs)


async def test_the_first_start_is_tried_again_too(tmp_path: Path) -> None:
    shortage = Shortage()
    shortage.failure = OSError(errno.EAGAIN, "no")
    loop = asyncio.get_running_loop()
    loop.call_later(0.3, setattr, shortage, "failure", None)
    async with supervised(tmp_path, shortage=shortage) as bench:
        await bench.serves()
        assert shortage.attempts >= 2


async def test_a_replacement_that_cannot_be_started_leaves_the_old_worker(
    tmp_path: Path, logs: list[EventDict]
) -> None:
    shortage = Shortage()
    async with supervised(tmp_path, shortage=shortage, workers=2) as bench:
        await bench.serves()
        before = bench.pids
        shortage.failure = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        await bench.replaced(logs)
        assert bench.pids == before
        assert bench.supervisor.problems() == {}
        shortage.failure = None
        await bench.replaced(logs)
        await until(lambda: set(before).isdisjoint(bench.pids))
    assert "replacement does not serve, the old worker stays" in names(logs)


# A worker that hangs.


async def test_a_worker_that_hangs_is_killed_and_replaced(tmp_path: Path, logs: list[EventDict]) -> None:
    async with supervised(tmp_path, timings={"kill_s": 0.2}, workers=2) as bench:
        await bench.serves()
        first, second = bench.pids
        [hung] = [worker for worker in bench.workers if worker.process.pid == first]
        os.kill(first, signal.SIGSTOP)

        def is_replaced() -> bool:
            hung.silence.seconds = 31.0  # its last reports may still be read
            return len(bench.pids) == 2 and first not in bench.pids

        await until(is_replaced)
        await bench.serves()
        assert second in bench.pids
        assert hung.process.returncode == -signal.SIGKILL
        assert bench.supervisor.snapshot()[RESTARTS] == 1
    [event] = [event for event in logs if event["event"] == "worker hangs, ending it"]
    assert event["worker"] == 0


async def test_a_worker_that_never_reports_is_replaced(tmp_path: Path) -> None:
    async with supervised(tmp_path, "silent", {"start_s": 60.0, "kill_s": 0.2}) as bench:
        [silent] = bench.workers
        silent.silence.seconds = 60.0
        await until(lambda: bench.supervisor.snapshot()[RESTARTS] == 1)
        bench.manner("serves")
        await bench.serves()
        assert bench.supervisor.snapshot()[RESTARTS] == 1


def test_silence_is_counted_only_while_the_supervisor_itself_runs() -> None:
    silence = Silence(interval_s=1.0)
    for _ in range(29):
        silence.add(1.0)
    silence.add(600.0)  # stopped, or starved of CPU: the reports of that time are still to be read
    assert silence.seconds == 30.0


# Replacing.


async def test_workers_are_replaced_one_after_the_other_and_it_stays_ready(
    tmp_path: Path, logs: list[EventDict]
) -> None:
    async with supervised(tmp_path, workers=3) as bench:
        await bench.serves()
        before = bench.pids
        problems: list[dict[str, str]] = []
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                problems.append(dict(bench.supervisor.problems()))
                most = max(most, len(bench.workers))
                await asyncio.sleep(0.001)

        watching = asyncio.create_task(watch())
        await bench.replaced(logs)
        watching.cancel()
        assert set(before).isdisjoint(bench.pids)
        assert [worker.index for worker in bench.workers] == [0, 1, 2]
        assert not any(problems)
        assert most == 4
        assert bench.supervisor.snapshot()[RESTARTS] == 0


async def test_replacing_again_and_again_uses_nothing_up(tmp_path: Path, logs: list[EventDict]) -> None:
    async with supervised(tmp_path, workers=2) as bench:
        await bench.serves()
        for _ in range(3):
            await bench.replaced(logs)
            await until(lambda: len(bench.workers) == 2)
        assert bench.supervisor.free_rows == 2


@pytest.mark.parametrize("manner", ["broken", "troubled", "silent"])
async def test_a_replacement_that_does_not_serve_takes_nobodys_place(
    tmp_path: Path, logs: list[EventDict], manner: str
) -> None:
    async with supervised(tmp_path, timings=HURRIED) as bench:
        await bench.serves()
        before = bench.pids
        bench.manner(manner)
        await bench.replaced(logs)
        await until(lambda: bench.pids == before)
        assert bench.supervisor.problems() == {}
        assert bench.supervisor.snapshot()[RESTARTS] == 0
        assert "replacement does not serve, the old worker stays" in names(logs)


async def test_a_worker_in_trouble_is_replaced_by_one_that_is_not_better_off(
    tmp_path: Path, logs: list[EventDict]
) -> None:
    async with supervised(tmp_path, "troubled", HURRIED) as bench:
        await until(lambda: "upstream" in bench.supervisor.problems())
        before = bench.pids
        await bench.replaced(logs)
        assert bench.pids != before


async def test_a_new_worker_that_dies_while_the_old_one_drains_is_started_again(
    tmp_path: Path, logs: list[EventDict]
) -> None:
    async with supervised(tmp_path, "stubborn", {"kill_s": 0.2}, drain_ms=1000) as bench:
        await bench.serves()
        [old] = bench.pids
        bench.manner("serves")
        bench.replace.set()
        await until(lambda: any(worker.leaves for worker in bench.workers))
        [new] = [worker for worker in bench.workers if not worker.leaves]
        os.kill(new.process.pid, signal.SIGKILL)
        await until(lambda: any(worker is not new and not worker.leaves for worker in bench.workers))
        assert old in bench.pids
        await bench.serves()
        await until(lambda: old not in bench.pids)
    assert "worker does not end, killing it" in names(logs)


# The end.


async def test_a_worker_that_does_not_end_is_killed(tmp_path: Path, logs: list[EventDict]) -> None:
    async with supervised(tmp_path, "stubborn", HURRIED) as bench:
        await bench.serves()
        [worker] = bench.workers
    assert worker.process.returncode == -signal.SIGKILL
    assert "worker does not end, killing it" in names(logs)


async def test_while_it_ends_it_is_not_ready(tmp_path: Path) -> None:
    async with supervised(tmp_path, "stubborn", drain_ms=300) as bench:
        await bench.serves()
        bench.stopped.set()
        await until(lambda: bench.supervisor.problems() == {"gateway": "is draining"})
        for worker in bench.workers:
            worker.process.kill()


@pytest.mark.parametrize("moment", ["starting", "exchanging", "pausing"])
async def test_a_stop_leaves_no_process_whenever_it_comes(tmp_path: Path, moment: str) -> None:
    seen: set[int] = set()
    async with supervised(tmp_path, "broken" if moment == "pausing" else "serves") as bench:
        if moment == "exchanging":
            await bench.serves()
            bench.manner("silent")
            bench.replace.set()
            await until(lambda: len(bench.workers) == 2)
        if moment == "pausing":
            await until(lambda: bench.supervisor.snapshot()[RESTARTS] >= 1)
        seen |= set(bench.pids)
    assert not any(map(is_there, seen))


async def test_certificates_that_no_worker_could_use_are_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    limits = config(1, tls_cert=tmp_path / "empty", tls_key=tmp_path / "empty")
    supervisor = Supervisor(limits, ("/bin/false",))
    with pytest.raises(UsageError, match=r"gateway\.tls_cert: these files cannot be used"):
        await supervisor.run(asyncio.Event(), asyncio.Event())
