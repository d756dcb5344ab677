"""The writer: each batch once, nothing for nothing, and errors that say what to do."""

import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from headgate.base.errors import PlatformError, UsageError
from headgate.base.locations import Location
from headgate.tables.files import names_in, remove_folder
from headgate.tables.reader import TableReader
from headgate.tables.storage import TableError
from headgate.tables.table import Table, text, time, whole
from headgate.tables.writer import Optimized, TableWriter, Written
from tests.support.clock import FakeClock
from tests.unit.tables.things import SORTED_THINGS, THINGS, Row, batch, thing

both = pytest.mark.parametrize("table", [THINGS, SORTED_THINGS], ids=["flat", "buckets"])


def stored(root: Location, table: Table = THINGS) -> list[Row]:
    return list(TableReader(root).rows(table).rows)


@both
def test_a_batch_is_written_once(place: Location, table: Table) -> None:
    TableWriter(place, table).upsert(batch([thing("a", size=1)]), query="q", batch=3)
    again = TableWriter(place, table).upsert(batch([thing("a", size=2)]), query="q", batch=3)
    assert again == Written(rows=0, version=1, repeated=True)
    assert TableWriter(place, table).upsert(batch([thing("b")]), query="q", batch=2).repeated
    assert stored(place, table) == [thing("a", size=1)]


def test_rows_are_appended_once_for_their_transactions_and_copies_stay(place: Location) -> None:
    writer = TableWriter(place, THINGS)
    rows = batch([thing("a", size=1), thing("a", size=1)])
    assert writer.append(rows, transactions={"q": 3, "r": 3}) == Written(rows=2, version=1)
    again = TableWriter(place, THINGS).append(rows, transactions={"q": 3, "r": 2})
    assert again == Written(rows=0, version=1, repeated=True)
    assert writer.append(batch([]), transactions={"q": 4, "r": 4}) == Written(rows=0, version=1), "no rows, no commit"
    assert writer.append(rows, transactions={"q": 4, "r": 3}).rows == 2, "one of them is new"
    assert TableReader(place).summary(THINGS).rows == 4  # type: ignore[union-attr]


def test_a_writer_knows_the_batches_of_each_query(place: Location) -> None:
    assert not TableWriter(place, THINGS).has_batch("q", 0)
    TableWriter(place, THINGS).upsert(batch([thing("a")]), query="q", batch=3)
    writer = TableWriter(place, THINGS)
    assert [writer.has_batch("q", number) for number in (2, 3, 4)] == [True, True, False]
    assert not writer.has_batch("other", 3)


@both
def test_parts_of_a_batch_make_it_known_with_the_last(place: Location, table: Table) -> None:
    writer = TableWriter(place, table)
    first, last = batch([thing("a")]), batch([thing("b")])
    writer.upsert(first, query="q", batch=0, last=False)
    assert not TableWriter(place, table).upsert(first, query="q", batch=0, last=False).repeated
    assert writer.upsert(last, query="q", batch=0).rows == 1
    for part, is_last in ((batch([thing("a", size=9)]), False), (last, True)):
        assert writer.upsert(part, query="q", batch=0, last=is_last).repeated
    assert stored(place, table) == [thing("a"), thing("b")]


def test_a_row_that_has_ended_keeps_the_id_of_its_topic(tmp_path: Path) -> None:
    columns = pa.schema(
        [
            text("cluster_id", "c"),
            text("name", "n"),
            text("topic_id", "the id", null=True),
            whole("valid_from", "from"),
            whole("valid_to", "to", null=True),
        ]
    )
    table = replace(THINGS, columns=columns, key=("cluster_id", "name"))
    writer = TableWriter(tmp_path, table)

    def put(number: int, topic_id: str | None, valid_to: int | None) -> str | None:
        row = {"cluster_id": "c", "name": "a", "topic_id": topic_id, "valid_from": 0, "valid_to": valid_to}
        writer.upsert(pa.Table.from_pylist([row], columns), query="q", batch=number)
        (found,) = stored(tmp_path, table)
        id_ = found["topic_id"]
        assert id_ is None or isinstance(id_, str)
        return id_

    assert put(0, None, None) is None
    assert put(1, "first", None) == "first"
    assert put(2, "second", 7) == "first"
    assert put(3, None, 7) == "first"
    assert put(4, "second", None) == "second", "it holds again"


def test_a_table_can_be_replaced_by_a_stream_of_rows(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path, THINGS)
    writer.upsert(batch([thing("old")]), query="q", batch=0)
    some = [batch([thing(f"{number:03}")]).to_batches()[0] for number in range(100)]
    written = writer.replace_with(pa.RecordBatchReader.from_batches(THINGS.columns, iter(some)))
    assert written == Written(rows=100, version=2)
    assert stored(tmp_path) == [thing(f"{number:03}") for number in range(100)]
    with pytest.raises(UsageError, match="has buckets"):
        TableWriter(tmp_path, SORTED_THINGS).replace_with(pa.RecordBatchReader.from_batches(THINGS.columns, iter(some)))


def test_another_query_has_batches_of_its_own(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path, THINGS)
    writer.upsert(batch([thing("a")]), query="q", batch=3)
    assert writer.upsert(batch([thing("b")]), query="after a lost checkpoint", batch=0).rows == 1


@both
def test_only_rows_that_change_are_written(place: Location, table: Table) -> None:
    writer = TableWriter(place, table)
    rows = [thing(str(number)) for number in range(50)]
    writer.upsert(batch(rows), query="q", batch=0)
    assert writer.upsert(batch([*rows[:49], thing("49", size=None)]), query="q", batch=1).rows == 1


def test_an_empty_batch_makes_the_table(place: Location) -> None:
    TableWriter(place, THINGS).upsert(batch([]), query="q", batch=0)
    found = TableReader(place).rows(THINGS)
    assert (found.present, found.rows) == (True, ())


def test_a_batch_touches_only_its_buckets(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path, SORTED_THINGS)
    writer.upsert(batch([thing(str(number)) for number in range(40)]), query="q", batch=0)
    before = set(DeltaTable(str(tmp_path / "sorted_things")).file_uris())
    writer.upsert(batch([thing("0", size=7)]), query="q", batch=1)
    gone = before - set(DeltaTable(str(tmp_path / "sorted_things")).file_uris())
    assert len(before) == 4
    assert [f"bucket={SORTED_THINGS.bucket(('c', '0'))}/" in path for path in gone] == [True]


def test_readers_need_neither_deletion_vectors_nor_column_mapping(tmp_path: Path) -> None:
    TableWriter(tmp_path, THINGS).create()
    delta = DeltaTable(str(tmp_path / "things"))
    assert delta.metadata().configuration["delta.enableDeletionVectors"] == "false"
    assert delta.protocol().min_reader_version == 1


def test_a_table_that_only_grows_has_numbers_of_rows_and_statistics_of_times_alone(tmp_path: Path) -> None:
    grows = replace(THINGS, columns=THINGS.columns.append(time("at", "when")), appended=True)
    writer = TableWriter(tmp_path, grows)
    writer.append(batch([{**thing("a"), "at": 1}, {**thing("b"), "at": 2}], grows), transactions={"q": 1})
    actions = pa.RecordBatchReader.from_stream(DeltaTable(str(writer.folder)).get_add_actions(flatten=True)).read_all()
    assert actions["num_records"].to_pylist() == [2]
    assert {name for name in actions.column_names if name.startswith(("min.", "max."))} == {"min.at", "max.at"}


def test_hostile_names_stay_as_they_are(place: Location) -> None:
    names = ["", " ", "it's", '"', "\\", "%41", "a\0b", "\n", "\N{SNOWMAN}\U0001f600", "null", "x" * 32_768, "'; --"]
    rows = [thing(name) for name in names]
    for table in (THINGS, SORTED_THINGS):
        writer = TableWriter(place, table)
        writer.upsert(batch(rows), query="it's", batch=0)
        assert writer.upsert(batch([thing(name, size=2) for name in names]), query="it's", batch=1).rows == len(names)
        assert sorted(str(row["name"]) for row in stored(place, table)) == sorted(names)


def test_a_key_twice_in_a_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a key \(cluster_id, name, part\) twice in one batch"):
        TableWriter(tmp_path, THINGS).upsert(batch([thing("a", size=1), thing("a", size=2)]), query="q", batch=0)
    assert not (tmp_path / "things").exists()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (batch([thing()]).drop_columns(["by"]), "have other columns than the table: by"),
        (batch([thing()]).append_column("extra", pa.array([1])), "have other columns than the table: extra"),
        (batch([thing()]).set_column(1, "name", pa.array([None], pa.string())), "do not fit its columns"),
        (batch([thing()]).set_column(2, "part", pa.array([2**40])), "do not fit its columns"),
        (batch([thing()]).set_column(5, "is_old", pa.array([[1]])), "do not fit its columns"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, rows: pa.Table, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TableWriter(tmp_path, THINGS).upsert(rows, query="q", batch=0)


def test_columns_in_another_order_fit(tmp_path: Path) -> None:
    shuffled = batch([thing()]).select(list(reversed(THINGS.columns.names)))
    TableWriter(tmp_path, THINGS).upsert(shuffled, query="q", batch=0)
    assert stored(tmp_path) == [thing()]


def test_the_error_of_another_schema_version_names_the_command_that_fixes_it(place: Location) -> None:
    TableWriter(place, THINGS).upsert(batch([thing()]), query="q", batch=0)
    newer = replace(THINGS, version=2)
    with pytest.raises(TableError, match=r"version is 1.* needs 2: run `headgate pipeline rebuild things --config"):
        TableWriter(place, newer).upsert(batch([thing()]), query="q", batch=1)
    with pytest.raises(TableError, match="rebuild things"):
        TableReader(place).rows(newer)


@pytest.mark.parametrize(
    "other",
    [
        replace(THINGS, columns=THINGS.columns.append(text("new", "n", null=True))),
        replace(THINGS, buckets=4, bucket_by=("name",)),
    ],
    ids=["columns", "buckets"],
)
def test_the_error_of_other_columns_names_the_command_that_fixes_it(tmp_path: Path, other: Table) -> None:
    TableWriter(tmp_path, THINGS).create()
    with pytest.raises(TableError, match=r"not those of schema version 1: run `headgate pipeline rebuild things"):
        TableWriter(tmp_path, other).create()


def test_a_rebuild_replaces_rows_and_schema_in_one_commit(place: Location) -> None:
    TableWriter(place, THINGS).upsert(batch([thing("a"), thing("b")]), query="q", batch=4)
    newer = replace(
        THINGS,
        version=2,
        columns=THINGS.columns.append(text("new", "n", null=True)),
        buckets=4,
        bucket_by=("cluster_id", "name"),
    )
    rows = pa.Table.from_pylist([thing("c") | {"new": "x"}], schema=newer.columns)
    written = TableWriter(place, newer).replace_all(rows)
    assert written == Written(rows=1, version=2)
    assert stored(place, newer) == [thing("c") | {"new": "x"}]
    # The query goes on where it was.
    again = TableWriter(place, newer)
    assert again.upsert(rows, query="q", batch=4).repeated
    assert again.upsert(rows.set_column(3, "size", pa.array([9])), query="q", batch=5).rows == 1


def test_a_rebuild_makes_an_absent_table(tmp_path: Path) -> None:
    TableWriter(tmp_path / "new", THINGS).replace_all(batch([thing()]))
    assert stored(tmp_path / "new") == [thing()]
    configuration = DeltaTable(str(tmp_path / "new" / "things")).metadata().configuration
    assert configuration["delta.enableDeletionVectors"] == "false"


@both
def test_optimizing_joins_files_and_keeps_rows(place: Location, table: Table) -> None:
    writer = TableWriter(place, table)
    for number in range(6):
        writer.upsert(batch([thing("a", part=number)]), query="q", batch=number)
    rows = stored(place, table)
    assert writer.optimize() == Optimized(files_before=6, files_after=1, deleted=0)
    assert writer.optimize(retention_hours=0) == Optimized(files_before=1, files_after=1, deleted=6)
    assert stored(place, table) == rows
    assert writer.upsert(batch([thing("a", part=0)]), query="q", batch=6).rows == 0


def test_rows_are_deleted_when_they_are_older_than_the_table_keeps_them(place: Location) -> None:
    table = replace(THINGS, columns=THINGS.columns.append(time("at", "when")), kept_ms=1000, appended=True)
    writer = TableWriter(place, table, FakeClock(5000))
    for number, at in enumerate((1000, 3999, 4000, 9000)):
        rows = [thing(part=number) | {"at": at}, thing("b", part=number) | {"at": 4500}]
        writer.upsert(batch(rows, table), query="q", batch=number)
    writer.optimize()
    left = [(row["name"], row["at"]) for row in stored(place, table)]
    assert sorted(left) == [("a", 4000), ("a", 9000)] + 4 * [("b", 4500)]
    assert writer.has_batch("q", 3)
    version = writer.version()
    writer.optimize()
    assert writer.version() == version, "nothing to delete is no commit"


def test_optimizing_an_absent_table_does_nothing(place: Location) -> None:
    assert TableWriter(place / "nowhere", THINGS).optimize() is None
    assert names_in(place / "nowhere") == []


def test_another_process_in_between_is_waited_for(place: Location) -> None:
    one, other = TableWriter(place, THINGS), TableWriter(place, THINGS)
    for number in range(4):
        one.upsert(batch([thing("a", size=number)]), query="one", batch=number)
        other.upsert(batch([thing("b", size=number)]), query="other", batch=number)
    other.optimize()
    one.upsert(batch([thing("a", size=9)]), query="one", batch=9)
    assert [row["size"] for row in stored(place)] == [9, 3]


@both
def test_a_table_whose_columns_an_earlier_release_described_otherwise_is_written(place: Location, table: Table) -> None:
    earlier = replace(
        table, columns=pa.schema([text(one.name, "?", null=one.nullable).with_type(one.type) for one in table.columns])
    )
    TableWriter(place, earlier).upsert(batch([thing("a", size=1)]), query="q", batch=1)
    writer = TableWriter(place, table)
    writer.upsert(batch([thing("a", size=2)]), query="q", batch=2)
    writer.append(batch([thing("b")]), transactions={"r": 1})
    writer.record({"r": 2})
    assert writer.transaction("r") == 2
    writer.replace(batch([thing("a", size=3), thing("b")]), within=None, transactions={"r": 3})
    assert stored(place, table) == [thing("a", size=3), thing("b")]
    writer.replace_all(batch([thing("c")]))
    assert stored(place, table) == [thing("c")]


def test_a_race_is_run_again_and_given_up_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TableWriter(tmp_path, THINGS)
    writer.create()
    lost: list[int] = []

    def lose(*_: object) -> None:
        lost.append(1)
        raise CommitFailedError("another was quicker")

    monkeypatch.setattr(writer, "_merge", lose)
    with pytest.raises(TableError, match="another process is writing this table"):
        writer.upsert(batch([thing()]), query="q", batch=0)
    assert len(lost) == 5


def test_a_table_that_goes_away_is_not_made_anew(place: Location) -> None:
    writer = TableWriter(place, THINGS)
    writer.upsert(batch([thing()]), query="q", batch=0)
    remove_folder(place / "things")
    with pytest.raises(TableError, match="was deleted while it was written"):
        writer.upsert(batch([thing("b")]), query="q", batch=1)
    assert names_in(place / "things") == []


def test_a_full_disk_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TableWriter(tmp_path, THINGS)
    writer.upsert(batch([thing()]), query="q", batch=0)

    def full(*_: object, **__: object) -> None:
        raise DeltaError("Generic LocalFileSystem error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr("headgate.tables.writer.DeltaTable.merge", full)
        with pytest.raises(PlatformError, match="things: the disk is full: make room"):
            writer.upsert(batch([thing("b")]), query="q", batch=1)
    assert stored(tmp_path) == [thing()]
    assert writer.upsert(batch([thing("b")]), query="q", batch=1).rows == 1


def test_a_write_that_stops_half_way_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    """The kernel lets the files of this process grow to 20 KB only."""
    TableWriter(tmp_path, THINGS).upsert(batch([thing()]), query="q", batch=0)
    limited = subprocess.run(
        [sys.executable, "-c", _LARGE_WRITE, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "PlatformError" in limited.stdout, limited.stderr
    assert stored(tmp_path) == [thing()]
    assert TableWriter(tmp_path, THINGS).upsert(batch([thing("b")]), query="q", batch=1).rows == 1


_LARGE_WRITE = f"""
import os, resource, sys
from pathlib import Path
from tests.unit.tables.things import THINGS, batch, thing
from headgate.tables.writer import TableWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, {resource.RLIM_INFINITY}))
rows = [thing(os.urandom(20).hex(), number) for number in range(5000)]
try:
    TableWriter(Path(sys.argv[1]), THINGS).upsert(batch(rows), query="q", batch=1)
except Exception as failure:
    print(type(failure).__name__, failure, flush=True)
os._exit(0)
"""


def test_a_folder_that_cannot_be_made_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(PlatformError, match=r"file/things: the table cannot be used: .*Not a directory"):
        TableWriter(tmp_path / "file", THINGS).create()


def test_a_lost_file_is_said_plainly(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path, THINGS)
    writer.upsert(batch([thing()]), query="q", batch=0)
    for file in (tmp_path / "things").glob("*.parquet"):
        file.unlink()
    with pytest.raises(PlatformError, match="things: the table cannot be used: IO Error"):
        writer.upsert(batch([thing("b")]), query="q", batch=1)


def test_something_else_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "notes.txt").write_text("mine")
    writer = TableWriter(tmp_path, THINGS)
    for write in (writer.create, lambda: writer.replace_all(batch([thing()])), writer.optimize):
        with pytest.raises(TableError, match="not a Delta table: move it away"):
            write()
    assert [file.name for file in (tmp_path / "things").iterdir()] == ["notes.txt"]


def test_a_table_of_others_is_left_alone(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "things", pa.table({"a": [1]}))
    with pytest.raises(TableError, match="schema version is unknown"):
        TableWriter(tmp_path, THINGS).create()


def test_a_creation_that_was_killed_is_done_again(tmp_path: Path) -> None:
    (tmp_path / "things" / "_delta_log").mkdir(parents=True)
    TableWriter(tmp_path, THINGS).upsert(batch([thing()]), query="q", batch=0)
    assert stored(tmp_path) == [thing()]


@pytest.mark.parametrize("odd", list("%*?#[]\\"))
def test_a_path_that_the_libraries_take_for_something_else_is_refused(tmp_path: Path, odd: str) -> None:
    with pytest.raises(UsageError, match=r"tables\.path: .*: a folder for tables cannot have . in its path"):
        TableWriter(tmp_path / f"a{odd}b", THINGS)


def test_other_odd_paths_work(tmp_path: Path) -> None:
    root = tmp_path / "it's a 'pl\N{LATIN SMALL LETTER A WITH ACUTE}ce' +,=~!()"
    TableWriter(root, SORTED_THINGS).upsert(batch([thing()]), query="q", batch=0)
    assert stored(root, SORTED_THINGS) == [thing()]
