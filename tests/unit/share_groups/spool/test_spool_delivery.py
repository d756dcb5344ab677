"""Dead letters whose topic is away: they go to the spool, and what is reported is true."""

import asyncio
from dataclasses import replace

import pytest
from structlog.typing import EventDict

from headgate.share_groups.spool.model import routes as spool_routes
from headgate.share_groups.spool.model.index import SpoolIndex, spool_record
from headgate.share_groups.spool.model.records import (
    DEADLINE,
    MAX_GROUP_SPOOL_BYTES,
    TARGET,
    SpoolTombstone,
    encode_spooled,
)
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import turns, until
from tests.unit.share_groups.scene import (
    REJECT,
    Scene,
    acknowledged,
    acknowledging,
    acks_of,
    fetched,
    fetching,
    scene,
)
from tests.unit.share_groups.spool.test_spool_index import dead_letter
from tests.unit.share_groups.test_copies_and_dead_letters import batch

AWAY = "the topic does not exist"


async def reject(on: Scene, offset: int, *, partition: int = 0, code: int = 0) -> None:
    """One REJECT of a record that this worker did not see being acquired."""
    await on.send(acknowledging({partition: [(offset, offset, [REJECT])]}))
    await on.names_topic()
    await on.goes_on_acknowledging(acknowledged({partition: code}))


async def test_a_dead_letter_that_its_topic_does_not_take_goes_to_the_spool_as_it_would_be_written() -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        await on.acquires((0, 0, 2))
        on.dead_letters.problem = AWAY
        asked, _ = await on.rejects({0: [(0, 0, [REJECT])]})
        assert acks_of(asked) == {0: [(0, 0, (REJECT,))]}
        [spooled] = on.spool.dead_letters
        headers = dict(encode_spooled(spooled)[2])
        assert headers["__dlq.errors.offset"] == b"0"
        assert headers["__dlq.errors.delivery.count"] == b"2"
        assert headers[TARGET] == b"dlq.g"
        assert int(headers[DEADLINE]) == clock.epoch_ms() + 30_000, "all of write.timeout.ms"
        assert on.counted() == {"rejected": 1, "dead_lettered": 1}, "it is durable, so the breaker counts it"
        assert on.events("write_timeout") == []
        assert on.service.meter.dead_letters == {"g": 1}


async def test_while_a_topic_is_known_to_fail_nothing_waits_for_it(logs: list[EventDict]) -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.problem = AWAY
        for offset in range(3):
            await reject(on, offset)
        [said] = [one for one in logs if one["log_level"] == "warning"]
        assert (said["event"], said["dlq_topic"], said["reason"]) == ("dead letters go to the spool", "dlq.g", AWAY)
        assert [dead_letter.offset for dead_letter in on.dead_letters.begun] == [0]
        assert on.spool.offsets == [(0, 0), (0, 1), (0, 2)]
        sequences = [dead_letter.sequence for dead_letter in on.spool.dead_letters]
        assert sequences == sorted(set(sequences))


async def test_a_topic_that_fails_for_one_partition_is_not_waited_for_by_another() -> None:
    async with scene(clock=FakeClock()) as on:
        on.configure()
        on.dead_letters.problem = AWAY
        for partition in (0, 1):
            await reject(on, 7, partition=partition)
        assert [dead_letter.partition for dead_letter in on.dead_letters.begun] == [0]
        assert on.spool.offsets == [(0, 7), (1, 7)]


async def test_a_topic_whose_metadata_does_not_come_is_waited_for_once() -> None:
    async with scene(hold_max_ms=20) as on:
        on.configure(errors__deadletterqueue__copy__record__enable="true")
        await on.fetch(fetching(), fetched({0: [(0, 2, 1)]}, records=batch(0, [b"a", b"b", b"c"])))
        on.dead_letters.describes.clear()
        on.dead_letters.open.clear()
        for offset in range(3):
            await on.rejects({0: [(offset, offset, [REJECT])]})
        assert [(one.offset, one.value) for one in on.spool.dead_letters] == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert (on.dead_letters.described, len(on.dead_letters.begun)) == (1, 0)


async def test_a_wait_that_a_lock_cut_short_does_not_say_that_the_topic_fails() -> None:
    async with scene() as on:
        on.configure()
        await on.fetch(fetching(), fetched({0: [(0, 0, 1)]}, lock_ms=100))
        on.dead_letters.open.clear()
        await reject(on, 0)
        [deadline] = on.dead_letters.deadlines
        assert 0 < deadline <= 0.05, "half of the time that is left"
        on.dead_letters.open.set()
        await reject(on, 1, partition=1)
        assert on.dead_letters.offsets == [(1, 1)]


async def test_a_topic_is_healthy_again_when_the_leader_has_moved_what_was_spooled_for_it() -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        on.dead_letters.problem = AWAY
        await reject(on, 0)
        on.dead_letters.problem = None
        clock.now += 3
        await reject(on, 1)
        on.follow_spool()
        await reject(on, 2)
        assert on.dead_letters.written == [], "its lane has dead letters in the spool"
        await reject(on, 3, partition=1)
        assert on.dead_letters.written == [], "so has its topic"
        on.spool.move()
        await reject(on, 4)
        assert on.dead_letters.written == [], "it is not read yet that they were moved"
        on.spool.move()
        on.follow_spool()
        await reject(on, 5)
        assert on.dead_letters.offsets == [(0, 5)]


async def test_a_lane_with_spooled_dead_letters_stays_in_order_although_its_topic_is_healthy() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.open.clear()
        await reject(on, 0)
        assert on.dead_letters.on_late is not None
        on.dead_letters.on_late(on.dead_letters.begun[0])  # the topic took it after all: it is healthy
        on.dead_letters.open.set()
        await reject(on, 1, partition=1)
        assert on.dead_letters.offsets == [(1, 1)], "another lane"
        await reject(on, 2)
        assert on.spool.offsets == [(0, 0), (0, 2)]
        await until(lambda: bool(on.spool.removed))


async def test_until_the_spool_was_read_dead_letters_go_through_it_and_not_for_ever() -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        on.kafka.spool_replayed.clear()
        await reject(on, 0)
        assert (on.spool.offsets, on.dead_letters.begun) == ([(0, 0)], [])
        clock.now += 11
        await reject(on, 1, partition=1)
        assert on.dead_letters.offsets == [(1, 1)], "a spool that cannot be read does not keep it from its topic"
        on.kafka.spool_replayed.set()


async def test_a_lane_leaves_the_spool_although_its_records_are_rejected_all_the_time() -> None:
    async with scene(hold_max_ms=5000) as on:
        on.configure()
        on.dead_letters.problem = AWAY
        for offset in range(3):
            await reject(on, offset)
        on.dead_letters.problem = None
        on.spool.move(1)
        on.follow_spool()
        waiting = asyncio.create_task(reject(on, 3))
        await turns(100)
        assert len(on.spool.dead_letters) == 3, "it waits, because the leader moves the dead letters of its lane"
        on.spool.move()
        on.follow_spool()
        await waiting
        assert on.dead_letters.offsets == [(0, 3)]


async def test_a_lane_that_was_not_empty_in_time_is_not_waited_for_again() -> None:
    clock = FakeClock()
    async with scene(clock=clock, hold_max_ms=5000) as on:
        on.configure()
        on.dead_letters.problem = AWAY
        for offset in range(3):
            await reject(on, offset)
        on.dead_letters.problem = None
        on.spool.move(1)
        on.follow_spool()
        waiting = asyncio.create_task(reject(on, 3))
        await turns(100)
        assert not waiting.done()
        clock.now += 2.6  # half of the hold is over
        await waiting
        async with asyncio.timeout(20):
            await reject(on, 4)  # the clock stands still: it would wait for ever
        assert on.spool.offsets[-2:] == [(0, 3), (0, 4)]


def test_dead_letters_that_a_spool_lost_are_not_waited_for() -> None:
    index = SpoolIndex()
    routes = spool_routes.SpoolRoutes(index)
    routes.mark_failing("dlq.g", 0)
    routes.confirm(dead_letter(0), 0, 100)
    assert routes.is_failing("dlq.g")
    index.clear()  # the topic was created again: no record will have this offset for a long time
    index.apply(spool_record(0, 0, None))
    assert not routes.has_dead_letters(dead_letter(0).lane)
    assert not routes.is_failing("dlq.g")
    routes.confirm(dead_letter(1), 0, 1)
    assert routes.has_dead_letters(dead_letter(0).lane)
    index.apply(spool_record(0, 1, SpoolTombstone(dead_letter(1).identity)))
    assert not routes.has_dead_letters(dead_letter(0).lane)
    assert not routes._own_bytes


def test_only_so_many_dead_letters_are_spooled_that_were_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes memory until the index has it."""
    assert spool_routes.MAX_UNREAD == 100_000
    monkeypatch.setattr(spool_routes, "MAX_UNREAD", 2)
    index = SpoolIndex()
    routes = spool_routes.SpoolRoutes(index)
    for offset in range(2):
        assert routes.refusal(dead_letter(offset)) is None
        routes.confirm(dead_letter(offset), 0, offset)
    assert "were not read back" in (routes.refusal(dead_letter(2)) or "")
    index.apply(spool_record(0, 0, dead_letter(0)))
    assert routes.refusal(dead_letter(2)) is None


def test_a_lane_whose_dead_letters_are_not_moved_any_more_is_waited_for_once() -> None:
    index = SpoolIndex()
    routes = spool_routes.SpoolRoutes(index)
    lane = dead_letter(0).lane
    for offset in range(201):
        index.apply(spool_record(0, offset, dead_letter(offset)))
    assert not routes.is_draining(lane), "none was moved"
    index.apply(spool_record(0, 201, SpoolTombstone(dead_letter(0).identity)))
    assert routes.is_draining(lane)
    routes.stop_waiting(lane)
    assert not routes.is_draining(lane)
    index.apply(spool_record(0, 202, SpoolTombstone(dead_letter(1).identity)))
    assert routes.is_draining(lane)
    for offset in range(203, 210):
        index.apply(spool_record(0, offset, dead_letter(offset)))
    assert not routes.is_draining(lane), "there are too many for a wait"


async def test_when_nothing_could_be_spooled_one_write_a_second_probes_the_topic() -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        on.dead_letters.problem = AWAY
        on.spool.open.clear()
        for offset in range(2):
            await reject(on, offset)
        assert len(on.dead_letters.begun) == 1
        clock.now += 1.5
        for offset in range(2, 4):
            await reject(on, offset)
        assert len(on.dead_letters.begun) == 2
        on.dead_letters.problem = None
        clock.now += 1.5
        await reject(on, 4)
        await reject(on, 5)
        assert on.dead_letters.offsets == [(0, 4), (0, 5)], "one success, and it is healthy again"


async def test_a_dead_letter_that_arrives_in_its_topic_after_it_was_spooled_is_removed_from_the_spool() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.open.clear()
        await reject(on, 0)
        [dead_letter] = on.dead_letters.begun
        assert on.spool.offsets == [(0, 0)]
        assert on.dead_letters.on_late is not None
        on.dead_letters.on_late(dead_letter)
        await until(lambda: on.spool.removed == [dead_letter.identity])
        assert on.events("late_write") == [], "it is in its topic before write.timeout.ms"


async def test_a_spooled_dead_letter_that_arrives_after_its_deadline_is_removed_after_its_event_is_written() -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        on.dead_letters.open.clear()
        await reject(on, 0)
        [dead_letter] = on.dead_letters.begun
        assert on.dead_letters.on_late is not None
        on.kafka.writer.accepts.clear()
        clock.now += 31
        on.dead_letters.on_late(dead_letter)
        await until(lambda: [one["offsets"] for one in on.events("late_write")] == [[[0, 0]]])
        await turns()
        assert on.spool.removed == []
        on.kafka.writer.accepts.set()
        await until(lambda: on.spool.removed == [dead_letter.identity])


async def test_a_dead_letter_that_arrives_while_it_is_spooled_is_removed_too() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.open.clear()
        on.spool.open.clear()
        on.spool.answer_s = 30
        await on.send(acknowledging({0: [(0, 0, [REJECT])]}))
        await on.names_topic()
        await until(lambda: bool(on.spool.deadlines))
        assert on.dead_letters.on_late is not None
        on.dead_letters.on_late(on.dead_letters.begun[0])
        on.spool.open.set()
        await on.goes_on_acknowledging(acknowledged({0: 0}))
        await until(lambda: len(on.spool.removed) == 1)
        assert on.counted() == {"rejected": 1, "dead_lettered": 1}


async def test_a_dead_letter_that_neither_topic_nor_spool_took_and_that_arrives_later_is_reported_as_late() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.open.clear()
        on.spool.open.clear()
        await reject(on, 0)
        assert on.counted() == {"rejected": 1, "write_timeouts": 1}
        [event] = on.events("write_timeout")
        assert (event["offsets"], event["reason"]) == ([[0, 0]], "the spool did not answer")
        assert on.dead_letters.on_late is not None
        on.dead_letters.on_late(on.dead_letters.begun[0])
        assert [one["offsets"] for one in on.events("late_write")] == [[[0, 0]]]
        assert on.service.meter.late_writes == 1


async def test_a_dead_letter_that_arrives_in_the_spool_too_late_is_reported_as_late() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.problem = AWAY
        on.spool.open.clear()
        await reject(on, 0)
        on.spool.open.set()
        await reject(on, 1)
        assert on.spool.on_late is not None
        on.spool.on_late(replace(on.spool.dead_letters[0], offset=0), 0, 9)
        assert [one["offsets"] for one in on.events("late_write")] == [[[0, 0]]]


async def test_nothing_is_reported_when_the_broker_refuses_the_acknowledgement(logs: list[EventDict]) -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.problem = AWAY
        on.spool.open.clear()
        await reject(on, 0, code=121)
        assert on.events("write_timeout") == []
        assert on.service.meter.write_timeouts == {}
        assert on.counted() == {}
        assert [one["event"] for one in logs if one["log_level"] == "warning"] == ["dead letters go to the spool"]


async def test_nothing_is_reported_of_a_client_that_disconnects_while_its_dead_letters_are_written() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.open.clear()
        on.spool.open.clear()
        await on.send(acknowledging({0: [(0, 9, [REJECT])]}))
        await on.names_topic()
        await until(lambda: bool(on.dead_letters.begun))
        on.client.close()
        await until(lambda: on.stage.ended == {"client_closed": 1})
        await until(lambda: bool(on.spool.deadlines))
        await asyncio.sleep(2 * on.spool.answer_s)
        await turns()
        assert on.events("write_timeout") == []
        assert on.service.meter.write_timeouts == {}


async def test_a_group_has_only_so_many_bytes_in_the_spool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_GROUP_SPOOL_BYTES == 256 * 1024 * 1024
    monkeypatch.setattr(spool_routes, "MAX_GROUP_SPOOL_BYTES", 1_500)
    async with scene() as on:
        on.configure()
        on.dead_letters.problem = AWAY
        for offset in range(4):
            await reject(on, offset)
            on.follow_spool()
        spooled = len(on.spool.dead_letters)
        assert 0 < spooled < 4
        assert on.counted() == {"rejected": 4, "dead_lettered": spooled, "write_timeouts": 4 - spooled}
        [event] = on.events("write_timeout")
        assert "bytes of this group" in event["reason"]
        on.spool.move()
        on.follow_spool()
        on.dead_letters.problem = AWAY
        await reject(on, 4)
        assert len(on.spool.dead_letters) == spooled + 1, "the leader has made room"


async def test_a_dead_letter_without_a_copy_that_is_too_large_for_its_topic_is_parked_in_the_spool() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.max_bytes = -1  # even null is too large
        await reject(on, 0)
        [spooled] = on.spool.dead_letters
        assert spooled.parked == "larger than the topic takes"
        on.dead_letters.max_bytes = 1 << 20
        await reject(on, 1, partition=1)
        assert on.dead_letters.offsets == [(1, 1)], "the topic is not failing"


async def test_records_over_the_limit_go_to_the_spool_too() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.problem = AWAY
        await on.send(fetching())
        await on.goes_on_fetching(fetched({0: [(7, 7, 4)]}))
        await on.names_topic()
        await until(lambda: on.spool.offsets == [(0, 7)])
        await turns()
        asked, _ = await on.fetch(fetching(epoch=2), fetched({}, codes={0: 0}))
        assert acks_of(asked) == {0: [(7, 7, (REJECT,))]}
        assert on.counted() == {"over_limit": 1, "dead_lettered": 1}
