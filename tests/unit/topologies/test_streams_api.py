"""The quick way of a heartbeat gives the bytes that the whole way gives, or steps aside."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topologies.streams_api import (
    downgrade_heartbeat,
    downgrade_plain_heartbeat,
    upgrade_heartbeat,
    upgrade_plain_heartbeat,
)
from headgate.wire import group_requests
from headgate.wire.codec import decode, encode
from headgate.wire.messages.groups import JoinGroupRequest, SyncGroupRequest
from headgate.wire.messages.streams import (
    Endpoint,
    HeartbeatTopology,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupStatus,
    TaskIds,
    TaskOffset,
)

names = st.text(max_size=6) | st.sampled_from(["x" * 125, "x" * 126, "x" * 127, "x" * 300])
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
seldom = st.sampled_from([True, False, False, False, False, False])


def rarely(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Null, as between joins, and now and then something."""
    return seldom.flatmap(lambda given: strategy if given else st.none())


tasks = st.lists(st.builds(TaskIds, subtopology_id=names, partitions=st.just((1, 2))), max_size=2).map(tuple)
offset = st.builds(TaskOffset, subtopology_id=names, partition=int32, offset=int64)
tagged_offset = st.builds(replace, offset, unknown_tags=st.just(((5, b"x"),)))
offsets = st.none() | st.lists(offset, max_size=4).map(tuple) | st.lists(offset, min_size=126, max_size=128).map(tuple)
tags = rarely(st.just(((3, b"\x00"), (10_000, b"ab")))).map(lambda found: found or ())
requests = st.builds(
    StreamsGroupHeartbeatRequest,
    group_id=names,
    member_id=names,
    member_epoch=st.just(0) | int32,
    endpoint_information_epoch=int32,
    instance_id=st.none() | names,
    rack_id=st.none() | names,
    rebalance_timeout_ms=int32,
    topology=rarely(st.builds(HeartbeatTopology, epoch=int32)),
    active_tasks=rarely(tasks),
    standby_tasks=rarely(tasks),
    warmup_tasks=rarely(tasks),
    process_id=rarely(names),
    user_endpoint=rarely(st.builds(Endpoint, host=names, port=st.just(9))),
    client_tags=rarely(st.lists(st.builds(KeyValue, key=names, value=names), max_size=1).map(tuple)),
    task_offsets=offsets | st.lists(tagged_offset, min_size=1, max_size=2).map(tuple),
    task_end_offsets=offsets,
    shutdown_application=st.booleans(),
    unknown_tags=tags,
)
answers = st.builds(
    StreamsGroupHeartbeatResponse,
    throttle_time_ms=int32,
    error_code=st.just(0) | st.integers(-1, 200),
    error_message=rarely(names),
    member_id=names,
    member_epoch=int32,
    heartbeat_interval_ms=int32,
    acceptable_recovery_lag_legacy=int32,
    task_offset_interval_ms=int32,
    status=st.just(()) | rarely(st.just((StreamsGroupStatus(status_code=1, status_detail="d"),))),
    active_tasks=rarely(tasks),
    standby_tasks=rarely(tasks),
    warmup_tasks=rarely(tasks),
    endpoint_information_epoch=int32,
    unknown_tags=tags,
)


@given(requests)
def test_a_heartbeat_goes_down_by_either_way_alike(message: StreamsGroupHeartbeatRequest) -> None:
    body = encode(message, 1)
    beat = group_requests.idle_heartbeat(body)
    if beat is not None:
        assert (beat.group, beat.member, beat.epoch) == (message.group_id, message.member_id, message.member_epoch)
        assert message.topology is None
        assert message.process_id is None
        assert downgrade_plain_heartbeat(body, beat) == encode(downgrade_heartbeat(message), 0)


def test_the_usual_heartbeat_takes_the_quick_way() -> None:
    offsets = tuple(TaskOffset(subtopology_id=str(i % 7), partition=i, offset=i) for i in range(100))
    message = StreamsGroupHeartbeatRequest(
        group_id="g", member_id="m" * 22, member_epoch=4, task_offsets=offsets, task_end_offsets=()
    )
    assert group_requests.idle_heartbeat(encode(message, 1)) is not None
    assert group_requests.idle_heartbeat_response(
        encode(StreamsGroupHeartbeatResponse(member_id="m" * 22, member_epoch=4, status=()), 0)
    )
    assert group_requests.idle_heartbeat_response(encode(StreamsGroupHeartbeatResponse(member_id="m", status=None), 0))


@given(requests, st.integers(0, 400))
def test_a_heartbeat_that_ends_early_is_left_to_the_whole_way(message: StreamsGroupHeartbeatRequest, most: int) -> None:
    body = encode(replace(message, unknown_tags=()), 1)
    if most < len(body):
        beat = group_requests.idle_heartbeat(body[:most])
        # What is missing can only be tags, of which it knows nothing: then the broker finds out.
        assert beat is None or most == len(body) - 1


@given(requests, st.booleans())
def test_a_join_and_a_leave_are_never_overlooked(message: StreamsGroupHeartbeatRequest, is_padded: bool) -> None:
    body = encode(replace(message, task_offsets=None, task_end_offsets=None), 0)
    view = memoryview(b"xyz" + body + b"\x07" * 9 * is_padded)
    opened = group_requests.is_join_or_leave(view, 3, 3 + len(body))
    joins = group_requests.is_join(view, 3, 3 + len(body))
    assert opened or message.member_epoch > 0
    assert joins or message.member_epoch != 0
    if 0 < len(message.group_id.encode()) < 127 and 0 < len(message.member_id.encode()) < 127:
        assert opened == (message.member_epoch <= 0)
        assert joins == (message.member_epoch == 0)


@given(st.binary(max_size=40))
def test_whatever_bytes_there_are_nothing_is_raised(body: bytes) -> None:
    group_requests.idle_heartbeat(body)
    group_requests.idle_heartbeat_response(body)
    if body:
        group_requests.is_join_or_leave(memoryview(body), 0, len(body))


@given(answers, st.booleans())
def test_an_answer_goes_up_by_either_way_alike(message: StreamsGroupHeartbeatResponse, ask: bool) -> None:
    body = encode(message, 0)
    beaten = group_requests.idle_heartbeat_response(body)
    if beaten is not None:
        assert not message.status
        assert beaten.error_code == message.error_code
        up = upgrade_plain_heartbeat(body, beaten, solicit=ask)
        assert up == encode(upgrade_heartbeat(message, solicit=ask), 1)
        assert decode(StreamsGroupHeartbeatResponse, 1, up).topology_description_required == ask


@pytest.mark.parametrize("version", [3, 6])
@pytest.mark.parametrize(
    ("read", "message"),
    [
        (group_requests.joining_group, JoinGroupRequest(group_id="group", protocol_type="consumer")),
        (group_requests.syncing_group, SyncGroupRequest(group_id="group")),
    ],
)
def test_a_group_that_has_not_been_received_whole_may_be_the_one(read: Any, message: Any, version: int) -> None:
    version = min(version, type(message).valid[-1])
    test = group_requests.begins_with_group(read, version, "group".__eq__, longest=16)

    def body(group: str) -> bytes:
        return encode(replace(message, group_id=group), version)

    behind = body("group").index(b"group") + len(b"group")
    for end in range(1, len(body("group"))):
        assert test(b"xx" + body("group"), 2, 2 + end)
        assert test(b"xx" + body("other"), 2, 2 + end) is (end < behind)
    assert [test(body("g" * 30), 0, end) for end in (15, 16, 30)] == [True, False, False]
