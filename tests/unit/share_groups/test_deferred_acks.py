"""Deferred acknowledgements: bounded, never after their locks, and only on the connection that acquired the records."""

import asyncio
from collections.abc import Iterable

import pytest

from headgate.base.ids import ApiVersion
from headgate.share_groups.deferred_acks import (
    MAX_MEMBERS,
    MAX_RANGES,
    DeferredAck,
    DeferredAcks,
    SessionKey,
    add_rejects,
    remove_partitions,
)
from headgate.share_groups.model.dead_letter_records import Cause, DeadLetterRange
from headgate.wire.codec import decode, encode
from headgate.wire.messages.share import ShareFetchRequest, ShareFetchResponse, ShareForgottenTopic
from headgate.wire.share_requests import ShareRequest
from tests.unit.proxy.stage import until
from tests.unit.share_groups.scene import ACCEPT, OTHER_TOPIC, REJECT, TOPIC, acks_of, fetched, fetching, scene

KEY: SessionKey = (1, "g", "m")
VERSION = ApiVersion(2)


def deferred(offset: int, *, partition: int = 0, writing: object = None, until: float = 1.0) -> DeferredAck:
    some = DeadLetterRange(
        key=("g", "m", TOPIC, partition),
        first=offset,
        last=offset,
        delivery_count=4,
        generation=0,
        cause=Cause.OVER_LIMIT,
    )
    return DeferredAck(some, until, writing, 0)  # type: ignore[arg-type]


def offsets(found: list[DeferredAck]) -> list[int]:
    return [one.range.first for one in found]


async def test_deferred_acks_are_bounded_by_member_and_in_all() -> None:
    acks = DeferredAcks()
    dropped = [one for offset in range(MAX_RANGES + 5) for one in acks.add(KEY, deferred(offset))]
    assert offsets(dropped) == [0, 1, 2, 3, 4], "their dead letters are to be withdrawn"
    taken, _ = acks.take(KEY, 0, is_last=True)
    assert len(taken) == MAX_RANGES
    dropped = [one for number in range(MAX_MEMBERS + 5) for one in acks.add((number, "g", "m"), deferred(number))]
    assert offsets(dropped) == [0, 1, 2, 3, 4]
    assert acks.take((4, "g", "m"), 0, is_last=True) == ([], [])
    assert len(acks.take((5, "g", "m"), 0, is_last=True)[0]) == 1
    assert len(acks._connections) == MAX_MEMBERS - 1


async def test_a_dead_letter_whose_deferred_ack_is_dropped_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.share_groups.deferred_acks.MAX_RANGES", 1)
    async with scene() as on:
        on.configure()
        await on.fetch(fetching(), fetched({0: [(0, 0, 4), (1, 1, 5)]}))
        await on.names_topic()
        await until(lambda: bool(on.events("dead_letter_withdrawn")))
        [event] = on.events("dead_letter_withdrawn")
        assert (event["outcome"], event["offsets"]) == ("not sent", [[0, 0]])


def test_a_deferred_ack_is_taken_once_and_not_after_its_lock() -> None:
    acks = DeferredAcks()
    acks.add(KEY, deferred(1, until=5.0))
    acks.add(KEY, deferred(2, until=9.0))
    taken, expired = acks.take(KEY, 6.0, is_last=True)
    assert (offsets(taken), offsets(expired)) == ([2], [1])
    assert not acks
    assert acks.take(KEY, 6.0, is_last=True) == ([], [])


async def test_a_deferred_ack_waits_for_its_dead_letter_if_a_later_request_will_come() -> None:
    acks = DeferredAcks()
    written, in_flight = (asyncio.get_running_loop().create_future() for _ in range(2))
    written.set_result([])
    acks.add(KEY, deferred(1, writing=written))
    acks.add(KEY, deferred(2, writing=in_flight))
    assert offsets(acks.take(KEY, 0, is_last=False)[0]) == [1]
    assert offsets(acks.take(KEY, 0, is_last=False)[0]) == []
    assert offsets(acks.take(KEY, 0, is_last=True)[0]) == [2]
    assert not acks


def test_deferred_acks_belong_to_the_connection_that_acquired_the_records_and_end_with_it() -> None:
    acks = DeferredAcks()
    acks.add(KEY, deferred(1))
    acks.add((1, "g", "n"), deferred(2))
    acks.add((2, "g", "m"), deferred(3))
    assert acks.take((3, "g", "m"), 0, is_last=True) == ([], [])
    assert sorted(offsets(acks.close(1))) == [1, 2]
    assert acks.close(1) == []
    assert offsets(acks.take((2, "g", "m"), 0, is_last=True)[0]) == [3]


def share(
    epoch: int, named: Iterable[tuple[bytes, int]] = (), forgotten: Iterable[tuple[bytes, int]] = ()
) -> ShareRequest:
    return ShareRequest("g", "m", epoch, 0, (), frozenset(named), frozenset(forgotten))


def test_the_partitions_of_a_session_are_followed_as_far_as_deferred_acks_need_it() -> None:
    acks = DeferredAcks()
    acks.add(KEY, deferred(1, partition=0))
    acks.add(KEY, deferred(1, partition=1))
    assert acks.left(KEY) == frozenset()
    acks.follow(KEY, share(4, forgotten={(TOPIC, 0), (OTHER_TOPIC, 0)}))
    assert acks.left(KEY) == {(TOPIC, 0)}
    acks.follow(KEY, share(5, named={(TOPIC, 0)}))
    assert acks.left(KEY) == frozenset()
    acks.follow(KEY, share(6, named={(TOPIC, 0)}, forgotten={(TOPIC, 0)}))
    assert acks.left(KEY) == {(TOPIC, 0)}, "a broker adds first and removes then"
    acks.follow(KEY, share(0, named={(TOPIC, 0)}))
    assert acks.left(KEY) == {(TOPIC, 1)}, "a new session has only what it names"


def test_a_partition_that_left_the_session_is_forgotten_again_by_the_request_that_rejects_in_it() -> None:
    before = ShareForgottenTopic(topic_id=TOPIC, partitions=(3,))
    message = fetching({0: [(5, 5, [ACCEPT])]})
    body = encode(message, VERSION)
    left = [(TOPIC, 1), (OTHER_TOPIC, 2)]
    rejects = {place: [(7, 8)] for place in left}
    found = decode(ShareFetchRequest, VERSION, add_rejects(ShareFetchRequest, body, VERSION, rejects, left))
    assert acks_of(found)[1] == [(7, 8, (REJECT,))]
    assert {one.topic_id: one.partitions for one in found.forgotten_topics_data} == {TOPIC: (1,), OTHER_TOPIC: (2,)}
    forgetting = encode(ShareFetchRequest(group_id="g", member_id="m", forgotten_topics_data=(before,)), VERSION)
    found = decode(ShareFetchRequest, VERSION, add_rejects(ShareFetchRequest, forgetting, VERSION, rejects, left[:1]))
    assert {one.topic_id: one.partitions for one in found.forgotten_topics_data} == {TOPIC: (3, 1)}


def test_the_response_has_no_row_for_a_partition_that_left_the_session() -> None:
    body = encode(fetched({1: [(0, 0, 1)]}, codes={0: 0}), VERSION)
    found = decode(ShareFetchResponse, VERSION, remove_partitions(ShareFetchResponse, body, VERSION, [(TOPIC, 0)]))
    assert [one.partition_index for one in found.responses[0].partitions] == [1]
