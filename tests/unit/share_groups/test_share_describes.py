"""ShareGroupDescribe through the gateway: one tagged field more for groups of ours, and nothing else changed."""

import asyncio
import json

from headgate.facts import GroupPaused
from headgate.share_groups.model.group_configs import THRESHOLD_PERCENT
from headgate.wire.codec import decode
from headgate.wire.messages.share import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupMember,
)
from tests.support.fake_upstream import body_of, request
from tests.unit.share_groups.scene import SHARE_DESCRIBE, Scene, scene

VERSION, TAG = 1, 10001


def group(name: str, *, code: int = 0, tags: tuple[tuple[int, bytes], ...] = ()) -> DescribedShareGroup:
    members = () if code else (ShareGroupMember(member_id="m", unknown_tags=((7, b"x"),)),)
    return DescribedShareGroup(group_id=name, error_code=code, members=members, unknown_tags=tags)


async def described(it: Scene, *groups: DescribedShareGroup) -> tuple[DescribedShareGroup, ...]:
    asked = ShareGroupDescribeRequest(group_ids=tuple(one.group_id for one in groups))
    sent = request(SHARE_DESCRIBE, VERSION, asked)
    await it.client.send(sent)
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
