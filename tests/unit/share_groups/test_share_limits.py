"""Deliveries over the user's limit: taken out, dead-lettered, and REJECTed in the member's name."""

from dataclasses import replace

import pytest

from headgate.facts import GroupConfigSet
from headgate.share_groups.model.group_configs import DLQ_TOPIC, LIMIT
from headgate.wire.messages.share import ShareFetchRequest, ShareFetchTopic, ShareForgottenTopic
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import turns, until
from tests.unit.share_groups.scene import (
    ACCEPT,
    DLQ,
    GROUP,
    OTHER_TOPIC,
    REJECT,
    TOPIC,
    Scene,
    acknowledged,
    acknowledging,
    acks_of,
    acquired,
    fetched,
    fetching,
    scene,
)


async def strips(on: Scene, *ranges: tuple[int, int, int], partition: int = 0, lock_ms: int = 30_000) -> None:
    """The member gets nothing of these."""
    await on.send(fetching())
    answer = fetched({partition: ranges}, lock_ms=lock_ms)
    asked = await on.broker.request()
    await on.broker.send(asked.answer(answer))
    got = await on.fetched()
    assert acquired(got) == {partition: []}
    assert got.responses[0].partitions[0].records == b""


@pytest.mark.parametrize("version", [1, 2])
async def test_what_is_over_the_limit_is_taken_out_dead_lettered_and_rejected_with_the_next_fetch(version: int) -> None:
    async with scene(version=version) as on:
        on.configure()
        ranges = [(0, 1, 3), (2, 4, 4), (5, 5, 1), (6, 6, 9)]
        _, got = await on.fetch(fetching(), fetched({0: ranges, 1: [(7, 7, 1)]}))
        assert acquired(got) == {0: [(0, 1, 3), (5, 5, 1)], 1: [(7, 7, 1)]}
        assert [one.records for one in got.responses[0].partitions] == [b"records"] * 2
        await on.names_topic()
        await until(lambda: len(on.dead_letters.written) == 4)
        await on.settled()
        assert on.dead_letters.offsets == [(0, 2), (0, 3), (0, 4), (0, 6)]
        asked, _ = await on.fetch(fetching({0: [(0, 1, [ACCEPT]), (5, 5, [ACCEPT])]}), fetched({}, codes={0: 0}))
        assert acks_of(asked) == {0: [(0, 1, (ACCEPT,)), (2, 4, (REJECT,)), (5, 5, (ACCEPT,)), (6, 6, (REJECT,))]}
        assert on.counted() == {"accepted": 3, "over_limit": 4, "dead_lettered": 4}


async def test_a_fetch_whose_records_are_all_removed_is_empty_and_the_next_one_rejects_them() -> None:
    async with scene() as on:
        on.configure()
        await strips(on, (2, 4, 4))
        await on.names_topic()
        await on.settled()
        asked, _ = await on.fetch(fetching(), fetched({}, codes={0: 0}))
        assert acks_of(asked) == {0: [(2, 4, (REJECT,))]}
        asked, _ = await on.fetch(fetching(), fetched())
        assert acks_of(asked) == {}, "paid once"


async def test_the_request_that_opens_a_session_never_carries_deferred_acknowledgements() -> None:
    async with scene() as on:
        on.configure()
        await strips(on, (2, 2, 4))
        await on.names_topic()
        await on.settled()
        asked, _ = await on.fetch(fetching(epoch=0), fetched())
        assert acks_of(asked) == {}
        asked, _ = await on.fetch(fetching(epoch=1), fetched({}, codes={0: 0}))
        assert acks_of(asked) == {0: [(2, 2, (REJECT,))]}


async def test_an_acknowledge_carries_deferred_ones_only_when_it_is_the_last_and_its_response_hides_them() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((8, 8, 1), partition=1)
        await strips(on, (3, 3, 4))
        await on.names_topic()
        await on.settled()
        await on.send(acknowledging({1: [(8, 8, [ACCEPT])]}))
        asked, _ = await on.goes_on_acknowledging(acknowledged({1: 0}))
        assert acks_of(asked) == {1: [(8, 8, (ACCEPT,))]}
        await on.send(acknowledging(epoch=-1))
        asked, answer = await on.goes_on_acknowledging(acknowledged({0: 0}))
        assert acks_of(asked) == {0: [(3, 3, (REJECT,))]}
        assert answer.responses == ()
        assert on.counted() == {"accepted": 1, "over_limit": 1, "dead_lettered": 1}


async def test_a_partition_that_the_client_named_with_broken_batches_stays_in_its_answer() -> None:
    async with scene() as on:
        on.configure()
        await strips(on, (3, 3, 4))
        await on.names_topic()
        await on.send(acknowledging({1: [(8, 2, [ACCEPT])]}, epoch=-1))
        asked, answer = await on.goes_on_acknowledging(acknowledged({0: 0, 1: 42}))
        assert set(acks_of(asked)) == {0, 1}
        assert [(one.partition_index, one.error_code) for one in answer.responses[0].partitions] == [(1, 42)]


async def test_deferred_acknowledgements_of_another_topic_are_added_to_the_clients_own() -> None:
    async with scene() as on:
        on.configure()
        await strips(on, (3, 3, 4))
        await on.names_topic()
        await on.settled()
        theirs = fetching({0: [(1, 1, [ACCEPT])]})
        other = ShareFetchTopic(topic_id=OTHER_TOPIC, partitions=theirs.topics[0].partitions)
        asked, _ = await on.fetch(replace(theirs, topics=(other,)), fetched())
        assert isinstance(asked, ShareFetchRequest)
        assert [(one.topic_id, len(one.partitions)) for one in asked.topics] == [(OTHER_TOPIC, 1), (b"t" * 16, 1)]


@pytest.mark.parametrize(("after_s", "is_sent"), [(27.9, True), (28.0, False)])
async def test_a_deferred_acknowledgement_ends_before_the_lock_of_its_records(after_s: float, is_sent: bool) -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        await strips(on, (3, 3, 4), lock_ms=30_000)
        await on.names_topic()
        await on.settled()
        clock.now += after_s
        asked, _ = await on.fetch(fetching(), fetched({}, codes={0: 0}))
        assert acks_of(asked) == ({0: [(3, 3, (REJECT,))]} if is_sent else {})
        assert [one["outcome"] for one in on.events("dead_letter_withdrawn")] == ([] if is_sent else ["not sent"])


@pytest.mark.parametrize(("late_s", "is_sent"), [(27.9, True), (28.0, False)])
async def test_the_lock_is_counted_from_the_request_because_the_gateway_may_have_been_stopped_since(
    late_s: float, is_sent: bool
) -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        await on.send(fetching())
        asked = await on.broker.request()
        clock.now += late_s
        await on.broker.send(asked.answer(fetched({0: [(3, 3, 4)]})))
        assert acquired(await on.fetched()) == {0: []}
        if is_sent:
            await on.names_topic()
            await on.settled()
        asked_next, _ = await on.fetch(fetching(), fetched({}, codes={0: 0}))
        assert acks_of(asked_next) == ({0: [(3, 3, (REJECT,))]} if is_sent else {})
        assert len(on.dead_letters.begun) == is_sent


@pytest.mark.parametrize(("wait_ms", "sent_ms"), [(5_000, 5_000), (60_000, 5_000)])
async def test_a_fetch_does_not_wait_so_long_at_the_broker_that_a_lock_is_over_when_it_is_counted(
    wait_ms: int, sent_ms: int
) -> None:
    async with scene() as on:
        on.configure()
        asked, _ = await on.fetch(fetching(wait_ms=wait_ms), fetched())
        assert asked.max_wait_ms == sent_ms
        on.set(GROUP, {DLQ_TOPIC: None})
        asked, _ = await on.fetch(fetching(wait_ms=wait_ms), fetched())
        assert asked.max_wait_ms == wait_ms


async def test_a_lock_that_ends_while_the_request_waits_is_not_used() -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        await strips(on, (3, 3, 4), partition=1)
        await on.names_topic()
        await on.settled()
        clock.now += 10
        await on.fetch(fetching(epoch=0), fetched({1: [(8, 8, 1)]}))
        on.dead_letters.open.clear()
        await on.send(fetching({0: [(7, 7, [REJECT])], 1: [(8, 8, [ACCEPT])]}))
        await on.names_topic()
        await until(lambda: len(on.dead_letters.begun) == 2)
        clock.now += 20
        on.dead_letters.open.set()
        asked, _ = await on.goes_on_fetching(fetched({}, codes={0: 0, 1: 0}))
        assert acks_of(asked) == {0: [(7, 7, (REJECT,))], 1: [(8, 8, (ACCEPT,))]}, "it would void the client's ACCEPT"
        [event] = on.events("dead_letter_withdrawn")
        assert (event["outcome"], event["partition"], event["offsets"]) == ("not sent", 1, [[3, 3]])
        assert on.counted() == {"accepted": 1, "rejected": 1, "dead_lettered": 1}


async def test_a_partition_that_left_the_session_is_not_brought_back_by_a_deferred_acknowledgement() -> None:
    async with scene() as on:
        on.configure()
        await strips(on, (3, 3, 4))
        await on.names_topic()
        await on.settled()
        forgotten = ShareForgottenTopic(topic_id=TOPIC, partitions=(0,))
        leaving = replace(fetching(epoch=0), forgotten_topics_data=(forgotten,))
        await on.fetch(leaving, fetched())
        asked, answer = await on.fetch(fetching(epoch=1), fetched({}, codes={0: 0}))
        assert acks_of(asked) == {0: [(3, 3, (REJECT,))]}
        assert asked.forgotten_topics_data == (forgotten,)
        assert answer.responses == (), "the client does not know the partition any more"
        assert on.counted() == {"over_limit": 1, "dead_lettered": 1}


async def test_only_fetches_change_which_partitions_are_in_a_session() -> None:
    async with scene() as on:
        on.configure()
        await strips(on, (3, 3, 4))
        await on.names_topic()
        await on.settled()
        await on.send(acknowledging(epoch=0))
        await on.goes_on_acknowledging(acknowledged(error_code=123))
        asked, _ = await on.fetch(fetching(epoch=1), fetched({}, codes={0: 0}))
        assert acks_of(asked) == {0: [(3, 3, (REJECT,))]}
        assert asked.forgotten_topics_data == ()


async def test_a_deferred_acknowledgement_does_not_ride_on_another_connection_of_its_member() -> None:
    async with scene() as on:
        on.configure()
        await strips(on, (3, 3, 4))
        await on.names_topic()
        await on.settled()
        other = await on.other_client()
        asked, _ = await other.fetch(fetching(), fetched())
        assert acks_of(asked) == {}
        on.client.close()
        await until(lambda: bool(on.events("dead_letter_withdrawn")))
        [event] = on.events("dead_letter_withdrawn")
        assert (event["outcome"], event["offsets"]) == ("not sent", [[3, 3]])


async def test_a_deferred_acknowledgement_whose_dead_letters_fail_is_sent_all_the_same() -> None:
    async with scene() as on:
        on.configure()

        on.dead_letters.failure = ZeroDivisionError()
        await strips(on, (3, 3, 4))
        await on.names_topic()
        await until(lambda: bool(on.dead_letters.begun))
        await turns()
        asked, _ = await on.fetch(fetching(), fetched({}, codes={0: 0}))
        assert acks_of(asked) == {0: [(3, 3, (REJECT,))]}
        assert on.counted() == {"over_limit": 1, "write_timeouts": 1}


async def test_the_dead_letters_of_one_response_are_one_task() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.open.clear()
        before = len(on.service._tasks)
        await strips(on, *((offset, offset, 4) for offset in range(0, 400, 2)))
        await on.names_topic()
        await until(lambda: len(on.dead_letters.begun) == 200)
        assert len(on.service._tasks) == before + 1


async def test_without_a_dead_letter_topic_the_limit_is_the_brokers() -> None:
    async with scene() as on:
        on.read(GroupConfigSet(group="g", name="share.group.dlq.strict.isolation", value="true", by="User:o", at=1))
        await on.acquires((0, 0, 9))
        assert on.service.acknowledgements.acquired_ranges == 1


async def test_a_group_without_a_limit_has_the_brokers_default() -> None:
    async with scene() as on:
        on.set(GROUP, {DLQ_TOPIC: DLQ})
        _, got = await on.fetch(fetching(), fetched({0: [(0, 0, 5), (1, 1, 6)]}))
        assert acquired(got) == {0: [(0, 0, 5)]}
        await on.names_topic()


@pytest.mark.parametrize(("limit", "is_unprotected"), [("9", False), ("10", True)])
async def test_a_limit_at_the_brokers_maximum_is_unprotected(limit: str, is_unprotected: bool) -> None:
    async with scene() as on:
        on.set(GROUP, {DLQ_TOPIC: DLQ, LIMIT: limit})
        assert on.service.status(GROUP).limit_unprotected is is_unprotected
