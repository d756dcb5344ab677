"""A throttle time in the response to a request of the gateway itself reaches the client in the gateway's response.

The broker does not read from the connection for that long; a client that does not know waits for nothing.
"""

import pytest

from headgate.wire.codec import decode
from headgate.wire.messages.groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    JoinGroupRequest,
    JoinGroupResponse,
)
from headgate.wire.messages.streams import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from tests.support.fake_upstream import body_of, request
from tests.unit.proxy.stage import until
from tests.unit.topologies.scene import (
    DELETE,
    DESCRIBE,
    HEARTBEAT,
    JOIN_GROUP,
    OFFSET_DELETE,
    UNKNOWN_MEMBER,
    Scene,
    beating,
    described,
    fine,
    pushed,
    scene,
)

THROTTLE_MS = 600_000
LEFT = range(THROTTLE_MS // 2, THROTTLE_MS + 1)  # what is left of it when the client gets its response


async def stored(it: Scene) -> None:
    """A group with a description, whose member has left."""
    await it.join()
    assert await it.pushes(pushed()) == 0
    await it.heartbeat(beating(member_epoch=-1))


async def delete(it: Scene, version: int) -> None:
    message = DeleteGroupsRequest(groups_names=("g",))
    await it.client.send(request(DELETE, version, message, correlation_id=7))


async def deletion(it: Scene, version: int) -> DeleteGroupsResponse:
    return decode(DeleteGroupsResponse, version, body_of(await it.client.frame(), DELETE, version))


async def test_a_push_that_the_broker_was_asked_about() -> None:
    async with scene() as it:
        answer = it.push()
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER, throttle_ms=THROTTLE_MS)
        await it.describes()
        assert (await answer).throttle_time_ms in LEFT


async def test_a_push_that_the_broker_was_not_asked_about_has_none() -> None:
    async with scene() as it:
        await it.join()
        answer = await it.push()
        assert (answer.error_code, answer.throttle_time_ms) == (0, 0)


async def test_a_deletion_that_is_not_forwarded() -> None:
    async with scene() as it:
        await stored(it)
        await delete(it, 3)
        await it.proves_right(OFFSET_DELETE, throttle_ms=THROTTLE_MS)
        await it.describes(code=16)
        assert (await deletion(it, 3)).throttle_time_ms in LEFT


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("own_ms", [5, 2 * THROTTLE_MS])
async def test_a_deletion_that_is_forwarded_has_the_longer_one(version: int, own_ms: int) -> None:
    async with scene() as it:
        await stored(it)
        await delete(it, version)
        await it.proves_right(OFFSET_DELETE, throttle_ms=THROTTLE_MS)
        await it.describes(state="Empty", members=())
        asked = await it.broker.request()
        results = (DeletedGroup(group_id="g"),)
        await it.broker.send(asked.answer(DeleteGroupsResponse(throttle_time_ms=own_ms, results=results)))
        response = await deletion(it, version)
        assert response.results == results
        assert response.throttle_time_ms in (LEFT if own_ms < THROTTLE_MS else (own_ms,))


async def test_a_classic_join_that_is_not_forwarded() -> None:
    async with scene() as it:
        await stored(it)
        message = JoinGroupRequest(group_id="g", member_id="c", protocol_type="consumer")
        await it.client.send(request(JOIN_GROUP, 9, message, correlation_id=7))
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        await it.describes(code=16, throttle_ms=THROTTLE_MS)
        response = decode(JoinGroupResponse, 9, body_of(await it.client.frame(), JOIN_GROUP, 9))
        assert response.throttle_time_ms in LEFT


@pytest.mark.parametrize("statuses", [(), (1,)])  # the first is converted without decoding it
async def test_the_heartbeat_after_a_describe_of_the_gateway(statuses: tuple[int, ...]) -> None:
    async with scene() as it:
        _, first = await it.heartbeat(beating())  # the group's epoch is not known
        assert first.throttle_time_ms == 0
        await it.describes(throttle_ms=THROTTLE_MS)
        await until(lambda: it.service.current_epoch("g") == 0)
        _, second = await it.heartbeat(beating(), fine(statuses=statuses))
        assert second.throttle_time_ms in LEFT


@pytest.mark.parametrize("descriptions", [False, True])  # the first is converted at once
@pytest.mark.parametrize("own_ms", [5, 2 * THROTTLE_MS])
async def test_a_describe_after_one_of_the_gateway_has_the_longer_one(descriptions: bool, own_ms: int) -> None:
    async with scene() as it:
        await it.heartbeat(beating())
        await it.describes(throttle_ms=THROTTLE_MS)
        await until(lambda: it.service.current_epoch("g") == 0)
        message = StreamsGroupDescribeRequest(group_ids=("g",), include_topology_description=descriptions)
        await it.client.send(request(DESCRIBE, 1, message, correlation_id=7))
        await it.broker.reply(StreamsGroupDescribeResponse(throttle_time_ms=own_ms, groups=(described(),)))
        response = decode(StreamsGroupDescribeResponse, 1, body_of(await it.client.frame(), DESCRIBE, 1))
        assert response.throttle_time_ms in (LEFT if own_ms < THROTTLE_MS else (own_ms,))
