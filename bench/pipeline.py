"""`python -m bench.pipeline`: from a pushed topology to a row that can be read, and what many applications cost.

Three questions. What do the append query, upserts into a large table and large records cost (`pipeline_append.py`)? How
long after a client's push was answered can its rows be read (p95 at `trigger_ms` 1000, target 3 s)?
And how long does the pipeline take to fill empty tables with 2,000 applications of 20,000 nodes and 100,000 edges
(target 60 s), and to follow one of them that changed (target 5 s)? A real broker, gateway and pipeline, each in a
process of its own; rows are read without Spark, as a user reads them.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import machine, pipeline_append
from bench.heartbeats import join, ready
from headgate.embedded import ClusterSpec, EmbeddedKafka
from headgate.facts import TopologyDescribed
from headgate.facts.topics import message_limit
from headgate.facts.topology import Description, ProcessorNode, SourceNode, Subtopology
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.topics import Origin, ensure_topics
from headgate.tables.definitions import table_named
from headgate.tables.reader import Condition, TableReader
from headgate.topologies.wire_descriptions import to_wire
from headgate.wire.messages.streams import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from tests.support.gateway import HEADGATE, running_gateway
from tests.support.ports import port_block

PUSH = 93
APPLICATIONS, NODES, EDGES_A_NODE = 2_000, 10, 9  # a node feeds all that come behind it
PUSHES = 30
TRIGGER_MS, FRESH_S = 1_000, 3.0
_MAX_BYTES = 4 * 1024 * 1024
_PREFIX = "headgate."
_LONGEST_S = 300.0


def application(name: str, nodes: int, *, changed: bool = False) -> Description:
    """A source that feeds processors, each of which feeds the next few."""
    names = [f"{name}-{number}" for number in range(nodes)]
    first = SourceNode(name=names[0], topics=(f"{name}-in",), successors=tuple(names[1 : 1 + EDGES_A_NODE]))
    others = [
        ProcessorNode(
            name=names[number] + ("-changed" if changed and number == nodes - 1 else ""),
            stores=(f"{name}-store",) if number == 1 else (),
            successors=tuple(names[number + 1 : number + 1 + EDGES_A_NODE]),
        )
        for number in range(1, nodes)
    ]
    return Description(subtopologies=(Subtopology(id="0", nodes=(first, *others)),))


@contextmanager
def pipeline(folder: Path, bootstrap: str, log: Path, *, trigger_ms: int | None = None) -> Iterator[None]:
    """`headgate pipeline run` until the block ends."""
    config = folder / "pipeline.toml"
    keys = {
        "upstream.bootstrap": [bootstrap],
        "upstream.service_mechanism": "none",
        "facts.prefix": _PREFIX,
        "tables.path": str(folder / "tables"),
        "pipeline.checkpoint": str(folder / "checkpoints"),
        **({} if trigger_ms is None else {"pipeline.trigger_ms": trigger_ms}),
    }
    config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    with log.open("ab") as sink:
        process = subprocess.Popen([HEADGATE, "pipeline", "run", "--config", config], stdout=sink, stderr=sink)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def rows_of(reader: TableReader, table: str, application_id: str) -> int:
    found = reader.rows(table_named(table), where=(Condition("app_id", "=", application_id),), limit=1000)
    return len(found.rows)


def wait_for(reader: TableReader, application_id: str, *, at_least: int = 1, table: str = "topology_nodes") -> None:
    by = time.monotonic() + _LONGEST_S
    while rows_of(reader, table, application_id) < at_least:
        if time.monotonic() > by:
            raise RuntimeError(f"{application_id} has no rows in {table}")
        time.sleep(0.02)


def count(reader: TableReader, table: str) -> int:
    summary = reader.summary(table_named(table))
    return 0 if summary is None else summary.rows


async def freshness(address: str, reader: TableReader) -> list[float]:
    """Seconds from the answer of a push to its rows, one push after the other, at moments of their own."""
    found = []
    for number in range(-1, PUSHES):  # the first one waits for Spark's start, and does not count
        group = f"fresh-{number}"
        link, _ = await join(address, group, "m", 1)
        request = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=group,
            member_id="m",
            topology_epoch=0,
            topology_description=to_wire(application(group, NODES)),
        )
        answer = await link.call(request, 0)
        answered = time.perf_counter()
        if answer.error_code:
            raise RuntimeError(f"a push was refused: {answer}")
        await asyncio.to_thread(wait_for, reader, group, at_least=NODES)
        took = time.perf_counter() - answered
        print(f"push {number}: {took:.2f} s", file=sys.stderr)
        if number >= 0:
            found.append(took)
        await link.shut()
        await asyncio.sleep(0.37 * (number % 5))
    return found


async def write(bootstrap: str, names: Sequence[str], *, changed: bool = False) -> None:
    """Facts as a gateway writes them."""
    settings = {"bootstrap.servers": bootstrap}
    origin = Origin(cluster="c", writer="bench/0", boot=str(time.time_ns()))
    writer = FactWriter(settings, prefix=_PREFIX, origin=origin, largest=message_limit(_MAX_BYTES))
    try:
        for start in range(0, len(names), 100):
            await asyncio.gather(
                *(
                    writer.write(
                        TopologyDescribed(
                            at=int(time.time() * 1000),
                            group=name,
                            incarnation="0",
                            epoch=0,
                            hash=f"sha256:{name}{changed}",
                            provenance="pushed",
                            member=None,
                            process=None,
                            description=application(name, NODES, changed=changed),
                        )
                    )
                    for name in names[start : start + 100]
                )
            )
    finally:
        await writer.close()


def run_freshness(folder: Path, trigger_ms: int) -> list[float]:
    with ExitStack() as stack:
        kafka = EmbeddedKafka(ClusterSpec(data_dir=folder / "kafka", port=port_block()))
        kafka.start()
        stack.callback(kafka.stop)
        gateway = stack.enter_context(
            running_gateway(
                folder / "gateway", kafka.bootstrap, topologies__owner="gateway", topologies__store="kafka:"
            )
        )
        ready(gateway)
        stack.enter_context(pipeline(folder, kafka.bootstrap, folder / "pipeline.log", trigger_ms=trigger_ms))
        reader = TableReader(folder / "tables")
        stack.callback(reader.close)
        return asyncio.run(freshness(gateway.address(0), reader))


def run_many(folder: Path, applications: int) -> tuple[float, float, int]:
    """Seconds of the backfill and of one change, and the edges that came out."""
    with ExitStack() as stack:
        kafka = EmbeddedKafka(ClusterSpec(data_dir=folder / "kafka", port=port_block()))
        kafka.start()
        stack.callback(kafka.stop)
        settings = {"bootstrap.servers": kafka.bootstrap}
        asyncio.run(ensure_topics(settings, prefix=_PREFIX, max_bytes=_MAX_BYTES))
        names = [f"app-{number}" for number in range(applications)]
        asyncio.run(write(kafka.bootstrap, ["warm"]))
        stack.enter_context(pipeline(folder, kafka.bootstrap, folder / "pipeline.log"))
        reader = TableReader(folder / "tables")
        stack.callback(reader.close)
        wait_for(reader, "warm")  # Spark's own start is not what this is about
        asyncio.run(write(kafka.bootstrap, names))
        began = time.perf_counter()
        while count(reader, "topology_nodes") < (applications + 1) * NODES:
            if time.perf_counter() - began > _LONGEST_S:
                raise RuntimeError("the tables are not filled in time")
            time.sleep(0.1)
        filled = time.perf_counter() - began
        asyncio.run(write(kafka.bootstrap, names[:1], changed=True))
        began = time.perf_counter()
        wait_for(reader, names[0], at_least=2 * NODES)
        return filled, time.perf_counter() - began, count(reader, "topology_edges")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--applications", type=int, default=APPLICATIONS)
    parser.add_argument("--trigger-ms", type=int, default=TRIGGER_MS, help="of the pushes that are followed")
    parser.add_argument("--rows", default=",".join(map(str, pipeline_append.ROWS)), help="of the append query")
    parser.add_argument("--upserted", type=int, default=pipeline_append.UPSERTED, help="rows of the table of upserts")
    parser.add_argument("--large", type=int, default=pipeline_append.LARGE_RECORDS, help="records of a megabyte")
    parser.add_argument("--only", choices=("topologies", "append"), help="one half of it")
    args = parser.parse_args(given)
    facts = ", ".join(f"{key} {value}" for key, value in machine.facts().items())
    print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, `python -m bench.pipeline`. {facts}.\n", flush=True)
    if args.only != "append":
        _topologies(args)
    if args.only != "topologies":
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
            sizes = [int(size) for size in args.rows.split(",")]
            print("\n".join(["", *pipeline_append.page(Path(name), sizes, args.upserted, args.large)]))
    return 0


def _topologies(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        times = sorted(run_freshness(Path(name) / "fresh", args.trigger_ms))
        filled, changed, edges = run_many(Path(name) / "many", args.applications)
    p95 = times[min(len(times) - 1, int(len(times) * 0.95))]
    many = f"{args.applications:,} applications, {args.applications * NODES:,} nodes, {edges:,} edges"
    print(f"""| what | target | found |
|---|---:|---:|
| push answered to rows readable, p50 of {len(times)} | | {statistics.median(times):.2f} s |
| the same, p95, at a trigger of {args.trigger_ms} ms | {FRESH_S:.0f} s | {p95:.2f} s |
| the same, longest | | {times[-1]:.2f} s |
| {many} into empty tables | 60 s | {filled:.1f} s |
| one of them changed | 5 s | {changed:.2f} s |""")


if __name__ == "__main__":
    sys.exit(main())
