"""Writers of one table on a real S3 server, 40 ms away: whatever was acknowledged is in the table, and once.

One writer a table is what the pipeline keeps to. Two kinds of writers at a time, deltalake and Spark, are what an
operator can cause by mistake, and what lost commits before Spark had a log store of its own.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.base.locations import ObjectLocation
from headgate.pipeline.session import end_session, start_session
from headgate.pipeline.spark_storage import spark_address
from headgate.tables.object_store import create_object
from headgate.tables.reader import TableReader
from headgate.tables.storage import TableError
from headgate.tables.writer import TableWriter
from tests.soak.page import write_section
from tests.support.object_stores import ObjectStoreServer, versitygw_server
from tests.support.slow_link import slow_link
from tests.support.spark import SETTINGS
from tests.unit.tables.things import THINGS, batch, thing

ROUND_TRIP_S = 0.04
WRITERS = 4
COMMITS = 10
RACES, RACERS = 60, 16


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectLocation]:
    folder: Path = tmp_path_factory.mktemp("store")
    with versitygw_server(folder) as near, slow_link(near.port, round_trip_s=ROUND_TRIP_S) as port:
        yield ObjectStoreServer(endpoint=f"http://127.0.0.1:{port}").new_location()


@pytest.fixture(scope="module")
def session(root: ObjectLocation) -> Iterator[SparkSession]:
    made = start_session(SETTINGS, (root,))
    yield made
    end_session(made)


def test_of_racing_creations_one_wins(root: ObjectLocation) -> None:
    with ThreadPoolExecutor(RACERS) as threads:
        for race in range(RACES):
            begin = threading.Barrier(RACERS)

            def create(
                racer: int, place: ObjectLocation = root / f"race-{race}", begin: threading.Barrier = begin
            ) -> bool:
                begin.wait()
                return create_object(place, b"%d" % racer) is not None

            assert sum(threads.map(create, range(RACERS))) == 1


@pytest.mark.timeout(1200)
def test_no_acknowledged_row_of_two_kinds_of_writers_is_lost(root: ObjectLocation, session: SparkSession) -> None:
    place = root / "shared"
    TableWriter(place, THINGS).create()
    acknowledged: set[tuple[str, int]] = set()
    refused = 0
    lock = threading.Lock()

    def upsert(name: str) -> None:
        nonlocal refused
        writer = TableWriter(place, THINGS)
        for number in range(COMMITS):
            try:
                writer.upsert(batch([thing(name, number)]), query=name, batch=number)
            except TableError:  # it lost five times in a row, and says so
                with lock:
                    refused += 1
                continue
            with lock:
                acknowledged.add((name, number))

    def append(name: str) -> None:
        own = session.newSession()
        schema = from_arrow_schema(pa.schema([column.remove_metadata() for column in THINGS.columns]))
        for number in range(COMMITS):
            rows = own.createDataFrame(batch([thing(name, number)]), schema)
            options = {"txnAppId": name, "txnVersion": str(number)}
            rows.write.format("delta").mode("append").options(**options).save(spark_address(place / THINGS.name))
            with lock:
                acknowledged.add((name, number))

    with ThreadPoolExecutor(WRITERS) as threads:
        deltas = [threads.submit(upsert, f"delta-{number}") for number in range(WRITERS // 2)]
        sparks = [threads.submit(append, f"spark-{number}") for number in range(WRITERS // 2)]
        for one in (*deltas, *sparks):
            one.result()
    found = [(str(row["name"]), row["part"]) for row in TableReader(place).stream(THINGS) or ()]
    lost = acknowledged - set(found)
    what = f"{WRITERS // 2} writers of each kind, deltalake and Spark, in one table on versitygw, 40 ms away"
    counts = f"acknowledged {len(acknowledged)}, refused {refused}, lost {len(lost)}"
    lines = [f"{what}, {COMMITS} commits each.", "", f"- {counts}"]
    write_section("Concurrent writers on an object store", lines)
    assert not lost
    assert len(found) == len(set(found)), "each once"
    assert len(acknowledged) > COMMITS
