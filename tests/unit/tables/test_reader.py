"""The reader: points, ranges, what was so at some time, and tables that are not as they should be."""

import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.errors import PlatformError, UsageError
from headgate.base.locations import Location
from headgate.tables.definitions import VALIDITY
from headgate.tables.files import names_in, remove_folder, write_file
from headgate.tables.object_store import objects_beneath
from headgate.tables.reader import AsOf, AtOffset, AtTime, Condition, Now, Rows, TableReader
from headgate.tables.shared_columns import HISTORIC
from headgate.tables.storage import TableError, storage_options
from headgate.tables.table import Table, text
from headgate.tables.table import time as time_column
from headgate.tables.writer import TableWriter
from tests.unit.tables.things import SORTED_THINGS, THINGS, Row, batch, thing

PERIODS = Table(
    name="periods",
    description="What held from when to when.",
    question="What held?",
    columns=pa.schema([text("cluster_id", "c"), text("name", "n"), *VALIDITY, HISTORIC]),
    key=("cluster_id", "name", "valid_from"),
)
STORED_PERIODS = replace(PERIODS, buckets=4, bucket_by=("cluster_id", "name"))


def period(name: str, start: tuple[int, int], end: tuple[int, int] | None = None, *, cluster: str = "c") -> Row:
    """Offset and time of its start and of its end."""
    valid_to, ended_at = (None, None) if end is None else end
    times = {"valid_from": start[0], "valid_to": valid_to, "at": start[1], "ended_at": ended_at}
    return {"cluster_id": cluster, "name": name, **times, "is_historic": False}


def write(root: Location, table: Table, rows: list[Row], number: int = 0) -> None:
    TableWriter(root, table).upsert(pa.Table.from_pylist(rows, schema=table.columns), query="q", batch=number)


def names(found: Rows) -> str:
    return " ".join(str(row["name"]) for row in found.rows)


@pytest.fixture
def root(place: Location) -> Location:
    rows = [thing(name, part, size=part) for name in "abcd" for part in range(3)]
    for table in (THINGS, SORTED_THINGS):
        write(place, table, rows)
    return place


both = pytest.mark.parametrize("table", [THINGS, SORTED_THINGS], ids=["flat", "buckets"])


@both
def test_a_point_is_read_by_its_key(root: Location, table: Table) -> None:
    where = [Condition("cluster_id", "=", "c"), Condition("name", "=", "b"), Condition("part", "=", 2)]
    assert TableReader(root).rows(table, where=where).rows == (thing("b", 2, size=2),)


@both
def test_a_range_is_read_in_the_order_of_keys(root: Location, table: Table) -> None:
    where = [Condition("name", ">", "a"), Condition("name", "<=", "c"), Condition("part", "!=", 1)]
    found = TableReader(root).rows(table, where=where)
    assert [(row["name"], row["part"]) for row in found.rows] == [("b", 0), ("b", 2), ("c", 0), ("c", 2)]


@both
def test_a_limit_says_that_there_is_more(root: Location, table: Table) -> None:
    reader = TableReader(root)
    assert [len(reader.rows(table, limit=limit).rows) for limit in (0, 1, 11, 12, 13)] == [0, 1, 11, 12, 12]
    assert [reader.rows(table, limit=limit).more for limit in (0, 1, 11, 12, 13)] == [True, True, True, False, False]


def test_only_the_columns_that_are_asked_for(root: Location) -> None:
    found = TableReader(root).rows(THINGS, columns=["part", "name"], limit=1)
    assert [list(row.items()) for row in found.rows] == [[("part", 0), ("name", "a")]]


@both
def test_null_is_neither_equal_nor_different(place: Location, table: Table) -> None:
    write(place, table, [thing("a", by=None), thing("b", by="me")])
    reader = TableReader(place)
    assert names(reader.rows(table, where=[Condition("by", "=", "me")])) == "b"
    assert names(reader.rows(table, where=[Condition("by", "!=", "me")])) == ""


@both
def test_values_are_values_and_never_sql(place: Location, table: Table) -> None:
    values = ["' OR 1=1 --", '"', "?", "$1", "%", "\0", "\N{SNOWMAN}", ""]
    write(place, table, [*map(thing, values), thing("another")])
    reader = TableReader(place)
    for value in values:
        where = [Condition("cluster_id", "=", "c"), Condition("name", "=", value)]
        assert reader.rows(table, where=where).rows == (thing(value),)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (Condition("name; DROP", "=", "a"), "things has no column 'name; DROP'; its columns are: cluster_id, name,"),
        (Condition("name", "= 1 OR", "a"), "is not a comparison"),  # type: ignore[arg-type]
        (Condition("name", "=", 1), "1 is not a value of the column name of things"),
        (Condition("part", "=", True), "True is not a value of the column part"),
        (Condition("part", "=", "1"), "'1' is not a value of the column part"),
        (Condition("is_old", "=", 1), "1 is not a value of the column is_old"),
    ],
)
def test_an_invalid_condition_is_refused(tmp_path: Path, condition: Condition, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TableReader(tmp_path).rows(THINGS, where=[condition])


def test_a_column_that_is_not_there_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="things has no column '1'"):
        TableReader(tmp_path).rows(THINGS, columns=["1"])


def test_a_query_of_one_bucket_reads_one_bucket(root: Location) -> None:
    """The other buckets' files are away, and nobody misses them."""
    kept = SORTED_THINGS.bucket(("c", "a"))
    for number in set(range(4)) - {kept}:
        remove_folder(root / "sorted_things" / f"bucket={number}")
    reader = TableReader(root)
    found = reader.rows(SORTED_THINGS, where=[Condition("cluster_id", "=", "c"), Condition("name", "=", "a")])
    assert names(found) == "a a a"
    with pytest.raises(PlatformError, match="sorted_things: its files cannot be read"):
        reader.rows(SORTED_THINGS)


def test_a_stream_has_everything(root: Location) -> None:
    reader = TableReader(root)
    stream = reader.stream(THINGS)
    assert stream is not None
    assert tuple(stream) == reader.rows(THINGS).rows
    few = reader.stream(THINGS, where=[Condition("name", "=", "d")], columns=["part"], limit=2)
    assert list(few or ()) == [{"part": 0}, {"part": 1}]


# --- what was so at some time ---------------------------------------------------------------------------------------

HISTORY = [
    period("a", (0, 100), (5, 200)),
    period("a", (5, 200)),
    period("b", (2, 150), (4, 190)),
    # The clock of this one's writer is ahead: it was written before offset 5, whatever it says.
    period("late", (3, 900)),
    # Another cluster counts from 0 again.
    period("other", (1, 210), cluster="d"),
]


AS_OF: list[tuple[AsOf, str]] = [
    (AtOffset(0), "a"),
    (AtOffset(2), "a b other"),
    (AtOffset(3), "a b late other"),
    (AtOffset(4), "a late other"),
    (AtOffset(99), "a late other"),
    (AtTime(99), ""),
    (AtTime(100), "a"),
    (AtTime(189), "a b"),
    (AtTime(190), "a late"),
    (AtTime(209), "a late"),
    (AtTime(210), "a late other"),
    (Now(), "a late other"),
]


@pytest.mark.parametrize("table", [PERIODS, STORED_PERIODS], ids=["flat", "buckets"])
def test_rows_as_of_an_offset_or_a_time(place: Location, table: Table) -> None:
    write(place, table, HISTORY)
    reader = TableReader(place)
    for as_of, expected in AS_OF:
        assert names(reader.rows(table, as_of=as_of)) == expected, as_of
        for name in ("a", "b", "late"):
            where = [Condition("cluster_id", "=", "c"), Condition("name", "=", name)]
            found = names(reader.rows(table, where=where, as_of=as_of))
            assert found == (name if name in expected.split() else ""), as_of


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=8))
def test_at_every_offset_the_answer_is_that_of_a_replay(events: list[tuple[str, int]]) -> None:
    """An event says that its name has begun anew; the offset is its place, and clocks go as they like."""
    rows: dict[str, list[Row]] = {}
    for offset, (name, at) in enumerate(events):
        if name in rows:
            rows[name][-1] |= {"valid_to": offset, "ended_at": at}
        rows.setdefault(name, []).append(period(name, (offset, at)))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, PERIODS, [row for periods in rows.values() for row in periods])
        reader = TableReader(root)
        for offset in range(len(events)):
            held = {name: place for place, (name, _) in enumerate(events[: offset + 1])}
            found = reader.rows(PERIODS, as_of=AtOffset(offset)).rows
            assert {str(row["name"]): row["valid_from"] for row in found} == held
        for now in range(10):
            last = max((offset for offset, (_, at) in enumerate(events) if at <= now), default=-1)
            at_offset = reader.rows(PERIODS, as_of=AtOffset(last)).rows if last >= 0 else ()
            assert reader.rows(PERIODS, as_of=AtTime(now)).rows == at_offset


def test_validity_by_time_is_compared_with_the_time(place: Location) -> None:
    times = [time_column(name, "a time", null=name == "valid_to") for name in ("valid_from", "valid_to")]
    others = [column for column in PERIODS.columns if column.name not in {"valid_from", "valid_to"}]
    table = replace(PERIODS, columns=pa.schema([*others, *times]))
    # By the other times, which are those of writers' clocks, nothing would be valid.
    write(place, table, [period("a", (10, 900), (30, 900)), period("b", (30, 900))])
    reader = TableReader(place)
    for at, expected in ((9, ""), (10, "a"), (29, "a"), (30, "b"), (99, "b")):
        assert names(reader.rows(table, as_of=AtTime(at))) == expected
    assert names(reader.rows(table, as_of=Now())) == "b"
    with pytest.raises(UsageError, match="valid by time: read it as of a time, not of an offset"):
        reader.rows(table, as_of=AtOffset(9))


def test_a_table_without_validity_has_no_past(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="things has no validity"):
        TableReader(tmp_path).rows(THINGS, as_of=Now())


# --- tables that are not as they should be --------------------------------------------------------------------------


def test_a_table_that_is_not_there_is_empty_and_says_so(place: Location) -> None:
    if isinstance(place, Path):
        (place / "sorted_things" / "_delta_log").mkdir(parents=True)  # a writer was killed here
    reader = TableReader(place)
    for table in (THINGS, SORTED_THINGS):
        assert reader.rows(table) == Rows(present=False, version=None, rows=(), more=False)
        assert reader.stream(table) is None
        assert reader.summary(table) is None
    write(place, THINGS, [thing()])
    assert reader.rows(THINGS).present


def test_a_folder_that_is_no_table_is_an_error(place: Location) -> None:
    write_file(place / "things" / "a.parquet", "x")
    write_file(place / "sorted_things", "x")
    for table in (THINGS, SORTED_THINGS):
        with pytest.raises(TableError, match=r"not a Delta table: move it away"):
            TableReader(place).rows(table)


def test_a_broken_log_is_said_plainly(root: Location) -> None:
    log = root / "things" / "_delta_log"
    for name in names_in(log):
        write_file(log / name, "nonsense")
    with pytest.raises(PlatformError, match=r"things: the table cannot be used: "):
        TableReader(root).rows(THINGS)


def test_new_rows_are_seen_at_once(root: Location) -> None:
    reader = TableReader(root)
    writer = TableWriter(root, THINGS)
    for number in range(1, 5):
        version = writer.upsert(batch([thing("e", number)]), query="q", batch=number).version
        found = reader.rows(THINGS)
        assert (len(found.rows), found.version) == (12 + number, version)


def test_an_unchanged_table_is_not_opened_again(root: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = TableReader(root)
    reader.rows(THINGS)
    monkeypatch.setattr("headgate.tables.storage.DeltaTable.update_incremental", None)
    monkeypatch.setattr("headgate.tables.storage.DeltaTable.get_add_actions", None)
    assert len(reader.rows(THINGS).rows) == 12


def test_a_table_that_was_replaced_by_another_is_noticed(root: Location) -> None:
    reader = TableReader(root)
    assert len(reader.rows(THINGS).rows) == 12
    remove_folder(root / "things")
    assert not reader.rows(THINGS).present
    for number in range(3):
        write(root, THINGS, [thing(str(number))], number)
    assert names(reader.rows(THINGS)) == "0 1 2"


def test_a_reader_that_slept_too_long_reads_the_newer_version(root: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the list of files and their reading, a vacuum takes them all."""
    reader = TableReader(root)
    writer = TableWriter(root, THINGS)
    seen = reader._version

    def slow(table: Table) -> object:
        version = seen(table)
        if version[0] == 1:
            writer.upsert(batch([thing("a", size=9)]), query="q", batch=1)
            writer.optimize(retention_hours=0)
        return version

    monkeypatch.setattr(reader, "_version", slow)
    assert reader.rows(THINGS).rows[0] == thing("a", size=9)


def test_a_summary_has_sizes_and_the_last_commit(root: Location) -> None:
    before = time.time() * 1000
    write(root, SORTED_THINGS, [thing("e")], number=1)
    summary = TableReader(root).summary(SORTED_THINGS)
    assert summary is not None
    assert (summary.version, summary.rows) == (2, 13)
    assert 0 < summary.bytes <= sum(_sizes(root / "sorted_things"))
    exact_ms = 1 if isinstance(root, Path) else 1000  # moto knows seconds
    assert before - exact_ms <= summary.updated <= time.time() * 1000


def _sizes(folder: Location) -> list[int]:
    if isinstance(folder, Path):
        return [file.stat().st_size for file in folder.glob("bucket=*/*.parquet")]
    return [one.size for one in objects_beneath(folder) if one.key.endswith(".parquet")]


def test_threads_share_a_reader(root: Location) -> None:
    reader = TableReader(root)
    counts: list[int] = []

    def ask() -> None:
        for name in "abcd" * 5:
            found = reader.rows(SORTED_THINGS, where=[Condition("name", "=", name)])
            counts.append(len(found.rows))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [3] * 80


def test_a_query_that_needs_more_memory_is_an_error(root: Location) -> None:
    with pytest.raises(PlatformError, match="things: the query failed: Out of Memory"):
        TableReader(root, memory_mb=1).rows(THINGS)


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Rows of 60 MB are sorted and streamed in 50 MB."""
    count = 200_000
    columns = {
        "cluster_id": pa.array(["c"] * count),
        "name": pa.array([f"{number * 7919 % count:0300}" for number in range(count)]),
        "part": pa.array([0] * count, pa.int32()),
        "size": pa.array(range(count)),
        "by": pa.array([None] * count, pa.string()),
        "is_old": pa.array([False] * count),
    }
    TableWriter(tmp_path, THINGS).replace_all(pa.table(columns))
    reader = TableReader(tmp_path, memory_mb=50)
    stream = reader.stream(THINGS, columns=["name"])
    assert stream is not None
    last, seen = "", 0
    for row in stream:
        assert row["name"] > last
        last, seen = row["name"], seen + 1
    assert seen == count


def test_each_key_of_an_appended_table_is_read_once(place: Location) -> None:
    """A copy lies in the table twice, to the letter; no filter, no choice of columns and no limit shows it."""
    table = replace(THINGS, appended=True)
    TableWriter(place, table).create()
    rows = [thing("a"), thing("a"), thing("b"), thing("a", part=1), thing("b")]
    options = storage_options(place)
    write_deltalake(
        str(place / table.name), batch(rows).cast(table.stored_schema), mode="append", storage_options=options
    )
    reader = TableReader(place)
    assert list(reader.rows(table).rows) == [thing("a"), thing("a", part=1), thing("b")]
    assert [row["size"] for row in reader.stream(table, columns=["size"]) or ()] == [1, 1, 1]
    found = reader.rows(table, where=[Condition("name", "=", "a")], columns=["part"], limit=1)
    assert (found.rows, found.more) == (({"part": 0},), True)
    summary = reader.summary(table)
    assert summary is not None
    assert summary.rows == 5, "as it is stored"
