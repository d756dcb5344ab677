"""One stage of a campaign: a cluster, the peers in front of it, and their runs, interleaved.

One rule: peers take turns within a round and their order turns with the rounds, so that whatever else the machine
does meanwhile is shared out. Each scenario begins with runs that are not kept.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from bench import perf_tools
from bench.certificates import Certificates
from bench.cluster import BenchCluster, Upstream
from bench.loader import Loader
from bench.peers.peer import Direct, Peer
from bench.processes import BenchError, resident_mb
from bench.record import PeerRecord, Run, StageRecord
from bench.scenarios import Scenario, Unit
from headgate.base.errors import HeadgateError

_SETTLE_S = 0.2
_IDLE_SETTLE_S = 1.0
_STEADY_S, _STEADY_MB, _START_UP_S = 2.0, 0.2, 30.0  # memory stands still for so long, within so much; and is awaited
_FILL_MB = 300

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often, and how long a run is counted and warmed up before that."""

    rounds: int
    counted_s: float
    warm_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """What a stage holds; where its `subject` cannot be had, none of it is run."""

    name: str
    title: str
    brokers: int
    uses_tls: bool
    peers: tuple[Callable[[Upstream, Path], Peer], ...]
    scenarios: tuple[Scenario, ...]
    subject: str


def run(
    spec: StageSpec, pace: Pace, *, loader: Loader, folder: Path, data: Path, tls: Certificates | None, say: Say
) -> StageRecord:
    """Start everything, measure, and end everything again; a stage that cannot be set up does not stop the others."""
    say(f"{spec.title}: starting")
    folder.mkdir(parents=True)
    try:
        return _run(spec, pace, loader=loader, folder=folder, data=data, tls=tls, say=say)
    except (BenchError, HeadgateError, KafkaException) as why:
        say(f"  not run: {why}")
        return StageRecord(name=spec.name, title=spec.title, skipped=str(why))


def _run(
    spec: StageSpec, pace: Pace, *, loader: Loader, folder: Path, data: Path, tls: Certificates | None, say: Say
) -> StageRecord:
    with ExitStack() as stack:
        cluster = stack.enter_context(
            BenchCluster(folder=data / spec.name, brokers=spec.brokers, tls=tls if spec.uses_tls else None)
        )
        cluster.fill(loader, megabytes=_FILL_MB)
        peers = [make(cluster.upstream, folder) for make in spec.peers]
        known = []
        for peer in sorted(peers, key=lambda peer: peer.name != spec.subject):
            stack.callback(peer.stop)
            known.append(_brought_up(peer, say))
            if peer.name == spec.subject and known[-1].absent:
                return StageRecord(name=spec.name, title=spec.title, skipped=f"{peer.title}: {known[-1].absent}")
        there = {record.name for record in known if not record.absent}
        measuring = Measuring(pace, loader, cluster, folder)
        runs: list[Run] = []
        for scenario in spec.scenarios:
            runs += _rounds(scenario, [peer for peer in peers if peer.name in there], measuring, say)
        order = {peer.name: place for place, peer in enumerate(peers)}
        known.sort(key=lambda record: order[record.name])
        return StageRecord(name=spec.name, title=spec.title, peers=tuple(known), runs=tuple(runs))


def _brought_up(peer: Peer, say: Say) -> PeerRecord:
    try:
        detail = peer.prepare()
        peer.start()
    except BenchError as why:
        say(f"  {peer.title} is absent: {why}")
        return PeerRecord(name=peer.name, title=peer.title, absent=str(why))
    return PeerRecord(name=peer.name, title=peer.title, detail=detail)


def _rounds(scenario: Scenario, peers: Sequence[Peer], measuring: "Measuring", say: Say) -> list[Run]:
    if scenario.uses_java_tool:
        peers = [peer for peer in peers if peer.rewrites]
    elif scenario.unit is Unit.MEMORY:
        peers = [peer for peer in peers if not isinstance(peer, Direct)]
    else:
        for peer in peers:
            for _ in range(peer.warm_ups):
                _one(scenario, peer, 0, measuring, say)
    runs = []
    for number in range(1, measuring.pace.rounds + 1):
        turn = number % max(1, len(peers))
        runs += [_one(scenario, peer, number, measuring, say) for peer in (*peers[turn:], *peers[:turn])]
    return runs


def _one(scenario: Scenario, peer: Peer, number: int, measuring: "Measuring", say: Say) -> Run:
    time.sleep(_SETTLE_S)
    try:
        figures = measuring.figures(scenario, peer)
    except BenchError as why:
        say(f"  {scenario.name} round {number} {peer.name}: failed: {why}")
        _mended(peer, say)
        return Run(scenario=scenario.name, peer=peer.name, round=number, failed=str(why))
    shown = " ".join(f"{name}={value:.6g}" for name, value in figures.items())
    say(f"  {scenario.name} round {number} {peer.name}: {shown}")
    return Run(scenario=scenario.name, peer=peer.name, round=number, figures=figures)


def _mended(peer: Peer, say: Say) -> None:
    """A failed run may have left its peer in any state: the next one gets a fresh process."""
    try:
        peer.stop()
        peer.start()
    except BenchError as why:
        say(f"  {peer.title} does not come back: {why}")


class Measuring:
    """How one run's figures come about, whatever the scenario is."""

    def __init__(self, pace: Pace, loader: Loader, cluster: BenchCluster, folder: Path) -> None:
        self.pace = pace
        self._loader = loader
        self._cluster = cluster
        self._folder = folder

    def figures(self, scenario: Scenario, peer: Peer) -> Mapping[str, float]:
        if scenario.uses_java_tool:
            return perf_tools.run(scenario, peer, folder=self._folder, broker_pids=self._cluster.pids)
        if scenario.unit is Unit.MEMORY:
            return self._memory(scenario, peer)
        return self._load(scenario, peer)

    def _words(self, scenario: Scenario, peer: Peer) -> dict[str, object]:
        tls = self._cluster.upstream.tls
        connections, nodes = int(str(scenario.words["connections"])), len(peer.nodes)
        return {
            **scenario.words,
            "connections": -(-connections // nodes) * nodes,  # as many to each node
            "to": ",".join(peer.nodes),
            "topic_id": self._cluster.topic_ids.get(str(scenario.words.get("topic")), ""),
            "tls_ca": "" if tls is None else tls.authority,
        }

    def _load(self, scenario: Scenario, peer: Peer) -> Mapping[str, float]:
        proxy, broker = peer.pids(), self._cluster.pids
        seen = self._loader.run({
            **self._words(scenario, peer),
            "warm": self.pace.warm_s,
            "seconds": self.pace.counted_s,
            "pids": ",".join(map(str, (*proxy, *broker))),
        })  # fmt: skip
        cpu = seen["cpu"]
        return {
            **{name: seen[name] for name in ("calls", "bytes", "seconds", "p50_us", "p99_us", "mean_us")},
            "proxy_cpu_s": sum(cpu[str(pid)] for pid in proxy),
            "broker_cpu_s": sum(cpu[str(pid)] for pid in broker),
            "loader_cpu_s": cpu["loader"],
            "machine_cpu_s": cpu["machine"],
            "stolen_cpu_s": cpu["stolen"],
        }

    def _memory(self, scenario: Scenario, peer: Peer) -> Mapping[str, float]:
        """A fresh process, before and with the connections; what earlier load left behind is not theirs."""
        peer.stop()
        peer.start()
        empty = _settled_mb(peer)
        self._loader.run(self._words(scenario, peer))
        try:
            time.sleep(_IDLE_SETTLE_S)
            full = [resident_mb(pid) for pid in peer.pids()]
        finally:
            self._loader.run({"call": "close"})
        return {"empty_mb": sum(empty), "full_mb": sum(full), "largest_mb": max(full)}


def _settled_mb(peer: Peer) -> list[float]:
    """The memory of each process when start-up is over: a proxy answers before it has made all that it needs."""
    deadline = time.monotonic() + _START_UP_S
    found = [resident_mb(pid) for pid in peer.pids()]
    while time.monotonic() < deadline:
        time.sleep(_STEADY_S)
        before, found = found, [resident_mb(pid) for pid in peer.pids()]
        if abs(sum(found) - sum(before)) < _STEADY_MB:
            break
    return found
