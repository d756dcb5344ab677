"""The cache of kafka: can be thrown away at any moment, and is when it is not what it should be."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headgate.kafka.topics import TopicIdentity
from headgate.topologies.stores.kafka_cache import Current, TopologyCache

IDENTITY = TopicIdentity(cluster="c1", topic_id="t1")
ONE = Current(group="g", offset=4, incarnation="9f2c", epoch=0, hash="sha256:1", member="m", record=b"{}")
GONE = Current(group="h", offset=5, incarnation="77aa")
NAMES = ["", "é", "\udc80", "\0", "x" * 10_000]


@asynccontextmanager
async def opened(path: Path, identity: TopicIdentity = IDENTITY) -> AsyncIterator[tuple[TopologyCache, int]]:
    cache = TopologyCache(path)
    try:
        yield cache, await cache.open(identity)
    finally:
        await cache.close()


async def filled(path: Path, *currents: Current) -> None:
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
    later = Current(group="g", offset=6, incarnation="77aa", epoch=1, hash="sha256:2", member=None, record=b"[]")
    await filled(tmp_path / "c.db", ONE, later)
    async with opened(tmp_path / "c.db") as (cache, _):
        assert await cache.get("g") == later


@pytest.mark.parametrize("name", NAMES)
async def test_names_are_whatever_they_are(tmp_path: Path, name: str) -> None:
    odd = Current(group=name, offset=1, incarnation=name, epoch=0, hash=name, member=name, record=b"")
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
    big = [Current(group=str(n), offset=n, incarnation="i", epoch=0, hash="h", record=b"x" * 5000) for n in range(50)]
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
