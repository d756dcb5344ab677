"""ShareGroupHeartbeat through the gateway: which groups may not start, and what their members learn of it."""

import asyncio

import pytest
from structlog.typing import EventDict

from headgate.facts import BreakerTripped, DlqRegistered, DlqUnregistered, GroupPaused
from headgate.share_groups import group_interceptors
from headgate.share_groups.model.group_configs import BREAKER_ENABLE, DLQ_TOPIC, STRICT_ISOLATION
from headgate.wire.codec import decode, encode
from headgate.wire.messages.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from headgate.wire.messages.share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.support.clock import FakeClock
from tests.support.fake_upstream import body_of, request
from tests.unit.share_groups.fake_kafka import trip
from tests.unit.share_groups.scene import HEARTBEAT, SHARE_HEARTBEAT, Scene, scene

VERSION = 1
TEXT = (
    "Share group sg has share.group.dlq.strict.isolation=true, and its dead-letter topic dlq.a is already registered "
    "by {owner}. Give one of them another topic, then restart this application: a member that was refused does not "
    "try again."
)
DESCRIBE_GROUPS = 15
NOT_AVAILABLE, UNKNOWN_MEMBER, DENIED, INVALID_CONFIG, INVALID_REQUEST, NOT_FOUND = 15, 25, 30, 40, 42, 69
SHARED = "headgate_dlq_topic_shared_by_multiple_groups", ("dlq.a",)


def beating(epoch: int = 0, group: str = "sg", member: str = "m") -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=("orders",)
    )


def in_conflict(it: Scene, *, strict: bool = True) -> None:
    """Both groups have the topic, "first" had it before "sg", and both exist."""
    for group in ("first", "sg"):
        it.set(group, {DLQ_TOPIC: "dlq.a", STRICT_ISOLATION: str(strict).lower()})
        it.read(DlqRegistered(topic="dlq.a", group=group, at=1))
    it.kafka.group_configs.existing_groups = {"first", "sg"}


def shared_topics(it: Scene) -> dict[str, float]:
    return {labels[0]: value for (name, labels), value in it.service.samples().items() if name == SHARED[0]}


async def proves(it: Scene, code: int, group: str = "sg", *, throttle_ms: int = 0) -> None:
    it.broker.code = None
    probe = await it.broker.request()
    assert probe.key == HEARTBEAT
    assert decode(HeartbeatRequest, probe.version, probe.body).group_id == group
    answer = HeartbeatResponse(throttle_time_ms=throttle_ms, error_code=code)
    await it.broker.send(probe.answer(encode(answer, probe.version)))


async def proves_describe(it: Scene, code: int = 0) -> None:
    """The broker says whether the client may describe the other group."""
    probe = await it.broker.request()
    assert probe.key == DESCRIBE_GROUPS
    assert decode(DescribeGroupsRequest, probe.version, probe.body).groups == ("first",)
    answer = DescribeGroupsResponse(groups=(DescribedGroup(group_id="first", error_code=code),))
    await it.broker.send(probe.answer(encode(answer, probe.version)))


async def refused(it: Scene) -> tuple[int, str | None]:
    body = body_of(await it.client.frame(), SHARE_HEARTBEAT, VERSION)
    answer = decode(ShareGroupHeartbeatResponse, VERSION, body)
    return answer.error_code, answer.error_message


@pytest.mark.parametrize("member", ["m", "x" * 300])
async def test_a_join_in_conflict_is_refused_with_the_text_and_an_event(member: str) -> None:
    async with scene() as it:
        in_conflict(it)
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating(member=member)))
        await proves(it, UNKNOWN_MEMBER)
        await proves_describe(it, NOT_FOUND)
        assert await refused(it) == (INVALID_REQUEST, TEXT.format(owner="share group first"))
        assert await it.broker.is_quiet(), "the broker never hears of it"
        assert it.events("isolation_conflict") == [{"dlq_topic": "dlq.a", "registered_by": "first"}]
        assert it.service.samples()[SHARED] == 2


async def test_a_refused_join_has_the_throttle_time_of_the_gateways_own_request() -> None:
    async with scene() as it:
        in_conflict(it)
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        await proves(it, UNKNOWN_MEMBER, throttle_ms=600_000)
        await proves_describe(it)
        body = body_of(await it.client.frame(), SHARE_HEARTBEAT, VERSION)
        assert 300_000 <= decode(ShareGroupHeartbeatResponse, VERSION, body).throttle_time_ms <= 600_000


async def test_the_text_does_not_name_a_group_that_the_client_may_not_describe() -> None:
    async with scene() as it:
        in_conflict(it)
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        await proves(it, UNKNOWN_MEMBER)
        await proves_describe(it, DENIED)
        assert await refused(it) == (INVALID_REQUEST, TEXT.format(owner="another share group"))


async def test_a_client_that_may_not_read_the_group_is_refused_by_the_broker() -> None:
    async with scene() as it:
        in_conflict(it)
        sent = request(SHARE_HEARTBEAT, VERSION, beating())
        await it.client.send(sent)
        await proves(it, DENIED)
        broker_refuses = ShareGroupHeartbeatResponse(error_code=DENIED)
        assert (await it.broker.reply(broker_refuses)).frame == sent
        assert await refused(it) == (DENIED, None)
        assert it.kafka.group_configs.lookups == [], "the cluster is asked for clients with the right only"


async def test_the_first_group_of_a_topic_is_never_refused() -> None:
    async with scene() as it:
        in_conflict(it)
        await it.passes(SHARE_HEARTBEAT, VERSION, beating(group="first"))
        assert it.events("isolation_conflict") == []


async def test_a_group_that_has_only_configs_is_no_conflict() -> None:
    clock = FakeClock()
    async with scene(clock=clock) as it:
        in_conflict(it)
        it.kafka.group_configs.existing_groups = set()
        sent = request(SHARE_HEARTBEAT, VERSION, beating())
        await it.client.send(sent)
        await proves(it, UNKNOWN_MEMBER)
        assert (await it.broker.reply(ShareGroupHeartbeatResponse())).frame == sent
        assert await refused(it) == (0, None)
        it.kafka.group_configs.existing_groups = {"first"}
        clock.now += 5
        await it.client.send(sent)
        await proves(it, UNKNOWN_MEMBER)
        await proves_describe(it)
        assert (await refused(it))[0] == INVALID_REQUEST
        assert it.kafka.group_configs.lookups == [("first",), ("first",)]


async def test_a_client_that_joins_again_and_again_does_not_make_the_gateway_ask_each_time() -> None:
    async with scene(clock=FakeClock()) as it:
        in_conflict(it)
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        await proves(it, UNKNOWN_MEMBER)
        await proves_describe(it)
        for _ in range(5):
            assert (await refused(it))[0] == INVALID_REQUEST
            await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        assert it.kafka.group_configs.lookups == [("first",)]
        assert len(it.events("isolation_conflict")) == 1


async def test_of_a_topic_with_many_groups_two_hundred_are_looked_up() -> None:
    async with scene() as it:
        for number in range(201):
            it.set(f"g{number}", {DLQ_TOPIC: "dlq.a"})
            it.read(DlqRegistered(topic="dlq.a", group=f"g{number}", at=1))
        in_conflict(it)
        it.kafka.group_configs.existing_groups = set()
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        await proves(it, UNKNOWN_MEMBER)
        await it.broker.reply(ShareGroupHeartbeatResponse())
        assert await refused(it) == (0, None)
        assert it.kafka.group_configs.lookups == [tuple(f"g{number}" for number in range(200))]


async def test_while_the_cluster_does_not_answer_members_try_again() -> None:
    async with scene() as it:
        in_conflict(it)
        it.kafka.group_configs.existing_groups = None
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        await proves(it, UNKNOWN_MEMBER)
        assert (await refused(it))[0] == NOT_AVAILABLE


async def test_a_member_whose_right_the_broker_does_not_show_in_time_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client can make its own connection slow: that gets no group around strict isolation."""
    monkeypatch.setattr(group_interceptors, "_PROBE_S", 0.02)
    async with scene() as it:
        in_conflict(it)
        it.broker.code = None
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        probe = await it.broker.request()
        assert await it.broker.is_quiet(0.2), "the join is not sent"
        await it.broker.send(probe.answer(encode(HeartbeatResponse(error_code=UNKNOWN_MEMBER), probe.version)))
        assert (await refused(it))[0] == NOT_AVAILABLE


@pytest.mark.parametrize("message", [beating(1), beating(-1), beating(0, "other"), beating(7, member="x" * 300)])
async def test_everything_else_passes_byte_for_byte(message: ShareGroupHeartbeatRequest) -> None:
    async with scene() as it:
        in_conflict(it)
        await it.passes(SHARE_HEARTBEAT, VERSION, message)


async def test_without_strict_isolation_groups_share_a_topic() -> None:
    async with scene() as it:
        in_conflict(it, strict=False)
        await it.passes(SHARE_HEARTBEAT, VERSION, beating())
        assert it.events("isolation_conflict") == []
        assert it.service.samples()[SHARED] == 2


async def test_the_metric_has_each_shared_topic_while_it_is_shared() -> None:
    async with scene() as it:
        in_conflict(it, strict=False)
        it.read(
            DlqRegistered(topic="dlq.alone", group="alone", at=1), DlqRegistered(topic="dlq.a", group="third", at=1)
        )
        assert shared_topics(it) == {"dlq.a": 3}
        it.read(DlqUnregistered(topic="dlq.a", group="first"))
        assert shared_topics(it) == {"dlq.a": 2}
        it.read(DlqUnregistered(topic="dlq.a", group="sg"))
        assert shared_topics(it) == {}


async def test_until_the_groups_are_known_a_join_waits() -> None:
    opens = asyncio.Event()
    async with scene(opens=opens) as it:
        in_conflict(it)
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        assert await it.broker.is_quiet()
        opens.set()
        await proves(it, UNKNOWN_MEMBER)
        await proves_describe(it)
        assert (await refused(it))[0] == INVALID_REQUEST


async def test_when_the_groups_stay_unknown_members_join() -> None:
    async with scene(opens=asyncio.Event(), max_opening_s=0.05) as it:
        in_conflict(it)
        await it.passes(SHARE_HEARTBEAT, VERSION, beating())


async def test_a_conflict_that_is_over_is_over() -> None:
    async with scene() as it:
        in_conflict(it)
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        await proves(it, UNKNOWN_MEMBER)
        await proves_describe(it)
        await it.client.frame()
        it.read(DlqUnregistered(topic="dlq.a", group="first"))
        await it.passes(SHARE_HEARTBEAT, VERSION, beating())


async def test_a_group_that_has_another_topic_now_is_no_conflict() -> None:
    async with scene() as it:
        in_conflict(it)
        it.set("first", {DLQ_TOPIC: "dlq.b"})
        await it.passes(SHARE_HEARTBEAT, VERSION, beating())


# --- the pause is a dependency of the breaker


async def test_without_the_pause_a_group_with_a_breaker_is_refused_when_it_starts(logs: list[EventDict]) -> None:
    async with scene(pause_enable=False) as it:
        it.set("sg", {BREAKER_ENABLE: "true"})
        await it.client.send(request(SHARE_HEARTBEAT, VERSION, beating()))
        await proves(it, UNKNOWN_MEMBER)
        code, text = await refused(it)
        assert code == INVALID_CONFIG
        assert text is not None
        assert "share_groups.pause_enable=true" in text
        assert "KIP-1249" in text
        await it.passes(SHARE_HEARTBEAT, VERSION, beating(epoch=3))
        await it.passes(SHARE_HEARTBEAT, VERSION, beating(group="other"))
    assert [one["group"] for one in logs if one["event"] == "share group refused for its circuit breaker"] == ["sg"]


async def test_without_the_pause_no_status_says_paused() -> None:
    async with scene(pause_enable=False) as it:
        it.set("g", {BREAKER_ENABLE: "true"})
        it.read(trip(resume_at=5), GroupPaused(group="g", reason="deploy", by="User:o", at=1))
        status = it.service.status("g")
        assert (status.enabled, status.paused, status.pause_reasons, status.auto_resume_at) == (False, False, (), None)
        assert it.service.samples()["headgate_share_groups_paused", ()] == 0


async def test_without_the_pause_a_leader_trips_nothing() -> None:
    async with scene(pause_enable=False) as it:
        it.set("g", {BREAKER_ENABLE: "true"})
        leader = it.service._leader
        await leader.on_gained()
        leader._breakers.count(
            "g",
            it.service._clock.monotonic() - 2,
            generation=0,
            current_generation=0,
            age_ms=0,
            window_ms=60_000,
            delivered=0,
            dlq_written=500,
        )
        await leader.on_second()
        assert not any(isinstance(one, BreakerTripped) for one in it.kafka.decided)


async def test_a_start_without_the_pause_warns_of_breakers_that_have_no_effect(logs: list[EventDict]) -> None:
    opens = asyncio.Event()
    async with scene(opens=opens, pause_enable=False) as it:
        it.set("g", {BREAKER_ENABLE: "true"})
        opens.set()
        assert await it.service.wait_until_open(5)
    warned = [one["groups"] for one in logs if "pausing is switched off" in one["event"]]
    assert warned == [1]
