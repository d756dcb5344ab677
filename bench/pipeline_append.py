"""What the append query costs, how upserts fare in a large table, and what memory a pipeline takes.

Does the time of a row rise with the size of the table? `headgate pipeline run --once` reads 10^5 to 4x10^6 facts of
`activity` into an empty table; its own figures of each batch are added up, so Spark's start is left out. Beside it
stand floors on the same rows: Spark's Kafka source into its noop sink, with and without reading the facts, and DuckDB
alone, which reads the finished table and writes it again. Memory is that of all processes of the pipeline together.
"""

import asyncio
import itertools
import json
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer

from headgate.config import load
from headgate.embedded import ClusterSpec, EmbeddedKafka
from headgate.facts import ActivityObserved, TopologyDescribed, encode
from headgate.facts.observations import Actor, Software
from headgate.facts.topology import Description, SourceNode, Subtopology
from headgate.kafka.topics import ensure_topics, quiet
from headgate.tables.definitions import table_named
from headgate.tables.reader import TableReader
from headgate.tables.storage import FILES, StoredTable, connect_duckdb, file_paths
from headgate.tables.writer import TableWriter
from tests.support.gateway import HEADGATE
from tests.support.ports import port_block

ROWS = (100_000, 1_000_000, 4_000_000)
UPSERTED, CHANGED, UPSERTS = 1_000_000, 50, 20
LARGE_RECORDS = 400
PREFIX = "headgate."
_MAX_BYTES = 4 * 1024 * 1024
_MIB = 1024 * 1024
BATCH = re.compile(r"headgate: (\w+): batch \d+: (\d+) rows.*, (\d+) ms$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    rows: int
    seconds: float
    memory_mb: float
    bytes: int


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    kafka = EmbeddedKafka(ClusterSpec(data_dir=folder / "kafka", port=port_block()))
    kafka.start()
    try:
        asyncio.run(ensure_topics({"bootstrap.servers": kafka.bootstrap}, prefix=PREFIX, max_bytes=_MAX_BYTES))
        yield kafka.bootstrap
    finally:
        kafka.stop()


def write_activity(bootstrap: str, start: int, end: int) -> None:
    """Facts as gateways write them, of a thousand clients and a hundred topics."""
    producer = Producer(quiet({"bootstrap.servers": bootstrap}, linger__ms=50, compression__type="lz4"))
    for number in range(start, end):
        fact = ActivityObserved(
            at=1_794_731_900_000 + number,
            cluster="c",
            writer="gw-a/0",
            boot="b1",
            seq=number,
            actor=Actor(kind="client", name=f"service-{number % 1000}", rule="client-id", confidence="likely"),
            topic=f"topic-{number % 100}",
            topic_id=None,
            direction="write" if number % 2 else "read",
            since=1_794_731_840_000 + number,
            until=1_794_731_900_000 + number,
            bytes=number % 100_000,
            records=None,
            principal=f"User:service-{number % 1000}",
            client_id=f"service-{number % 1000}-0",
            group=None,
            transactional_id=None,
            software=Software(name="apache-kafka-java", version="4.3.1"),
            host="10.0.0.7",
        )
        suffix, key, value = encode(fact)
        while True:
            try:
                producer.produce(PREFIX + suffix, key=key, value=value)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def config_file(folder: Path, bootstrap: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    keys = {
        "upstream.bootstrap": [bootstrap],
        "upstream.service_mechanism": "none",
        "facts.prefix": PREFIX,
        "tables.path": str(folder / "tables"),
        "pipeline.checkpoint": str(folder / "checkpoints"),
    }
    file = folder / "pipeline.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    return file


def run_once(file: Path, query: str) -> tuple[int, float, float]:
    """Rows and seconds of a query's batches, and the most memory that all processes took together, in MB."""
    log = file.with_suffix(".log")
    with log.open("wb") as sink:
        command: list[str | Path] = [HEADGATE, "pipeline", "run", "--once", "--config", file]
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    most = 0.0
    while process.poll() is None:
        most = max(most, tree_mb(process.pid))
        time.sleep(0.5)
    if process.returncode:
        raise RuntimeError(log.read_text()[-4000:])
    batches = [(int(rows), int(took)) for name, rows, took in BATCH.findall(log.read_text()) if name == query]
    return sum(rows for rows, _ in batches), sum(took for _, took in batches) / 1000, most


def tree_mb(root: int) -> float:
    """Memory of a process and of all that it has started."""
    parents: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            sizes[int(folder.name)] = int((folder / "statm").read_text().split()[1]) * 4096
        except OSError:
            continue  # it has ended
        parents.setdefault(int(stat[1]), []).append(int(folder.name))
    wanted, total = [root], 0
    while wanted:
        one = wanted.pop()
        total += sizes.get(one, 0)
        wanted += parents.get(one, [])
    return total / 1e6


def append(folder: Path, sizes: Sequence[int]) -> tuple[list[Appended], dict[str, float]]:
    """The query at each size, from an empty table; and the floors, seconds for the largest size each."""
    found = []
    with broker(folder) as bootstrap:
        written = 0
        for size in sizes:
            write_activity(bootstrap, written, size)
            written = size
            place = folder / str(size)
            rows, seconds, memory = run_once(config_file(place, bootstrap), "append")
            if rows != size:
                raise RuntimeError(f"{rows} rows of {size}")
            found.append(Appended(rows=rows, seconds=seconds, memory_mb=memory, bytes=stored_bytes(place)))
        floors = {**noop_floors(bootstrap), **duckdb_floor(folder / str(sizes[-1]))}
    return found, floors


def stored_bytes(place: Path) -> int:
    reader = TableReader(place / "tables")
    try:
        summary = reader.summary(table_named("activity_intervals"))
    finally:
        reader.close()
    return 0 if summary is None else summary.bytes


def noop_floors(bootstrap: str) -> dict[str, float]:
    """Spark's own cost of the same records: read and dropped, and read, turned into columns and dropped."""
    # Spark, only where it is measured.
    from headgate.pipeline.fact_rows import ReadSettings, exact_facts, mark_exact  # noqa: PLC0415
    from headgate.pipeline.queries import APPEND, read_options  # noqa: PLC0415
    from headgate.pipeline.session import end_session, set_compiling, start_session  # noqa: PLC0415

    overrides = {"upstream.bootstrap": [bootstrap], "upstream.service_mechanism": "none", "facts.prefix": PREFIX}
    config = load(None, {}, overrides)
    options = {name: value for name, value in read_options(config, APPEND).items() if name != "maxOffsetsPerTrigger"}
    session = start_session(config.pipeline.spark)
    try:
        set_compiling(session, is_on=True)
        records = session.read.format("kafka").options(**options).load()
        records.limit(1000).write.format("noop").mode("overwrite").save()  # what is slow once
        settings = ReadSettings(prefix=PREFIX, cluster="c", max_bytes={})
        facts = exact_facts(mark_exact(records, ActivityObserved, settings), ActivityObserved, settings)
        found = {}
        for name, frame in (("read", records), ("read into columns", facts)):
            began = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            found[f"Spark, {name}, into its noop sink"] = time.perf_counter() - began
    finally:
        end_session(session)
    return found


def duckdb_floor(place: Path) -> dict[str, float]:
    stored = StoredTable(place / "tables", table_named("activity_intervals"))
    stored.checked()
    files = file_paths(stored.files())
    with connect_duckdb(memory_mb=1024) as duckdb, tempfile.TemporaryDirectory() as name:
        began = time.perf_counter()
        target = str(Path(name) / "copy.parquet")
        duckdb.sql(f"SELECT * FROM {FILES}", params=[files]).write_parquet(target)
        written = time.perf_counter() - began
    reader = TableReader(place / "tables")
    try:
        began = time.perf_counter()
        shown = reader.rows(table_named("activity_intervals"), limit=100)
        asked = time.perf_counter() - began
    finally:
        reader.close()
    if len(shown.rows) != 100:
        raise RuntimeError("the table cannot be read")
    return {
        "DuckDB alone, the finished table read and written again": written,
        "the first 100 rows by key, copies left out": asked,
    }


def upserts(folder: Path, size: int) -> dict[str, float]:
    """Milliseconds for a few changed rows in a large table: with buckets, and without."""
    found = {}
    for table in (table_named("changes"), replace(table_named("changes"), name="changes", buckets=0, bucket_by=())):
        kind = f"{table.buckets} buckets" if table.buckets else "no buckets"
        writer = TableWriter(folder / kind.replace(" ", "-"), table)
        try:
            for start in range(0, size, 100_000):
                writer.upsert(_changes(range(start, min(size, start + 100_000))), query="fill", batch=start)
            writer.optimize()
            times = []
            for number in range(UPSERTS):
                rows = _changes(range(number, size, max(1, size // CHANGED)), event=f"changed-{number}")
                began = time.perf_counter()
                writer.upsert(rows, query="change", batch=number)
                times.append(time.perf_counter() - began)
        finally:
            writer.close()
        found[kind] = 1000 * statistics.median(times)
    return found


def _changes(numbers: range, *, event: str = "operation") -> pa.Table:
    columns = table_named("changes").columns
    count = len(numbers)
    values: dict[str, list[object]] = {
        "cluster_id": ["c"] * count,
        "event_id": [f"event-{number}" for number in numbers],
        "event": [event] * count,
        "subject_kind": ["application"] * count,
        "subject": [f"app-{number % 2000}" for number in numbers],
        "by": [None] * count,
        "detail": ["{}"] * count,
        "topic": ["headgate.events"] * count,
        "topic_id": [None] * count,
        "partition": [0] * count,
        "offset": list(numbers),
        "at": [1_794_731_900_000 + number for number in numbers],
        "is_historic": [False] * count,
    }
    return pa.table({field.name: pa.array(values[field.name], field.type) for field in columns}, schema=columns)


def large_records(folder: Path, count: int) -> tuple[float, float]:
    """Seconds and memory in MB for descriptions of a megabyte each, which one batch would hold."""
    with broker(folder) as bootstrap:
        settings = quiet({"bootstrap.servers": bootstrap}, message__max__bytes=16 * _MIB, linger__ms=5)
        producer = Producer(settings)
        for number in range(count):
            nodes = tuple(SourceNode(name=f"{number} {one} " + "x" * 10_000, topics=("t",)) for one in range(100))
            fact = TopologyDescribed(
                at=number,
                group=f"g-{number}",
                incarnation="1",
                epoch=0,
                hash=f"sha256:{number}",
                provenance="pushed",
                member=None,
                process=None,
                description=Description(subtopologies=(Subtopology(id="0", nodes=nodes),)),
            )
            suffix, key, value = encode(fact)
            producer.produce(PREFIX + suffix, key=key, value=value)
            if number % 20 == 0:
                producer.flush()
        producer.flush()
        _, seconds, memory = run_once(config_file(folder / "large", bootstrap), "facts")
    return seconds, memory


def _added_us(less: Appended, more: Appended) -> float:
    return 1e6 * (more.seconds - less.seconds) / (more.rows - less.rows)


def page(folder: Path, sizes: Sequence[int], upserted: int, records: int) -> list[str]:
    """The lines of the report."""
    found, floors = append(folder / "append", sizes)
    lines = ["| append query | seconds | rows/s | µs a row | memory MB | table MB |", "|---:|---:|---:|---:|---:|---:|"]
    lines += [
        f"| {one.rows:,} rows | {one.seconds:.1f} | {one.rows / one.seconds:,.0f} | {1e6 * one.seconds / one.rows:.1f} "
        f"| {one.memory_mb:,.0f} | {one.bytes / 1e6:.1f} |"
        for one in found
    ]
    lines += [
        "",
        "The first batch of a run has Spark's warming up in it: what a row costs is what more of them cost.",
        "",
    ]
    lines += [
        f"- from {less.rows:,} to {more.rows:,} rows: {_added_us(less, more):.1f} µs a row"
        for less, more in itertools.pairwise(found)
    ]
    lines.append("")
    lines += [f"| floor, {sizes[-1]:,} rows | seconds | rows/s |", "|---|---:|---:|"]
    lines += [f"| {name} | {took:.1f} | {sizes[-1] / took:,.0f} |" for name, took in floors.items()]
    lines += ["", f"| {CHANGED} changed rows in {upserted:,} | p50 of {UPSERTS}, ms |", "|---|---:|"]
    lines += [f"| {kind} | {took:.0f} |" for kind, took in upserts(folder / "upserts", upserted).items()]
    seconds, memory = large_records(folder / "large", records)
    return [*lines, "", f"{records} descriptions of 1 MiB in one batch: {seconds:.1f} s, {memory:,.0f} MB at most."]
