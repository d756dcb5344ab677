"""`python -m bench.pipeline_versus --old REVISION`: the pipeline of another revision and of this tree, in turn.

Both read the same topics of one broker, so that a busy machine slows both: compare the ratios. For each tree: facts of
`activity` into an empty table, beside Spark's noop sink; `--once` of 7,000 mixed facts, with Spark's start; the CPU
seconds of a batch of ten events; and the share of a core while two records a second arrive. The rows of both trees must
be equal, by a hash over each table. CPU is that of all processes of the pipeline, from /proc.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from bench import machine
from bench.pipeline import application
from bench.pipeline_append import BATCH, PREFIX, broker, config_file, noop_floors, write_activity
from headgate.facts import DispositionsCounted, EventHappened, Fact, TopologyDescribed, encode
from headgate.kafka.topics import quiet
from headgate.tables.definitions import TABLES
from headgate.tables.storage import FILES, StoredTable, connect_duckdb, file_paths

ROWS, MIXED = 1_000_000, 7_000
_ROOT = Path(__file__).resolve().parents[1]
_TICK = os.sysconf("SC_CLK_TCK")
_START_S = 300.0
_BATCHES, _EVENTS, _BATCH_S = 8, 10, 5.0
_WARM_UP_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A source tree whose pipeline is run."""

    name: str
    folder: Path

    def command(self, file: Path, *more: str) -> "subprocess.Popen[bytes]":
        environment = os.environ | {
            "PYTHONPATH": str(self.folder / "src"),
            "HEADGATE_JARS": str(_ROOT / "java" / "lib"),
        }
        command = [sys.executable, "-m", "headgate.cli.main", "pipeline", "run", *more, "--config", str(file)]
        with file.with_suffix(".log").open("wb") as sink:
            return subprocess.Popen(command, stdout=sink, stderr=sink, env=environment, cwd=self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceRun:
    seconds: float
    cpu_s: float
    batches_s: float  # of the append query, without Spark's start
    hashes: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    batch_cpu_s: float
    idle_cores: float
    versions: int


@contextlib.contextmanager
def old_tree(revision: str) -> Iterator[Tree]:
    with tempfile.TemporaryDirectory(prefix="headgate-old-") as name:
        folder = Path(name) / "tree"
        git = ["git", "-C", str(_ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(folder), revision], check=True)
        try:
            yield Tree(name=revision, folder=folder)
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def table_hashes(tables: Path) -> dict[str, tuple[int, int]]:
    """The distinct rows of each appended table, and the sum of their hashes; every run adds topologies of its own."""
    found = {}
    with connect_duckdb(memory_mb=1024) as duckdb:
        for name, table in TABLES.items():
            stored = StoredTable(tables, table)
            if not table.appended or stored.newest() is None:
                continue
            files = file_paths(stored.files())
            # The distinct rows: a tree may leave copies to readers.
            columns = ", ".join(f'"{column}"' for column in table.columns.names)
            sql = f"SELECT count(*), sum(hash(t)) FROM (SELECT DISTINCT {columns} FROM {FILES}) AS t"
            if files:
                ((rows, total),) = duckdb.sql(sql, params=[files]).fetchall()
                found[name] = (int(rows), int(total or 0))
    return found


def run_once(tree: Tree, folder: Path, bootstrap: str) -> OnceRun:
    file = config_file(folder / tree.name, bootstrap)
    began = time.perf_counter()
    process = tree.command(file, "--once")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    log = file.with_suffix(".log").read_text()
    if process.returncode:
        raise RuntimeError(log[-4000:])
    batches_s = sum(int(took) for name, _, took in BATCH.findall(log) if name == "append") / 1000
    hashes = table_hashes(folder / tree.name / "tables")
    return OnceRun(seconds=seconds, cpu_s=usage.ru_utime + usage.ru_stime, batches_s=batches_s, hashes=hashes)


def tree_cpu_s(root: int) -> float:
    """CPU seconds of a process, of all that it has started, and of those of them that have ended."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                used[int(folder.name)] = sum(map(int, stat[11:15]))
                children.setdefault(int(stat[1]), []).append(int(folder.name))
    wanted, total = [root], 0
    while wanted:
        one = wanted.pop()
        total += used.get(one, 0)
        wanted += children.get(one, [])
    return total / _TICK


def run_live(tree: Tree, folder: Path, bootstrap: str, idle_s: float) -> LiveRun:
    """Batches of ten events, then two records a second."""
    file = config_file(folder / tree.name, bootstrap)
    process = tree.command(file)
    tables = folder / tree.name / "tables"
    try:
        by = time.monotonic() + _START_S
        while "append: batch 0" not in file.with_suffix(".log").read_text():
            if process.poll() is not None or time.monotonic() > by:
                raise RuntimeError(file.with_suffix(".log").read_text()[-4000:])
            time.sleep(0.5)
        for _ in range(3):  # what is slow the first times
            produce(bootstrap, events(1))
            time.sleep(_BATCH_S)
        began = tree_cpu_s(process.pid)
        for _ in range(_BATCHES):
            produce(bootstrap, events(_EVENTS))
            time.sleep(_BATCH_S)
        of_batches = tree_cpu_s(process.pid) - began
        ended = threading.Event()
        writer = threading.Thread(target=_trickle, args=(bootstrap, ended))
        writer.start()
        try:
            time.sleep(_WARM_UP_S)
            version, began, at = _version(tables), tree_cpu_s(process.pid), time.monotonic()
            time.sleep(idle_s)
            idle = (tree_cpu_s(process.pid) - began) / (time.monotonic() - at)
            made = _version(tables) - version
        finally:
            ended.set()
            writer.join()
    finally:
        process.terminate()
        process.wait(60)
    return LiveRun(batch_cpu_s=of_batches / _BATCHES, idle_cores=idle, versions=made)


def _version(tables: Path) -> int:
    delta = StoredTable(tables, TABLES["dispositions"]).newest()
    return 0 if delta is None else int(delta.version())


def _trickle(bootstrap: str, ended: threading.Event) -> None:
    number = 10_000_000
    while not ended.wait(0.5):
        produce(bootstrap, dispositions(number, number + 1))
        number += 1


# --- facts ------------------------------------------------------------------------------------------------------------


def dispositions(start: int, end: int) -> Iterator[Fact]:
    for number in range(start, end):
        yield DispositionsCounted(
            at=1_794_731_900_000 + number,
            cluster="c",
            writer="gw-a/0",
            boot="b1",
            seq=number,
            group=f"sg-{number % 50}",
            member=f"m-{number % 100}",
            topic=f"topic-{number % 100}",
            topic_id=None,
            partition=number % 8,
            second=1_794_731_900 + number // 100,
            generation=1,
            accepted=10,
            released=1,
            rejected=2,
            over_limit=0,
            dead_lettered=2,
            write_timeouts=0,
            by_delivery_count=((1, 11), (2, 2)),
        )


def events(count: int) -> Iterator[Fact]:
    for number in range(count):
        yield EventHappened(
            at=1_794_731_900_000,
            cluster="c",
            subject_kind="share_group",
            subject=f"sg-{number}",
            id=f"{time.time_ns()}-{number}",
            event="paused",
            by=None,
        )


def topologies(count: int) -> Iterator[Fact]:
    for number in range(count):
        yield TopologyDescribed(
            at=1_794_731_900_000,
            cluster="c",
            group=f"app-{number}",
            incarnation="0",
            epoch=0,
            hash=f"sha256:{number}",
            provenance="pushed",
            member=None,
            process=None,
            description=application(f"app-{number}", 10),
        )


def produce(bootstrap: str, facts: Iterator[Fact]) -> None:
    producer = Producer(quiet({"bootstrap.servers": bootstrap}, linger__ms=5, compression__type="lz4"))
    for fact in facts:
        suffix, key, value = encode(fact)
        producer.produce(PREFIX + suffix, key=key, value=value)
    producer.flush()


# --- the report -------------------------------------------------------------------------------------------------------


def rows_page(folder: Path, trees: Sequence[Tree], rows: int) -> Iterator[str]:
    with broker(folder) as bootstrap:
        write_activity(bootstrap, 0, rows)
        floor = noop_floors(bootstrap)
        runs = [run_once(tree, folder, bootstrap) for tree in trees]
    _check_equal(runs)
    yield f"| {rows:,} facts of activity | batches s | rows/s | CPU s, with Spark's start |"
    yield "|---|---:|---:|---:|"
    for tree, run in zip(trees, runs, strict=True):
        yield f"| {tree.name} | {run.batches_s:.1f} | {rows / run.batches_s:,.0f} | {run.cpu_s:.1f} |"
    for name, took in floor.items():
        yield f"| {name} | {took:.1f} | {rows / took:,.0f} | |"


def mixed_page(folder: Path, trees: Sequence[Tree]) -> Iterator[str]:
    with broker(folder) as bootstrap:
        part = MIXED // 7
        write_activity(bootstrap, 0, 3 * part)
        for facts in (dispositions(0, 2 * part), events(part), topologies(part)):
            produce(bootstrap, facts)
        runs = [run_once(tree, folder, bootstrap) for tree in trees]
    _check_equal(runs)
    yield f"| {MIXED:,} mixed facts, `--once` | seconds | CPU s |"
    yield "|---|---:|---:|"
    for tree, run in zip(trees, runs, strict=True):
        yield f"| {tree.name} | {run.seconds:.1f} | {run.cpu_s:.1f} |"


def live_page(folder: Path, trees: Sequence[Tree], idle_s: float) -> Iterator[str]:
    with broker(folder) as bootstrap:
        produce(bootstrap, dispositions(0, 10))
        runs = [run_live(tree, folder, bootstrap, idle_s) for tree in trees]
    yield f"| running | CPU s of ten events | cores, two records a second | commits of dispositions in {idle_s:.0f} s |"
    yield "|---|---:|---:|---:|"
    for tree, run in zip(trees, runs, strict=True):
        yield f"| {tree.name} | {run.batch_cpu_s:.2f} | {run.idle_cores:.2f} | {run.versions} |"


def _check_equal(runs: Sequence[OnceRun]) -> None:
    for run in runs[1:]:
        if run.hashes != runs[0].hashes:
            raise RuntimeError(f"the rows differ: {json.dumps([run.hashes for run in runs])}")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_versus", description=__doc__)
    parser.add_argument("--old", help="the other revision; without it only this tree is measured")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--only", choices=("rows", "mixed", "live"), help="one part of it")
    args = parser.parse_args(given)
    facts = ", ".join(f"{key} {value}" for key, value in machine.facts().items())
    print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {facts}.", flush=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        trees = [stack.enter_context(old_tree(args.old))] if args.old else []
        trees.append(Tree(name="this tree", folder=_ROOT))
        pages: dict[str, Callable[[], Iterator[str]]] = {
            "rows": partial(rows_page, folder / "rows", trees, args.rows),
            "mixed": partial(mixed_page, folder / "mixed", trees),
            "live": partial(live_page, folder / "live", trees, args.idle_s),
        }
        for name, page in pages.items():
            if args.only in {None, name}:
                print("\n".join(["", *page()]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
