"""`python -m bench.scale`: how much one worker carries, how that grows with connections, and what follows from it.

Writes `bench/SCALE.md`. The load is paced where a share of a core is asked for, so that latencies are those of a
worker that is not saturated. Everything that the arithmetic uses is measured in the same run; what it assumes about
clients is on the page. Sections of the page that are written by hand stay.
"""

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench import machine
from bench.campaign import data_root
from bench.cluster import READ, RECORD_BYTES, RECORDS_A_BATCH, WRITTEN, BenchCluster
from bench.loader import Loader
from bench.peers.headgate import Headgate, HeadgateTwo
from bench.processes import resident_mb, tree
from bench.scale_page import GROWTH_CALLS_S, IDLE_CONNECTIONS, MOST_CONNECTIONS, SHARES, Found, Row, page
from bench.sections import rewrite

PAGE = Path(__file__).with_name("SCALE.md")
ROUNDS = 3
_FILES_LEFT = 2_000  # descriptors that a worker needs beside those of its clients
_WORKER_CORE, _LOAD_CORE = 0, 1
_SETTLE_S = 0.3

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One kind of traffic: what the loader is asked for, and what one unit of it is called."""

    name: str
    unit: str
    words: Mapping[str, object]
    paced_words: Mapping[str, object]
    in_megabytes: bool = False

    def amount(self, figures: Figures) -> float:
        """Units in a second."""
        return (figures["bytes"] / 1e6 if self.in_megabytes else figures["calls"]) / figures["seconds"]


_PRODUCE = {"call": "produce", "topic": WRITTEN, "size": RECORD_BYTES}
LOADS = (
    Load(
        name="heartbeats",
        unit="calls/s",
        words={"call": "heartbeat", "connections": 200, "depth": 1},
        paced_words={"call": "heartbeat", "connections": 200, "depth": 1},
    ),
    Load(
        name="produce 1 KB",
        unit="calls/s",
        words={**_PRODUCE, "records": 1, "connections": 4, "depth": 5},
        paced_words={**_PRODUCE, "records": 1, "connections": 20, "depth": 1},
    ),
    Load(
        name="produce 64 KiB",
        unit="MB/s",
        words={**_PRODUCE, "records": RECORDS_A_BATCH, "connections": 4, "depth": 5},
        paced_words={**_PRODUCE, "records": RECORDS_A_BATCH, "connections": 20, "depth": 1},
        in_megabytes=True,
    ),
    Load(
        name="fetch 1 MiB",
        unit="MB/s",
        words={"call": "fetch", "topic": READ, "max_bytes": 1 << 20, "connections": 4, "depth": 2},
        paced_words={"call": "fetch", "topic": READ, "max_bytes": 1 << 20, "connections": 8, "depth": 1},
        in_megabytes=True,
    ),
    Load(
        name="new connections",
        unit="connections/s",
        words={"call": "api_versions", "connections": 8, "depth": 1, "reconnect": 1},
        paced_words={"call": "api_versions", "connections": 8, "depth": 1, "reconnect": 1},
    ),
)


class ManyConnections(Headgate):
    """One worker that admits all connections of the growth table; they all come from one address."""

    name = "headgate-many"
    title = "Headgate"
    gateway: ClassVar[Mapping[str, object]] = {"max_connections": 2 * MOST_CONNECTIONS}


class Bench:
    def __init__(self, loader: Loader, cluster: BenchCluster, seconds: float) -> None:
        self._loader = loader
        self._cluster = cluster
        self._seconds = seconds

    def run(self, gateway: Headgate, words: Mapping[str, object], *, rate: float = 0) -> Figures:
        time.sleep(_SETTLE_S)
        pids = gateway.pids()
        connections = max(int(str(words["connections"])), len(gateway.nodes))
        seen = self._loader.run({
            **words,
            "connections": connections,
            "to": ",".join(gateway.nodes),
            "topic_id": self._cluster.topic_ids.get(str(words.get("topic")), ""),
            "rate": rate,
            "warm": 0.5,
            "seconds": self._seconds,
            "pids": ",".join(map(str, pids)),
        })  # fmt: skip
        cpu = sum(seen["cpu"][str(pid)] for pid in pids)
        return {name: seen[name] for name in ("calls", "bytes", "seconds", "p50_us", "p99_us")} | {"cpu_s": cpu}

    def idle_memory(self, gateway: Headgate, connections: int) -> tuple[float, float]:
        """Megabytes of the largest process of a fresh gateway, before and with that many idle connections."""
        gateway.stop()
        gateway.start()
        empty = max(resident_mb(pid) for pid in gateway.pids())
        words = {"call": "open", "connections": connections, "depth": 1, "to": ",".join(gateway.nodes)}
        self._loader.run(words)
        try:
            time.sleep(1.0)
            return empty, max(resident_mb(pid) for pid in gateway.pids())
        finally:
            self._loader.run({"call": "close"})


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works, not for figures")
    args = parser.parse_args(given)
    files = raise_file_limit(2 * MOST_CONNECTIONS + _FILES_LEFT)
    rounds, seconds = (1, 0.6) if args.quick else (ROUNDS, 2.5)
    began, facts = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), machine.facts()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-scale-")))
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-scale-", dir=data_root())))
        loader = stack.enter_context(Loader(folder))
        cluster = stack.enter_context(BenchCluster(folder=data / "kafka", brokers=1, tls=None))
        cluster.fill(loader, megabytes=100)
        bench = Bench(loader, cluster, seconds)
        gateways = [kind(cluster.upstream, folder) for kind in (ManyConnections, HeadgateTwo)]
        for gateway in gateways:
            stack.callback(gateway.stop)
            gateway.start()
        one, two = gateways
        pin((os.getpid(), *loader_pids(), *cluster.pids), {_LOAD_CORE})
        pin(one.pids(), {_WORKER_CORE})
        carried = [row for load_kind in LOADS for row in carry(bench, one, load_kind, rounds)]
        counts = connection_counts(files)
        growth = grow(bench, one, counts, rounds)
        memory = bench.idle_memory(one, IDLE_CONNECTIONS)
        everything = {_WORKER_CORE, _LOAD_CORE}
        pin((*loader_pids(), *cluster.pids, *one.pids(), *two.pids()), everything)
        scaling = scale(bench, one, two, rounds)
    units = {load.name: load.unit for load in LOADS}
    setting = ", ".join(f"{name} {value}" for name, value in facts.items())
    how = f"{began}; {setting}. Medians of {rounds} runs of {seconds:g} s."
    text = page(Found(how=how, units=units, carried=carried, growth=growth, scaling=scaling, memory=memory))
    if args.quick:
        print(text)
    else:
        rewrite(PAGE, text)
        say(f"written: {PAGE}")
    return 0


def carry(bench: Bench, gateway: Headgate, load: Load, rounds: int) -> list[Row]:
    """As much as is answered, then shares of a core: the pace of a share follows from the cost seen before."""
    saturated = _median_row(load, None, [bench.run(gateway, load.words) for _ in range(rounds)])
    rows = [saturated]
    cost = saturated.cpu_us_a_call / 1e6
    for share in SHARES:
        for _ in range(2):  # a slower pace costs more a call, because fewer calls share a wake-up: look again
            row = _median_row(
                load, share, [bench.run(gateway, load.paced_words, rate=share / cost) for _ in range(rounds)]
            )
            cost = row.cpu_us_a_call / 1e6
        rows.append(row)
    for row in rows:
        pace = "all" if row.share is None else f"{row.share:.0%}"
        say(f"  {row.name}, {pace}: {row.amount:.0f} {load.unit}, {row.cpu_s:.2f} of a core")
    return rows


def _median_row(load: Load, share: float | None, runs: Sequence[Figures]) -> Row:
    def median(values: Iterable[float]) -> float:
        return statistics.median(list(values))

    return Row(
        name=load.name,
        share=share,
        amount=median(load.amount(run) for run in runs),
        cpu_s=median(run["cpu_s"] / run["seconds"] for run in runs),
        cpu_us_a_call=median(run["cpu_s"] * 1e6 / run["calls"] for run in runs),
        p50_us=median(run["p50_us"] for run in runs),
        p99_us=median(run["p99_us"] for run in runs),
    )


def raise_file_limit(wanted: int) -> int:
    """The limit on descriptors after it was raised, for this process and those that it starts.

    As far as the hard limit allows; a privileged process also raises that.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, wanted), max(most, wanted)))
    except (ValueError, OSError):  # without the privilege, or over the limit of the system
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connection_counts(files: int) -> tuple[int, ...]:
    """Powers of ten; the largest is what this machine's descriptors allow, two for each connection of a worker."""
    allowed = max(1, (files - _FILES_LEFT) // 2)
    return (1, 10, 100, 1_000, min(MOST_CONNECTIONS, allowed))


def grow(bench: Bench, gateway: Headgate, counts: Sequence[int], rounds: int) -> list[tuple[int, Row]]:
    """The same calls a second over more and more connections, all counts once a round."""
    load = LOADS[0]
    found: dict[int, list[Figures]] = {count: [] for count in counts}
    for _ in range(rounds):
        for count in counts:
            words = {**load.paced_words, "connections": count}
            found[count].append(bench.run(gateway, words, rate=GROWTH_CALLS_S))
            say(f"  {count} connections: {found[count][-1]['cpu_s'] * 1e6 / found[count][-1]['calls']:.1f} us a call")
    return [(count, _median_row(load, None, runs)) for count, runs in found.items()]


def scale(bench: Bench, one: Headgate, two: Headgate, rounds: int) -> list[tuple[str, Row, Row]]:
    """One worker and two in turn, as much as is answered, with all processes on all cores."""
    found = []
    for load in LOADS:
        runs: tuple[list[Figures], list[Figures]] = ([], [])
        for _ in range(rounds):
            runs[0].append(bench.run(one, load.words))
            runs[1].append(bench.run(two, load.words))
        rows = tuple(_median_row(load, None, some) for some in runs)
        say(f"  {load.name}: two workers {rows[1].amount / rows[0].amount:.2f} of one")
        found.append((f"{load.name}, {load.unit}", rows[0], rows[1]))
    return found


def pin(pids: Iterable[int], cores: set[int]) -> None:
    """All threads of the processes; those that they start later inherit it."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)


def loader_pids() -> tuple[int, ...]:
    """The loader is a child of this process, and the only one whose command names it."""
    return tuple(
        pid for pid in tree(os.getpid()) if b"headgate.load.Loader" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
