"""`python -m bench.pipeline_both_ways --old REVISION`: one checkpoint and one set of tables, forward and back again.

The other revision, this tree, the other and this tree again run `--once` over the same tables and checkpoints, with new
facts in every topic before each. Each revision then reads all facts alone, into empty tables. The rows must be the
same, by a hash over each table, or the run fails: none may be lost, and none may be there twice for a reader. One
exception: rows of a table that the other revision does not know are missing where that revision has read their records.
`headgate pipeline rebuild TABLE` adds them, as docs/pipeline.md says, and the section names these tables. Rows that are
stored twice, which readers leave out, are counted. The run writes its section into bench/PIPELINE.md; it takes five
minutes, and its result does not depend on what else the machine does.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Producer

from bench import machine
from bench.pipeline_append import PREFIX, broker, write_activity
from bench.pipeline_versus import (
    PAGE,
    RECORD,
    ROOT,
    Hashes,
    OnceRun,
    Tree,
    dispositions,
    equal_rows,
    old_tree,
    produce,
    rebuild,
    run_once,
    table_hashes,
)
from bench.sections import with_section
from headgate.facts import Ended, Fact, GroupLagsObserved, MemberTasksObserved
from headgate.facts.topics import message_limit
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.topics import Origin, quiet
from headgate.pipeline.builds import BUILDS
from headgate.tables.definitions import TABLES
from headgate.tables.storage import FILES, StoredTable, connect_duckdb, file_paths
from tests.pipeline.histories import history
from tests.pipeline.test_members_tasks import held, task

FACTS = 4_000
_SHARES = (1.0, 0.1, 0.1, 1.0)  # each revision writes a large batch, by Spark, and a small one that is collected
_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The tables of the other revision alone, of both in turn, and of this tree alone."""

    old: Path
    both: Path
    new: Path


def run_both_ways(folder: Path, old: Tree, new: Tree, facts: int) -> tuple[list[OnceRun], Places, dict[str, int]]:
    """The four runs over the shared tables, all tables, and the rows that a rebuild has added, by table."""
    runs: list[OnceRun] = []
    written = 0
    with broker(folder) as bootstrap:
        for number, (tree, share) in enumerate(zip((old, new, old, new), _SHARES, strict=True)):
            until = written + int(facts * share)
            write_activity(bootstrap, written, until)
            produce(bootstrap, dispositions(written, until))
            produce(bootstrap, lags(written, until))
            reject(bootstrap)
            asyncio.run(_write(bootstrap, number, [*history(random.Random(number), 60), *tasks(number)]))
            runs.append(run_once(replace(tree, name="both"), folder, bootstrap))
            print(f"{tree.name}: {runs[-1].seconds:.0f} s", file=sys.stderr, flush=True)
            written = until
        alone = [run_once(tree, folder / "alone", bootstrap).tables for tree in (old, new)]
        places = Places(old=alone[0], both=runs[0].tables, new=alone[1])
        missing = missing_rows(*newer_tables(places))
        for table in missing:
            rebuild(replace(new, name="both"), folder, bootstrap, table)
    return runs, places, missing


def lags(start: int, end: int) -> Iterator[Fact]:
    """Of now, because the table keeps two days."""
    now_ms = time.time_ns() // 1_000_000
    for number in range(start, end):
        yield GroupLagsObserved(
            at=now_ms + number,
            group=f"group-{number % 50}",
            topic=f"topic-{number % 100}",
            kind="classic",
            topic_id=None,
            partitions=(0, 1),
            committed=(number, number + 1),
            ends=(number + 10, number + 10),
            lags=(10, 9),
        )


def tasks(number: int) -> list[MemberTasksObserved]:
    """Of seven members; what they held in the round before ends."""
    return [held(f"m-{one % 7}", task(one % 3), task(number, "standby"), at=100 * number + one) for one in range(20)]


def reject(bootstrap: str) -> None:
    """Write a record that is no fact for each query."""
    producer = Producer(quiet({"bootstrap.servers": bootstrap}))
    for suffix in ("state", "activity"):
        producer.produce(PREFIX + suffix, key=b"no fact", value=b"{")
    producer.flush()


async def _write(bootstrap: str, number: int, facts: Iterable[Fact | Ended]) -> None:
    settings = quiet({"bootstrap.servers": bootstrap})
    origin = Origin(cluster="c", writer="gw/0", boot=f"b{number}")
    writer = FactWriter(settings, prefix=PREFIX, origin=origin, largest=message_limit(_MAX_BYTES))
    try:
        for fact in facts:
            await writer.write(fact)
    finally:
        await writer.close()


def newer_tables(places: Places) -> tuple[Hashes, Hashes]:
    """Of both revisions in turn, and of this tree alone, the tables that the other revision does not have."""
    known = table_hashes([places.old, places.both, places.new])[0]
    both, new = table_hashes([places.both, places.new])
    return _without(both, known), _without(new, known)


def _without(found: Hashes, known: Hashes) -> Hashes:
    return {name: hashes for name, hashes in found.items() if name not in known}


def missing_rows(both: Hashes, new: Hashes) -> dict[str, int]:
    """How many rows each of these tables lacks that the other revision had a part in; rows too many are a defect."""
    differences = {
        name: rows - both.get(name, (0, 0))[0] for name, (rows, _) in new.items() if both.get(name) != new[name]
    }
    if wrong := {name: count for name, count in differences.items() if count <= 0}:
        raise RuntimeError(f"rows that this tree alone does not make: {wrong}")
    return differences


def compare(places: Places) -> tuple[list[str], Hashes]:
    """Sentences about equal rows, and the rows of the shared tables; different ones end the run.

    Tables that only this tree knows are those of the shared place and of this tree alone.
    """
    common = table_hashes([places.old, places.both, places.new])
    newer = newer_tables(places)
    if missing := BUILDS.keys() - common[1].keys() - newer[0].keys():
        raise RuntimeError(f"no facts were written for {', '.join(sorted(missing))}")
    lines = [*equal_rows("all revisions", common)]
    lines += equal_rows("of tables that the other revision does not have", newer) if newer[0] else ()
    return lines, {**common[1], **newer[0]}


def stored_copies(place: Path, names: Iterable[str]) -> dict[str, int]:
    """Of each of these tables that has any, the rows that are stored once more."""
    found: dict[str, int] = {}
    with connect_duckdb(memory_mb=1024) as duckdb:
        for name in names:
            stored = StoredTable(place, TABLES[name])
            stored.newest()
            sql = f"SELECT count(*) - count(DISTINCT t) FROM (SELECT * FROM {FILES}) AS t"
            ((copies,),) = duckdb.sql(sql, params=[file_paths(stored.files())]).fetchall()
            found[name] = int(copies)
    return {name: copies for name, copies in found.items() if copies}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Sentences about equal rows; by table, the rows that are stored twice and those that a rebuild has added."""

    lines: Sequence[str]
    copies: Mapping[str, int]
    rebuilt: Mapping[str, int]


def page_section(old: str, seconds: Sequence[float], found: Found, measured: str) -> str:
    """The section of bench/PIPELINE.md, from its title on."""
    took = ", ".join(f"{one:.0f}" for one in seconds)
    lines = [
        f"## {old} and this tree over one checkpoint",
        "",
        measured,
        "",
        f"{old}, this tree, {old}, this tree: `--once` took {took} s, over the same tables and checkpoints,",
        "with new facts before each. Distinct rows of each table and the sum of their hashes (DuckDB's `hash`),",
        "beside those of runs that read all facts alone, into empty tables:",
        "",
        *found.lines,
        f"- rows that are stored twice, which readers leave out: {_counts(found.copies)}",
    ]
    if found.rebuilt:
        lines.append(
            f"- rows that were missing, because {old} does not know their table and had read their records, until "
            f"`headgate pipeline rebuild TABLE`: {_counts(found.rebuilt)}"
        )
    return "\n".join([*lines, ""])


def _counts(tables: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(tables.items())) or "none"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_both_ways", description=__doc__)
    parser.add_argument("--old", required=True, help="the other revision")
    parser.add_argument("--facts", type=int, default=FACTS, help="of each large topic, in a large batch")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page that has the section (default: %(default)s)")
    args = parser.parse_args(given)
    facts = ", ".join(f"{key} {value}" for key, value in machine.facts().items())
    command = " ".join(["python -m bench.pipeline_both_ways", *(sys.argv[1:] if given is None else given)])
    measured = f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, `{command}`. {facts}."
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        old, new = stack.enter_context(old_tree(args.old)), Tree(name="this tree", folder=ROOT)
        runs, places, rebuilt = run_both_ways(folder, old, new, args.facts)
        lines, hashes = compare(places)
        found = Found(lines=lines, copies=stored_copies(places.both, hashes), rebuilt=rebuilt)
        section = page_section(args.old, [run.seconds for run in runs], found, measured)
    print(section, flush=True)
    args.out.write_text(with_section(args.out.read_text(encoding="utf-8"), section, before=RECORD), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
