"""`python -m bench.lineage --topics 100`: what questions about a large estate cost.

It writes the figures of bench/LINEAGE.md; the explanations beside them are written by hand and stay.

The estate has domains, as companies have: topics, Streams applications that make some from others, and groups that read
them. Ten domains in a row are connected, each with the next. The estate is in tables, which are read as commands do.
Beside the impact of a topic stands rustworkx alone, and beside a point read DuckDB alone, on the same graph and the
same files. A second graph is the worst case: random pairs, where each topic reaches nearly all. Targets: impact 50 ms,
point reads 20 ms (p95).
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import rustworkx as rx

from bench import machine
from bench.sections import with_section
from headgate.lineage.estate import Estate
from headgate.lineage.graph import LineageFlow, LineageGraph, LineageUse
from headgate.tables.definitions import table_named
from headgate.tables.reader import Condition, Now, TableReader
from headgate.tables.storage import FILES, StoredTable, connect_duckdb, file_paths
from headgate.tables.table import Table
from headgate.tables.writer import TableWriter

CLUSTER = "c1"
# A domain has 1,000 edges: five layers of topics, between two layers three applications with 4 topics in and 6 out, and
# 88 groups that read 10 topics each.
LAYERS, TOPICS_OF_LAYER = 5, 20
APPLICATIONS, INPUTS, OUTPUTS = 3, 4, 6
GROUPS, READ_BY_GROUP = 88, 10
DOMAINS_IN_A_ROW = 10
TOPICS_OF_DOMAIN = LAYERS * TOPICS_OF_LAYER
EDGES_OF_DOMAIN = (LAYERS - 1) * APPLICATIONS * (INPUTS + OUTPUTS) + GROUPS * READ_BY_GROUP
TARGET_MS, POINT_TARGET_MS = 50, 20
PAGE = Path(__file__).with_name("LINEAGE.md")
FIGURES = "## Figures"
NOON, AS_OF = 1_794_744_000_000, "2026-11-15T12:30:00Z"
HOUR_MS = 3_600_000
_EMPTY: dict[pa.DataType, object] = {pa.string(): "", pa.bool_(): False, pa.float64(): 0.0}


def topic(domain: int, number: int) -> str:
    return f"domain-{domain:05}.topic-{number:03}"


def pairs(domains: int, chance: random.Random) -> Iterator[LineageFlow]:
    """Applications read a layer and write the next; of each domain, one reads the last layer of the domain before."""
    for domain in range(domains):
        for layer in range(LAYERS - 1):
            for number in range(APPLICATIONS):
                follows = layer == number == 0 and domain % DOMAINS_IN_A_ROW != 0
                source, first = (domain - 1, LAYERS - 1) if follows else (domain, layer)
                read = chance.sample(range(TOPICS_OF_LAYER), INPUTS)
                written = chance.sample(range(TOPICS_OF_LAYER), OUTPUTS)
                for one in read:
                    for other in written:
                        yield LineageFlow(
                            "streams",
                            f"domain-{domain:05}.app-{layer}-{number}",
                            "0",
                            topic(source, first * TOPICS_OF_LAYER + one),
                            topic(domain, (layer + 1) * TOPICS_OF_LAYER + other),
                        )


def uses(domains: int, chance: random.Random, flows: Iterable[LineageFlow]) -> Iterator[LineageUse]:
    of_applications = {(flow.actor, flow.in_topic, "read") for flow in flows} | {
        (flow.actor, flow.out_topic, "write") for flow in flows
    }
    for actor, name, direction in sorted(of_applications):
        yield LineageUse("streams", actor, name, direction)
    for domain in range(domains):
        for group in range(GROUPS):
            for number in chance.sample(range(TOPICS_OF_DOMAIN), READ_BY_GROUP):
                yield LineageUse(
                    "consumer_group", f"domain-{domain:05}.group-{group:03}", topic(domain, number), "read"
                )


def write_tables(root: Path, flows: Sequence[LineageFlow], edges: Iterable[LineageUse], topics: Iterable[str]) -> None:
    write_rows(
        root,
        table_named("app_io"),
        (
            {"app_id": one.actor, "component": one.component, "in_topic": one.in_topic, "out_topic": one.out_topic}
            | {"incarnation": "9f2c", "hash": "sha256:cd34", "provenance": "pushed", "at": NOON}
            for one in flows
        ),
    )
    write_rows(
        root,
        table_named("lineage_edges"),
        (
            {"actor_kind": one.actor_kind, "app_id": one.actor, "topic": one.topic, "direction": one.direction}
            | {"valid_from": NOON, "observed": True, "bytes_day": 1000, "records_day": 10, "last_seen": NOON}
            for one in edges
        ),
    )
    write_rows(
        root,
        table_named("applications"),
        (
            {"app_id": name, "kind": "streams", "incarnation": "9f2c", "hash": "sha256:cd34", "provenance": "pushed"}
            | {"valid_from": 1, "at": NOON}
            for name in sorted({one.actor for one in flows})
        ),
    )
    every_topic = list(topics)
    write_rows(root, table_named("impact_summary"), ({"topic": one, "at": NOON} for one in every_topic))
    write_rows(
        root,
        table_named("topic_coverage"),
        (
            {"topic": one, "hour": NOON - hour * HOUR_MS, "seen_records": 9, "all_records": 10, "coverage": 0.9}
            for one in every_topic[::10]
            for hour in range(24)
        ),
    )
    write_rows(
        root,
        table_named("lineage_gaps"),
        (
            {"kind": "declared_silent", "actor_kind": "streams", "app_id": f"app-{number}", "topic": one}
            | {"direction": "read", "opened_at": NOON, "state": "open", "coverage": 0.99, "detail": "{}"}
            for number, one in enumerate(every_topic[::10])
        ),
    )
    write_rows(
        root,
        table_named("client_identities"),
        (
            {"client_id": f"client-{number}", "actor_kind": "consumer_group", "actor": f"group-{number}"}
            | {"first_seen": NOON, "last_seen": NOON}
            for number, _ in enumerate(every_topic)
        ),
    )
    write_rows(
        root,
        table_named("breaker_causes"),
        (
            {"event_id": str(number), "group": f"group-{number % 100}", "tripped_at": NOON, "cause_kind": "config"}
            | {"detail": "{}", "at": NOON}
            for number in range(10_000)
        ),
    )


def write_rows(root: Path, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    empty = {one.name: None if one.nullable else _EMPTY.get(one.type, 0) for one in table.columns}
    listed = [empty | {"cluster_id": CLUSTER} | row for row in rows]
    TableWriter(root, table).replace_all(pa.Table.from_pylist(listed, schema=table.columns))


class Times(NamedTuple):
    """Milliseconds; CPU time is that of the process, which other programs on the machine disturb less."""

    p50: float
    p95: float
    cpu_p95: float

    def cells(self) -> str:
        return " | ".join(f"{one:.2f}" for one in self)


def timed(work: Callable[[str], object], names: Sequence[str]) -> Times:
    """The first call is not counted."""
    work(names[0])
    wall, cpu = [], []
    for name in names:
        begin, used = time.perf_counter(), time.process_time()
        work(name)
        wall.append((time.perf_counter() - begin) * 1000)
        cpu.append((time.process_time() - used) * 1000)
    return Times(statistics.median(wall), statistics.quantiles(wall, n=20)[18], statistics.quantiles(cpu, n=20)[18])


def closures(title: str, graph: LineageGraph, names: Sequence[str]) -> list[str]:
    raw, places = graph._graph, graph._topics  # the floor is the same graph without our part
    sizes = [sum(graph.closure(name, "down", limit=1)[1:3]) for name in names]
    head = (
        f"{title}, {graph.edges:,} edges; nodes reached: median {statistics.median(sizes):,.0f}, most {max(sizes):,}."
    )
    ours = timed(lambda name: graph.closure(name, "down", limit=1000), names)
    layers = timed(lambda name: rx.bfs_layers(raw, [places[name]]), names)
    alone = timed(lambda name: rx.descendants(raw, places[name]), names)
    rows = (("headgate", ours), ("rustworkx, layers", layers), ("rustworkx, descendants", alone))
    return [
        head,
        "",
        "| impact of one topic | p50 ms | p95 ms | p95 CPU ms |",
        "|---|---:|---:|---:|",
        *(f"| {name} | {times.cells()} |" for name, times in rows),
        "",
        f"Target {TARGET_MS} ms: {'met' if ours.p95 <= TARGET_MS else '**missed**'}.",
        "",
    ]


def point_reads(root: Path, names: Sequence[str]) -> list[str]:
    lines = ["| point read by topic | p50 ms | p95 ms | p95 CPU ms |", "|---|---:|---:|---:|"]
    reader = TableReader(root)
    for table_name in ("impact_summary", "lineage_edges"):
        table = table_named(table_name)
        as_of = Now() if table.has_validity else None

        def read(name: str, table: Table = table, as_of: Now | None = as_of) -> object:
            where = [Condition("cluster_id", "=", CLUSTER), Condition("topic", "=", name)]
            return reader.rows(table, where=where, as_of=as_of)

        stored = StoredTable(root, table)
        stored.newest()
        files = file_paths(stored.files())
        bare = connect_duckdb()

        def alone(name: str, files: list[str] = files, bare: Any = bare) -> object:
            return bare.execute(f"SELECT * FROM {FILES} WHERE topic = ?", [files, name]).fetchall()

        ours = timed(read, names)
        lines.append(f"| {table_name} ({'met' if ours.p95 <= POINT_TARGET_MS else '**missed**'}) | {ours.cells()} |")
        lines.append(f"| DuckDB alone on its files | {timed(alone, names).cells()} |")
        bare.close()
    reader.close()
    return [*lines, "", f"Target p95 {POINT_TARGET_MS} ms.", ""]


def measure_load(root: Path) -> list[str]:
    """How long the graph takes to read, and the memory at its highest, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.lineage", "--load", str(root)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    return [
        "| reading the graph | |",
        "|---|---:|",
        f"| seconds | {found['seconds']:.1f} |",
        f"| CPU seconds | {found['cpu_seconds']:.1f} |",
        f"| highest memory, MiB | {found['memory_mb']:.0f} |",
        "",
    ]


def questions() -> tuple[tuple[str, ...], ...]:
    """Each question about the estate, as the arguments of `headgate lineage`."""
    last = topic(DOMAINS_IN_A_ROW - 1, TOPICS_OF_DOMAIN - 1)
    return (
        ("impact", topic(0, 0)),
        ("impact", last, "--direction", "up"),
        ("path", topic(0, 0), topic(0, TOPICS_OF_DOMAIN - 1)),
        ("owners", topic(0, 0)),
        ("gaps",),
        ("coverage",),
        ("idle",),
        ("causes", "group-7"),
    )


def measure_commands(root: Path, asked: Iterable[tuple[str, ...]], as_of: str) -> list[str]:
    """Each question as a command, from its start to its end."""
    lines = ["| command | seconds | CPU seconds |", "|---|---:|---:|"]
    for arguments in asked:
        command = [sys.executable, "-m", "headgate.cli.main", "lineage", *arguments, "--as-of", as_of, "--json"]
        used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run([*command, "--path", str(root)], capture_output=True, text=True, check=False)
        taken, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode and arguments[0] != "path":  # there need not be one
            raise SystemExit(done.stderr)
        cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        lines.append(f"| `headgate lineage {' '.join(arguments)}` | {taken:.1f} | {cpu:.1f} |")
    return [*lines, ""]


def load(root: Path) -> None:
    begin, used = time.perf_counter(), time.process_time()
    graph = Estate(root).graph()
    print(
        json.dumps(
            {
                "edges": graph.edges,
                "seconds": time.perf_counter() - begin,
                "cpu_seconds": time.process_time() - used,
                "memory_mb": _highest_memory_mb(),
            }
        )
    )


def _highest_memory_mb() -> float:
    """Of this program alone; the figure of getrusage may be that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def introduction(edges: int) -> list[str]:
    facts = machine.facts() | {name: version(name) for name in ("rustworkx", "duckdb")}
    measured = ", ".join(f"{name} {value}" for name, value in facts.items())
    return [
        FIGURES,
        "",
        f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, `python -m bench.lineage --edges {edges}`. {measured}.",
        "",
        f"Targets: impact of one topic {TARGET_MS} ms, point reads {POINT_TARGET_MS} ms, both p95.",
        "",
    ]


def write_figures(page: Path, lines: Iterable[str]) -> str:
    """Replaces the figures of the page, and nothing else of it."""
    section = "\n".join(lines)
    page.write_text(with_section(page.read_text(encoding="utf-8"), section, before="Why "), encoding="utf-8")
    return section


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--topics", type=int, default=200, help="how many topics are asked about")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page that has the figures (default: %(default)s)")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load is not None:
        load(args.load)
        return
    chance = random.Random(1)
    domains = max(1, args.edges // EDGES_OF_DOMAIN)
    flows = list(pairs(domains, chance))
    names = [topic(chance.randrange(domains), chance.randrange(TOPICS_OF_DOMAIN)) for _ in range(args.topics)]
    lines = introduction(args.edges)
    with tempfile.TemporaryDirectory(prefix="headgate-lineage-") as folder:
        root = Path(folder)
        every_topic = (topic(domain, number) for domain in range(domains) for number in range(TOPICS_OF_DOMAIN))
        edges = list(uses(domains, chance, flows))
        write_tables(root, flows, edges, every_topic)
        lines += [f"{len(edges):,} edges in `lineage_edges` and {len(flows):,} pairs in `app_io`:", ""]
        del edges
        lines += measure_load(root) + measure_commands(root, questions(), AS_OF)
        lines += point_reads(root, names)
        graph = Estate(root).graph()
        names = [name for name in names if graph.has_topic(name)]
        lines += closures("Domains", graph, names)
    del graph, flows
    everything = args.edges // 10
    tangled = [
        LineageFlow(
            "streams", f"app-{number // 4}", "0", f"t{chance.randrange(everything)}", f"t{chance.randrange(everything)}"
        )
        for number in range(args.edges // 2)
    ]
    worst = LineageGraph([], tangled)
    lines += closures("Random pairs, the worst case: each topic reaches nearly all", worst, list(worst.topics)[:20])
    print(write_figures(args.out, lines))


if __name__ == "__main__":
    main()
