"""`python -m bench.derived --facts 1000000 --workers 1 2`: what derived tables cost, and each question about them.

An estate of thirty days is written to the tables that derivations read: an interval of activity for each fact, half of
them one after another and half of them an hour apart, with descriptions of Streams applications; and as many
dispositions of share groups, with trips. For each number of Spark's worker threads a process derives everything, then
what `--new` facts of the last minutes change, three times, then what the next hour changes. After that each question is
asked as a command. With `--old` the sources of another revision do the same first, and the rows must be equal.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench import machine
from bench.lineage import measure_commands
from bench.pipeline_versus import old_tree, tree_cpu_s
from headgate.tables.definitions import table_named
from headgate.tables.storage import FILES
from headgate.tables.writer import TableWriter

HOUR_MS = 3_600_000
NOW, AS_OF = 1_794_744_000_000, "2026-11-15T13:15:00Z"  # a full hour, and the time of the last run
NEW = 2_000
INTERVALS_OF_RUN = 20  # of an edge, which has three runs
ROUNDS = 3
_ROOT = Path(__file__).resolve().parents[1]
_AT_ONCE = 1_000_000

# An edge is used for twenty quarters of an hour in a row, or in twenty hours; each tenth interval is a topic's growth.
_INTERVALS = f"""
SELECT
  'c' AS cluster_id, 'gw-' || (i % 4) || '/0' AS writer, 'b' AS boot, i AS seq,
  CASE WHEN is_growth THEN 'unattributed' WHEN edge % 4 = 0 THEN 'streams' WHEN edge % 4 = 1 THEN 'consumer_group'
    WHEN edge % 4 = 2 THEN 'client' ELSE 'connector' END AS actor_kind,
  CASE WHEN is_growth THEN 'unattributed' ELSE 'actor-' || (edge // 8) END AS actor,
  CASE WHEN is_growth THEN 'end-offsets' ELSE 'principal' END AS rule,
  'certain' AS confidence,
  'topic-' || (edge * 7919 % TOPICS) AS topic, 'id-' || (edge * 7919 % TOPICS) AS topic_id,
  CASE WHEN is_growth OR edge % 2 = 0 THEN 'write' ELSE 'read' END AS direction,
  last - 900000 AS since, last AS until, 1000 + i % 100000 AS bytes,
  CASE WHEN i % 3 = 0 THEN NULL ELSE 1 + i % 1000 END AS records,
  'User:' || (edge // 8) AS principal, 'client-' || (edge // 8) AS client_id,
  NULL AS "group", NULL AS transactional_id, 'apache-kafka-java' AS software, '4.3.1' AS software_version,
  '10.0.' || (edge // 8 % 250) || '.' || (i % 4) AS host, last AS at, false AS is_historic
FROM (
  SELECT *, run % EDGES AS edge, i % 10 = 9 AS is_growth, NOW - (RUNS - least(run, RUNS)) * 2500000000 // RUNS
    - (CASE WHEN run % EDGES % 2 = 0 THEN 900000 ELSE 3600000 END) * (i % {INTERVALS_OF_RUN}) - i % 60000 AS last
  FROM (SELECT i, i // {INTERVALS_OF_RUN} AS run FROM range(FIRST, LAST) AS r(i))
)
"""
# Uses of the last minutes, of edges that there are; their numbers are their own.
_LATEST = """
SELECT * REPLACE (seq + 1000000000 * ROUND AS seq, until - 300000 AS since, until AS until)
FROM (SELECT * REPLACE (NOW - seq % 60000 AS until) FROM ({intervals}))
"""
_DISPOSITIONS = """
SELECT
  'c' AS cluster_id, 'gw-' || (i % 4) || '/0' AS writer, 'b' AS boot, i AS seq, 'group-' || (i % 100) AS "group",
  'm-' || (i % 300) AS member, 'topic-' || (i % 100) AS topic, 'id-' || (i % 100) AS topic_id,
  (i % 8)::INTEGER AS partition, NOW // 1000 - i * 600000 // FACTS AS second, 1 AS generation, 10 AS accepted,
  1 AS released, 2 AS rejected, 0 AS over_limit, 2 AS dead_lettered, 0 AS write_timeouts,
  '{"1":11,"2":2}' AS by_delivery_count, NOW - i * 600000000 // FACTS AS at, false AS is_historic
FROM range(FIRST, LAST) AS r(i)
"""


# --- the estate -------------------------------------------------------------------------------------------------------


class Size(NamedTuple):
    """How many runs of uses, edges and topics an estate of so many facts has."""

    runs: int
    edges: int
    topics: int

    @classmethod
    def of(cls, facts: int) -> "Size":
        runs = max(60, facts // INTERVALS_OF_RUN)
        return cls(runs, runs // 3, max(10, runs // 15))


def write_facts(root: Path, facts: int) -> None:
    size = Size.of(facts)
    for first in range(0, facts, _AT_ONCE):
        last = min(first + _AT_ONCE, facts)
        append(root, "activity_intervals", _INTERVALS, **_named(size), FIRST=first, LAST=last)
        append(root, "dispositions", _DISPOSITIONS, FACTS=facts, FIRST=first, LAST=last)
    write_descriptions(root, max(2, size.edges // 32), size.topics)


def write_latest(root: Path, facts: int, new: int, number: int) -> None:
    """Uses in the last minutes, of edges that there are and of some that are new."""
    size = Size.of(facts)
    first = max(0, size.edges + (number * (new // 20) - new)) * INTERVALS_OF_RUN
    sql = _LATEST.format(intervals=f"{_INTERVALS} WHERE i % {INTERVALS_OF_RUN} = 3")
    values = _named(size._replace(edges=size.edges + ROUNDS * new))
    append(root, "activity_intervals", sql, **values, ROUND=number, FIRST=first, LAST=first + new * INTERVALS_OF_RUN)


def _named(size: Size) -> dict[str, int]:
    return {"RUNS": size.runs, "EDGES": size.edges, "TOPICS": size.topics}


def append(root: Path, name: str, sql: str, **values: int) -> None:
    for word, value in {**values, "NOW": NOW}.items():
        sql = re.sub(rf"\b{word}\b", f"{value}::BIGINT", sql)
    made = duckdb.sql(sql)
    assert made is not None
    rows = made.to_arrow_table()
    table = table_named(name)
    writer = TableWriter(root, table)
    writer.create()
    write_deltalake(str(writer.folder), rows.select(table.columns.names).cast(table.stored_schema), mode="append")
    writer.close()


def write_descriptions(root: Path, applications: int, topics: int) -> None:
    """Applications that read a topic and write another, one in a hundred of them by a pattern."""
    version = {"incarnation": "i", "epoch": 0, "hash": "sha256:1", "provenance": "pushed"}
    since = {"valid_from": 1, "at": NOW - 60 * 24 * HOUR_MS}
    rows: dict[str, list[dict[str, Any]]] = {
        "applications": [],
        "topology_edges": [],
        "topology_nodes": [],
        "app_io": [],
    }
    for number in range(applications):
        app = {"app_id": f"actor-{number * 4}", **version, **since}
        read, written = f"topic-{number * 31 % topics}", f"topic-{number * 37 % topics}"
        rows["applications"].append(app | {"kind": "streams"})
        rows["app_io"].append(app | {"component": "0", "in_topic": read, "out_topic": written})
        ends = (("topic", read, "source", "s"), ("source", "s", "sink", "k"), ("sink", "k", "topic", written))
        names = ("from_kind", "from_node", "to_kind", "to_node")
        rows["topology_edges"] += [app | dict(zip(names, one, strict=True)) for one in ends]
        pattern = "t.*" if number % 100 == 0 else None
        rows["topology_nodes"] += [app | {"kind": "source", "node": "s", "pattern": pattern}]
        rows["topology_nodes"] += [app | {"kind": "sink", "node": "k"}]
    for name, listed in rows.items():
        write(root, name, listed)
    trips = [{"event_id": f"e{number}", "event": "tripped", "group": f"group-{number}"} for number in range(100)]
    write(root, "breaker_events", [one | {"at": NOW - number * HOUR_MS} for number, one in enumerate(trips)])


def write(root: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    table = table_named(name)
    other: dict[pa.DataType, object] = {pa.string(): "", pa.bool_(): False, pa.float64(): 0.0}
    empty = {one.name: None if one.nullable else other.get(one.type, 0) for one in table.columns}
    writer = TableWriter(root, table)
    writer.replace_all(pa.Table.from_pylist([empty | {"cluster_id": "c"} | row for row in rows], schema=table.columns))
    writer.close()


# --- one process with so many worker threads --------------------------------------------------------------------------


class HandClock:
    def __init__(self) -> None:
        self.epoch = NOW

    def monotonic(self) -> float:
        return time.monotonic()

    def epoch_ms(self) -> int:
        return self.epoch


class Step(NamedTuple):
    """What was derived, by which derivation, seconds, and CPU seconds of all processes."""

    what: str
    derivation: str
    seconds: float
    cpu_s: float


def derive(root: Path, threads: int, facts: int, new: int, only: Sequence[str]) -> list[Step]:
    """Derive everything, and then what has changed."""
    from headgate.config import load  # noqa: PLC0415 - the other processes need no Spark
    from headgate.pipeline.batches import TableWriters  # noqa: PLC0415
    from headgate.pipeline.derived.derivation import DerivedContext  # noqa: PLC0415
    from headgate.pipeline.derived.derived_runner import DerivedTables  # noqa: PLC0415
    from headgate.pipeline.derived.registry import DERIVATIONS  # noqa: PLC0415
    from headgate.pipeline.run_log import PipelineHealth, RunLog  # noqa: PLC0415
    from headgate.pipeline.session import end_session, start_session  # noqa: PLC0415

    config = load(None, {}, {"tables.path": str(root)})
    session = start_session({**config.pipeline.spark, "spark.master": f"local[{threads}]"})
    writers, clock = TableWriters(root), HandClock()
    began = time.perf_counter()

    def on_moment(moment: str, table: str) -> None:
        print(f"{time.perf_counter() - began:8.2f} s {moment} {table}", file=sys.stderr, flush=True)

    context = DerivedContext(config=config, session=session, writers=writers, on_moment=on_moment)
    log = RunLog(writers, clock, PipelineHealth())
    # Dead letters are read from Kafka, which is not started here.
    wanted = [one for one in DERIVATIONS if one.name != "dead_letters" and (one.name in only or not only)]
    runners = {one.name: DerivedTables((one,), context, clock, log) for one in wanted}
    found: list[Step] = []

    def run(what: str) -> None:
        for name, runner in runners.items():
            at, used = time.perf_counter(), tree_cpu_s(os.getpid())
            if not runner.run_once("c", Event()):
                raise SystemExit(f"{what}: {name} failed")
            found.append(Step(what, name, time.perf_counter() - at, tree_cpu_s(os.getpid()) - used))

    run("everything")
    for number in range(1, ROUNDS + 1):  # the first of them has the compiling of classes in it
        write_latest(root, facts, new, number)
        clock.epoch += 5 * 60_000
        run(f"{new:,} new facts")
    clock.epoch += HOUR_MS
    run("the next hour")
    writers.close()
    end_session(session)
    return found


# --- the report -------------------------------------------------------------------------------------------------------


def run_tree(tree: Path, facts: Path, args: argparse.Namespace, threads: int) -> tuple[list[Step], dict[str, Any]]:
    """The steps of a process with the sources of this tree, and a hash of each derived table."""
    root = facts.with_name(f"{facts.name}-{tree.name}-{threads}")
    shutil.copytree(facts, root)
    command = [sys.executable, "-m", "bench.derived", "--derive", str(root), "--workers", str(threads)]
    command += ["--facts", str(args.facts), "--new", str(args.new), *(["--only", *args.only] if args.only else [])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(_ROOT)]),
        "HEADGATE_JARS": str(_ROOT / "java" / "lib"),
    }
    done = subprocess.run(command, cwd=_ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [Step(*one) for one in json.loads(done.stdout)], hashes(root)


def hashes(root: Path) -> dict[str, Any]:
    """The rows of each derived table and the sum of their hashes, whatever the table's layout is."""
    derived = (
        "activity_hours",
        "client_identities",
        "dlq_rates",
        "dlq_rates_hourly",
        "lineage_edges",
        "topic_coverage",
    )
    found = {}
    for name in derived:
        if (root / name).exists():
            columns = ", ".join(f'"{one}"' for one in table_named(name).columns.names)
            sql = f"SELECT count(*), sum(hash(t)) FROM (SELECT {columns} FROM {FILES}) AS t"
            with duckdb.connect() as connection:
                found[name] = connection.execute(sql, [DeltaTable(root / name).file_uris()]).fetchall()
    return found


def steps_page(steps: Sequence[Step]) -> Iterator[str]:
    yield "| derived | by | seconds | CPU seconds |"
    yield "|---|---|---:|---:|"
    for one in steps:
        yield f"| {one.what} | {one.derivation} | {one.seconds:.1f} | {one.cpu_s:.1f} |"


def page(args: argparse.Namespace, folder: Path) -> Iterator[str]:
    facts = ", ".join(f"{key} {value}" for key, value in machine.facts().items())
    yield f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {facts}."
    write_facts(folder / "tables", args.facts)
    size = Size.of(args.facts)
    yield f"\n{args.facts:,} intervals and as many dispositions, {size.edges:,} edges, {size.topics:,} topics."
    with contextlib.ExitStack() as stack:
        trees = {args.old: stack.enter_context(old_tree(args.old)).folder} if args.old else {}
        for threads in args.workers:
            found = {}
            for name, tree in {**trees, "this tree": _ROOT}.items():
                steps, found[name] = run_tree(tree, folder / "tables", args, threads)
                yield "\n".join([f"\nWorker threads: {threads}, {name}.\n", *steps_page(steps)])
            if any(one != found["this tree"] for one in found.values()):
                raise SystemExit(f"the rows differ: {found}")
    if not args.only:
        first, second = "topic-31", "topic-37"  # the first is read by an application that writes the second
        asked = [("impact", first), ("impact", second, "--direction", "up"), ("path", first, second), ("owners", first)]
        asked += [("gaps",), ("coverage",), ("idle",), ("causes", "group-7")]
        yield "\nQuestions are answered without Spark, so the number of its workers does not matter.\n"
        root = folder / f"tables-{_ROOT.name}-{args.workers[-1]}"
        yield "\n".join(measure_commands(root, asked, AS_OF))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.derived", description=__doc__)
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--new", type=int, default=NEW)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="threads of Spark, one run for each")
    parser.add_argument("--old", help="another revision, whose rows must be the same")
    parser.add_argument("--only", nargs="+", default=[], metavar="DERIVATION", help="only these, and no questions")
    parser.add_argument("--out", type=Path, help="append the page to this file too")
    parser.add_argument("--derive", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    if args.derive is not None:
        print(json.dumps(derive(args.derive, args.workers[0], args.facts, args.new, args.only)))
        return
    with tempfile.TemporaryDirectory(prefix="headgate-derived-") as name:
        for text in page(args, Path(name)):
            print(text, flush=True)
            if args.out is not None:
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(f"{text}\n")


if __name__ == "__main__":
    main()
