"""REJECTs: each waits for its dead letter, and no longer than it may; what the broker then says is what is counted."""

import asyncio

import pytest
from structlog.typing import EventDict

from headgate.facts import EventHappened
from headgate.share_groups.model.dead_letter_records import topic_id_text
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import until
from tests.unit.share_groups.scene import (
    ACCEPT,
    DLQ,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    TOPIC,
    acknowledged,
    acknowledging,
    acks_of,
    fetched,
    fetching,
    scene,
    twice,
)


async def test_a_reject_goes_on_when_its_dead_letter_is_written_and_not_before() -> None:
    async with scene(hold_max_ms=5000) as on:
        on.configure()
        await on.acquires((10, 12, 1))
        on.dead_letters.open.clear()
        await on.send(acknowledging({0: [(10, 12, [ACCEPT, REJECT, REJECT])]}))
        await on.names_topic()
        await until(lambda: len(on.dead_letters.begun) == 2)
        assert await on.broker.is_quiet()
        on.dead_letters.open.set()
        asked, answer = await on.goes_on_acknowledging(acknowledged({0: 0}))
        assert acks_of(asked) == {0: [(10, 12, (ACCEPT, REJECT, REJECT))]}
        assert answer.responses[0].partitions[0].error_code == 0
        assert [(one.offset, one.source.delivery_count) for one in on.dead_letters.written] == [(11, 1), (12, 1)]
        assert on.counted() == {"accepted": 1, "rejected": 2, "dead_lettered": 2}


async def test_a_reject_waits_no_longer_than_hold_max(logs: list[EventDict]) -> None:
    async with scene(hold_max_ms=300) as on:
        on.configure()
        await on.acquires((10, 10, 2))
        on.dead_letters.open.clear()
        on.spool.open.clear()
        began = asyncio.get_running_loop().time()
        await on.rejects({0: [(10, 10, [REJECT])]})
        assert on.dead_letters.deadlines == [pytest.approx(0.3)]
        assert 0.25 < asyncio.get_running_loop().time() - began < 5
        assert on.counted() == {"rejected": 1, "write_timeouts": 1}
        [event] = on.events("write_timeout")
        assert event["offsets"] == [[10, 10]]
        [line] = [one for one in logs if one["event"].endswith("its record is archived without one")]
        del line["event"]
        assert line == {
            "log_level": "warning",
            "group": "g",
            "topic": topic_id_text(TOPIC),
            "partition": 0,
            "offsets": "10",
            "dlq_topic": DLQ,
            "reason": "the spool did not answer",
        }
        assert on.service.meter.write_timeouts == {"g": 1}


@pytest.mark.parametrize("ack", [ACCEPT, RENEW])
async def test_what_else_is_acknowledged_in_the_same_request_shortens_the_wait_by_its_own_lock(ack: int) -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.problem = "the topic does not exist"
        await on.fetch(fetching(), fetched({0: [(0, 0, 1)]}))
        await on.fetch(fetching(), fetched({1: [(0, 0, 1)]}, lock_ms=4_000))
        await on.rejects({0: [(0, 0, [REJECT])], 1: [(0, 0, [ack])]}, {0: 0, 1: 0})
        [deadline] = on.spool.deadlines
        assert deadline <= 2, "the lock of the other record, less its margin"


async def test_offsets_that_do_not_ascend_are_counted_each_once() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 19, 2))
        batches = [(15, 16, [REJECT]), (10, 12, [ACCEPT]), (16, 17, [ACCEPT]), (13, 13, [REJECT])]
        await on.rejects({0: batches})
        assert on.counted() == {"accepted": 5, "rejected": 3, "dead_lettered": 3}
        assert [(one.offset, one.source.delivery_count) for one in on.dead_letters.written] == [
            (15, 2),
            (16, 2),
            (13, 2),
        ]
        assert on.service.acknowledgements.acquired_ranges == 2, "14, and 18 to 19"


async def test_dead_letters_of_a_client_that_goes_away_meanwhile_are_withdrawn_also_those_that_come_later() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 11, 1))
        on.dead_letters.open.clear()
        await on.send(acknowledging({0: [(10, 11, [REJECT])]}))
        await on.names_topic()
        await until(lambda: len(on.dead_letters.begun) == 2)
        on.client.close()
        await until(lambda: on.stage.ended == {"client_closed": 1})
        assert on.events("dead_letter_withdrawn") == []
        on.dead_letters.open.set()
        await until(lambda: bool(on.events("dead_letter_withdrawn")))
        [event] = on.events("dead_letter_withdrawn")
        assert (event["outcome"], event["offsets"]) == ("not sent", [[10, 11]])
        assert on.counted() == {}


async def test_dead_letters_whose_acknowledgement_got_no_answer_are_withdrawn_when_the_connection_ends() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 10, 1))
        await on.send(acknowledging({0: [(10, 10, [REJECT])]}))
        await on.names_topic()
        await on.broker.request()
        on.broker.close()
        await until(lambda: bool(on.events("dead_letter_withdrawn")))
        [event] = on.events("dead_letter_withdrawn")
        assert event["outcome"] == "unknown"
        assert on.counted() == {}


async def test_dead_letters_whose_acknowledgement_was_accepted_are_not_withdrawn_when_the_connection_ends() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 10, 1))
        await on.rejects({0: [(10, 10, [REJECT])]})
        on.client.close()
        await until(lambda: on.stage.ended == {"client_closed": 1})
        assert on.events("dead_letter_withdrawn") == []


async def test_a_member_holds_its_records_until_its_last_request_is_accepted() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 10, 1))
        for error_code, held in ((123, 1), (0, 0)):
            await on.send(acknowledging(epoch=-1))
            await on.goes_on_acknowledging(acknowledged(error_code=error_code))
            assert on.service.acknowledgements.acquired_ranges == held


async def test_dead_letters_whose_acknowledgement_is_refused_are_withdrawn_and_nothing_is_counted() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 10, 1))
        await on.acquires((5, 5, 1), partition=1)
        await on.rejects({0: [(10, 10, [REJECT])], 1: [(5, 5, [ACCEPT])]}, {0: 121, 1: 0})
        [event] = on.events("dead_letter_withdrawn")
        assert (event["outcome"], event["error_code"]) == ("refused", 121)
        assert on.counted() == {"accepted": 1}


async def test_an_error_of_the_whole_answer_counts_nothing() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 10, 1))
        await on.fetch(fetching({0: [(10, 10, [ACCEPT])]}), fetched({}, codes={0: 0}, error_code=123))
        assert on.counted() == {}


async def test_a_partition_that_the_answer_does_not_name_was_not_acknowledged() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 10, 1))
        await on.fetch(fetching({0: [(10, 10, [ACCEPT])]}), fetched())
        assert on.counted() == {}
        await on.fetch(fetching({0: [(10, 10, [ACCEPT])]}), fetched({}, codes={0: 0}))
        assert on.counted() == {"accepted": 1}


async def test_of_a_partition_that_is_named_twice_the_last_counts_as_at_the_broker() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 11, 1))
        await on.send(twice(fetching({0: [(10, 10, [ACCEPT])]}), [(10, 10, [REJECT])]))
        await on.names_topic()
        await on.goes_on_fetching(fetched({}, codes={0: 0}))
        assert on.dead_letters.offsets == [(0, 10)]
        assert on.counted() == {"rejected": 1, "dead_lettered": 1}
        await on.fetch(twice(fetching({0: [(11, 11, [REJECT])]}), []), fetched())
        assert on.dead_letters.offsets == [(0, 10)], "nothing is acknowledged by it, so nothing is dead-lettered"


async def test_release_gap_and_renewal_are_in_no_rate_and_only_a_renewal_keeps_what_is_held() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 13, 1))
        acks = {0: [(10, 13, [RELEASE, GAP, RENEW, RENEW])]}
        await on.fetch(fetching(acks), fetched({}, codes={0: 0}))
        assert on.counted() == {"released": 1}
        await on.rejects({0: [(10, 13, [REJECT])]})
        assert [one.source.delivery_count for one in on.dead_letters.written] == [None, None, 1, 1]


async def test_a_reject_of_what_was_never_seen_is_dead_lettered_with_an_unknown_count() -> None:
    async with scene() as on:
        on.configure()
        await on.rejects({0: [(10, 10, [REJECT])]})
        assert [one.source.delivery_count for one in on.dead_letters.written] == [None]
        assert on.counted() == {"rejected": 1, "dead_lettered": 1}


async def test_rejects_beyond_the_bound_of_a_request_are_reported_as_archived_without_dead_letters() -> None:
    async with scene(clock=FakeClock()) as on:  # all of them within hold_max_ms
        on.configure()
        await on.acquires((0, 2, 1))
        await on.acquires((10, 1 << 60, 1))
        await on.rejects({0: [(0, 2, [REJECT]), (10, 1 << 60, [REJECT])]})
        assert len(on.dead_letters.written) == 10_000
        counted = on.counted()
        assert counted["dead_lettered"] == 10_000
        assert counted["write_timeouts"] == counted["rejected"] - 10_000


async def test_neighbours_with_one_past_are_dead_lettered_together() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires(*((offset, offset, 1) for offset in range(500)))
        await on.rejects({0: [(0, 499, [REJECT])]}, {0: 121})
        assert on.dead_letters.offsets == [(0, offset) for offset in range(500)]
        assert [one["offsets"] for one in on.events("dead_letter_withdrawn")] == [[[0, 499]]]
        assert on.service.meter.dead_letters == {"g": 500}


async def test_a_topic_that_is_away_fills_neither_the_log_nor_the_events(logs: list[EventDict]) -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.problem = "the topic does not exist"
        on.spool.open.clear()
        for offset in range(30):
            await on.send(acknowledging({0: [(offset, offset, [REJECT])]}))
            await on.names_topic()
            await on.goes_on_acknowledging(acknowledged({0: 0}))
        assert sum(len(one["offsets"]) for one in on.events("write_timeout")) == 30
        warnings = [one for one in logs if one["log_level"] == "warning"]
        assert len(warnings) < 10, "one for each partition and second"


async def test_a_failure_while_dead_letters_are_written_lets_the_reject_pass(logs: list[EventDict]) -> None:
    async with scene() as on:
        on.configure()
        on.pause()
        on.dead_letters.failure = ZeroDivisionError()
        await on.send(fetching({0: [(1, 1, [REJECT])]}))
        await on.names_topic()
        asked, _ = await on.goes_on_fetching(fetched({}, codes={0: 0}))
        assert asked.max_bytes == 0, "it is paused all the same"
        assert [one["event"] for one in logs if one["log_level"] == "error"] == ["task of the share groups failed"]
        assert on.service.meter.failures == 1
        [event] = on.events("write_timeout")
        assert (event["offsets"], event["reason"]) == ([[1, 1]], "writing the dead letters failed unexpectedly")
        assert on.counted() == {"rejected": 1, "write_timeouts": 1}


async def test_what_was_written_for_a_client_that_is_gone_is_withdrawn_also_when_the_service_ends() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.blocked = {1}
        await on.fetch(fetching(), fetched({0: [(10, 10, 1)], 1: [(20, 20, 9)]}))
        await on.names_topic()
        await on.send(acknowledging({0: [(10, 10, [REJECT])]}, epoch=-1))
        await on.names_topic()
        await until(lambda: len(on.dead_letters.written) == 1)
        on.client.close()
        await until(lambda: on.stage.ended == {"client_closed": 1})
        assert on.events("dead_letter_withdrawn") == [], "the dead letter of another record is still being written"
    [event] = [one for one in on.kafka.writer.facts if isinstance(one, EventHappened)]
    assert (event.event, event.detail.value()["offsets"]) == ("dead_letter_withdrawn", [[10, 10]])
