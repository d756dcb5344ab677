"""A push through the gateway: who may, in which order it is checked, and what becomes of it."""

import asyncio
from typing import Any

import pytest

from headgate.plugin import PermanentFailure, TopologyStore, TransientFailure
from headgate.proxy.interceptor import CloseCause
from headgate.topologies.stores.memory_store import MemoryStore
from headgate.wire.codec import encode
from tests.support.fake_upstream import request
from tests.unit.proxy.stage import until
from tests.unit.topologies.fake_stores import FakeStore, hang, raise_before_awaited, raising
from tests.unit.topologies.scene import (
    DENIED,
    HEARTBEAT,
    NEVER_S,
    NOT_FOUND,
    PUSH,
    UNKNOWN_MEMBER,
    allow,
    beating,
    described,
    pushed,
    scene,
)

INVALID_REQUEST, UNSUPPORTED_VERSION, UPDATE_FAILED = 42, 35, 135
LOADING, UNAVAILABLE = 14, 15
NOT_STORED, AVAILABLE = 1, 3


async def test_a_member_whose_heartbeat_succeeded_here_pushes_without_the_broker() -> None:
    async with scene() as it:
        await it.join()
        answer = await it.push()
        assert (answer.error_code, answer.error_message) == (0, None)
        assert await it.status() == 3
        assert await it.broker.is_quiet()


async def test_the_same_again_is_answered_without_the_store() -> None:
    store = FakeStore()
    async with scene(store) as it:
        await it.join()
        assert await it.pushes() == 0
        assert await it.pushes() == 0
    assert store.calls == 1


# The broker vouches for others.


async def test_a_member_without_a_heartbeat_here_is_checked_with_the_broker() -> None:
    async with scene() as it:
        answer = it.push()
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        await it.describes()
        assert (await answer).error_code == 0


@pytest.mark.parametrize("code", [LOADING, UNAVAILABLE, 16, DENIED])
async def test_what_the_broker_says_about_itself_or_the_right_is_passed_on(code: int) -> None:
    store = FakeStore()
    async with scene(store) as it:
        answer = it.push()
        await it.proves_right(HEARTBEAT, code)
        assert (await answer).error_code == code
    assert store.calls == 0


@pytest.mark.parametrize("scheme", ["memory", "none"])
@pytest.mark.parametrize("member", ["", "m"])
async def test_the_right_comes_before_everything_else(member: str, scheme: str) -> None:
    async with scene(scheme=scheme) as it:
        answer = it.push(pushed(member, group=""))
        await it.proves_right(HEARTBEAT, DENIED)
        assert (await answer).error_code == DENIED


@pytest.mark.parametrize(
    ("said", "push", "code", "text"),
    [
        ({"code": NOT_FOUND}, {}, NOT_FOUND, "Group g not found."),
        ({"members": ("x",)}, {}, UNKNOWN_MEMBER, "Member m is not a member of group g."),
        ({"epoch": 3}, {}, INVALID_REQUEST, "Topology epoch 0 does not match the group's current topology epoch 3."),
        (
            {"epoch": None},
            {},
            INVALID_REQUEST,
            "Topology epoch 0 does not match the group's current topology epoch -1.",
        ),
        ({}, {"node_type": 9}, INVALID_REQUEST, "Unknown topology node type: 9"),
        ({"code": 16}, {}, 16, None),
        ({"code": 29}, {}, 29, None),
    ],
)
async def test_a_push_is_checked_against_the_group(
    said: dict[str, Any], push: dict[str, Any], code: int, text: str | None
) -> None:
    store = FakeStore()
    async with scene(store) as it:
        answer = it.push(pushed(**push))
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        await it.describes(**said)
        assert ((await answer).error_code, (await answer).error_message) == (code, text)
    assert store.calls == 0
    assert it.service.groups.backoff.window("g") is None  # what never reached a store arms nothing


@pytest.mark.parametrize(
    ("push", "text"),
    [
        (pushed("", group=""), "MemberId can't be empty."),
        (pushed("m", group=""), "GroupId can't be empty."),
    ],
)
async def test_empty_names_are_refused(push: Any, text: str) -> None:
    async with scene() as it:
        answer = it.push(push)
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        assert ((await answer).error_code, (await answer).error_message) == (INVALID_REQUEST, text)


@pytest.mark.parametrize("settings", [{"scheme": "none"}, {"groups": allow("orders")}])
async def test_without_a_store_for_the_group_it_is_unsupported(settings: dict[str, Any]) -> None:
    async with scene(**settings) as it:
        answer = it.push()
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        assert (await answer).error_code == UNSUPPORTED_VERSION
        assert await it.status() == 1


async def test_an_epoch_that_is_not_the_groups_is_refused_without_asking_when_it_is_known() -> None:
    async with scene() as it:
        await it.join(epoch=4)
        assert await it.pushes(pushed(epoch=3)) == INVALID_REQUEST


async def test_before_the_topics_are_read_a_push_must_be_sent_again() -> None:
    async with scene(opens=asyncio.Event()) as it:
        answer = it.push()
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        assert (await answer).error_code == LOADING


async def test_a_broker_that_does_not_answer_makes_a_push_wait_for_another() -> None:
    async with scene() as it:
        answer = it.push()
        await it.broker.request()
        it.broker.close()
        assert await it.client.rest() == b""
        answer.cancel()


# The store.


@pytest.mark.parametrize(
    ("store", "timeout_s", "text", "failed"),
    [
        (raising(PermanentFailure("too odd")), NEVER_S, "too odd", 0),
        (raising(TransientFailure("come back")), NEVER_S, "come back", -1),
        (FakeStore(raise_before_awaited), NEVER_S, "Topology description plugin failed.", 0),
        (FakeStore(hang), 0.01, "The topology store did not answer within 10 ms.", -1),
    ],
)
async def test_the_client_gets_a_response_whatever_the_store_does(
    store: TopologyStore, timeout_s: float, text: str, failed: int
) -> None:
    async with scene(store, store_timeout_s=timeout_s) as it:
        await it.join()
        answer = await it.push()
        assert (answer.error_code, answer.error_message) == (UPDATE_FAILED, text)
        assert it.service.groups.state("g").failed_epoch == failed
        assert it.service.groups.state("g").stored_epoch == -2
        assert await it.status() == 1
        assert not (await it.heartbeat(beating()))[1].topology_description_required
    assert it.service.metrics.store_calls["set", "error"] == 1


async def test_uncertain_is_written_before_the_store_is_called_and_the_epoch_after_it() -> None:
    async with scene() as it:
        await it.join()
        assert await it.pushes() == 0
    assert [one.stored_epoch for one in it.epochs.written] == [-2, 0]


async def test_without_the_barrier_the_store_is_not_touched() -> None:
    store = FakeStore()
    async with scene(store) as it:
        await it.join()
        it.epochs.away = True
        answer = await it.push()
        assert (answer.error_code, answer.error_message) == (UPDATE_FAILED, "the topic is away")
        it.epochs.away = False
        assert store.calls == 0
        assert await it.pushes() == 0


async def test_a_push_goes_on_when_its_client_goes_away() -> None:
    class Slow(MemoryStore):
        async def set(self, pushed: Any) -> None:
            begun.set()
            await go_on.wait()
            await super().set(pushed)

    begun, go_on = asyncio.Event(), asyncio.Event()
    async with scene(Slow()) as it:
        other = await it.another()
        await other.join()
        answer = other.push()
        await begun.wait()
        answer.cancel()
        other.client.close()
        await until(lambda: len(it.stage.ended) == 1)
        go_on.set()
        await until(lambda: it.service.groups.state("g").stored_epoch == 0)
        assert await it.status() == 3


# Size.


async def test_a_push_that_is_too_large_is_read_and_refused_for_good_and_the_connection_lives() -> None:
    store = FakeStore()
    async with scene(store, max_bytes=100_000) as it:
        await it.join()
        answer = await it.push(pushed(nodes=10_000))
        assert answer.error_code == UPDATE_FAILED
        assert "and 100000 are taken" in answer.error_message
        assert not (await it.heartbeat(beating()))[1].topology_description_required
        assert it.service.groups.state("g").failed_epoch == 0
    assert store.calls == 0


async def test_a_push_that_is_too_large_leaves_what_is_stored_while_a_new_member_has_not_pushed() -> None:
    async with scene(max_bytes=100_000) as it:
        await it.join("a")
        assert await it.pushes(pushed("a")) == 0
        assert await it.join("b", process="b")
        written = len(it.epochs.written)
        assert await it.pushes(pushed("a", nodes=10_000)) == UPDATE_FAILED
        assert len(it.epochs.written) == written
        assert it.service.groups.state("g").pending is None
        assert await it.status(members=("a", "b")) == AVAILABLE
        # The new member confirms what is stored.
        assert await it.pushes(pushed("b")) == 0
        assert await it.status(members=("b",)) == AVAILABLE


async def test_a_push_that_is_too_large_by_a_new_member_fails_for_good_and_hides_what_its_predecessor_pushed() -> None:
    async with scene(max_bytes=100_000) as it:
        await it.join("a")
        assert await it.pushes(pushed("a")) == 0
        assert await it.join("b", process="b")
        assert await it.pushes(pushed("b", nodes=10_000)) == UPDATE_FAILED
        assert it.service.groups.state("g").failed_epoch == 0
        assert await it.status(members=("a", "b")) == AVAILABLE
        assert await it.status(members=("b",)) == NOT_STORED
        assert it.service.must_delete("g")
        samples = it.service.samples()
        assert samples["headgate_topologies_unconfirmed_groups", ()] == 1
        assert samples["headgate_topologies_failed_groups", ()] == 1
        await it.service.delete("g")
        assert it.service.groups.counts()[1:] == (0, 0)


async def test_a_large_push_on_an_unproven_connection_must_be_sent_again() -> None:
    async with scene() as it:
        large = pushed(nodes=30_000)
        assert 512 * 1024 < len(encode(large, 0)) < 4 * 1024 * 1024
        it.client, it.broker = await it.stage.pair(proved=False)
        answer = it.push(large)
        await it.broker.reply(it.stage.upstream.metadata())  # the probe of the connection, before the push is opened
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        await it.describes()
        assert (await answer).error_code == LOADING
        again = it.push(large)
        await it.describes()
        assert (await again).error_code == 0
        assert await it.status() == 3


async def test_bytes_that_are_no_push_end_the_connection() -> None:
    async with scene() as it:
        await it.join()
        await it.client.send(request(PUSH, 0, encode(pushed(), 0)[:-3]))
        assert await it.client.rest() == b""
        assert it.stage.ended == {CloseCause.BAD_REQUEST.value: 1}


async def test_a_description_comes_back_as_it_was_pushed() -> None:
    async with scene() as it:
        await it.join()
        await it.pushes(pushed(nodes=3))
        [group] = await it.describe(described())
        assert group.topology_description == pushed(nodes=3).topology_description


# What a stranger could try.


async def test_a_join_before_the_topics_were_read_proves_nothing_later() -> None:
    opens = asyncio.Event()
    async with scene(opens=opens) as it:
        early = await it.another()
        await early.join()
        early.client.close()
        opens.set()
        await until(lambda: it.service.is_ready)
        assert len(it.service.groups.members) == 1  # it was made up for
        other = await it.another()
        answer = other.push()
        await other.proves_right(HEARTBEAT, DENIED)
        assert (await answer).error_code == DENIED


async def test_a_push_waits_for_those_before_it_no_longer_than_for_the_store() -> None:
    may_end = asyncio.Event()
    store = FakeStore(may_end.wait)
    async with scene(store, call_timeout_ms=10, store_timeout_s=NEVER_S) as it:
        other = await it.another()
        await it.join("m")
        await other.join("n")
        first = other.push(pushed("n"))
        await until(lambda: store.calls == 1)
        answer = await it.push(pushed("m", name="mine"))
        assert (answer.error_code, store.calls) == (UPDATE_FAILED, 1)
        assert answer.error_message == "other calls about this group took longer than 0.01 s"
        may_end.set()
        assert (await first).error_code == 0


async def test_names_that_are_too_long_are_not_recorded() -> None:
    async with scene() as it:
        long = "x" * 2000
        assert not await it.join(long)
        assert not await it.join(group=long)
        assert len(it.service.groups.members) == 0
        answer = it.push(pushed(group=long))
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        assert (await answer).error_code == UNSUPPORTED_VERSION
