"""The fast path of heartbeats: requests that repeat the same bytes are parsed once, everything else each time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from headgate.activity.interceptors import GroupMembershipInterceptor, Heartbeat
from headgate.activity.model.identity import GroupKind, GroupRef
from headgate.activity.topic_resolver import TopicResolver
from headgate.activity.usage_tracker import UsageTracker
from headgate.base.clock import SystemClock
from headgate.base.ids import ApiKey
from headgate.proxy.interceptor import Interceptor, RequestFrame, Session
from headgate.proxy.principals import Principals
from headgate.share_groups.feature import ReservedNames
from headgate.share_groups.reserved_names import reserved_groups
from headgate.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from headgate.wire.messages.share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from headgate.wire.messages.streams import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse, TaskOffset
from headgate.wire.schema import Message
from tests.support.fake_upstream import Broker, Client, answer, request
from tests.unit.proxy.stage import Stage, stage, until
from tests.unit.proxy.test_split import reach, send_cut

CLASSIC, CONSUMER, SHARE = ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT


@dataclass(frozen=True)
class Member:
    """A member, and what the broker responds to its heartbeats."""

    key: ApiKey
    version: int
    asked: Any
    said: Any
    client_id: bytes | None = b"c"

    def __str__(self) -> str:
        return f"{self.key.name}-v{self.version}"

    def frame(self, number: int = 7) -> bytes:
        return request(self.key, self.version, self.asked, correlation_id=number, client_id=self.client_id)


ASKED = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
MEMBERS = [
    *(Member(CLASSIC, version, ASKED, HeartbeatResponse()) for version in (0, 1, 3, 4)),
    *(
        Member(
            CONSUMER,
            version,
            ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3),
            ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=3, heartbeat_interval_ms=5000),
        )
        for version in (0, 1)
    ),
    Member(
        SHARE,
        1,
        ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3),
        ShareGroupHeartbeatResponse(member_id="m", member_epoch=3, heartbeat_interval_ms=5000),
    ),
]
EACH = pytest.mark.parametrize("member", MEMBERS, ids=str)


class CountingTracker(UsageTracker):
    """Counts what it is informed of."""

    def __init__(self) -> None:
        super().__init__(Principals(), TopicResolver(_no_topics), SystemClock())
        self.informed: list[tuple[str | None, GroupRef]] = []

    def on_membership(self, session: Session, client_id: str | None, group: GroupRef) -> None:
        self.informed.append((client_id, group))
        super().on_membership(session, client_id, group)


async def _no_topics(_: object, __: object) -> list[tuple[str, bytes]]:
    return []


class CountingInterceptor(GroupMembershipInterceptor):
    parsed = 0  # requests
    pieces = 0  # of responses

    def on_request(self, request: RequestFrame, session: Session) -> Any:
        self.parsed += 1
        return super().on_request(request, session)

    def on_chunk(self, view: memoryview, context: Heartbeat, session: Session) -> None:
        self.pieces += len(view) > 0
        super().on_chunk(view, context, session)


@dataclass
class Scene:
    on: Stage
    tracker: CountingTracker
    watcher: CountingInterceptor
    client: Client
    broker: Broker
    now: list[float] = field(default_factory=lambda: [0.0])

    async def beat(self, member: Member, said: Message | None = None, *, tags: bytes = b"") -> None:
        """One heartbeat and its response, which pass unchanged."""
        await self.client.send(member.frame())
        asked = await self.broker.request()
        assert asked.frame == member.frame()
        told = asked.answer(said or member.said)
        if tags:
            told = answer(member.key, member.version, 7, said or member.said, tags=tags)
        await self.broker.send(told)
        assert await self.client.frame() == told


@asynccontextmanager
async def scene(*first: Interceptor[Any]) -> AsyncIterator[Scene]:
    tracker, now = CountingTracker(), [0.0]
    watcher = CountingInterceptor(tracker, lambda: now[0])
    async with stage(*first, watcher) as on:
        client, broker = await on.pair()
        yield Scene(on, tracker, watcher, client, broker, now)
        assert on.gateway.metrics.chain_meter.failures == 0


@EACH
async def test_a_repeated_heartbeat_is_parsed_once_and_reported_once_a_minute(member: Member) -> None:
    async with scene() as it:
        for at, informed in ((0, 1), (1, 1), (59, 1), (61, 2), (62, 2), (121, 2), (122, 3)):
            it.now[0] = at
            await it.beat(member)
            assert (it.watcher.parsed, len(it.tracker.informed)) == (1, informed)
        kind: GroupKind = "share_group" if member.key == SHARE else "consumer_group"
        assert set(it.tracker.informed) == {("c", GroupRef(kind, "g"))}


@EACH
async def test_whatever_differs_is_parsed(member: Member) -> None:
    epoch = "generation_id" if member.key == CLASSIC else "member_epoch"
    others = [
        replace(member, client_id=b"d"),
        replace(member, client_id=b""),
        replace(member, client_id=None),
        replace(member, asked=replace(member.asked, group_id="h")),
        replace(member, asked=replace(member.asked, member_id="n")),
        replace(member, asked=replace(member.asked, **{epoch: 4})),
        replace(member, asked=replace(member.asked, **{epoch: -1})),
    ]
    if member.key != CLASSIC:
        others.append(replace(member, asked=replace(member.asked, subscribed_topic_names=("t",))))
        others.append(replace(member, asked=replace(member.asked, unknown_tags=((9, b"tag"),))))
    async with scene() as it:
        await it.beat(member)
        for number, other in enumerate(others, 2):
            await it.beat(other)
            assert it.watcher.parsed == len(it.tracker.informed) == number
            await it.beat(member)
            assert it.watcher.parsed == number


async def test_another_version_or_api_with_the_same_bytes_is_parsed() -> None:
    consumer, share = MEMBERS[4], MEMBERS[6]
    alike = replace(share, asked=replace(share.asked, rack_id="r"))
    async with scene() as it:
        await it.beat(consumer)
        await it.beat(replace(consumer, version=1))
        await it.beat(alike)
        await it.beat(replace(alike, key=CONSUMER, asked=replace(consumer.asked, instance_id="r")))
        assert it.watcher.parsed == 4


REFUSALS = (25, 30, 256, -1)  # UNKNOWN_MEMBER_ID, GROUP_AUTHORIZATION_FAILED, and codes with one byte that is 0 or none


@EACH
async def test_refused_heartbeats_are_parsed_once_and_are_no_use(member: Member) -> None:
    async with scene() as it:
        for at in (0, 1, 61, 200):
            it.now[0] = at
            for code in REFUSALS:
                await it.beat(member, replace(member.said, error_code=code))
        assert (it.watcher.parsed, it.watcher.pieces, it.tracker.informed) == (1, 1, [])


@EACH
async def test_the_first_accepted_heartbeat_after_refused_ones_is_a_use(member: Member) -> None:
    async with scene() as it:
        for _ in range(3):
            await it.beat(member, replace(member.said, error_code=25))
        await it.beat(member)
        assert (it.watcher.parsed, len(it.tracker.informed)) == (1, 1)
        await it.beat(member)
        assert (it.watcher.parsed, len(it.tracker.informed)) == (1, 1)


@EACH
async def test_refused_heartbeats_after_an_accepted_one_are_no_use_and_the_next_accepted_one_is(member: Member) -> None:
    async with scene() as it:
        await it.beat(member)
        for at in (1, 61, 62, 130):
            it.now[0] = at
            for code in REFUSALS:
                await it.beat(member, replace(member.said, error_code=code))
        assert (it.watcher.parsed, len(it.tracker.informed)) == (1, 1)
        await it.beat(member)
        assert (it.watcher.parsed, len(it.tracker.informed)) == (1, 2)


async def test_of_heartbeats_that_are_accepted_together_one_is_reported() -> None:
    member = MEMBERS[3]
    async with scene() as it:
        await it.beat(member, replace(member.said, error_code=25))
        await it.client.send(member.frame() * 3)
        for _ in range(3):
            await it.broker.reply(member.said)
            await it.client.frame()
        assert (it.watcher.parsed, len(it.tracker.informed)) == (1, 1)


async def test_a_response_that_is_too_short_for_an_error_code_is_no_use_whatever_follows_it() -> None:
    member = MEMBERS[3]
    async with scene() as it:
        await it.beat(member, replace(member.said, error_code=25))
        await it.client.send(member.frame() * 2)
        for _ in range(2):
            await it.broker.request()
        short = (6).to_bytes(4, "big") + (7).to_bytes(4, "big") + b"\x00\x00"
        whole = answer(member.key, member.version, 7, replace(member.said, error_code=25))
        await it.broker.send(short + whole)
        assert [await it.client.frame(), await it.client.frame()] == [short, whole]
        assert (it.watcher.parsed, it.tracker.informed) == (1, [])


async def test_tagged_fields_in_the_header_of_a_response_are_not_taken_for_its_error_code() -> None:
    member = MEMBERS[3]
    async with scene() as it:
        await it.beat(member, replace(member.said, error_code=25))
        # What looks like throttle time and error code are bytes of the tagged field.
        await it.beat(member, replace(member.said, error_code=25), tags=b"\x01\x05\x06\x00\x00\x00\x00\x00\x00")
        assert (it.watcher.parsed, it.tracker.informed) == (1, [])


async def test_a_response_with_tagged_fields_in_its_header_does_not_teach_the_fast_path() -> None:
    async with scene() as it:
        for _ in range(2):
            await it.beat(MEMBERS[3], tags=b"\x01\x90\x4e\x02ab")
        assert (it.watcher.parsed, it.tracker.informed) == (2, [])


async def test_several_groups_on_one_connection_stay_fast_and_what_is_kept_is_bounded() -> None:
    members = [replace(MEMBERS[3], asked=replace(ASKED, group_id=f"g{number}")) for number in range(17)]
    async with scene() as it:
        for member in members[:16] * 3:
            await it.beat(member)
        assert it.watcher.parsed == 16
        await it.beat(members[16])  # replaces the oldest
        for member in members[1:]:
            await it.beat(member)
        assert it.watcher.parsed == 17
        await it.beat(members[0])
        assert it.watcher.parsed == 18


async def test_a_long_heartbeat_is_not_kept() -> None:
    member = replace(MEMBERS[3], asked=replace(ASKED, group_instance_id="i" * 500))
    async with scene() as it:
        for _ in range(2):
            await it.beat(member)
        assert it.watcher.parsed == 2


@EACH
@pytest.mark.parametrize("code", [0, 25])
async def test_the_error_code_of_a_known_heartbeat_may_be_cut_at_every_byte(member: Member, code: int) -> None:
    """Each response is the first after a minute, so that it is looked at."""
    async with scene() as it:
        await it.beat(member, replace(member.said, error_code=25))
        told = answer(member.key, member.version, 7, replace(member.said, error_code=code))
        for cut in range(1, len(told)):
            it.now[0] += 61
            await it.client.send(member.frame())
            await it.broker.request()
            await send_cut(it.on, it.broker, told, cut)
            assert await it.client.frame() == told
            assert (it.watcher.parsed, len(it.tracker.informed)) == (1, 0 if code else cut)


@EACH
async def test_heartbeats_and_their_responses_may_be_cut_at_every_byte(member: Member) -> None:
    async with scene() as it:
        await it.beat(member)
        meter = it.on.gateway.metrics.client_meter
        for cut in range(1, len(member.frame())):
            before = meter.received_bytes
            await it.client.send(member.frame(cut)[:cut])
            await reach(meter, before + cut)
            await it.client.send(member.frame(cut)[cut:])
            asked = await it.broker.request()
            assert asked.frame == member.frame(cut)
            told = asked.answer(member.said)
            await send_cut(it.on, it.broker, told, 1 + cut % (len(told) - 1))
            assert await it.client.frame() == told
        assert set(it.tracker.informed) == {it.tracker.informed[0]}
        await it.client.send(member.frame(1) * 50)  # many in one piece
        for _ in range(50):
            assert (await it.broker.reply(member.said)).frame == member.frame(1)
            await it.client.frame()


async def test_a_reserved_group_is_refused_between_heartbeats_that_take_the_fast_path() -> None:
    member = MEMBERS[3]
    reserved = replace(member, asked=replace(ASKED, group_id=reserved_groups("headgate.")[0]))
    async with scene(*ReservedNames("headgate.").interceptors) as it:
        for _ in range(3):
            await it.beat(member)
            await it.client.send(reserved.frame(9))
            assert await it.client.frame() == answer(CLASSIC, 4, 9, HeartbeatResponse(error_code=30))
        assert len(it.tracker.informed) == 1


async def test_a_streams_member_is_reported_once_a_minute_although_its_heartbeats_differ() -> None:
    asked = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    said = StreamsGroupHeartbeatResponse(member_id="m", member_epoch=3)
    member = Member(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, asked, said)
    async with scene() as it:
        await it.beat(member, replace(said, error_code=25))
        assert it.tracker.informed == []
        for at, offset, count in ((0, 1, 1), (1, 2, 1), (59, 3, 1), (61, 4, 2), (62, 5, 2)):
            it.now[0] = at
            offsets = (TaskOffset(subtopology_id="0", offset=offset),)
            await it.beat(replace(member, asked=replace(asked, task_offsets=offsets)))
            assert len(it.tracker.informed) == count
        await it.beat(replace(member, asked=replace(asked, group_id="h")))
        await it.beat(replace(member, client_id=b"d", asked=replace(asked, group_id="h")))
        streams = [("c", GroupRef("streams", "h")), ("d", GroupRef("streams", "h"))]
        assert it.tracker.informed[2:] == streams
        it.client.close()
        await until(lambda: not it.watcher._streams_members)


async def test_nothing_is_left_of_a_connection_that_has_closed() -> None:
    async with scene() as it:
        for _ in range(2):
            await it.beat(MEMBERS[3])
        assert it.watcher._fast_paths
        it.client.close()
        await until(lambda: not it.watcher._fast_paths)
