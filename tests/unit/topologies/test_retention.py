"""Records of deleted groups are removed after a time, versions beyond a number at once, and those of a purge now."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headgate.base.errors import ClusterError
from headgate.config.model import TopologiesConfig
from headgate.config.values import Store
from headgate.facts import TopologyEpochsSet
from headgate.kafka.group_admin import GroupOutline
from headgate.topologies.feature import Cleanup
from headgate.topologies.model.group_state import next_incarnation
from headgate.topologies.model.streams_groups import StreamsGroups
from headgate.topologies.resources import TopologyResources
from headgate.topologies.retention import Retention, purge
from headgate.topologies.service import TopologyService
from headgate.topologies.store_calls import StoreCalls, StoreFailure
from headgate.topologies.stores.memory_store import MemoryStore
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import config, until
from tests.unit.topologies.scene import NEVER_S, NOT_FOUND, FakeEpochs
from tests.unit.topologies.test_record_removal import deletion, keys, version
from tests.unit.topologies.topic_store import DAY_MS, START_MS, FakeTopic, TopicStore

RETENTION_MS, KEPT = 7 * DAY_MS, 3


@dataclass
class Estate:
    """A service without clients, the topics behind it, and what the broker says of each group: not found, or a code."""

    service: TopologyService
    retention: Retention
    log: FakeTopic
    epochs: FakeEpochs
    clock: FakeClock
    codes: dict[str, int]
    described: list[str]
    away: bool = False

    async def describe(self, groups: Sequence[str]) -> Mapping[str, GroupOutline]:
        if self.away:
            raise ClusterError("no broker responds")
        self.described += groups
        return {group: GroupOutline(group=group, error_code=self.codes.get(group, NOT_FOUND)) for group in groups}

    async def round(self) -> None:
        await Cleanup(self.service, self.describe, interval_s=NEVER_S, retention=self.retention).remove_records()

    def delete_days_ago(self, days: float, *groups: str) -> None:
        at = self.clock.now_ms - int(days * DAY_MS)
        for group in groups:
            self.log.add_fact(version(group=group))
            self.log.add_fact(deletion(group, at=at))

    def set_epochs(self, group: str, stored: int = -1, failed: int = -1, *, days_ago: float = 8) -> None:
        at = self.clock.now_ms - int(days_ago * DAY_MS)
        epochs = TopologyEpochsSet(at=at, group=group, incarnation="9f2c", stored_epoch=stored, failed_epoch=failed)
        self.service.groups.on_epochs_read(epochs, is_own=False)

    @property
    def removed(self) -> dict[str, int]:
        return dict(self.service.metrics.removed_records)


@asynccontextmanager
async def estate(folder: Path, scheme: str = "kafka", **limits: int) -> AsyncIterator[Estate]:
    log, epochs, clock = FakeTopic(), FakeEpochs(), FakeClock(START_MS)
    epochs.now_ms = clock.now_ms

    async def opening(groups: StreamsGroups, stack: AsyncExitStack) -> TopologyResources:
        epochs.groups = groups
        if scheme != "kafka":
            return TopologyResources(StoreCalls(MemoryStore(), timeout_s=30.0), epochs.write)
        store = TopicStore(log, clock, groups.on_record_read)
        stack.push_async_callback(store.close)
        await store.open(folder)
        return TopologyResources(StoreCalls(store, timeout_s=30.0), epochs.write, store)

    topologies = TopologiesConfig(store=Store(scheme), call_timeout_ms=30_000)  # type: ignore[arg-type]
    service = TopologyService(replace(config(1), topologies=topologies), opening, clock=clock)
    retention = Retention(service, deleted_retention_ms=RETENTION_MS, versions_kept=KEPT, clock=clock, **limits)
    async with service.running():
        await until(lambda: service.is_ready)
        yield Estate(service, retention, log, epochs, clock, {}, [])


# --- deleted groups


async def test_a_deleted_group_is_removed_when_its_time_is_over_and_not_before(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(6.9, "g")
        await it.round()
        assert it.described == []
        it.clock.now_ms += DAY_MS
        with capture_logs() as lines:
            await it.round()
        assert it.log.kept_keys == []
        assert it.removed == {"deleted": 2, "versions": 0}
        [line] = [line for line in lines if line["event"] == "topology records of a deleted group removed"]
        assert (line["group"], line["records"]) == ("g", 2)
        await it.round()
        assert it.described == ["g"]
        assert it.removed == {"deleted": 2, "versions": 0}


@pytest.mark.parametrize("code", [0, 14, 15, 16, 29, 30, -1])
async def test_a_group_that_the_broker_has_or_may_have_is_left_alone(tmp_path: Path, code: int) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g")
        it.codes["g"] = code
        await it.round()
        assert it.described == ["g"]
        assert len(it.log.records) == 2
        assert it.removed == {"deleted": 0, "versions": 0}


async def test_live_groups_and_groups_that_were_created_again_are_not_even_asked_about(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "again")
        it.log.add_fact(version("two", group="again", incarnation="77aa"))
        it.log.add_fact(version(group="live"))
        await it.round()
        assert it.described == []
        assert len(it.log.records) == 4


async def test_a_group_that_is_stored_again_after_it_was_described_is_left_alone(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g")
        assert await it.retention.candidates() == ["g"]
        new = version("two", incarnation="77aa")
        it.log.add_fact(new)
        await it.retention.remove_deleted("g")
        assert len(it.log.records) == 3


async def test_a_group_whose_description_failed_lately_is_left_alone(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g", "h")
        for group, days_ago in (("g", 0.5), ("h", 8)):
            incarnation = next_incarnation(group, "9f2c")
            failed = TopologyEpochsSet(
                at=it.clock.now_ms - int(days_ago * DAY_MS),
                group=group,
                incarnation=incarnation,
                stored_epoch=-1,
                failed_epoch=0,
            )
            it.service.groups.on_epochs_read(failed, is_own=False)
        await it.round()
        assert len(it.log.records) == 4
        assert it.epochs.removed == []


async def test_a_group_of_which_something_was_written_lately_is_left_alone(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g")
        it.set_epochs("g", days_ago=6.9)
        await it.round()
        assert (len(it.log.records), it.epochs.removed) == (2, [])
        it.clock.now_ms += DAY_MS
        await it.round()
        assert (it.log.kept_keys, it.epochs.removed) == ([], ["g"])


async def test_epochs_of_an_earlier_incarnation_do_not_come_back_with_its_name(tmp_path: Path) -> None:
    """A group without records begins with its first incarnation again, whose epoch may have failed long ago."""
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g")
        first = next_incarnation("g", "")
        failed = TopologyEpochsSet(at=1, group="g", incarnation=first, stored_epoch=-1, failed_epoch=0)
        it.service.groups.on_epochs_read(failed, is_own=False)
        assert it.service.groups.state("g").failed_epoch == -1
        it.log.fail_after(0)
        await it.round()  # cut short: the epochs are gone, the deletion is not
        assert it.epochs.removed == ["g"]
        it.log.before_append = None
        await it.round()
        state = it.service.groups.state("g")
        assert (state.incarnation, state.failed_epoch, state.epochs) == (first, -1, None)
        assert it.log.kept_keys == []


async def test_a_group_whose_records_were_removed_can_be_stored_again(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g")
        await it.round()
        again = version("two", incarnation=it.service.groups.state("g").incarnation)
        it.log.add_fact(again)
        assert it.service.must_delete("g")
        it.clock.now_ms += 30 * DAY_MS
        await it.round()
        assert it.log.kept_keys == keys(again)


async def test_a_group_whose_records_were_removed_is_not_known_any_more(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g", "h")
        it.set_epochs("g")
        it.service.groups.on_described("h", error_code=0, topology_epoch=3, members=())
        assert len(it.service.groups) == 2
        await it.round()
        assert it.log.kept_keys == []
        assert not it.service.is_known("g")
        assert it.service.current_epoch("h") == 3  # was described since


async def test_groups_that_stay_do_not_keep_others_from_their_turn(tmp_path: Path) -> None:
    async with estate(tmp_path, groups_a_round=2) as it:
        for group in ("a", "b", "c", "d"):
            it.set_epochs(group)
        it.delete_days_ago(8, "e", "f", "g", "h")
        it.codes |= dict.fromkeys("abef", 0)
        await it.round()
        assert it.described == ["a", "b", "e", "f"]
        await it.round()
        assert it.described == ["a", "b", "e", "f", "c", "d", "g", "h"]
        assert it.epochs.removed == ["c", "d"]
        await it.round()  # from the beginning
        await it.round()
        assert it.described[8:] == ["a", "b", "e", "f"]


async def test_a_round_removes_a_bounded_number_of_records(tmp_path: Path) -> None:
    async with estate(tmp_path, records_a_round=3) as it:
        it.delete_days_ago(8, "a", "b", "c")
        await it.round()
        assert it.removed["deleted"] == 3
        await it.round()
        assert it.removed["deleted"] == 6
        assert it.log.kept_keys == []


async def test_the_versions_of_one_group_are_bounded(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        for number in range(KEPT + 2):
            it.log.add_fact(version(str(number)))
        with capture_logs() as lines:
            await it.round()
        assert it.log.kept_keys == keys(*(version(str(number)) for number in range(2, KEPT + 2)))
        assert it.removed == {"deleted": 0, "versions": 2}
        assert [(line["group"], line["records"]) for line in lines if "versions removed" in line["event"]] == [("g", 2)]
        await it.round()
        assert it.removed == {"deleted": 0, "versions": 2}


async def test_partial_versions_are_bounded_and_removed_with_their_group(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        partial = [version(str(number), provenance="assignment") for number in range(KEPT + 2)]
        for fact in (version("pushed"), *partial):
            it.log.add_fact(fact)
        await it.round()
        assert it.log.kept_keys == keys(version("pushed"), *partial[2:])
        it.log.add_fact(deletion("g", at=it.clock.now_ms - 8 * DAY_MS))
        await it.round()
        assert it.log.kept_keys == []


async def test_a_cluster_that_does_not_respond_costs_a_round_and_nothing_else(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g")
        for number in range(KEPT + 1):
            it.log.add_fact(version(str(number), group="live"))
        it.away = True
        with capture_logs() as lines:
            await it.round()
        assert [line["problem"] for line in lines if line["log_level"] == "warning"] == ["no broker responds"]
        assert it.removed == {"deleted": 0, "versions": 1}
        it.away = False
        await it.round()
        assert it.removed == {"deleted": 2, "versions": 1}


async def test_only_records_that_were_written_are_counted(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g")
        it.log.fail_after(0)
        await it.round()
        assert it.removed == {"deleted": 0, "versions": 0}


async def test_records_are_removed_by_the_periodic_cleanup(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g")
        cleanup = Cleanup(it.service, it.describe, interval_s=0.001, retention=it.retention)
        running = asyncio.create_task(cleanup.run())
        try:
            await until(lambda: it.removed["deleted"] == 2)
        finally:
            running.cancel()


# --- other stores


async def test_epochs_of_groups_that_are_gone_are_removed_from_the_state_topic(tmp_path: Path) -> None:
    async with estate(tmp_path, "memory") as it:
        it.set_epochs("gone")
        it.set_epochs("lately", days_ago=6.9)
        it.set_epochs("failed", failed=0)
        it.set_epochs("uncertain", stored=-2)
        it.set_epochs("stored", stored=0)
        it.set_epochs("here")
        it.codes["here"] = 0
        await it.round()
        assert it.epochs.removed == ["gone"]
        assert it.described == ["gone", "here"]
        assert it.removed == {"deleted": 1, "versions": 0}
        state = it.service.groups.state("gone")
        assert (state.epochs, state.incarnation) == (None, next_incarnation("gone", ""))


# --- purges


async def test_a_purge_deletes_the_description_and_leaves_no_record(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        other = version(group="other")
        for fact in (version("one"), version("two"), other):
            it.log.add_fact(fact)
        it.set_epochs("g")
        assert await purge(it.service, "g") == 4  # two versions, the deletion, the epochs
        assert it.log.kept_keys == keys(other)
        assert it.epochs.removed == ["g"]
        # Readers see the deletion before it is removed: the tables end the version by it.
        assert it.log.records[3].key == keys(deletion())[0]
        assert it.log.records[3].value is not None
        assert await purge(it.service, "g") == 0


async def test_a_purge_of_a_store_that_fails_removes_nothing(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.log.add_fact(version())
        it.log.fail_after(0)
        with pytest.raises(ClusterError, match="the leader is gone"):
            await purge(it.service, "g")
        assert it.log.kept_keys == keys(version())


async def test_a_purge_with_another_store_removes_the_epochs(tmp_path: Path) -> None:
    async with estate(tmp_path, "memory") as it:
        it.set_epochs("g", stored=0)
        assert await purge(it.service, "g") == 1
        assert it.epochs.removed == ["g"]
        assert [one.stored_epoch for one in it.epochs.written] == [-2, -1]
        assert not it.service.must_delete("g")


async def test_a_purge_leaves_the_epochs_of_a_description_that_was_pushed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise another gateway would not know that its store has a description."""
    async with estate(tmp_path, "memory") as it:
        it.set_epochs("g", stored=0)
        deleting = it.service.delete

        async def delete(group: str) -> StoreFailure | None:
            failure = await deleting(group)
            it.set_epochs("g", stored=0, days_ago=0)
            return failure

        monkeypatch.setattr(it.service, "delete", delete)
        assert await purge(it.service, "g") == 0
        assert it.epochs.removed == []
        assert it.service.must_delete("g")


async def test_before_the_topics_were_read_nothing_is_removed(tmp_path: Path) -> None:
    async with estate(tmp_path) as it:
        it.delete_days_ago(8, "g")
        it.service.is_ready = False
        await it.round()
        with pytest.raises(ClusterError):
            await purge(it.service, "g")
        assert len(it.log.records) == 2
