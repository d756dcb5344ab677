"""The tasks of members: when a group is described, and which records are written of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headgate.base.errors import ClusterError
from headgate.facts import MAX_FACT_BYTES, HeldTask, MemberTasksEnded, MemberTasksObserved, encode
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat
from headgate.topologies.tasks import task_watch
from headgate.topologies.tasks.group_tasks import MAX_TASKS, TaskRecords, lags_of, stores_of
from headgate.topologies.tasks.lost_groups import DescribeAsService
from headgate.topologies.tasks.task_watch import AFTER_CHANGE_S, BETWEEN_S, MAX_GROUPS, REFRESH_S, TaskWatch
from headgate.wire.messages.streams import (
    Assignment,
    DescribedStreamsGroup,
    DescribedSubtopology,
    DescribedTopology,
    StreamsGroupDescribeResponse,
    StreamsGroupMember,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import until
from tests.unit.topologies.scene import DESCRIBE, allow, beating, joining, scene
from tests.unit.topologies.topic_store import START_MS

Record = MemberTasksObserved | MemberTasksEnded


def group(
    *members: StreamsGroupMember, stores: tuple[str, ...] = ("counts",), name: str = "g"
) -> DescribedStreamsGroup:
    topics = tuple(TopicInfo(name=f"{name}-{store}-changelog") for store in stores)
    subtopology = DescribedSubtopology(subtopology_id="0", state_changelog_topics=topics)
    topology = DescribedTopology(epoch=0, subtopologies=(subtopology,))
    return DescribedStreamsGroup(group_id=name, group_state="Stable", topology=topology, members=members)


def member(name: str, *partitions: int, standby: tuple[int, ...] = ()) -> StreamsGroupMember:
    assignment = Assignment(
        active_tasks=(TaskIds(subtopology_id="0", partitions=partitions),) if partitions else (),
        standby_tasks=(TaskIds(subtopology_id="0", partitions=standby),) if standby else (),
    )
    return StreamsGroupMember(
        member_id=name, process_id=f"p-{name}", client_id="c", client_host="/gateway", assignment=assignment
    )


def offsets(value: int, partition: int = 0) -> TaskOffset:
    return TaskOffset(subtopology_id="0", partition=partition, offset=value)


# --- records


def described(records: TaskRecords, found: DescribedStreamsGroup, now: float = 0, **more: Any) -> list[Record]:
    return records.on_described(found, at=5, now=now, hosts=more.get("hosts", {}), lags=more.get("lags", {}))


def test_a_member_has_its_tasks_with_roles_stores_and_lags() -> None:
    [fact] = described(
        TaskRecords(), group(member("a", 1, 0, standby=(2,))), hosts={"a": "10.0.0.7"}, lags={"a": {("0", 2): 12}}
    )
    assert isinstance(fact, MemberTasksObserved)
    assert (fact.group, fact.member, fact.process, fact.host) == ("g", "a", "p-a", "10.0.0.7")
    assert fact.tasks == (
        HeldTask(subtopology="0", partition=0, role="active", stores=("counts",)),
        HeldTask(subtopology="0", partition=1, role="active", stores=("counts",)),
        HeldTask(subtopology="0", partition=2, role="standby", stores=("counts",), lag=12),
    )


def test_a_record_is_written_only_when_the_member_has_changed() -> None:
    records = TaskRecords()
    assert len(described(records, group(member("a", 0), member("b", 1)))) == 2
    assert described(records, group(member("a", 0), member("b", 1))) == []
    [moved] = described(records, group(member("a", 0), member("b", 1, 2)))
    assert isinstance(moved, MemberTasksObserved)
    assert moved.member == "b"
    assert described(records, group(member("b", 1, 2))) == [MemberTasksEnded(group="g", member="a")]
    assert len(records) == 1


def test_lags_alone_are_written_once_a_minute() -> None:
    records, found = TaskRecords(), group(member("a", 0))
    assert len(described(records, found, lags={"a": {("0", 0): 1}})) == 1
    assert described(records, found, now=59, lags={"a": {("0", 0): 2}}) == []
    assert len(described(records, found, now=60, lags={"a": {("0", 0): 2}})) == 1
    assert described(records, found, now=200, lags={"a": {("0", 0): 2}}) == [], "the same lag is no change"


def test_a_lag_needs_both_offsets_and_is_never_negative() -> None:
    assert lags_of([offsets(3), offsets(9, 1), offsets(5, 2)], [offsets(10), offsets(4, 1)]) == {
        ("0", 0): 7,
        ("0", 1): 0,
    }


def test_stores_are_those_of_changelog_topics() -> None:
    found = group()
    other = DescribedSubtopology(subtopology_id="1", state_changelog_topics=(TopicInfo(name="orders"),))
    assert found.topology is not None
    topology = replace(found.topology, subtopologies=(*(found.topology.subtopologies or ()), other))
    assert stores_of(replace(found, topology=topology)) == {"0": ("counts",), "1": ()}
    assert stores_of(replace(found, topology=None)) == {}


def test_a_thousand_members_are_a_thousand_small_records_and_then_none() -> None:
    records = TaskRecords()
    found = group(*(member(f"m-{number}", number) for number in range(1000)))
    written = described(records, found)
    assert len(written) == 1000
    assert max(len(encode(one)[2] or b"") for one in written) < 500
    assert described(records, found) == []


@pytest.mark.parametrize("store", ["s", "\x01" * 3000])
def test_a_record_is_bounded_and_says_what_is_left_out(store: str) -> None:
    [fact] = described(TaskRecords(), group(member("a", *range(5000)), stores=(store,)))
    assert isinstance(fact, MemberTasksObserved)
    assert 0 < len(fact.tasks) <= MAX_TASKS
    assert len(fact.tasks) + fact.tasks_left_out == 5000
    assert len(encode(fact)[2] or b"") < MAX_FACT_BYTES


def test_members_of_all_groups_are_bounded_and_a_group_that_was_dropped_is_written_again() -> None:
    records = TaskRecords(max_members=3)
    for name in ("a", "b"):
        described(records, group(member("x", 0), member("y", 1), name=name))
    assert len(records) == 2
    assert len(described(records, group(member("x", 0), member("y", 1), name="a"))) == 2


# --- when


class FakeSession:
    """A member's connection; `answer` is the group, or the error of the next describe."""

    number = 1
    peer = "10.0.0.7"

    def __init__(self, answer: DescribedStreamsGroup | Exception) -> None:
        self.answer = answer
        self.described = 0
        self.on_call: Callable[[], None] = lambda: None

    async def call(self, _: object, __: int, *, deadline: float) -> StreamsGroupDescribeResponse:
        assert deadline > 0
        self.described += 1
        self.on_call()
        if isinstance(self.answer, Exception):
            raise self.answer
        return StreamsGroupDescribeResponse(groups=(self.answer,))


class FakeService:
    """The service, as far as the watch uses it; `written` stands for the topic."""

    def __init__(self) -> None:
        self.written: list[Record] = []
        self.failure: Exception | None = None
        self.resources: Any = self

    def is_selected(self, name: str) -> bool:
        return name != "left out"

    async def write_tasks(self, record: Record) -> None:
        if self.failure is not None:
            raise self.failure
        self.written.append(record)


class Watching:
    def __init__(self, describe: DescribeAsService | None = None) -> None:
        self.clock = FakeClock(START_MS)
        self.service = FakeService()
        service: Any = self.service
        self.watch = TaskWatch(service, self.clock, describe)

    def beat(self, session: Any, name: str = "a", *, epoch: int = 2, is_change: bool = False, **more: Any) -> None:
        heartbeat = MemberHeartbeat(api_version=1, group=more.get("group", "g"), member=name, member_epoch=epoch)
        result = HeartbeatResult(error_code=more.get("code", 0))
        self.watch.on_heartbeat(session, heartbeat, result, is_change=is_change, lags=more.get("lags"))

    async def after(self, seconds: float) -> list[Record]:
        """What is written after some time."""
        self.clock.now_ms += int(seconds * 1000)
        before = len(self.service.written)
        await self.watch.refresh_due()
        written: list[Record] = self.service.written[before:]
        return written


async def test_a_group_is_described_after_a_join_and_then_once_a_minute() -> None:
    it, session = Watching(), FakeSession(group(member("a", 0)))
    it.beat(session, epoch=0)
    assert await it.after(AFTER_CHANGE_S / 2) == []
    [fact] = await it.after(AFTER_CHANGE_S)
    assert isinstance(fact, MemberTasksObserved)
    assert fact.host == "10.0.0.7", "the member's own address, not the gateway's that the broker sees"
    it.beat(session)
    assert await it.after(REFRESH_S - 5) == []
    assert session.described == 1
    await it.after(6)
    assert session.described == 2


async def test_changes_in_quick_succession_are_one_description() -> None:
    it, session = Watching(), FakeSession(group(member("a", 0)))
    for _ in range(20):
        it.beat(session, is_change=True)
        await it.after(AFTER_CHANGE_S)
    assert session.described <= 20 * AFTER_CHANGE_S / BETWEEN_S + 1


async def test_a_group_that_is_not_stable_is_described_again_soon_but_not_for_ever() -> None:
    it, session = Watching(), FakeSession(replace(group(member("a")), group_state="Reconciling"))
    it.beat(session, epoch=0)
    await it.after(AFTER_CHANGE_S)
    for _ in range(task_watch.MOST_UNSTABLE):
        await it.after(BETWEEN_S)
    assert session.described == task_watch.MOST_UNSTABLE + 1
    await it.after(BETWEEN_S)
    assert session.described == task_watch.MOST_UNSTABLE + 1
    session.answer = group(member("a", 0))
    assert len(await it.after(REFRESH_S)) == 1
    assert await it.after(BETWEEN_S) == []
    assert session.described == task_watch.MOST_UNSTABLE + 2


async def test_a_large_group_is_described_less_often() -> None:
    it, session = Watching(), FakeSession(group(*(member(f"m-{number}", number) for number in range(1000))))
    it.beat(session, epoch=0)
    await it.after(AFTER_CHANGE_S)
    it.beat(session, is_change=True)
    await it.after(90)
    assert session.described == 1
    await it.after(11)
    assert session.described == 2


async def test_a_member_that_leaves_ends_at_once() -> None:
    it, session = Watching(), FakeSession(group(member("a", 0), member("b", 1)))
    it.beat(session, epoch=0)
    await it.after(AFTER_CHANGE_S)
    it.beat(session, "b", epoch=-1)
    assert await it.after(0) == [MemberTasksEnded(group="g", member="b")]


async def test_a_static_member_that_will_be_back_keeps_its_tasks() -> None:
    it, session = Watching(), FakeSession(group(member("a", 0), member("b", 1)))
    it.beat(session, epoch=0)
    await it.after(AFTER_CHANGE_S)
    it.beat(session, "b", epoch=-2)
    assert await it.after(0) == []


async def test_a_group_whose_member_has_disconnected_stays_as_it_was() -> None:
    it, session = Watching(), FakeSession(group(member("a", 0)))
    it.beat(session, epoch=0)
    await it.after(AFTER_CHANGE_S)
    del session
    assert await it.after(10 * REFRESH_S) == []
    again = FakeSession(group(member("a", 0)))
    it.beat(again, epoch=0)
    assert await it.after(AFTER_CHANGE_S) == [], "nothing has changed"
    assert again.described == 1


@pytest.mark.parametrize(
    "answer",
    [ClusterError("it ended"), DescribedStreamsGroup(group_id="g", error_code=29), DescribedStreamsGroup(group_id="x")],
)
async def test_a_description_that_fails_writes_nothing_and_is_tried_again(answer: Any) -> None:
    it, session = Watching(), FakeSession(answer)
    it.beat(session, epoch=0)
    assert await it.after(AFTER_CHANGE_S) == []
    session.answer = group(member("a", 0))
    assert len(await it.after(task_watch.RETRY_S)) == 1


async def test_a_group_that_is_left_out_while_it_is_described_is_not_counted_down_twice() -> None:
    """Otherwise the bound on members would grow with each such group."""
    it, session = Watching(), FakeSession(group(member("a", 0)))

    def fill() -> None:
        for number in range(MAX_GROUPS):
            it.beat(session, "x", group=f"g-{number}")

    it.beat(session, "a", epoch=0)
    it.beat(session, "gone", epoch=0)
    session.on_call = fill
    await it.after(AFTER_CHANGE_S)
    assert it.watch.heard == MAX_GROUPS


async def test_records_that_are_not_written_are_written_with_the_next_description() -> None:
    it, session = Watching(), FakeSession(group(member("a", 0)))
    it.service.failure = ClusterError("the topic is away")
    it.beat(session, epoch=0)
    assert await it.after(AFTER_CHANGE_S) == []
    it.service.failure = None
    assert len(await it.after(REFRESH_S)) == 1


@pytest.mark.parametrize("more", [{"code": 25}, {"group": "left out"}, {"name": "n" * 2000}, {"name": ""}])
async def test_heartbeats_that_say_nothing_of_a_group_are_passed_over(more: dict[str, Any]) -> None:
    it, session = Watching(), FakeSession(group(member("a", 0)))
    it.beat(session, epoch=0, **more)
    await it.after(REFRESH_S)
    assert session.described == 0


async def test_lags_are_read_once_a_minute_and_written() -> None:
    it, session = Watching(), FakeSession(group(member("a", 0)))
    assert not it.watch.wants_lags("g", "a"), "a member that is not known"
    it.beat(session, epoch=0)
    assert it.watch.wants_lags("g", "a")
    it.beat(session, lags={("0", 0): 7})
    assert not it.watch.wants_lags("g", "a")
    [fact] = await it.after(AFTER_CHANGE_S)
    assert isinstance(fact, MemberTasksObserved)
    assert fact.tasks[0].lag == 7
    await it.after(REFRESH_S)
    assert it.watch.wants_lags("g", "a")


async def test_before_the_topics_are_read_nothing_is_described() -> None:
    it, session = Watching(), FakeSession(group(member("a", 0)))
    resources, it.service.resources = it.service.resources, None
    it.beat(session, epoch=0)
    await it.after(AFTER_CHANGE_S)
    assert session.described == 0
    it.service.resources = resources
    assert len(await it.after(0)) == 1


# --- heartbeats that pass


@pytest.mark.parametrize("version", [0, 1])
async def test_a_join_through_the_gateway_is_described_on_its_connection(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_watch, "_TICK_S", 0.01)
    monkeypatch.setattr(task_watch, "AFTER_CHANGE_S", 0.0)
    written: list[Record] = []

    async def write(record: Record) -> None:
        written.append(record)

    async with scene(write_tasks=write, groups=allow("g")) as it:
        joined = joining()
        if version == 0:
            joined = replace(joined, task_offsets=None, task_end_offsets=None)
        else:
            joined = replace(joined, task_end_offsets=(offsets(19),))
        await it.heartbeat(joined, version=version)
        asked = await it.broker.request()
        assert (asked.key, asked.version) == (DESCRIBE, 0)
        await it.broker.send(asked.answer(StreamsGroupDescribeResponse(groups=(group(member("m", 0)),))))
        await until(lambda: bool(written))
        [fact] = written
        assert isinstance(fact, MemberTasksObserved)
        assert fact.host == "127.0.0.1"
        assert [(task.name, task.lag) for task in fact.tasks] == [("0_0", None if version == 0 else 12)]
        await it.heartbeat(beating(member_epoch=-1), version=version)
        await until(lambda: len(written) > 1)
        assert written[1] == MemberTasksEnded(group="g", member="m")


async def test_lags_in_a_heartbeat_that_changes_nothing_else_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(TaskWatch, "wants_lags", lambda *_: not heard)
    monkeypatch.setattr(TaskWatch, "on_heartbeat", lambda *_, lags, **__: heard.append(lags))
    plain = beating()
    with_offsets = replace(plain, task_offsets=(offsets(7),), task_end_offsets=(offsets(9),))

    async def write(_: Record) -> None:
        raise AssertionError

    async with scene(write_tasks=write) as it:
        await it.join()  # so that the epoch is known, and the gateway sends no describe for it
        heard.clear()
        await it.heartbeat(plain)
        assert heard == [None]
        heard.clear()
        await it.heartbeat(with_offsets)
        await it.heartbeat(with_offsets)
        assert heard == [{("0", 0): 2}, None], "the second is not decoded: a minute has not passed"
