"""What holds only on an object store: conditional writes, ranges of files, and errors without secrets."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from headgate.base.errors import PlatformError, UsageError
from headgate.base.locations import ObjectLocation
from headgate.tables import object_store
from headgate.tables.files import has_file, names_in, read_file, remove_file, remove_folder, write_file
from headgate.tables.object_reading import ObjectFiles
from headgate.tables.object_store import check_conditional_writes, create_object, put_object, replace_object
from headgate.tables.reader import TableReader
from headgate.tables.writer import TableWriter
from tests.support.object_stores import SECRET, IgnoringConditions, ObjectStoreServer, moto_server
from tests.support.ports import port_block
from tests.unit.tables.things import THINGS, batch, thing

pytestmark = pytest.mark.object_store


@pytest.fixture
def location(store: ObjectStoreServer) -> ObjectLocation:
    return store.new_location()


@pytest.fixture
def _not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_known_to_refuse", set())


def test_small_files_are_there_whole_or_not_at_all(location: ObjectLocation) -> None:
    assert not has_file(location / "a")
    with pytest.raises(FileNotFoundError):
        read_file(location / "a")
    for name in ("a", "b/c", "b/metadata"):
        write_file(location / name, f"of {name}")
    assert read_file(location / "b/c") == "of b/c"
    assert names_in(location) == ["a", "b"]
    remove_folder(location / "b", last="metadata")
    remove_file(location / "a")
    remove_file(location / "a")
    assert names_in(location) == []


def test_an_object_is_created_once_and_replaced_only_as_it_is_known(location: ObjectLocation) -> None:
    first = create_object(location / "x", b"1")
    assert first is not None
    assert create_object(location / "x", b"2") is None
    second = replace_object(location / "x", b"3", first)
    assert second is not None
    assert replace_object(location / "x", b"4", first) is None
    assert read_file(location / "x") == "3"


@pytest.mark.usefixtures("_not_probed")
@pytest.mark.parametrize(
    ("ignored", "problem"),
    [
        (("If-None-Match", "If-Match"), "If-None-Match, so two writers of a table would overwrite"),
        (("If-None-Match",), "If-None-Match, so two writers of a table would overwrite"),
        (("If-Match",), "If-Match, so two pipelines could hold the lock"),
    ],
)
def test_a_store_without_conditional_writes_is_refused(ignored: tuple[str, ...], problem: str) -> None:
    """Two writers of a table would overwrite each other's commits there, or two pipelines run at once."""
    with moto_server(lambda store: IgnoringConditions(store, *ignored)) as server:
        location = server.new_location()
        with pytest.raises(UsageError, match=rf"s3://lake/.*does not honour {problem}"):
            TableWriter(location, THINGS).upsert(batch([thing()]), query="q", batch=0)
        assert names_in(location) == []


@pytest.mark.usefixtures("_not_probed")
def test_the_probe_leaves_nothing_behind(location: ObjectLocation) -> None:
    check_conditional_writes(location)
    assert names_in(location) == []


def test_of_two_writers_no_acknowledged_row_is_lost(location: ObjectLocation) -> None:
    """One writer a table is the rule; a second one costs repetitions, and never rows."""
    TableWriter(location, THINGS).create()
    begin = threading.Barrier(2)

    def write(name: str) -> None:
        writer = TableWriter(location, THINGS)
        begin.wait()
        for number in range(4):
            writer.upsert(batch([thing(name, number)]), query=name, batch=number)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, "ab"))
    found = TableReader(location).rows(THINGS).rows
    assert list(found) == [thing(name, number) for name in "ab" for number in range(4)]


@pytest.mark.parametrize("size", [1, 300_000, 3_000_000])
def test_any_range_of_a_file_is_read(location: ObjectLocation, size: int) -> None:
    content = os.urandom(size)
    put_object(location / "f", content)
    path = str(location / "f").removeprefix("s3://")
    files = ObjectFiles(location.options, kept_bytes=2_000_000)
    assert files.size(path) == size
    edges = sorted({0, 1, size // 2, size - 262_144, size - 262_143, 1_048_576, 2_097_153, size - 1, size, size + 9})
    for start in (edge for edge in edges if edge >= 0):
        for end in (edge for edge in edges if edge >= start):
            assert files.read(path, start, end) == content[start:end]


def test_what_a_reader_keeps_of_files_is_bounded(location: ObjectLocation) -> None:
    files = ObjectFiles(location.options, kept_bytes=2_500_000)
    for name in "abc":
        put_object(location / name, bytes(3_000_000))
        files.read(str(location / name).removeprefix("s3://"), 0, 3_000_000)
    assert sum(map(len, files._kept.values())) == files._bytes <= 2_500_000


def test_a_store_that_cannot_be_reached_is_said_plainly_and_without_secrets(
    store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RETRIES", 0)
    nowhere = ObjectStoreServer(endpoint=f"http://127.0.0.1:{port_block()}").new_location()
    with pytest.raises(PlatformError, match=r"s3://lake/.*the object store cannot be used: ") as failed:
        TableReader(nowhere).rows(THINGS)
    assert SECRET not in str(failed.value)
    no_bucket = replace(store.new_location(), bucket="no-such-bucket")
    with pytest.raises(PlatformError, match=r"s3://no-such-bucket/.*there is no bucket no-such-bucket") as failed:
        TableWriter(no_bucket, THINGS).create()
    assert SECRET not in str(failed.value)


def test_files_that_no_query_read_do_not_keep_others_from_being_fetched_ahead(location: ObjectLocation) -> None:
    files = ObjectFiles(location.options, most_ahead=2)
    for name in "abc":
        put_object(location / name, b"content")
    paths = [str(location / name).removeprefix("s3://") for name in "abc"]
    for path in paths[:2]:
        files.read_ahead(path)
    deadline = time.monotonic() + 20
    while len(files._sizes) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    while "c" not in {path[-1] for path in files._ahead} and time.monotonic() < deadline:
        files.read_ahead(paths[2])
    assert set(files._ahead) == {paths[2]}
    assert files.size(paths[2]) == 7
