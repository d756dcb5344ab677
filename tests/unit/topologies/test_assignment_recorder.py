"""Partial descriptions of applications whose members do not push: when they are recorded, and what they never do."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.base.errors import ClusterError
from headgate.facts import TopologyDeleted, TopologyDescribed, decode
from headgate.kafka.group_admin import GroupOutline
from headgate.topologies.kept_versions import VersionLog
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat
from headgate.topologies.model.push_rate import AT_ONCE
from headgate.topologies.older_clients import assignment_recorder
from headgate.topologies.older_clients.assignment_recorder import GRACE_S, RETRY_S, AssignmentRecorder
from headgate.topologies.older_clients.assignment_topology import MemberTopology, member_topology
from headgate.wire.messages.groups import DeletedGroup, DeleteGroupsResponse
from headgate.wire.messages.streams import (
    HeartbeatSubtopology,
    HeartbeatTopology,
    StreamsGroupHeartbeatRequest,
)
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import until
from tests.unit.topologies.scene import NOT_FOUND, Scene, allow, beating, described, fine, joining, pushed, scene
from tests.unit.topologies.test_record_removal import version
from tests.unit.topologies.topic_store import START_MS, FakeTopic

FINE = HeartbeatResult()


def topology_of(*topics: str, epoch: int = 0) -> HeartbeatTopology:
    part = HeartbeatSubtopology(subtopology_id="0", source_topics=topics)
    return HeartbeatTopology(epoch=epoch, subtopologies=(part,))


def old_join(member: str = "m", *topics: str, group: str = "g") -> StreamsGroupHeartbeatRequest:
    """As a 4.3 client joins."""
    message = joining(member, group=group)
    return replace(message, task_offsets=None, task_end_offsets=None, topology=topology_of(*topics or ("in",)))


def recorded(log: FakeTopic) -> list[TopologyDescribed | TopologyDeleted]:
    facts = [decode("topologies", record.key, record.value) for record in log.records]
    return [fact for fact in facts if isinstance(fact, TopologyDescribed | TopologyDeleted)]


def topics(fact: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = fact.description.subtopologies[0].nodes[0].topics
    return found


class Scope:
    """A recorder with a clock that stands still, on the service of a scene; nothing is written but by `write_due`."""

    def __init__(self, it: Scene, **limits: int) -> None:
        self.clock = FakeClock(START_MS)
        self.recorder = AssignmentRecorder(it.service, clock=self.clock, **limits)

    def join(
        self, *topics: str, group: str = "g", result: HeartbeatResult = FINE, api_version: int = 0, **more: Any
    ) -> None:
        heartbeat = MemberHeartbeat(api_version=api_version, group=group, member="m", member_epoch=0)
        self.recorder.on_join(heartbeat, self.joined(*topics, **more), result)

    def joined(self, *topics: str, size: int = 100, epoch: int = 0) -> MemberTopology:
        return member_topology(topology_of(*topics or ("in",), epoch=epoch), size=size)

    async def write(self, after_s: float = 0.0) -> None:
        self.clock.now_ms += int(after_s * 1000)
        await self.recorder.write_due()


@pytest.fixture
def log() -> FakeTopic:
    return FakeTopic()


async def test_a_join_of_version_0_is_recorded_and_no_describe_shows_it(log: FakeTopic, tmp_path: Path) -> None:
    async with scene(topic=(log, tmp_path)) as it:
        await it.heartbeat(old_join("m", "in"), version=0)
        await until(lambda: bool(log.records))
        [fact] = recorded(log)
        assert isinstance(fact, TopologyDescribed)
        assert (fact.group, fact.epoch, fact.provenance) == ("g", 0, "assignment")
        assert (fact.member, fact.process) == (None, None)
        assert topics(fact) == ("in",)
        assert await it.status() == 1  # NOT_STORED
        await it.heartbeat(old_join("n", "in"), version=0)
        await it.heartbeat(beating("n"), version=0)
        await asyncio.sleep(0.05)
        assert len(log.records) == 1, "the same topology is not written again"


async def test_a_push_supersedes_it_and_nothing_replaces_a_push(log: FakeTopic, tmp_path: Path) -> None:
    async with scene(topic=(log, tmp_path)) as it:
        await it.heartbeat(old_join("old", "in"), version=0)
        await until(lambda: bool(log.records))
        assert await it.join("new", process="q")
        assert await it.pushes(pushed("new")) == 0
        await it.heartbeat(old_join("older", "elsewhere"), version=0)
        await asyncio.sleep(0.05)
        facts = recorded(log)
        assert [getattr(fact, "provenance", None) for fact in facts] == ["assignment", "pushed"]
        assert len({fact.incarnation for fact in facts}) == 1
        versions = VersionLog("g", max_bytes=100_000)
        for record in log.records:
            versions.take(record)
        assert [(one.is_partial, one.is_current) for one in versions.versions()] == [(True, False), (False, True)]
        [group] = await it.describe(described(members=("new",)))
        assert group.topology_description_status == 3  # AVAILABLE


async def test_a_refused_or_stale_join_is_not_recorded(log: FakeTopic, tmp_path: Path) -> None:
    async with scene(topic=(log, tmp_path)) as it:
        here = Scope(it)
        here.join(result=HeartbeatResult(error_code=42))
        here.join(result=HeartbeatResult(status_codes=(0,)))
        await here.write()
        assert log.records == []
        here.join()
        await here.write()
        assert len(log.records) == 1


async def test_a_member_that_can_push_is_recorded_only_if_it_does_not(log: FakeTopic, tmp_path: Path) -> None:
    async with scene(topic=(log, tmp_path)) as it:
        here = Scope(it)
        here.join(api_version=1, group="quiet")
        here.join(api_version=1, group="pushes")
        await here.write(after_s=GRACE_S - 1)
        assert log.records == []
        log.add_fact(version(group="pushes"))
        await here.write(after_s=1)
        assert [(fact.group, getattr(fact, "provenance", "")) for fact in recorded(log)] == [
            ("pushes", "pushed"),
            ("quiet", "assignment"),
        ]


async def test_a_changed_topology_is_another_version_and_a_restart_writes_nothing(
    log: FakeTopic, tmp_path: Path
) -> None:
    async with scene(topic=(log, tmp_path)) as it:
        here = Scope(it)
        here.join("a")
        await here.write()
        here.join("b")
        await here.write()
    async with scene(topic=(log, tmp_path)) as it:
        restarted = Scope(it)
        restarted.join("b")
        await restarted.write()
        assert [topics(fact) for fact in recorded(log)] == [("a",), ("b",)]
        restarted.join("a")
        await restarted.write()
        assert [topics(fact) for fact in recorded(log)] == [("a",), ("b",), ("a",)]


async def test_what_comes_before_the_topics_were_read_is_recorded_afterwards(log: FakeTopic, tmp_path: Path) -> None:
    opens = asyncio.Event()
    async with scene(topic=(log, tmp_path), opens=opens) as it:
        here = Scope(it)
        here.join()
        await here.write()
        assert log.records == []
        opens.set()
        await until(lambda: it.service.is_ready)
        await here.write()
        assert len(log.records) == 1


async def test_a_group_that_is_deleted_ends_and_its_next_life_is_recorded(log: FakeTopic, tmp_path: Path) -> None:
    async with scene(topic=(log, tmp_path)) as it:
        here = Scope(it)
        here.join()
        await here.write()
        here.recorder.on_deleted("g")
        here.recorder.on_deleted("never-seen")
        await here.write()
        first, ended = recorded(log)
        assert isinstance(ended, TopologyDeleted)
        assert ended.incarnation == first.incarnation
        here.recorder.on_deleted("g")
        await here.write()
        assert len(log.records) == 2, "it has ended already"
        here.join()
        await here.write()
        assert recorded(log)[2].incarnation != first.incarnation


async def test_delete_groups_through_the_gateway_ends_it(log: FakeTopic, tmp_path: Path) -> None:
    async with scene(topic=(log, tmp_path)) as it:
        await it.heartbeat(old_join(), version=0)
        await until(lambda: bool(log.records))
        deleting = it.delete("g", version=2)
        await it.broker.reply(DeleteGroupsResponse(results=(DeletedGroup(group_id="g"),)))
        await deleting
        await until(lambda: len(log.records) == 2)
        assert isinstance(recorded(log)[1], TopologyDeleted)


async def test_a_pushed_description_is_not_ended_by_this(log: FakeTopic, tmp_path: Path) -> None:
    log.add_fact(version(provenance="assignment"))
    log.add_fact(version("two"))
    async with scene(topic=(log, tmp_path)) as it:
        here = Scope(it)
        here.recorder.on_deleted("g")
        await here.write()
        assert len(log.records) == 2


async def test_groups_that_two_cleanups_do_not_find_end(log: FakeTopic, tmp_path: Path) -> None:
    codes = {"gone": NOT_FOUND, "unknown": 16}
    asked: list[str] = []

    async def describe(groups: Sequence[str]) -> Mapping[str, GroupOutline]:
        asked.extend(groups)
        return {group: GroupOutline(group=group, error_code=codes.get(group, 0)) for group in groups}

    for group in ("gone", "here", "unknown"):
        log.add_fact(version(group=group, provenance="assignment"))
    log.add_fact(version(group="pushed"))
    async with scene(topic=(log, tmp_path)) as it:
        here = Scope(it)
        await here.recorder.clean_up(describe)
        assert asked == ["gone", "here", "unknown"]
        assert len(log.records) == 4
        await here.recorder.clean_up(describe)
        assert recorded(log)[4:] == [replace(recorded(log)[4], group="gone")]
        asked.clear()
        await here.recorder.clean_up(describe)
        assert asked == ["here", "unknown"]


async def test_a_cleanup_goes_through_all_groups_in_turn(log: FakeTopic, tmp_path: Path) -> None:
    asked: list[list[str]] = []

    async def describe(groups: Sequence[str]) -> Mapping[str, GroupOutline]:
        asked.append(list(groups))
        return {}

    for group in "abc":
        log.add_fact(version(group=group, provenance="assignment"))
    async with scene(topic=(log, tmp_path)) as it:
        here = Scope(it, groups_a_cycle=2)
        for _ in range(3):
            await here.recorder.clean_up(describe)
    assert asked == [["a", "b"], ["c"], ["a", "b"]]


@pytest.mark.parametrize(
    ("settings", "join"),
    [
        ({"groups": allow("other")}, {}),
        ({}, {"group": "x" * 1025}),
        ({}, {"size": assignment_recorder.MAX_BYTES + 1}),
        ({}, {"epoch": -1}),
    ],
)
async def test_what_is_left_out(settings: dict[str, Any], join: dict[str, Any], log: FakeTopic, tmp_path: Path) -> None:
    async with scene(topic=(log, tmp_path), **settings) as it:
        here = Scope(it)
        here.join(**join)
        await here.write()
    assert log.records == []


async def test_with_another_store_nothing_is_recorded_and_nothing_waits() -> None:
    async with scene() as it:
        here = Scope(it)
        here.join()
        here.recorder.on_deleted("h")
        await here.write()
        await here.recorder.clean_up(_no_describe)
    assert here.recorder.waiting_bytes == 0


async def _no_describe(_: Sequence[str]) -> Mapping[str, GroupOutline]:
    raise AssertionError("nothing is recorded")


async def test_what_waits_is_bounded_by_bytes_and_the_oldest_is_dropped(log: FakeTopic, tmp_path: Path) -> None:
    async with scene(topic=(log, tmp_path)) as it:
        here = Scope(it)
        size = assignment_recorder.MAX_BYTES
        for number in range(20):
            here.join(group=f"g{number}", size=size)
        assert here.recorder.waiting_bytes == assignment_recorder.MAX_WAITING_BYTES
        await here.write()
    assert [fact.group for fact in recorded(log)] == [f"g{number}" for number in range(4, 20)]


async def test_a_group_whose_topology_changes_ever_again_is_slowed_down(log: FakeTopic, tmp_path: Path) -> None:
    async with scene(topic=(log, tmp_path)) as it:
        here = Scope(it)
        for number in range(AT_ONCE + 5):
            here.join(f"t{number}")
            await here.write()
        assert len(log.records) == AT_ONCE
        await here.write(after_s=RETRY_S)
        assert topics(recorded(log)[-1]) == (f"t{AT_ONCE + 4}",)


async def test_what_cannot_be_written_is_tried_again(log: FakeTopic, tmp_path: Path) -> None:
    async with scene(topic=(log, tmp_path)) as it:
        here = Scope(it)
        log.fail_after(0)
        here.join()
        with capture_logs() as logs:
            await here.write()
        assert [one["event"] for one in logs] == ["partial topology description not recorded"]
        log.before_append = None
        await here.write(after_s=RETRY_S - 1)
        assert log.records == []
        await here.write(after_s=1)
        assert len(log.records) == 1


async def test_an_internal_error_costs_no_member_its_response(
    log: FakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async with scene(topic=(log, tmp_path)) as it:
        monkeypatch.setattr(AssignmentRecorder, "put", fail)
        _, answer = await it.heartbeat(old_join(), replace(fine(), heartbeat_interval_ms=7), version=0)
        assert answer.heartbeat_interval_ms == 7


async def test_a_describe_that_fails_ends_a_cleanup(log: FakeTopic, tmp_path: Path) -> None:
    async def describe(_: Sequence[str]) -> Mapping[str, GroupOutline]:
        raise ClusterError("no broker responds")

    log.add_fact(version(provenance="assignment"))
    async with scene(topic=(log, tmp_path)) as it:
        with pytest.raises(ClusterError):
            await Scope(it).recorder.clean_up(describe)
    assert len(log.records) == 1
