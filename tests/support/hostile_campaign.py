"""The frame of a campaign: phases that are watched from outside, and the promises that they are held against.

A phase marks a period of the watcher and reads the gauges before and behind it. `Outcome.problems` says which promises
were broken; the figures themselves are for the record. Gauges are read from the kernel, the status pages and the log
file: the gateway is never asked more than an operator would ask it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from prometheus_client.parser import text_string_to_metric_families

from headgate.base.pipe_limits import MOST_PIPES
from tests.support.gateway import GatewayProcess
from tests.support.hostile_child import Child

MIB: Final = 1024 * 1024
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_SAMPLE_SECONDS: Final = 0.02
_REPORT_SECONDS: Final = 1.2  # workers report twice a second
_LONGEST_WAKE_UP: Final = "0.1"
_LONGEST_WAKE_UP_MS: Final = 100.0
_ALLOWANCE: Final = 32 * MIB  # the constant of "bytes held"
_GROWTH: Final = 16 * MIB  # what memory may differ by at the end, see `Campaign.warm_up`
_STARVED_SHARE: Final = 0.1  # of a phase that the gateway waited for a core: more than that is seen in a p99
_SHORTEST_SECONDS: Final = 2.0  # of a phase: fewer calls than it then holds have no p99
_WARM_UP_SECONDS: Final = 2.0
_ENDS: Final = 2  # descriptors of a pipe
_KEPT_PIPES: Final = 16  # empty ones that a worker keeps; clients that leave bytes unread take theirs along
_OTHER_PIPES: Final = 8  # each thread of librdkafka has one, and some begin late
_STALLED: Final = MOST_PIPES + 8
_PIPES_PAUSE_SECONDS: Final = 0.2
_NEVER: Final = ("certain_still_there", "still_there", "not_taken", "leaks", "lawful_answers_missed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One look at a gateway: all of its processes together."""

    memory_bytes: int
    sockets: int
    pipes: int  # descriptors: the two ends of each, also of those that librdkafka and Python have
    connections: int
    held_pipes: int  # with bytes of responses for slow clients
    spliced_bytes: int
    received_bytes: int  # from clients and brokers
    ended: Mapping[str, int]
    long_wake_ups: int  # of the event loop, for the bytes of one socket, over 100 ms


def look_at(gateway: GatewayProcess) -> Level:
    """A level; what the metrics say is up to a second old."""
    pids = [gateway.pid, *gateway.workers()]
    values: dict[tuple[str, str], float] = {}
    received = 0.0
    for family in text_string_to_metric_families(gateway.page("/metrics")[1]):
        for sample in family.samples:
            label = sample.labels.get("cause") or sample.labels.get("le") or ""
            values[sample.name, label] = values.get((sample.name, label), 0.0) + sample.value
            if sample.name == "headgate_bytes_total" and sample.labels["direction"] == "received":
                received += sample.value
    bucket = "headgate_added_seconds_bucket"
    return Level(
        memory_bytes=sum(map(memory_of, pids)),
        sockets=descriptors_of(pids, "socket:"),
        pipes=descriptors_of(pids, "pipe:"),
        connections=round(values["headgate_connections", ""]),
        held_pipes=round(values["headgate_splice_pipes", ""]),
        spliced_bytes=round(values["headgate_splice_bytes_total", ""]),
        received_bytes=round(received),
        ended={
            cause: round(count) for (name, cause), count in values.items() if name == "headgate_connections_ended_total"
        },
        long_wake_ups=round(values[bucket, "+Inf"] - values[bucket, _LONGEST_WAKE_UP]),
    )


def memory_of(pid: int) -> int:
    """The bytes of a process that are in memory."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def descriptors_of(pids: Iterable[int], kind: str) -> int:
    """How many descriptors of a kind the processes have together: "socket:" or "pipe:"."""
    count = 0
    for pid in pids:
        with suppress(OSError):  # the process has ended
            for entry in list(os.scandir(f"/proc/{pid}/fd")):
                with suppress(OSError):  # closed meanwhile
                    count += Path(entry.path).readlink().name.startswith(kind)
    return count


def _pipes_of(pids: Iterable[int]) -> int:
    return descriptors_of(pids, "pipe:")


def cpu_seconds_of(pid: int) -> float:
    """User and system time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def starved_seconds_of(pid: int) -> float:
    """How long its main thread was ready to run and waited for a core, so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def busy_seconds() -> float:
    """Processor time that the whole machine has spent so far, on everything."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Peak:
    """The most that the processes had together of what is measured, while the block ran."""

    pids: list[int]
    measure: Callable[[list[int]], int]
    pause_s: float = _SAMPLE_SECONDS
    most: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._sample, name="peak", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        assert self._thread
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self.most = max(self.most, self.measure(self.pids))
            if self._stopped.wait(self.pause_s):
                return


def await_reports() -> None:
    """Let the workers report what they have counted."""
    time.sleep(_REPORT_SECONDS)


def log_defects(gateway: GatewayProcess) -> list[str]:
    """Lines that an operator would have to look at: errors and tracebacks."""
    return [line for line in gateway.log_lines() if "level=error" in line or "Traceback" in line]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a phase may cost the canary and the event loop.

    The twin does the canary's work past the gateway: what it waits is the broker's and the machine's, and so the
    canary may have `p99_ratio` times the greater of its own quiet p99 and the twin's. Beside that it may wait what two
    calls to an idle process wait: it passes the gateway's process twice, and the twin never. A ping may wait `wait_ms`
    longer than the longest one to an idle loop. So many `wake_ups` of the event loop may take long for the machine's
    sake.
    """

    p99_ratio: float = 2.0
    p99_floor_ms: float = 0.0
    wait_ms: float = 100.0
    wake_ups: int = 0


@dataclass(slots=True, kw_only=True)
class Phase:
    """One attack and what it did; `seen` is the watcher's, filled in at the end."""

    name: str
    is_bounded: bool = True  # else the attacker took all that it could get, and latency is for the record only
    counts: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    memory_growth: int = 0
    received_bytes: int = 0
    long_wake_ups: int = 0
    gateway_cores: float = 0.0
    busy_cores: float = 0.0  # of the whole machine, whoever kept them busy
    starved_seconds: float = 0.0  # the gateway waited so long for a core, all waits together
    seen: Mapping[str, Any] = field(default_factory=dict)

    def problems(self, quiet: float, limits: Limits) -> Iterator[str]:
        """Which promises this phase broke; `quiet` is the canary's p99 when nothing happened."""
        seen = self.seen
        yield from seen["errors"]
        for what in _NEVER:
            if self.counts.get(what):
                yield f"{what.replace('_', ' ')}: {self.counts[what]}"
        if self.memory_growth > self.received_bytes + _ALLOWANCE:
            yield f"{self.memory_growth // MIB} MiB more memory, {self.received_bytes // MIB} MiB received"
        if not self.is_bounded:
            return
        # All of it is measured by the wall clock: what was lost to other processes is not the gateway's.
        idle, starved_ms = seen["echo"]["max"], self.starved_seconds * 1000
        allowed = max(limits.p99_ratio * max(quiet, seen["twin"]["p99"]), limits.p99_floor_ms) + 2 * seen["echo"]["p99"]
        if self.starved_seconds > _STARVED_SHARE * max(self.seconds, _SHORTEST_SECONDS):
            allowed += starved_ms
        if (p99 := seen["canary"]["p99"]) > allowed:
            others = f"twin {seen['twin']['p99']}, echo {seen['echo']['p99']}"
            yield f"canary p99 {p99} ms: {allowed:.1f} allowed, {quiet} when quiet, {others}"
        if (longest := seen["ping"]["max"]) > limits.wait_ms + idle + starved_ms:
            yield f"a ping waited {longest} ms, one to an idle loop {idle} ms, the gateway for a core {starved_ms:.0f}"
        long_ms = (self.long_wake_ups - limits.wake_ups) * _LONGEST_WAKE_UP_MS
        if long_ms > starved_ms and idle < limits.wait_ms / 2:
            yield f"{self.long_wake_ups} wake-ups of the event loop over 100 ms, {starved_ms:.0f} ms waiting for a core"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """All of it: the phases in their order, the levels around them, what the gateway's log holds."""

    phases: list[Phase] = field(default_factory=list)
    before: Level | None = None
    after: Level | None = None
    most_pipes: int = 0  # descriptors, while more clients stalled than there may be pipes
    recovered_after: float | None = None
    is_spliced: bool = True  # an attack reaches the pipes
    defects: list[str] = field(default_factory=list)

    @property
    def quiet_p99(self) -> float:
        p99: float = self.phases[0].seen["canary"]["p99"]
        return p99

    def problems(self, limits: Limits) -> list[str]:
        """Which promises were broken."""
        assert self.before
        assert self.after
        problems = [f"log: {line}" for line in self.defects]
        if self.after.ended.get("internal", 0):
            problems.append(f"{self.after.ended['internal']} connections ended by a defect of the gateway")
        if self.is_spliced and self.after.spliced_bytes <= self.before.spliced_bytes:
            problems.append("nothing was spliced: the attacks did not reach the pipes")
        if (more := self.most_pipes - self.before.pipes) > _ENDS * (MOST_PIPES + _OTHER_PIPES):
            problems.append(f"{more} more descriptors of pipes, of {MOST_PIPES} pipes a worker")
        if self.recovered_after is None:
            problems.append(
                f"sockets {self.before.sockets} before, {self.after.sockets} after; pipes {self.before.pipes} before, "
                f"{self.after.pipes} after, {self.after.held_pipes} of them held; "
                f"memory {self.before.memory_bytes // MIB} MiB before, {self.after.memory_bytes // MIB} MiB after"
            )
        for phase in self.phases:
            problems += [f"{phase.name}: {problem}" for problem in phase.problems(self.quiet_p99, limits)]
        return problems


class Campaign:
    """The gateway under attack, the watcher, and the phases that have been."""

    def __init__(self, gateway: GatewayProcess, watch: Child) -> None:
        self.gateway = gateway
        self.outcome = Outcome()
        self._watch = watch

    @contextmanager
    def phase(self, name: str, *, is_bounded: bool = True) -> Iterator[Phase]:
        """A period of the watcher, and the gauges around it."""
        phase = Phase(name=name, is_bounded=is_bounded)
        pids = [self.gateway.pid, *self.gateway.workers()]
        begin = look_at(self.gateway)
        self._watch.ask("mark", period=name)
        began, cpu, busy = time.monotonic(), sum(map(cpu_seconds_of, pids)), busy_seconds()
        starved = sum(map(starved_seconds_of, pids))
        with Peak(pids, lambda pids: sum(map(memory_of, pids))) as peak:
            yield phase
            phase.seconds = round(time.monotonic() - began, 1)
            time.sleep(max(0.0, _SHORTEST_SECONDS - phase.seconds))
        took = time.monotonic() - began
        phase.gateway_cores = round((sum(map(cpu_seconds_of, pids)) - cpu) / took, 2)
        phase.busy_cores = round((busy_seconds() - busy) / took, 2)
        phase.starved_seconds = round(sum(map(starved_seconds_of, pids)) - starved, 3)
        self._watch.ask("mark", period="between")
        await_reports()
        end = look_at(self.gateway)
        phase.memory_growth = peak.most - begin.memory_bytes
        phase.received_bytes = end.received_bytes - begin.received_bytes
        phase.long_wake_ups = end.long_wake_ups - begin.long_wake_ups
        self.outcome.phases.append(phase)

    def warm_up(self, attacker: Child, attack: str, **more: Any) -> None:
        """As many connections at once as any attack opens, before the level that memory must come back to is taken.

        The C library and Python keep the memory that so many connections needed for the next ones, 30 MiB of 5,000:
        that is not what an attack leaves behind. What each wave adds is, and a second wave must add nothing.
        """
        with self.phase("warm-up of memory", is_bounded=False) as phase:
            phase.counts = attacker.ask(attack, patience=120, ports=[self.gateway.setup.port], **more)
        self.outcome.phases.clear()  # the first one is the quiet one, which all are compared with
        self.outcome.before = look_at(self.gateway)

    def be_quiet(self, seconds: float) -> None:
        """The first phase: what the canary sees when nothing happens."""
        with self.phase("quiet"):
            time.sleep(seconds)

    def attack(
        self, attacker: Child, attack: str, *, patience: float, name: str = "", is_bounded: bool = True, **more: Any
    ) -> None:
        port = self.gateway.setup.port
        with self.phase(name or attack, is_bounded=is_bounded) as phase:
            phase.counts = attacker.ask(attack, patience=patience, ports=[port, port + 1], **more)

    def stall(self, attacker: Child, hungry: bytes) -> None:
        """More clients that do not read large responses than a worker has pipes, behind all other attacks.

        They take the pipes that the worker has kept, and leave without reading: what is open afterwards has leaked.
        """
        with Peak([self.gateway.pid, *self.gateway.workers()], _pipes_of, _PIPES_PAUSE_SECONDS) as peak:
            self.attack(
                attacker,
                "slow",
                name="stalled",
                patience=60,
                connections=_STALLED,
                rate=100.0,
                hold_seconds=3.0,
                readers=_STALLED,
                real=[hungry.hex()],
            )
        self.outcome.most_pipes = peak.most

    def recover(self, seconds: float) -> None:
        """Wait until sockets, pipes and memory are where they were."""
        before = self.outcome.before
        assert before
        began = time.monotonic()
        with self.phase("recovery"):
            while True:
                await_reports()
                self.outcome.after = after = look_at(self.gateway)
                near = after.memory_bytes <= before.memory_bytes + _GROWTH
                # The canary changes its connections: two of them may be between closed and opened.
                few = after.connections <= before.connections + 2 and after.sockets <= before.sockets + 4
                empty = not after.held_pipes and after.pipes <= before.pipes + _ENDS * _KEPT_PIPES
                if near and few and empty:
                    self.outcome.recovered_after = round(time.monotonic() - began, 1)
                    return
                if time.monotonic() - began > seconds:
                    return

    def finish(self) -> Outcome:
        seen = self._watch.ask("end")
        for phase in self.outcome.phases:
            phase.seen = seen[phase.name]
        self.outcome.defects = log_defects(self.gateway)
        return self.outcome


@contextmanager
def watched(
    gateway: GatewayProcess, broker_port: int, topic: str, *, at_node: bool = False, login: str = ""
) -> Iterator[Campaign]:
    """A watcher beside the gateway, warmed up, and the level before anything happens.

    With `at_node` it asks node 0 for everything: any node may answer at the bootstrap port. `login` is `user:password`.
    """
    ports = {"bootstrap": gateway.setup.port + at_node, "node": gateway.setup.port + 1}
    given = {**ports, "broker": broker_port, "topic": topic, "login": login}
    arguments = [f"--{name}={value}" for name, value in given.items()]
    with Child("tests.support.hostile_watch", *arguments) as watch:
        one = Campaign(gateway, watch)
        watch.ask("mark", period="warm-up")
        time.sleep(_WARM_UP_SECONDS)
        one.outcome.before = look_at(gateway)
        yield one
