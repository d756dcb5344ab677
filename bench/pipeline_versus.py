"""`python -m bench.pipeline_versus --old REVISION`: the pipeline of another revision and of this tree, in turn.

Both read the same topics of one broker, so that a busy machine slows both: compare the ratios. For each tree: facts of
`activity` into an empty table, beside Spark's noop sink; `--once` of 7,000 mixed facts, with Spark's start; the CPU
seconds of a batch of ten events; and the share of a core while two records a second arrive. The rows of both trees must
be equal, by a hash over each table, or the run fails. CPU is that of all processes of the pipeline, from /proc. A whole
run writes its section into bench/PIPELINE.md; it takes about a quarter of an hour on a quiet machine.
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
from typing import TypeVar

from confluent_kafka import Producer

from bench import machine
from bench.pipeline import application
from bench.pipeline_append import BATCH, PREFIX, broker, config_file, noop_floors, write_activity
from bench.sections import with_section
from headgate.facts import DispositionsCounted, EventHappened, Fact, TopologyDescribed, encode
from headgate.kafka.topics import quiet
from headgate.tables.definitions import TABLES
from headgate.tables.storage import FILES, StoredTable, connect_duckdb, file_paths

ROWS, MIXED = 1_000_000, 7_000
PAGE = Path(__file__).with_name("PIPELINE.md")
RECORD = "The record of "
OWN_QUERIES = "('facts', 'append')"
ROOT = Path(__file__).resolve().parents[1]
_TICK = os.sysconf("SC_CLK_TCK")
Run = TypeVar("Run")
_START_S = 300.0
_BATCHES, _EVENTS, _BATCH_S = 8, 10, 5.0
_WARM_UP_S = 30.0

Hashes = dict[str, tuple[int, int]]  # by table: how many rows, and the sum of their hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A source tree whose pipeline is run."""

    name: str
    folder: Path

    def command(self, file: Path, *action: str) -> "subprocess.Popen[bytes]":
        """Starts `headgate pipeline ACTION`, with its output in a file beside the configuration."""
        environment = os.environ | {
            "PYTHONPATH": str(self.folder / "src"),
            "HEADGATE_JARS": str(ROOT / "java" / "lib"),
        }
        command = [sys.executable, "-m", "headgate.cli.main", "pipeline", *action, "--config", str(file)]
        with file.with_suffix(".log").open("wb") as sink:
            return subprocess.Popen(command, stdout=sink, stderr=sink, env=environment, cwd=self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceRun:
    seconds: float
    cpu_s: float
    batches_s: float  # of the append query, without Spark's start
    tables: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    batch_cpu_s: float
    idle_cores: float
    versions: int


@contextlib.contextmanager
def old_tree(revision: str) -> Iterator[Tree]:
    with tempfile.TemporaryDirectory(prefix="headgate-old-") as name:
        folder = Path(name) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(folder), revision], check=True)
        try:
            yield Tree(name=revision, folder=folder)
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def table_hashes(places: Sequence[Path]) -> list[Hashes]:
    """Of each place, the distinct rows of the tables of facts and the sum of their hashes.

    Tables and columns that a place does not have, because its revision knows none, are left out. So are descriptions of
    the pipeline's own queries: each run writes some more into the topics that later runs read. And so are pairs of
    `app_io` without topics, which older revisions do not know (`headgate pipeline rebuild app_io` makes them). Ids of
    topics are compared in one form: older revisions wrote `/` and `+` where `_` and `-` stand now.
    """
    from headgate.pipeline.builds import BUILDS  # noqa: PLC0415 - Spark, only where it is measured

    found: list[Hashes] = [{} for _ in places]
    with connect_duckdb(memory_mb=1024) as duckdb:
        for name in BUILDS:
            stored = [StoredTable(place, TABLES[name]) for place in places]
            deltas = [delta for one in stored if (delta := one.newest()) is not None]
            if len(deltas) < len(places):
                continue
            known = [{column.name for column in delta.schema().fields} for delta in deltas]
            columns = [column for column in TABLES[name].columns.names if all(column in names for names in known)]
            # The distinct rows: a tree may leave copies to readers.
            listed = ", ".join(map(_in_one_form, columns))
            own = [
                f"coalesce({column} NOT IN {OWN_QUERIES}, true)"
                for column in ("app_id", "subject")
                if column in columns
            ]
            own += ["in_topic || out_topic <> ''"] if name == "app_io" else []
            kept = f"WHERE {' AND '.join(own)}" if own else ""
            sql = f"SELECT count(*), sum(hash(t)) FROM (SELECT DISTINCT {listed} FROM {FILES} {kept}) AS t"
            for one, hashes in zip(stored, found, strict=True):
                if files := file_paths(one.files()):
                    ((rows, total),) = duckdb.sql(sql, params=[files]).fetchall()
                    hashes[name] = (int(rows), int(total or 0))
    return found


def _in_one_form(column: str) -> str:
    return f"translate(\"{column}\", '/+', '_-')" if column.endswith("topic_id") else f'"{column}"'


def run_once(tree: Tree, folder: Path, bootstrap: str) -> OnceRun:
    file = config_file(folder / tree.name, bootstrap)
    began = time.perf_counter()
    process = tree.command(file, "run", "--once")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    log = ended_log(process, file)
    batches_s = sum(int(took) for name, _, took in BATCH.findall(log) if name == "append") / 1000
    tables = folder / tree.name / "tables"
    return OnceRun(seconds=seconds, cpu_s=usage.ru_utime + usage.ru_stime, batches_s=batches_s, tables=tables)


def rebuild(tree: Tree, folder: Path, bootstrap: str, table: str) -> None:
    file = config_file(folder / tree.name, bootstrap)
    process = tree.command(file, "rebuild", table)
    process.wait()
    ended_log(process, file)


def ended_log(process: "subprocess.Popen[bytes]", file: Path) -> str:
    """The output of a command that has ended; a failed one ends the run."""
    log = file.with_suffix(".log").read_text()
    if process.returncode:
        raise RuntimeError(log[-4000:])
    return log


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
    process = tree.command(file, "run")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What was measured, with the value of each tree."""

    what: str
    target: str = ""
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The figures of a part of the run, and a sentence for each comparison of rows."""

    lines: tuple[Line, ...]
    rows: tuple[str, ...] = ()


def rows_part(folder: Path, trees: Sequence[Tree], rows: int) -> Part:
    with broker(folder) as bootstrap:
        write_activity(bootstrap, 0, rows)
        floor = noop_floors(bootstrap)
        runs = [run_once(tree, folder, bootstrap) for tree in trees]
    what = f"{rows:,} facts of activity into an empty table"
    target = "100,000" if rows == ROWS else ""
    return Part(
        lines=(
            Line(what=f"{what}, rows/s", target=target, values=_each(runs, lambda run: f"{rows / run.batches_s:,.0f}")),
            Line(what="the same, seconds of its batches", values=_each(runs, lambda run: f"{run.batches_s:.1f}")),
            Line(what="the same, CPU seconds with Spark's start", values=_each(runs, lambda run: f"{run.cpu_s:.1f}")),
            *(
                Line(what=f"the floor of this tree: {name}, rows/s", values=_last(trees, f"{rows / took:,.0f}"))
                for name, took in floor.items()
            ),
        ),
        rows=equal_rows("facts of activity", table_hashes([run.tables for run in runs])),
    )


def mixed_part(folder: Path, trees: Sequence[Tree]) -> Part:
    with broker(folder) as bootstrap:
        part = MIXED // 7
        write_activity(bootstrap, 0, 3 * part)
        for facts in (dispositions(0, 2 * part), events(part), topologies(part)):
            produce(bootstrap, facts)
        runs = [run_once(tree, folder, bootstrap) for tree in trees]
    what = f"{MIXED:,} mixed facts by `--once`, with Spark's start"
    return Part(
        lines=(
            Line(what=f"{what}, seconds", target="30", values=_each(runs, lambda run: f"{run.seconds:.1f}")),
            Line(what="the same, CPU seconds", values=_each(runs, lambda run: f"{run.cpu_s:.1f}")),
        ),
        rows=equal_rows("mixed facts", table_hashes([run.tables for run in runs])),
    )


def live_part(folder: Path, trees: Sequence[Tree], idle_s: float) -> Part:
    with broker(folder) as bootstrap:
        produce(bootstrap, dispositions(0, 10))
        runs = [run_live(tree, folder, bootstrap, idle_s) for tree in trees]
    commits = f"the same: commits of dispositions in {idle_s:.0f} s"
    return Part(
        lines=(
            Line(
                what="a batch of ten events, CPU seconds",
                target="1",
                values=_each(runs, lambda run: f"{run.batch_cpu_s:.2f}"),
            ),
            Line(
                what="two records a second, cores",
                target="0.15",
                values=_each(runs, lambda run: f"{run.idle_cores:.2f}"),
            ),
            Line(what=commits, values=_each(runs, lambda run: str(run.versions))),
        )
    )


def _each(runs: Sequence[Run], value: Callable[[Run], str]) -> tuple[str, ...]:
    return tuple(value(run) for run in runs)


def _last(trees: Sequence[Tree], value: str) -> tuple[str, ...]:
    return ("",) * (len(trees) - 1) + (value,)


def equal_rows(facts: str, found: Sequence[Hashes]) -> tuple[str, ...]:
    """A sentence with the rows and the hash of each table; different rows of two trees end the run."""
    if any(one != found[0] for one in found[1:]):
        raise RuntimeError(f"the rows of {facts} differ: {json.dumps(found)}")
    if len(found) < 2:
        return ()
    tables = (f"{name} {rows:,} rows, hash {total:x}" for name, (rows, total) in sorted(found[0].items()))
    return (f"- {facts}, rows equal: {'; '.join(tables)}",)


def page_section(trees: Sequence[str], parts: Sequence[Part], measured: str) -> str:
    """The section of bench/PIPELINE.md, from its title on."""
    lines = [
        section_title(trees),
        "",
        measured,
        "",
        f"| what | target | {' | '.join(trees)} |",
        f"|---|---:{'|---:' * len(trees)}|",
        *(f"| {line.what} | {line.target} | {' | '.join(line.values)} |" for part in parts for line in part.lines),
    ]
    if rows := [line for part in parts for line in part.rows]:
        lines += ["", "Distinct rows of each table and the sum of their hashes (DuckDB's `hash`):", "", *rows]
    return "\n".join(lines) + "\n"


def section_title(trees: Sequence[str]) -> str:
    return f"## {trees[0]} and this tree, in turn" if len(trees) > 1 else "## This tree alone"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_versus", description=__doc__)
    parser.add_argument("--old", help="the other revision; without it only this tree is measured")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument(
        "--only", choices=("rows", "mixed", "live"), help="one part of it; the page is not written then"
    )
    parser.add_argument(
        "--out", type=Path, default=PAGE, help="the page whose section is written (default: %(default)s)"
    )
    args = parser.parse_args(given)
    facts = ", ".join(f"{key} {value}" for key, value in machine.facts().items())
    command = " ".join(["python -m bench.pipeline_versus", *(sys.argv[1:] if given is None else given)])
    measured = f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, `{command}`. {facts}."
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        trees = [stack.enter_context(old_tree(args.old))] if args.old else []
        trees.append(Tree(name="this tree", folder=ROOT))
        measures: dict[str, Callable[[], Part]] = {
            "rows": partial(rows_part, folder / "rows", trees, args.rows),
            "mixed": partial(mixed_part, folder / "mixed", trees),
            "live": partial(live_part, folder / "live", trees, args.idle_s),
        }
        parts = []
        for name, measure in measures.items():
            if args.only in {None, name}:
                began = time.monotonic()
                parts.append(measure())
                print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    section = page_section([tree.name for tree in trees], parts, measured)
    print(section, flush=True)
    if args.only is None:
        args.out.write_text(
            with_section(args.out.read_text(encoding="utf-8"), section, before=RECORD), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
