"""ShareGroupHeartbeat through the gateway: who may read is told of a conflict, and only when it joins."""

import asyncio

import pytest

from headgate.facts import DlqRegistered, DlqUnregistered
from headgate.share_groups.model.group_configs import DLQ_TOPIC, STRICT_ISOLATION
from headgate.wire.codec import decode, encode
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from headgate.wire.messages.share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.support.fake_upstream import body_of, request
from tests.unit.share_groups.scene import HEARTBEAT, SHARE_HEARTBEAT, Scene, scene

VERSION = 1
TEXT = (
    "Share group sg has share.group.dlq.strict.isolation=true, and its dead-letter topic dlq.a is already registered "
    "by share group first. Give one of them another topic, then restart this application: a member that was refused "
    "does not try again."
)
UNKNOWN_MEMBER, DENIED, INVALID_REQUEST = 25, 30, 42


def beating(epoch: int = 0, group: str = "sg", member: str = "m") -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=("orders",)
    )


def in_conflict(it: Scene) -> None:
    it.set("sg", {DLQ_TOPIC: "dlq.a", STRICT_ISOLATION: "true"})
    it.read(*(DlqRegistered(topic="dlq.a", group=group, at=1) for group in ("first", "sg")))


async def proves(it: Scene, code: int) -> None:
    it.broker.code = None
    probe = await it.broker.request()
    assert probe.key == HEARTBEAT
    assert decode(HeartbeatRequest, probe.version, probe.body).group_id == "sg"
    await it.broker.send(probe.answer(encode(HeartbeatResponse(error_code=code), probe.version)))


@pytest.mark.parametrize("member", ["m", "x" * 300])
async def test_a_join_in_conflict_is_refused_with_the_text(member: str) -> None:
    async with scene() as it:
        in_conflict(it)
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating(member=member)))
        await proves(it, UNKNOWN_MEMBER)
        body = body_of(await it.client.frame(), SHARE_HEARTBEAT, VERSION)
        answer = decode(ShareGroupHeartbeatResponse, VERSION, body)
        assert (answer.error_code, answer.error_message) == (INVALID_REQUEST, TEXT)
        assert await it.broker.is_quiet(), "the broker never hears of it"


async def test_a_client_that_may_not_read_the_group_is_refused_by_the_broker() -> None:
    async with scene() as it:
        in_conflict(it)
        sent = request(SHARE_HEARTBEAT, VERSION, beating())
        await it.client.send(sent)
        await proves(it, DENIED)
        refused = ShareGroupHeartbeatResponse(error_code=DENIED)
        assert (await it.broker.reply(refused)).frame == sent
        assert TEXT.encode() not in await it.client.frame()


@pytest.mark.parametrize("message", [beating(1), beating(-1), beating(0, "other"), beating(7, member="x" * 300)])
async def test_everything_else_passes_byte_for_byte(message: ShareGroupHeartbeatRequest) -> None:
    async with scene() as it:
        in_conflict(it)
        await it.passes(SHARE_HEARTBEAT, VERSION, message)


async def test_without_strict_isolation_groups_share_a_topic() -> None:
    async with scene() as it:
        in_conflict(it)
        it.set("sg", {STRICT_ISOLATION: None})
        await it.passes(SHARE_HEARTBEAT, VERSION, beating())


async def test_until_the_groups_are_known_members_join() -> None:
    async with scene(opens=asyncio.Event()) as it:
        in_conflict(it)
        await it.passes(SHARE_HEARTBEAT, VERSION, beating())


async def test_a_conflict_that_is_over_is_over() -> None:
    async with scene() as it:
        in_conflict(it)
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        await proves(it, UNKNOWN_MEMBER)
        await it.client.frame()
        it.read(DlqUnregistered(topic="dlq.a", group="first"))
        await it.passes(SHARE_HEARTBEAT, VERSION, beating())
