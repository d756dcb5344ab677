"""Records of headgate.topologies that are removed: which ones, and what is left whatever happens meanwhile."""

import dataclasses
from pathlib import Path

import pytest

from headgate.facts import TopologyDeleted, TopologyDeletionRemoved, TopologyDescribed, TopologyVersionRemoved, encode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.plugin import TransientFailure
from headgate.plugin.conformance import HOSTILE_NAMES, pushed, topology
from headgate.topologies.model.group_state import DeletedVersion, StoredVersion
from headgate.topologies.stores.kafka_cache import MAX_AGE_MS
from headgate.topologies.stores.kafka_store import described_fact
from tests.support.clock import FakeClock
from tests.unit.topologies.topic_store import DAY_MS, START_MS, FakeTopic, topic_store

ALL = 1_000_000


def version(
    name: str = "one", *, group: str = "g", incarnation: str = "9f2c", provenance: str = "pushed"
) -> TopologyDescribed:
    fact = described_fact(pushed(group, topology(name)), at=1)
    return dataclasses.replace(fact, incarnation=incarnation, provenance=provenance)  # type: ignore[arg-type]


def tombstone(fact: TopologyDescribed) -> TopologyVersionRemoved:
    key = {name: getattr(fact, name) for name in ("group", "incarnation", "epoch", "hash", "provenance")}
    return TopologyVersionRemoved(**key)


def deletion(group: str = "g", *, at: int = 1) -> TopologyDeleted:
    return TopologyDeleted(at=at, group=group, incarnation="9f2c")


def key(fact: TopologyDescribed | TopologyDeleted) -> bytes:
    return encode(fact)[1]


def keys(*facts: TopologyDescribed | TopologyDeleted) -> list[bytes]:
    return [key(fact) for fact in facts]


@pytest.fixture
def log() -> FakeTopic:
    return FakeTopic()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START_MS)


# --- tombstones that are read


async def test_the_tombstone_of_a_deletion_leaves_nothing_of_the_group(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock) as (store, reported):
        log.add_fact(version())
        log.add_fact(deletion())
        assert reported == {"g": DeletedVersion("9f2c")}
        log.add_fact(tombstone(version()))
        assert reported == {"g": DeletedVersion("9f2c")}  # an earlier version: nothing changes
        log.add_fact(TopologyDeletionRemoved(group="g"))
        assert reported == {"g": None}
        assert await store.deletions_before(ALL, after=-1, limit=9) == []


async def test_the_tombstone_of_a_deletion_says_nothing_about_a_later_description(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock) as (store, reported):
        log.add_fact(deletion())
        log.add_fact(version("later"))
        log.add_fact(TopologyDeletionRemoved(group="g"))
        assert isinstance(reported["g"], StoredVersion)
        assert await store.get("g", 0) == topology("later")


async def test_a_tombstone_of_the_last_record_ends_it_and_one_of_an_earlier_record_of_its_key_too(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock) as (store, reported):
        for name in ("one", "two", "one"):
            log.add_fact(version(name))
        log.add_fact(tombstone(version("two")))
        assert await store.get("g", 0) == topology("one")
        log.add_fact(tombstone(version("one")))
        assert reported == {"g": None}
        assert await store.get("g", 0) is None


async def test_tombstones_of_unknown_keys_are_skipped(tmp_path: Path, log: FakeTopic, clock: FakeClock) -> None:
    async with topic_store(tmp_path, log, clock) as (store, reported):
        log.add_fact(version())
        for unknown in (b"", b"not json", b'["g"]', key(version("other")), b'["g", "deleted"]'):
            log.add(unknown, None)
        assert await store.get("g", 0) == topology("one")
        assert list(reported) == ["g"]


async def test_records_and_tombstones_of_one_batch_are_taken_in_their_order(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    log.add_fact(version("one", group="back"))
    log.add_fact(tombstone(version("one", group="back")))
    log.add_fact(version("one", group="back"))
    log.add_fact(version("one", group="gone"))
    log.add_fact(tombstone(version("one", group="gone")))
    async with topic_store(tmp_path, log, clock) as (store, reported):
        assert await store.get("back", 0) == topology("one")
        assert await store.get("gone", 0) is None
        assert reported["gone"] is None


async def test_a_gateway_that_was_stopped_reads_the_tombstones_that_it_missed(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock):
        log.add_fact(version())
    log.add_fact(tombstone(version()))
    async with topic_store(tmp_path, log, clock) as (store, reported):
        assert reported == {"g": None}
        assert await store.get("g", 0) is None


@pytest.mark.parametrize(("age_ms", "is_rebuilt"), [(MAX_AGE_MS, False), (MAX_AGE_MS + 1, True), (-1, True)])
async def test_a_cache_that_may_have_missed_tombstones_is_rebuilt(
    tmp_path: Path, log: FakeTopic, clock: FakeClock, age_ms: int, is_rebuilt: bool
) -> None:
    log.add_fact(version())
    async with topic_store(tmp_path, log, clock):
        clock.now_ms += 10 * DAY_MS  # it is current as long as it is open
    clock.now_ms += age_ms
    compacted = FakeTopic()  # its tombstones are gone too
    compacted.records = [ConsumedRecord(0, b"compacted", b"{}")]
    async with topic_store(tmp_path, compacted, clock) as (_, reported):
        assert ("g" in reported) is not is_rebuilt


# --- deleted groups


async def test_a_group_that_was_deleted_in_time_is_removed_whole_and_its_deletion_comes_last(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock) as (store, reported):
        for fact in (version("one"), version("two"), deletion(at=1000), version("one", group="live")):
            log.add_fact(fact)
        assert [one.group for one in await store.deletions_before(999, after=-1, limit=9)] == []
        assert [one.group for one in await store.deletions_before(1000, after=-1, limit=9)] == ["g"]
        assert await store.remove_deleted("g", before=999, limit=9) == 0
        assert await store.remove_deleted("g", before=1000, limit=9) == 3
        written = [(one.key, one.value) for one in log.records[4:]]
        assert written == [(one, None) for one in keys(version("one"), version("two"), deletion())]
        assert reported["g"] is None
        assert log.kept_keys == keys(version("one", group="live"))
        assert await store.remove_deleted("g", before=1000, limit=9) == 0


async def test_a_start_reads_only_the_groups_that_are_left(tmp_path: Path, log: FakeTopic, clock: FakeClock) -> None:
    async with topic_store(tmp_path, log, clock) as (store, _):
        for number in range(20):
            log.add_fact(version(group=f"g{number}"))
            log.add_fact(deletion(f"g{number}"))
        log.add_fact(version(group="live"))
        for number in range(20):
            await store.remove_deleted(f"g{number}", before=ALL, limit=9)
    async with topic_store(tmp_path, log, clock) as (_, reported):
        assert list(reported) == ["live"]
    (tmp_path / "new").mkdir()
    async with topic_store(tmp_path / "new", log.compact(), clock) as (store, reported):
        assert list(reported) == ["live"]
        assert store.next_offset == 1


async def test_a_group_that_was_created_again_is_left_alone(tmp_path: Path, log: FakeTopic, clock: FakeClock) -> None:
    async with topic_store(tmp_path, log, clock) as (store, _):
        for fact in (version("one"), deletion(), version("two", incarnation="77aa")):
            log.add_fact(fact)
        assert await store.deletions_before(ALL, after=-1, limit=9) == []
        assert await store.remove_deleted("g", before=ALL, limit=9) == 0
        assert len(log.records) == 3


async def test_a_deletion_without_a_valid_time_is_kept(tmp_path: Path, log: FakeTopic, clock: FakeClock) -> None:
    async with topic_store(tmp_path, log, clock) as (store, _):
        log.add(b'["g","deleted"]', b'{"v":1,"at":"then","incarnation":"9f2c"}')
        assert await store.deletions_before(ALL, after=-1, limit=9) == []
        assert await store.remove_deleted("g", before=ALL, limit=9) == 0


async def test_what_a_failure_left_is_removed_by_the_next_attempt(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock) as (store, reported):
        for fact in (version("one"), version("two"), deletion()):
            log.add_fact(fact)
        log.fail_after(1)
        with pytest.raises(TransientFailure, match="the leader is gone"):
            await store.remove_deleted("g", before=ALL, limit=9)
        assert reported == {"g": DeletedVersion("9f2c")}
        log.before_append = None
        assert await store.remove_deleted("g", before=ALL, limit=9) == 2
        assert log.kept_keys == []


async def test_a_round_removes_no_more_than_its_limit_and_the_deletion_stays_until_the_end(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock) as (store, reported):
        for number in range(5):
            log.add_fact(version(str(number)))
        log.add_fact(deletion())
        assert [await store.remove_deleted("g", before=ALL, limit=4) for _ in range(3)] == [4, 2, 0]
        assert reported == {"g": None}


async def test_deletions_are_looked_at_in_turn(tmp_path: Path, log: FakeTopic, clock: FakeClock) -> None:
    async with topic_store(tmp_path, log, clock) as (store, _):
        for number in range(5):
            log.add_fact(deletion(f"g{number}"))
        first = await store.deletions_before(ALL, after=-1, limit=3)
        rest = await store.deletions_before(ALL, after=first[-1].offset, limit=3)
        assert [one.group for one in (*first, *rest)] == [f"g{number}" for number in range(5)]


async def test_a_description_that_another_gateway_stores_meanwhile_stays(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    new = version("two", incarnation="77aa")

    def store_again(_: bytes) -> None:
        log.before_append = None
        log.add_fact(new)

    async with topic_store(tmp_path, log, clock) as (store, _):
        log.add_fact(version("one"))
        log.add_fact(deletion())
        log.before_append = store_again
        await store.remove_deleted("g", before=ALL, limit=9)
        assert await store.get("g", 0) == topology("two")
        assert log.kept_keys == keys(new)


async def test_descriptions_that_were_not_pushed_stay_with_a_deleted_group(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock) as (store, _):
        spark = version("query", provenance="spark")
        for fact in (version("one"), spark, deletion()):
            log.add_fact(fact)
        assert await store.remove_deleted("g", before=ALL, limit=9) == 2
        assert log.kept_keys == keys(spark)


# --- versions of one group


async def test_only_the_newest_versions_are_kept_and_never_less_than_the_current_one(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock) as (store, _):
        # The first one is stored again, so it is the newest.
        for name in ("one", "two", "three", "four", "one"):
            log.add_fact(version(name))
        log.add_fact(version("only", group="other"))
        assert await store.groups_with_more_than(4, limit=9) == []
        assert await store.groups_with_more_than(3, limit=9) == ["g"]
        assert await store.remove_oldest("g", kept=4, limit=9) == 0
        assert await store.remove_oldest("g", kept=2, limit=9) == 2
        assert await store.groups_with_more_than(2, limit=9) == []
        assert log.kept_keys == keys(version("four"), version("one"), version("only", group="other"))
        assert await store.get("g", 0) == topology("one")
        assert await store.remove_oldest("g", kept=0, limit=9) == 1
        assert await store.get("g", 0) == topology("one")


async def test_the_oldest_are_removed_first(tmp_path: Path, log: FakeTopic, clock: FakeClock) -> None:
    async with topic_store(tmp_path, log, clock) as (store, _):
        for number in range(6):
            log.add_fact(version(str(number)))
        assert await store.remove_oldest("g", kept=1, limit=2) == 2
        assert log.kept_keys == keys(*(version(str(number)) for number in range(2, 6)))


async def test_versions_of_other_origins_are_neither_counted_nor_removed(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock) as (store, _):
        for name in ("one", "two", "three"):
            log.add_fact(version(name, provenance="spark"))
        log.add_fact(version("pushed"))
        assert await store.groups_with_more_than(1, limit=9) == []
        assert await store.remove_oldest("g", kept=1, limit=9) == 0


async def test_when_a_version_is_stored_again_while_it_is_removed_members_push_it_once_more(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    def store_again(_: bytes) -> None:
        log.before_append = None
        log.add_fact(version("one"))

    async with topic_store(tmp_path, log, clock) as (store, reported):
        for name in ("one", "two"):
            log.add_fact(version(name))
        log.before_append = store_again
        assert await store.remove_oldest("g", kept=1, limit=9) == 1
        # Not the older version, now or after a compaction.
        assert reported == {"g": DeletedVersion("9f2c")}
    (tmp_path / "new").mkdir()
    async with topic_store(tmp_path / "new", log.compact(), clock) as (_, reported):
        assert reported == {"g": DeletedVersion("9f2c")}


# --- a purge


async def test_a_purge_removes_every_origin_and_nothing_of_others(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    async with topic_store(tmp_path, log, clock) as (store, reported):
        other = version(group="g2")
        for fact in (version(), version("query", provenance="spark"), other, deletion()):
            log.add_fact(fact)
        assert await store.remove_all("g", before_offset=store.next_offset) == 3
        assert reported["g"] is None
        assert log.kept_keys == keys(other)


async def test_a_purge_leaves_what_was_pushed_since_it_began(tmp_path: Path, log: FakeTopic, clock: FakeClock) -> None:
    async with topic_store(tmp_path, log, clock) as (store, _):
        log.add_fact(version("one"))
        began = store.next_offset
        new = version("two", incarnation="77aa")
        log.add_fact(deletion())
        log.add_fact(new)
        assert await store.remove_all("g", before_offset=began) == 2
        assert await store.get("g", 0) == topology("two")
        assert log.kept_keys == keys(new)


@pytest.mark.parametrize("group", HOSTILE_NAMES)
async def test_names_are_whatever_they_are(tmp_path: Path, log: FakeTopic, clock: FakeClock, group: str) -> None:
    async with topic_store(tmp_path, log, clock) as (store, reported):
        for fact in (version("one", group=group), version("two", group=group)):
            log.add_fact(fact)
        assert await store.groups_with_more_than(1, limit=9) == [group]
        assert await store.remove_oldest(group, kept=1, limit=9) == 1
        log.add_fact(deletion(group))
        assert [one.group for one in await store.deletions_before(ALL, after=-1, limit=9)] == [group]
        assert await store.remove_deleted(group, before=ALL, limit=9) == 2
        assert reported == {group: None}
        assert log.kept_keys == []


async def test_a_key_in_another_form_than_ours_is_removed_byte_for_byte(
    tmp_path: Path, log: FakeTopic, clock: FakeClock
) -> None:
    spaced = b'[ "g" , "deleted" ]'
    async with topic_store(tmp_path, log, clock) as (store, _):
        log.add(spaced, b'{"v":1,"at":1,"group":"g","incarnation":"9f2c"}')
        assert await store.remove_deleted("g", before=ALL, limit=9) == 1
        assert log.records[-1].key == spaced
