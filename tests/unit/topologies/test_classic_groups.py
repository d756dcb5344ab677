"""Streams applications in the classic protocol: from the leader's JoinGroup and SyncGroup to a partial description."""

import asyncio
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from headgate.base.errors import ClusterError
from headgate.facts import MemberTasksEnded
from headgate.facts.topology import ProcessorNode, SourceNode
from headgate.topologies.older_clients import classic_interceptor
from headgate.topologies.older_clients.classic_groups import read_group
from headgate.topologies.older_clients.classic_interceptor import ClassicStreamsInterceptor
from headgate.wire.messages.groups import (
    DeletedGroup,
    DeleteGroupsResponse,
    JoinGroupMember,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.support.fake_upstream import End, request
from tests.unit.proxy.stage import until
from tests.unit.topologies.scene import JOIN_GROUP, Scene, allow, scene
from tests.unit.topologies.test_assignment_recorder import recorded
from tests.unit.topologies.topic_store import FakeTopic

SYNC_GROUP = 14
PROCESS = UUID("00000000-0000-4000-8000-000000000007")


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def subscription(*topics: str, version: int = 11, endpoint: str = "host-a:7070") -> bytes:
    """As Kafka Streams of that version of its protocol subscribes, with two former tasks."""
    info = struct.pack(">i", version)
    if version >= 3:
        info += struct.pack(">i", 11)
    info += PROCESS.bytes
    if version <= 6:
        info += struct.pack(">iii", 1, 0, 0) + struct.pack(">iii", 1, 0, 1)
    if version >= 2:
        info += struct.pack(">i", len(endpoint)) + endpoint.encode()
    if version >= 7:
        info += struct.pack(">i", 0) + b"\x01"
    names = struct.pack(">i", len(topics)) + b"".join(map(_text, topics))
    return struct.pack(">h", 3) + names + struct.pack(">i", len(info)) + info + struct.pack(">i", 0)


def assignment(
    *tasks: tuple[int, str, int], standby: Sequence[tuple[int, int]] = (), version: int = 11, name: str = ""
) -> bytes:
    """One active task for each (sub-topology, topic, partition), in the order of topics and partitions."""

    def task(subtopology: int, partition: int) -> bytes:
        named = struct.pack(">i", len(name)) + name.encode("utf-16-be") if version >= 10 else b""
        return struct.pack(">ii", subtopology, partition) + named

    info = struct.pack(">i", version)
    if version >= 3:
        info += struct.pack(">i", 11)
    ordered = sorted(tasks, key=lambda one: one[1:])
    info += struct.pack(">i", len(ordered)) + b"".join(task(number, place) for number, _, place in ordered)
    info += struct.pack(">i", len(standby))
    for number, place in standby:
        info += task(number, place) + struct.pack(">i", 1) + _text("some-changelog") + struct.pack(">i", place)
    info += bytes(16)  # hosts and the rest, which is not read
    partitions = b"".join(_text(topic) + struct.pack(">ii", 1, place) for _, topic, place in tasks)
    return struct.pack(">h", 1) + struct.pack(">i", len(tasks)) + partitions + struct.pack(">i", len(info)) + info


COUNTING = assignment((0, "lines", 0), (0, "lines", 1), (1, "g-counts-repartition", 0), standby=[(2, 1)])


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_of_the_protocol_is_read(version: int) -> None:
    subscribed = subscription("lines", "g-counts-repartition", version=version)
    assigned = assignment((0, "lines", 1), (1, "g-counts-repartition", 0), standby=[(1, 1)], version=version)
    group = read_group([("m", subscribed)], [("m", assigned)])
    [member] = group.members
    assert member.process == str(PROCESS)
    assert member.host == (None if version == 1 else "host-a")
    assert member.active == (("1", 0), ("0", 1))
    assert member.standby == (("1", 1),)
    assert group.topics == {"lines", "g-counts-repartition"}
    assert group.subtopologies == {"0": {"lines"}, "1": {"g-counts-repartition"}}


def test_the_description_has_sub_topology_numbers_and_their_source_topics() -> None:
    group = read_group([("m", subscription("lines", "g-counts-repartition", "rare"))], [("m", COUNTING)])
    parts = group.description().subtopologies
    assert [part.id for part in parts] == ["0", "1", "2", "unknown"]
    assert parts[0].nodes == (
        SourceNode(name="ASSIGNMENT-0-SOURCE", topics=("lines",), successors=("ASSIGNMENT-0-PROCESSOR",)),
        ProcessorNode(name="ASSIGNMENT-0-PROCESSOR"),
    )
    assert parts[2].nodes == (ProcessorNode(name="ASSIGNMENT-2-PROCESSOR"),), "only a standby was seen"
    assert isinstance(parts[3].nodes[0], SourceNode)
    assert parts[3].nodes[0].topics == ("rare",)


def test_named_topologies_have_their_names_in_front() -> None:
    group = read_group([("m", subscription("in"))], [("m", assignment((3, "in", 0), name="naïve"))])
    assert group.subtopologies == {"naïve__3": {"in"}}


def test_a_task_that_moves_is_not_forgotten_while_the_subscription_stays() -> None:
    both = assignment((0, "a", 0), (1, "b", 0))
    before = read_group([("m", subscription("a", "b"))], [("m", both)])
    moving = read_group([("m", subscription("a", "b"))], [("m", assignment((0, "a", 0)))])
    assert moving.fingerprint != before.fingerprint
    assert moving.merged(before).fingerprint == before.fingerprint
    changed = read_group([("m", subscription("a"))], [("m", assignment((0, "a", 0)))])
    assert changed.merged(before) == changed


@pytest.mark.parametrize(
    ("subscribed", "assigned"),
    [
        (b"", b""),
        (subscription("in", version=12), assignment((0, "in", 0), version=12)),
        (subscription("in", version=0), assignment((0, "in", 0), version=0)),
        (subscription("in", version=-1), assignment((0, "in", 0), version=-1)),
        (b"\x00\x01\x7f\xff\xff\xff", b"\x00\x01\x7f\xff\xff\xff"),
        (b"\x00\x01\xff\xff\xff\xff", b"\x00\x01\xff\xff\xff\xff"),
        (subscription("in")[:-20], COUNTING[:-40]),
        (subscription("\udcff".encode("utf-8", "surrogatepass").decode("latin-1")), assignment((-1, "in", 0))),
    ],
)
def test_what_cannot_be_read_leaves_the_member_without_detail(subscribed: bytes, assigned: bytes) -> None:
    group = read_group([("m", subscribed)], [("m", assigned)])
    [member] = group.members
    assert (member.active, member.standby, group.subtopologies) == ((), (), {})
    group.description()


def test_every_truncation_and_every_changed_byte_is_read_or_left_out() -> None:
    whole = subscription("lines", "more"), COUNTING
    for data, place in ((whole[0], 0), (whole[1], 1)):
        for at in range(len(data)):
            for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]):
                pair = (damaged, whole[1]) if place == 0 else (whole[0], damaged)
                read_group([("m", pair[0])], [("m", pair[1])]).description()


def test_more_partitions_than_tasks_leave_the_topics_unknown() -> None:
    data = bytearray(assignment((0, "a", 0), (1, "b", 0)))
    at = data.index(_text("a")) + len(_text("a"))
    data[at : at + 8] = struct.pack(">iii", 2, 0, 1)
    group = read_group([("m", subscription("a", "b"))], [("m", bytes(data))])
    assert group.subtopologies == {"0": frozenset(), "1": frozenset()}


# --- on the wire


def join(group: str = "g", *, protocol: str = "stream", protocol_type: str = "consumer", size: int = 0) -> Any:
    metadata = subscription("lines") + bytes(size)
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        member_id="a",
        protocol_type=protocol_type,
        protocols=(JoinGroupProtocol(name=protocol, metadata=metadata),),
    )


def joined(leader: str = "a", **more: Any) -> JoinGroupResponse:
    members = tuple(
        JoinGroupMember(member_id=one, metadata=subscription("lines", "g-counts-repartition")) for one in "ab"
    )
    fields: dict[str, Any] = {
        "generation_id": 3,
        "protocol_type": "consumer",
        "protocol_name": "stream",
        "leader": leader,
        "member_id": "a",
        "members": members if leader == "a" else (),
    }
    return JoinGroupResponse(**{**fields, **more})


def sync(group: str = "g", **more: Any) -> SyncGroupRequest:
    fields: dict[str, Any] = {
        "generation_id": 3,
        "member_id": "a",
        "assignments": (
            SyncGroupAssignment(member_id="a", assignment=assignment((0, "lines", 0))),
            SyncGroupAssignment(member_id="b", assignment=assignment((1, "g-counts-repartition", 0))),
        ),
    }
    return SyncGroupRequest(group_id=group, **{**fields, **more})


async def pass_by(it: Scene, key: int, version: int, message: Any, answer: Any, *, piece: int = 0) -> None:
    """The request and its response pass byte for byte; sockets hold less than a large one, so both ends work."""
    sent = request(key, version, message, correlation_id=7)
    _, asked = await asyncio.gather(in_pieces(it.client, sent, piece), it.broker.request())
    assert asked.frame == sent
    reply = asked.answer(answer)
    _, received = await asyncio.gather(in_pieces(it.broker, reply, piece), it.client.frame())
    assert received == reply


async def in_pieces(end: End, data: bytes, piece: int) -> None:
    step = piece or len(data)
    for at in range(0, len(data), step):
        await end.send(data[at : at + step])
        await asyncio.sleep(0)


async def rebalance(it: Scene, *, join_version: int = 9, sync_version: int = 5, piece: int = 0) -> None:
    await pass_by(it, JOIN_GROUP, join_version, join(), joined(), piece=piece)
    await pass_by(it, SYNC_GROUP, sync_version, sync(), SyncGroupResponse(assignment=b"x"), piece=piece)


def watcher(it: Scene) -> ClassicStreamsInterceptor:
    [found] = [one for one in it.stage.gateway.routes.interceptors if isinstance(one, ClassicStreamsInterceptor)]
    return found


@pytest.mark.parametrize(("join_version", "sync_version"), [(0, 0), (1, 3), (4, 3), (5, 4), (6, 5), (9, 5)])
async def test_an_application_is_recorded_from_what_its_leader_sees(
    join_version: int, sync_version: int, tmp_path: Path
) -> None:
    log = FakeTopic()
    async with scene(topic=(log, tmp_path)) as it:
        await rebalance(it, join_version=join_version, sync_version=sync_version)
        await until(lambda: bool(log.records))
        [fact] = recorded(log)
        await rebalance(it, join_version=join_version, sync_version=sync_version)
        await asyncio.sleep(0.05)
        assert len(log.records) == 1, "a rebalance that changes nothing writes nothing"
        assert watcher(it).held_bytes == 0
    assert (fact.group, getattr(fact, "provenance", None)) == ("g", "assignment")
    parts = getattr(fact, "description").subtopologies  # noqa: B009
    assert [(part.id, part.nodes[0].topics) for part in parts] == [("0", ("lines",)), ("1", ("g-counts-repartition",))]


async def test_frames_that_come_in_pieces_are_read_too(tmp_path: Path) -> None:
    log = FakeTopic()
    async with scene(topic=(log, tmp_path)) as it:
        await pass_by(it, JOIN_GROUP, 9, join(), joined(leader="b"))  # proves the connection
        await pass_by(it, JOIN_GROUP, 9, join(), joined(), piece=0)
        await pass_by(it, SYNC_GROUP, 5, sync(), SyncGroupResponse(), piece=11)
        await until(lambda: bool(log.records))


@pytest.mark.parametrize(
    ("joins", "answers", "syncs", "synced"),
    [
        (join(protocol="range"), joined(), sync(), SyncGroupResponse()),
        (join(protocol_type="connect"), joined(), sync(), SyncGroupResponse()),
        (join(), joined(leader="b"), sync(), SyncGroupResponse()),
        (join(), joined(error_code=79, leader="", members=()), sync(), SyncGroupResponse()),
        (join(), joined(protocol_name="range"), sync(), SyncGroupResponse()),
        (join(), joined(), sync(assignments=()), SyncGroupResponse()),
        (join(), joined(), sync(generation_id=2), SyncGroupResponse()),
        (join(), joined(), sync(member_id="b"), SyncGroupResponse()),
        (join(), joined(), sync(), SyncGroupResponse(error_code=27)),
        (join(), joined(), sync("h"), SyncGroupResponse()),
    ],
)
async def test_everything_else_passes_and_is_not_recorded(
    joins: Any, answers: Any, syncs: Any, synced: Any, tmp_path: Path
) -> None:
    log = FakeTopic()
    async with scene(topic=(log, tmp_path)) as it:
        await pass_by(it, JOIN_GROUP, 9, joins, answers)
        await pass_by(it, SYNC_GROUP, 5, syncs, synced)
        await asyncio.sleep(0.05)
    assert log.records == []


async def test_a_group_that_is_not_selected_is_not_recorded(tmp_path: Path) -> None:
    log = FakeTopic()
    async with scene(topic=(log, tmp_path), groups=allow("other")) as it:
        await rebalance(it)
        await asyncio.sleep(0.05)
    assert log.records == []


async def test_other_consumers_are_neither_opened_nor_read() -> None:
    async with scene() as it:
        await pass_by(it, JOIN_GROUP, 9, join(protocol="range"), joined(protocol_name="range"))
        await pass_by(it, SYNC_GROUP, 5, sync(), SyncGroupResponse())
        await rebalance(it)
        opened = {route.name: route.opened_calls for route in it.stage.gateway.routes.used()}
    assert opened["JoinGroup"] == 0
    assert opened["SyncGroup"] == 1


async def test_a_response_that_is_too_large_passes_and_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = FakeTopic()
    monkeypatch.setattr(classic_interceptor, "MAX_BYTES", 100)
    async with scene(topic=(log, tmp_path)) as it:
        await rebalance(it)
        await asyncio.sleep(0.05)
        assert watcher(it).held_bytes == 0
    assert log.records == []


async def test_what_is_held_for_all_groups_is_bounded_and_ends_with_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scene() as it:
        await pass_by(it, JOIN_GROUP, 9, join("first"), joined())
        one = watcher(it).held_bytes
        assert one > 0
        monkeypatch.setattr(classic_interceptor, "MAX_HELD_BYTES", 2 * one + 1)
        for number in range(5):
            await pass_by(it, JOIN_GROUP, 9, join(f"g{number}"), joined())
        assert watcher(it).held_bytes == 2 * one
        it.client.close()
        await until(lambda: watcher(it).held_bytes == 0)


async def test_a_connection_that_ends_within_a_response_leaves_nothing_behind() -> None:
    async with scene() as it:
        await it.client.send(request(JOIN_GROUP, 9, join(), correlation_id=7))
        asked = await it.broker.request()
        await it.broker.send(asked.answer(joined())[:-5])
        await until(lambda: watcher(it).held_bytes > 0)
        it.client.close()
        await until(lambda: watcher(it).held_bytes == 0)


async def test_a_large_sync_of_a_leader_passes(tmp_path: Path) -> None:
    log = FakeTopic()
    async with scene(topic=(log, tmp_path)) as it:
        await pass_by(it, JOIN_GROUP, 9, join(), joined())
        large = SyncGroupAssignment(member_id="c", assignment=bytes(classic_interceptor.MAX_BYTES))
        await pass_by(it, SYNC_GROUP, 5, sync(assignments=(large,)), SyncGroupResponse())
        await asyncio.sleep(0.05)
    assert log.records == []


async def test_malformed_subscriptions_leave_the_application_visible(tmp_path: Path) -> None:
    log = FakeTopic()
    async with scene(topic=(log, tmp_path)) as it:
        members = (JoinGroupMember(member_id="a", metadata=b"\xff"),)
        await pass_by(it, JOIN_GROUP, 9, join(), joined(members=members))
        broken = (SyncGroupAssignment(member_id="a", assignment=b"\xff"),)
        await pass_by(it, SYNC_GROUP, 5, sync(assignments=broken), SyncGroupResponse())
        await until(lambda: bool(log.records))
        [fact] = recorded(log)
    assert getattr(fact, "description").subtopologies == ()  # noqa: B009


async def test_members_with_hosts_and_tasks_are_written_when_they_change() -> None:
    written: list[Any] = []

    async def write(record: Any) -> None:
        written.append(record)

    async with scene(write_tasks=write) as it:
        await rebalance(it)
        await until(lambda: len(written) == 2)
        first, second = written
        assert (first.group, first.member, first.process, first.host) == ("g", "a", str(PROCESS), "host-a")
        assert [(task.name, task.role) for task in first.tasks] == [("0_0", "active")]
        assert [task.name for task in second.tasks] == ["1_0"]
        await rebalance(it)
        await pass_by(it, JOIN_GROUP, 9, join(), joined(members=joined().members[:1]))
        await pass_by(it, SYNC_GROUP, 5, sync(), SyncGroupResponse())
        await until(lambda: len(written) == 3)
        assert written[2] == MemberTasksEnded(group="g", member="b"), "the second rebalance changed nothing"


async def test_a_member_without_an_endpoint_has_the_address_from_which_it_joined() -> None:
    written: list[Any] = []

    async def write(record: Any) -> None:
        written.append(record)

    name = "app-StreamThread-1-consumer-0b0e7d2c-63a5-4a0e-9a6f-6a5c6d3a1f11"
    members = tuple(
        JoinGroupMember(member_id=one, metadata=subscription("lines", endpoint="")) for one in (name, "elsewhere")
    )
    async with scene(write_tasks=write) as it:
        answer = joined(leader=name, member_id=name, members=members)
        await pass_by(it, JOIN_GROUP, 9, join(), answer)
        await pass_by(it, SYNC_GROUP, 5, sync(member_id=name), SyncGroupResponse())
        await until(lambda: len(written) == 2)
    assert written[0].host.startswith("127.0.0.1")
    assert written[0].client_id == "app-StreamThread-1-consumer"
    assert (written[1].host, written[1].client_id, written[1].tasks) == ("", "", ())


async def test_tasks_that_could_not_be_written_are_written_by_the_next_rebalance() -> None:
    written: list[Any] = []
    away = [True]

    async def write(record: Any) -> None:
        if away[0]:
            raise ClusterError("the topic is away")
        written.append(record)

    async with scene(write_tasks=write) as it:
        with capture_logs() as logs:
            await rebalance(it)
            await until(lambda: any(one["event"] == "tasks of a Streams group not written" for one in logs))
        away[0] = False
        await rebalance(it)
        await until(lambda: len(written) == 2)


async def test_delete_groups_ends_it(tmp_path: Path) -> None:
    log = FakeTopic()
    async with scene(topic=(log, tmp_path)) as it:
        await rebalance(it)
        await until(lambda: bool(log.records))
        await asyncio.sleep(0.02)
        deleting = it.delete("g", version=2)
        await it.broker.reply(DeleteGroupsResponse(results=(DeletedGroup(group_id="g"),)))
        await deleting
        await until(lambda: len(log.records) == 2)
