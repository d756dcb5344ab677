"""ShareGroupDescribe through the gateway: one tagged field more for groups of ours, and nothing else changed."""

import asyncio
import json
from collections.abc import Collection
from dataclasses import replace

import pytest

from headgate.facts import GroupPaused
from headgate.proxy.decoding import A_STEP, SMALL_BYTES
from headgate.share_groups.model.group_configs import BREAKER_ENABLE, DLQ_TOPIC, LIMIT, THRESHOLD_PERCENT
from headgate.share_groups.service import ShareGroupService
from headgate.share_groups.spool.model.index import spool_record
from headgate.share_groups.spool.model.records import SEQUENCES_A_MS
from headgate.wire.codec import decode, encode
from headgate.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse, DescribeConfigsResult
from headgate.wire.messages.share import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupMember,
)
from tests.support.call_counts import count_calls
from tests.support.fake_upstream import body_of, request
from tests.unit.share_groups.fake_kafka import trip
from tests.unit.share_groups.scene import DESCRIBE_CONFIGS, GROUP_RESOURCE, SHARE_DESCRIBE, Scene, scene
from tests.unit.share_groups.spool.test_spool_index import dead_letter

VERSION, TAG = 1, 10001


def group(name: str, *, code: int = 0, tags: tuple[tuple[int, bytes], ...] = ()) -> DescribedShareGroup:
    members = () if code else (ShareGroupMember(member_id="m", unknown_tags=((7, b"x"),)),)
    return DescribedShareGroup(group_id=name, error_code=code, members=members, unknown_tags=tags)


async def proves_describe_configs(it: Scene, denied: Collection[str] = (), *, throttle_ms: int = 0) -> tuple[str, ...]:
    """The broker says of which groups the client may read the configs; returns the groups that it was asked about."""
    probe = await it.broker.request()
    assert probe.key == DESCRIBE_CONFIGS
    asked = decode(DescribeConfigsRequest, probe.version, probe.body).resources
    assert {(one.resource_type, one.configuration_keys) for one in asked} == {(GROUP_RESOURCE, ("x",))}
    results = tuple(
        DescribeConfigsResult(
            error_code=30 if one.resource_name in denied else 0,
            resource_type=GROUP_RESOURCE,
            resource_name=one.resource_name,
        )
        for one in reversed(asked)
    )
    answer = DescribeConfigsResponse(throttle_time_ms=throttle_ms, results=results)
    await it.broker.send(probe.answer(encode(answer, probe.version)))
    return tuple(one.resource_name for one in asked)


async def described(
    it: Scene, *groups: DescribedShareGroup, denied: Collection[str] = ()
) -> tuple[DescribedShareGroup, ...]:
    asked = ShareGroupDescribeRequest(group_ids=tuple(one.group_id for one in groups))
    sent = request(SHARE_DESCRIBE, VERSION, asked)
    await it.client.send(sent)
    managed = tuple(one.group_id for one in groups if it.service.manages(one.group_id))
    assert await proves_describe_configs(it, denied) == managed, "one request for all of them"
    answer = ShareGroupDescribeResponse(throttle_time_ms=3, groups=groups, unknown_tags=((5, b"y"),))
    assert (await it.broker.reply(answer)).frame == sent
    got = decode(ShareGroupDescribeResponse, VERSION, body_of(await it.client.frame(), SHARE_DESCRIBE, VERSION))
    assert (got.throttle_time_ms, got.unknown_tags) == (3, ((5, b"y"),))
    return got.groups


def status(one: DescribedShareGroup) -> object:
    return json.loads(dict(one.unknown_tags)[TAG])


def expected(it: Scene, name: str) -> object:
    return it.service.status(name).document()


async def test_managed_groups_have_their_status_in_a_tagged_field() -> None:
    async with scene() as it:
        it.set("set", {THRESHOLD_PERCENT: "30"})
        it.read(GroupPaused(group="paused", reason="\N{SNOWMAN}", by="y", at=1))
        one, plain, other = await described(it, group("set"), group("plain"), group("paused"))
        assert status(one) == expected(it, "set")
        assert status(other) == expected(it, "paused")
        assert plain == group("plain")
        assert one.members == group("x").members


@pytest.mark.parametrize("count", [1, A_STEP + 1])
async def test_the_throttle_time_of_the_question_about_rights_reaches_the_client(count: int) -> None:
    names = ("set", *(f"g{number}" for number in range(count - 1)))
    async with scene() as it:
        it.set("set", {THRESHOLD_PERCENT: "30"})
        await it.client.send(request(SHARE_DESCRIBE, VERSION, ShareGroupDescribeRequest(group_ids=names)))
        await proves_describe_configs(it, throttle_ms=600_000)
        await it.broker.reply(ShareGroupDescribeResponse(throttle_time_ms=3, groups=tuple(map(group, names))))
        got = decode(ShareGroupDescribeResponse, VERSION, body_of(await it.client.frame(), SHARE_DESCRIBE, VERSION))
        assert 300_000 <= got.throttle_time_ms <= 600_000


async def test_tags_stay_in_order_and_one_of_another_gateway_is_replaced() -> None:
    async with scene() as it:
        it.set("sg", {THRESHOLD_PERCENT: "30"})
        [one] = await described(it, group("sg", tags=((0, b"a"), (TAG, b"old"), (20000, b"b"))))
        assert [tag for tag, _ in one.unknown_tags] == [0, TAG, 20000]
        assert status(one) == expected(it, "sg")


async def test_a_group_with_an_error_gets_nothing() -> None:
    async with scene() as it:
        for name in ("denied", "gone", "fine"):
            it.set(name, {THRESHOLD_PERCENT: "30"})
        denied, gone, fine = await described(it, group("denied", code=30), group("gone", code=69), group("fine"))
        assert (denied, gone) == (group("denied", code=30), group("gone", code=69))
        assert status(fine) == expected(it, "fine")


async def test_without_describe_configs_the_status_has_no_config_and_nothing_that_follows_from_one() -> None:
    async with scene() as it:
        for name in ("g", "other"):
            it.set(name, {BREAKER_ENABLE: "true", THRESHOLD_PERCENT: "31", DLQ_TOPIC: "dlq.secret", LIMIT: "7"})
        it.read(trip(resume_at=77), GroupPaused(group="g", reason="deploy", by="User:o", at=1))
        hidden, shown = await described(it, group("g"), group("other"), denied=("g",))
        assert status(shown) == expected(it, "other")
        found = json.loads(dict(hidden.unknown_tags)[TAG])
        left_out = {
            "enabled",
            "window_ms",
            "threshold_percent",
            "min_messages",
            "auto_resume_at",
            "dlq_topic",
            "limit",
            "limit_unprotected",
        }
        whole = it.service.status("g").document()
        assert {name for name in whole if whole[name] != found[name]} == {*left_out, "pause_reasons"}
        assert {found[name] for name in left_out} == {None}
        breaker, operator = found["pause_reasons"]
        assert (breaker["code"], breaker["text"]) == ("DLQ_CIRCUIT_BREAKER_TRIPPED", None)
        assert operator == whole["pause_reasons"][1]
        assert found["paused"] is True


async def test_while_the_broker_does_not_say_it_configs_are_left_out() -> None:
    async with scene() as it:
        it.set("sg", {THRESHOLD_PERCENT: "31"})
        sent = request(SHARE_DESCRIBE, VERSION, ShareGroupDescribeRequest(group_ids=("sg",)))
        await it.client.send(sent)
        probe = await it.broker.request()
        await it.broker.send(probe.answer(encode(DescribeConfigsResponse(), probe.version)))
        await it.broker.reply(ShareGroupDescribeResponse(groups=(group("sg"),)))
        body = body_of(await it.client.frame(), SHARE_DESCRIBE, VERSION)
        [one] = decode(ShareGroupDescribeResponse, VERSION, body).groups
        assert json.loads(dict(one.unknown_tags)[TAG])["threshold_percent"] is None


async def test_groups_that_are_not_managed_pass_byte_for_byte() -> None:
    async with scene() as it:
        it.set("foreign", {THRESHOLD_PERCENT: "30"})
        answer = ShareGroupDescribeResponse(groups=(group("plain"), group("foreign")))
        await it.passes(SHARE_DESCRIBE, VERSION, ShareGroupDescribeRequest(group_ids=("plain", "foreign")), answer)
    async with scene(opens=asyncio.Event()) as it:
        it.set("sg", {THRESHOLD_PERCENT: "30"})
        answer = ShareGroupDescribeResponse(groups=(group("sg"),))
        await it.passes(SHARE_DESCRIBE, VERSION, ShareGroupDescribeRequest(group_ids=("sg",)), answer)


async def test_a_large_answer_has_it_too() -> None:
    async with scene() as it:
        names = [f"group-{i}" for i in range(500)]
        for name in names:
            it.set(name, {THRESHOLD_PERCENT: "30"})
        found = await described(it, *map(group, names))
        assert [status(one) for one in found] == [expected(it, name) for name in names]


async def test_other_work_goes_on_while_many_share_groups_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any client may name 60,000 groups."""
    looked_at = 0
    between: list[int] = []
    manages = ShareGroupService.manages

    def counted(self: ShareGroupService, name: str) -> bool:
        nonlocal looked_at
        if looked_at % 1_000 == 0:  # the first of the request, and the first of the response
            begin = looked_at
            asyncio.get_running_loop().call_soon(lambda: between.append(looked_at - begin))
        looked_at += 1
        return manages(self, name)

    async with scene() as it:
        it.set("managed", {THRESHOLD_PERCENT: "30"})
        groups = [group("managed"), *(replace(group(f"g{number}"), members=()) for number in range(999))]
        monkeypatch.setattr(ShareGroupService, "manages", counted)
        names = tuple(one.group_id for one in groups)
        await it.client.send(request(SHARE_DESCRIBE, VERSION, ShareGroupDescribeRequest(group_ids=names)))
        assert await proves_describe_configs(it) == ("managed",)
        await it.broker.reply(ShareGroupDescribeResponse(groups=tuple(groups)))
        body = body_of(await it.client.frame(), SHARE_DESCRIBE, VERSION)
        found = decode(ShareGroupDescribeResponse, VERSION, body).groups
        assert [one for one in found if one.unknown_tags] == [found[0]]
        assert found[1:] == tuple(groups[1:])
    assert looked_at == 2_000
    assert len(between) == 2
    assert max(between) <= A_STEP


async def test_other_work_goes_on_while_the_status_is_added_to_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A description without members is of few bytes, its status is not."""
    calls = count_calls(monkeypatch, ShareGroupService, "status")
    async with scene() as it:
        groups = [replace(group(f"g{number}"), members=()) for number in range(300)]
        for one in groups:
            it.set(one.group_id, {THRESHOLD_PERCENT: "30"})
        assert len(encode(ShareGroupDescribeResponse(groups=tuple(groups)), VERSION)) <= SMALL_BYTES
        found = await described(it, *groups)
        assert calls.number == 300
        assert calls.before_other_work <= A_STEP
        assert [status(one) for one in found] == [expected(it, one.group_id) for one in groups]


async def test_the_status_has_the_dead_letters_in_the_spool_that_are_not_parked() -> None:
    async with scene() as it:
        it.configure("sg")
        assert (it.service.status("sg").spooled, it.service.status("sg").oldest_spooled_at) == (0, None)
        for offset in (7, 8):
            spooled = dead_letter(offset, group="sg", sequence=offset * SEQUENCES_A_MS)
            it.kafka.spool_index.apply(spool_record(0, offset, spooled))
        it.kafka.spool_index.apply(spool_record(0, 9, dead_letter(9, group="sg", sequence=0, parked="too large")))
        assert (it.service.status("sg").spooled, it.service.status("sg").oldest_spooled_at) == (2, 7)
        it.kafka.spool_replayed.clear()
        assert (it.service.status("sg").spooled, it.service.status("sg").oldest_spooled_at) == (None, None)
        samples = {name: value for (name, labels), value in it.service.samples().items() if labels == ("sg",)}
        assert samples["headgate_share_group_spooled_dead_letters"] == 2
        assert samples["headgate_share_group_parked_dead_letters"] == 1
        assert samples["headgate_share_group_oldest_spooled_seconds"] > 0
        assert samples["headgate_share_group_spooled_bytes"] == it.kafka.spool_index.group_bytes("sg")
