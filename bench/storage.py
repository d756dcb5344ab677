"""`python -m bench.storage --rows 100000`: tables in a folder, on an S3 server beside us, and on one 40 ms away.

The server is versitygw (see `docs/storage.md`), and the distance a proxy that delays every byte. In each place a table
with 16 buckets is written, and measured are: a point read by a reader that has just been opened, by one that has read
the file before, and a batch of 50 rows, new and changed ones, by one writer. `--out FILE` appends the page.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench import machine
from headgate.base.locations import Location
from headgate.tables.reader import Condition, TableReader
from headgate.tables.table import Table, text, whole
from headgate.tables.writer import TableWriter
from tests.support.object_stores import ObjectStoreServer, versitygw_server
from tests.support.slow_link import slow_link

ROUND_TRIP_S = 0.04
BATCH_ROWS = 50
TABLE = Table(
    name="measured",
    description="Rows of a benchmark.",
    question="How long does a row take?",
    columns=pa.schema(
        [text("cluster_id", "the cluster"), text("name", "the name"), whole("size", "a number"), text("by", "a text")]
    ),
    key=("cluster_id", "name"),
    buckets=16,
    bucket_by=("cluster_id", "name"),
)


def rows(numbers: Sequence[int], size: int) -> pa.Table:
    columns = {
        "cluster_id": ["c"] * len(numbers),
        "name": [f"row-{number}" for number in numbers],
        "size": [size] * len(numbers),
        "by": [f"User:{number % 97}" for number in numbers],
    }
    return pa.table(columns, schema=TABLE.columns)


def measured_ms(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - started)


def read_point(reader: TableReader, number: int) -> None:
    where = [Condition("cluster_id", "=", "c"), Condition("name", "=", f"row-{number}")]
    assert len(reader.rows(TABLE, where=where).rows) == 1


def measure(root: Location, count: int, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each operation, by its name."""
    chance = random.Random(7)
    writer = TableWriter(root, TABLE)
    writer.replace_all(rows(range(count), 0))
    points = [chance.randrange(count) for _ in range(repeats)]
    first: list[float] = []
    for number in points:
        reader = TableReader(root)
        first.append(measured_ms(partial(read_point, reader, number)))
        reader.close()
    reader = TableReader(root)
    for number in points:
        read_point(reader, number)
    again = [measured_ms(partial(read_point, reader, number)) for number in points]
    reader.close()
    batches: list[float] = []
    for batch in range(repeats):
        numbers = sorted({chance.randrange(2 * count) for _ in range(BATCH_ROWS)})
        changed = rows(numbers, batch + 1)
        batches.append(measured_ms(partial(writer.upsert, changed, query="q", batch=batch)))
    writer.close()
    return {"point, first read": first, "point, again": again, f"batch of {BATCH_ROWS}": batches}


def places(stack: ExitStack) -> Iterator[tuple[str, Location]]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    yield "folder", folder / "local"
    near = stack.enter_context(versitygw_server(folder / "store"))
    yield "S3, loopback", near.new_location()
    port = stack.enter_context(slow_link(near.port, round_trip_s=ROUND_TRIP_S))
    yield "S3, 40 ms", ObjectStoreServer(endpoint=f"http://127.0.0.1:{port}").new_location()


def page(count: int, repeats: int) -> list[str]:
    lines = [
        "# Tables on object storage",
        "",
        f"{count:,} rows, {repeats} of each operation; milliseconds, median and 95th percentile. "
        + ", ".join(f"{name} {value}" for name, value in machine.facts().items()),
        "",
        "| place | operation | p50, ms | p95, ms |",
        "|---|---|---:|---:|",
    ]
    with ExitStack() as stack:
        for name, root in places(stack):
            for operation, took in measure(root, count, repeats).items():
                p95 = statistics.quantiles(took, n=20)[-1]
                lines.append(f"| {name} | {operation} | {statistics.median(took):.1f} | {p95:.1f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--out", type=Path, help="append the page to this file")
    options = parser.parse_args()
    text_of_page = "\n".join(page(options.rows, options.repeats)) + "\n"
    print(text_of_page)
    if options.out is not None:
        with options.out.open("a", encoding="utf-8") as out:
            out.write(text_of_page)


if __name__ == "__main__":
    main()
