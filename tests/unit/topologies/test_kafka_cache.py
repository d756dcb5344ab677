"""Records of headgate.topologies are read quickly and without raising, and cached in a file that may be lost."""

import asyncio
import dataclasses
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.clock import Clock, SystemClock
from headgate.facts import TopologyDeleted, TopologyDescribed, encode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.topics import TopicIdentity
from headgate.plugin import TransientFailure
from headgate.plugin.conformance import HOSTILE_NAMES, pushed, topology
from headgate.topologies.stores.kafka_cache import (
    CachedRecord,
    Tombstone,
    TopologyCache,
    description_in,
    read_record,
)
from headgate.topologies.stores.kafka_store import described_fact
from headgate.topologies.stores.record_keys import RecordKey
from headgate.wire.compression import Compression, compress

MAX_BYTES = 64 * 1024 * 1024


def record(fact: TopologyDescribed | TopologyDeleted, offset: int = 7) -> ConsumedRecord:
    _, key, value = encode(fact)
    return ConsumedRecord(offset, key, value)


def described(group: str = "g", **changes: object) -> TopologyDescribed:
    fact = described_fact(pushed(group), at=1)
    return dataclasses.replace(fact, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("group", HOSTILE_NAMES)
def test_a_description_is_read_by_its_key_and_who_pushed_it(group: str) -> None:
    cached = read_record(record(described(group)))
    assert isinstance(cached, CachedRecord)
    assert (cached.group, cached.offset, cached.incarnation, cached.epoch) == (group, 7, "9f2c", 0)
    assert (cached.hash, cached.member) == (described().hash, "m-1")
    assert description_in(cached, max_bytes=MAX_BYTES) == topology()


def test_a_deletion_is_read_record() -> None:
    found = read_record(record(TopologyDeleted(at=1, group="g", incarnation="9f2c")))
    own_key = RecordKey(key=b'["g","deleted"]', group="g", offset=7, at=1)
    assert found == CachedRecord(group="g", offset=7, incarnation="9f2c", key=own_key)


def test_of_a_description_that_was_not_pushed_only_the_key_is_kept() -> None:
    pasted = record(described(provenance="pasted", member=None))
    assert pasted.key is not None
    assert read_record(pasted) == RecordKey(key=pasted.key, group="g", offset=7, provenance="pasted", at=1)


@pytest.mark.parametrize("at", ['"now"', "true", "-1", "99999999999999999999", "null"])
def test_a_time_that_is_none_is_not_kept(at: str) -> None:
    found = read_record(ConsumedRecord(1, b'["g","deleted"]', b'{"v":1,"incarnation":"i","at":%s}' % at.encode()))
    assert isinstance(found, CachedRecord)
    assert found.key is not None
    assert found.key.at is None


def test_a_record_without_a_value_is_a_tombstone() -> None:
    assert read_record(ConsumedRecord(3, b"any key", None)) == Tombstone(b"any key", 3)
    assert read_record(ConsumedRecord(3, None, None)) is None


def test_a_member_that_is_called_like_the_field_is_no_trap() -> None:
    found = read_record(record(described(member=',"description":{}')))
    assert isinstance(found, CachedRecord)
    assert found.member == ',"description":{}'


def test_another_writers_order_of_fields_is_read_whole() -> None:
    _, key, value = encode(described())
    assert value is not None
    turned = json.dumps(dict(reversed(json.loads(value).items()))).encode()
    found = read_record(ConsumedRecord(1, key, turned))
    assert isinstance(found, CachedRecord)
    assert found.member == "m-1"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b'["g","9f2c",0,"h","guessed"]', b'{"v":1}'),
        (b"not json", b"{}"),
        (b'{"a":1}', b'{"v":1}'),
        (b'["g","9f2c",0,"h","pushed"]', b'{"v":2}'),
        (b'["g","9f2c",0,"h","pushed"]', b'{"v":true}'),
        (b'["g","9f2c",-1,"h","pushed"]', b'{"v":1}'),
        (b'["g","9f2c",true,"h","pushed"]', b'{"v":1}'),
        (b'["g","9f2c",99999999999,"h","pushed"]', b'{"v":1}'),
        (b'["g",1,0,"h","pushed"]', b'{"v":1}'),
        (b'["g","deleted"]', b'{"v":1}'),
        (b'["g","other"]', b'{"v":1,"incarnation":"x"}'),
        (b"[" * 100_000, b"{}"),
        (b'["g","deleted"]', b"[" * 100_000),
    ],
)
def test_other_records_are_skipped(key: bytes | None, value: bytes | None) -> None:
    assert read_record(ConsumedRecord(1, key, value)) is None


@given(st.binary() | st.none(), st.binary() | st.none())
def test_no_bytes_raise(key: bytes | None, value: bytes | None) -> None:
    read_record(ConsumedRecord(1, key, value))


def test_a_record_that_is_no_description_after_all_fails_when_it_is_wanted() -> None:
    found = read_record(ConsumedRecord(1, b'["g","9f2c",0,"h","pushed"]', b'{"v":1,"member":null}'))
    assert isinstance(found, CachedRecord)
    with pytest.raises(TransientFailure, match="at offset 1"):
        description_in(found, max_bytes=MAX_BYTES)


@pytest.mark.parametrize("damaged", [b"", b"not packed", None])
def test_a_record_that_cannot_be_unpacked_fails_when_it_is_wanted(damaged: bytes | None) -> None:
    found = read_record(record(described()))
    assert isinstance(found, CachedRecord)
    with pytest.raises(TransientFailure, match="cannot be decompressed"):
        description_in(dataclasses.replace(found, record=damaged), max_bytes=MAX_BYTES)


def test_a_record_that_unpacks_to_more_than_there_can_be_is_not_unpacked() -> None:
    found = read_record(record(described()))
    assert isinstance(found, CachedRecord)
    with pytest.raises(TransientFailure, match="cannot be decompressed"):
        description_in(dataclasses.replace(found, record=compress(Compression.ZSTD, b" " * 100_000)), max_bytes=1000)


# The cache.

IDENTITY = TopicIdentity(cluster="c1", topic_id="t1")
ONE = CachedRecord(group="g", offset=4, incarnation="9f2c", epoch=0, hash="sha256:1", member="m", record=b"{}")
GONE = CachedRecord(group="h", offset=5, incarnation="77aa")
SYSTEM = SystemClock()
NAMES = ["", "é", "\udc80", "\0", "x" * 10_000]


@asynccontextmanager
async def opened(
    path: Path, identity: TopicIdentity = IDENTITY, clock: Clock = SYSTEM
) -> AsyncIterator[tuple[TopologyCache, int]]:
    cache = TopologyCache(path, clock)
    try:
        yield cache, await cache.open(identity)
    finally:
        await cache.close()


async def filled(path: Path, *currents: CachedRecord) -> None:
    async with opened(path) as (cache, _):
        await asyncio.to_thread(cache.put, currents, 9)


async def test_a_new_cache_begins_at_the_start(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as (cache, start):
        assert start == 0
        assert await cache.all() == []


async def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    await filled(tmp_path / "c.db", ONE, GONE)
    async with opened(tmp_path / "c.db") as (cache, start):
        assert start == 9
        assert [current.group for current in await cache.all()] == ["g", "h"]
        assert await cache.get("g") == ONE
        assert await cache.get("h") == GONE
        assert await cache.get("i") is None


async def test_the_last_record_of_a_group_counts(tmp_path: Path) -> None:
    later = CachedRecord(group="g", offset=6, incarnation="77aa", epoch=1, hash="sha256:2", member=None, record=b"[]")
    await filled(tmp_path / "c.db", ONE, later)
    async with opened(tmp_path / "c.db") as (cache, _):
        assert await cache.get("g") == later


@pytest.mark.parametrize("name", NAMES)
async def test_names_are_whatever_they_are(tmp_path: Path, name: str) -> None:
    odd = CachedRecord(group=name, offset=1, incarnation=name, epoch=0, hash=name, member=name, record=b"")
    await filled(tmp_path / "c.db", odd)
    async with opened(tmp_path / "c.db") as (cache, _):
        assert await cache.get(name) == odd


@pytest.mark.parametrize(
    "other", [TopicIdentity(cluster="c2", topic_id="t1"), TopicIdentity(cluster="c1", topic_id="t2")]
)
async def test_a_cache_of_another_topic_is_made_anew(tmp_path: Path, other: TopicIdentity) -> None:
    await filled(tmp_path / "c.db", ONE)
    async with opened(tmp_path / "c.db", other) as (cache, start):
        assert start == 0
        assert await cache.get("g") is None


async def test_a_file_that_is_no_cache_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "c.db").write_bytes(b"garbage" * 1000)
    async with opened(tmp_path / "c.db") as (_, start):
        assert start == 0


async def test_a_file_of_another_release_is_made_anew(tmp_path: Path) -> None:
    await filled(tmp_path / "c.db", ONE)
    with sqlite3.connect(tmp_path / "c.db") as file:
        file.execute("PRAGMA user_version = 99")
    file.close()
    async with opened(tmp_path / "c.db") as (_, start):
        assert start == 0


async def test_a_file_that_was_cut_off_is_made_anew_or_found_out_when_it_is_used(tmp_path: Path) -> None:
    big = [
        CachedRecord(group=str(n), offset=n, incarnation="i", epoch=0, hash="h", record=b"x" * 5000) for n in range(50)
    ]
    await filled(tmp_path / "c.db", *big)
    path = tmp_path / "c.db"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    async with opened(path) as (cache, start):
        if start == 0:
            return
        found = await asyncio.gather(*(cache.get(str(number)) for number in range(50)), return_exceptions=True)
        assert any(isinstance(one, sqlite3.DatabaseError) for one in found)
        await asyncio.to_thread(cache.wipe)
        assert await cache.all() == []


async def test_wiping_gives_what_was_there_and_begins_at_the_start(tmp_path: Path) -> None:
    await filled(tmp_path / "c.db", ONE)
    async with opened(tmp_path / "c.db") as (cache, _):
        assert [current.group for current in await asyncio.to_thread(cache.wipe)] == ["g"]
    async with opened(tmp_path / "c.db") as (_, start):
        assert start == 0
