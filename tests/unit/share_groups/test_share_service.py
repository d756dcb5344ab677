"""The life of the service: it opens when it can, logs why it cannot, and ends without losing what it counted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.errors import ClusterError
from headgate.facts import DispositionsCounted, EventHappened, GroupPaused, JsonText, TopologyEpochsSet, encode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.share_groups.model.group_configs import DLQ_TOPIC, LIMIT, THRESHOLD_PERCENT
from headgate.share_groups.resources import resumed_events, share_group_facts
from headgate.share_groups.service import ShareGroupService
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import config, turns, until
from tests.unit.share_groups.fake_kafka import FakeKafka
from tests.unit.share_groups.scene import ACCEPT, REJECT, fetched, fetching, scene

PAUSED = GroupPaused(group="g", reason="r", by="o", at=1)


@asynccontextmanager
async def running(kafka: FakeKafka, **settings: Any) -> AsyncIterator[ShareGroupService]:
    service = ShareGroupService(
        config(9),
        open_with=kafka.open,  # type: ignore[arg-type]
        group_configs=kafka.group_configs,  # type: ignore[arg-type]
        retry_s=0.01,
        **settings,
    )
    async with service.running():
        yield service


async def test_it_tries_until_it_opens_and_logs_each_problem_once(logs: list[EventDict]) -> None:
    kafka = FakeKafka()
    kafka.history = [PAUSED]
    kafka.open_failures = [ClusterError("no"), ClusterError("no"), ZeroDivisionError("oh")]
    async with running(kafka) as service:
        await until(lambda: service.is_ready)
        assert kafka.attempts == 4
        assert kafka.closed == 3, "what an attempt opened is closed"
        assert service.is_paused("g")
        assert [one["problem"] for one in logs if one["log_level"] == "warning"] == ["no", "oh"]
    assert kafka.closed == 4


async def test_what_an_attempt_that_failed_had_read_is_forgotten() -> None:
    kafka = FakeKafka()
    kafka.history = [PAUSED]
    kafka.open_failures = [ClusterError("no right to the topic")]
    async with running(kafka) as service:
        kafka.opens.clear()
        await until(lambda: kafka.closed == 1)
        kafka.history = []
        await until(lambda: kafka.attempts == 2)
        assert not service.manages_name(b"g")
        assert service.is_opening
        assert service.problems()


async def test_a_service_that_does_not_open_stops_holding_requests_and_goes_on_trying(logs: list[EventDict]) -> None:
    kafka = FakeKafka()
    kafka.history = [PAUSED]
    kafka.open_failures = [ClusterError("no right to the topic")] * 20
    async with running(kafka, max_opening_s=0.05) as service:
        await until(lambda: not service.is_opening)
        [logged] = [one for one in logs if one["log_level"] == "error"]
        assert logged["problem"] == "no right to the topic"
        await until(lambda: service.is_ready)
        assert service.manages_name(b"g")


async def test_what_was_counted_is_written_at_the_end() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((0, 6, 1))
        await on.fetch(fetching({0: [(0, 6, [ACCEPT])]}), fetched({}, codes={0: 0}))
    assert sum(one.accepted for one in on.kafka.writer.facts if isinstance(one, DispositionsCounted)) == 7


async def test_a_group_is_managed_as_long_as_it_has_a_config_or_is_paused() -> None:
    async with scene() as on:
        on.set("g", {DLQ_TOPIC: "dlq.x"})
        on.pause()
        on.set("g", {DLQ_TOPIC: None})
        assert on.service.manages_name(b"g")
        on.resume()
        assert not on.service.manages_name(b"g")


@pytest.mark.parametrize(("lock_ms", "deadline_s"), [(8_000, 5), (100, 0.1), (60_000, 10)])
async def test_a_request_is_held_as_long_as_the_lock_that_began_first_allows(lock_ms: int, deadline_s: float) -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        on.dead_letters.problem = "the topic does not exist"
        await on.fetch(fetching(), fetched({0: [(0, 0, 1)]}, lock_ms=lock_ms))
        clock.now += 1 if lock_ms > 1_000 else 0
        await on.fetch(fetching(), fetched({0: [(1, 1, 1)]}, lock_ms=lock_ms))
        await on.rejects({0: [(0, 0, [REJECT])]})
        assert on.dead_letters.deadlines == [pytest.approx(min(0.25, deadline_s / 2))]
        assert on.spool.deadlines == [pytest.approx(deadline_s)]


@pytest.mark.parametrize(
    ("changes", "restored"),
    [({DLQ_TOPIC: None}, 4), ({DLQ_TOPIC: None, LIMIT: "7"}, 7), ({DLQ_TOPIC: None, LIMIT: None}, None)],
)
async def test_the_broker_gets_the_limit_back_that_the_user_means(
    changes: dict[str, str | None], restored: int | None
) -> None:
    async with scene() as on:
        on.set("h", {DLQ_TOPIC: "dlq.x", LIMIT: "4"})
        await on.service.set_configs("h", changes, "User:o")
        assert on.kafka.group_configs.limits == {"h": restored}
        assert on.state("h").values == {}


@pytest.mark.parametrize("changes", [{DLQ_TOPIC: None}, {DLQ_TOPIC: None, LIMIT: None}])
async def test_a_limit_that_could_not_be_restored_is_kept_for_the_leader(changes: dict[str, str | None]) -> None:
    async with scene() as on:
        on.set("h", {DLQ_TOPIC: "dlq.x", LIMIT: "4"})
        on.kafka.group_configs.refuses = True
        await on.service.set_configs("h", changes, "User:o")
        assert on.state("h").values == {LIMIT: "4"}


async def test_the_users_limit_at_the_broker_is_kept_when_the_group_gets_a_topic() -> None:
    async with scene() as on:
        on.kafka.group_configs.limits = {"h": 4}
        await on.service.set_configs("h", {DLQ_TOPIC: "dlq.x"}, "User:o")
        assert on.state("h").settings.limit == 4
        assert on.kafka.group_configs.limits == {"h": 10}


async def test_the_brokers_limit_is_raised_again_when_the_user_changes_the_limit() -> None:
    async with scene() as on:
        on.set("h", {DLQ_TOPIC: "dlq.x"})
        await on.service.set_configs("h", {LIMIT: "7"}, "User:o")
        assert on.kafka.group_configs.limits == {"h": 10}


async def test_the_event_of_a_changed_config_has_the_values_before() -> None:
    async with scene() as on:
        on.set("h", {THRESHOLD_PERCENT: "20"})
        changes = {THRESHOLD_PERCENT: "30", DLQ_TOPIC: "dlq.x"}
        await on.service.set_configs("h", changes, "User:o")
        [event] = on.events("config_changed")
        assert event == {"changes": changes, "before": {THRESHOLD_PERCENT: "20", DLQ_TOPIC: None}}


async def test_limits_that_could_not_be_read_are_requested_again() -> None:
    kafka = FakeKafka()
    kafka.group_configs.default = None
    async with running(kafka, load_limits_s=0.01) as service:
        await until(lambda: kafka.group_configs.loads > 2)
        assert service.is_ready
        kafka.group_configs.default = 5
        await service.set_configs("g", {DLQ_TOPIC: "dlq.x"}, "User:o")
        await until(lambda: service.status("g").limit == 5)


async def test_a_client_that_names_many_partitions_does_not_fill_the_log(logs: list[EventDict]) -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.problem = "the topic does not exist"
        on.spool.open.clear()
        await on.rejects({partition: [(0, 0, [REJECT])] for partition in range(500)}, dict.fromkeys(range(500), 0))
        assert len(on.events("write_timeout")) == 500
        assert len([one for one in logs if one["log_level"] == "warning"]) == 101, "one is about the topic"
        assert on.service.meter.write_timeouts == {"g": 500}


def test_records_that_are_not_about_share_groups_are_dropped() -> None:
    other = TopologyEpochsSet(at=1, group="g", incarnation="9", stored_epoch=0, failed_epoch=-1)
    encoded = [(b"no", b"fact"), *(encode(fact)[1:] for fact in (PAUSED, other))]
    records = [ConsumedRecord(offset=offset, key=key, value=value) for offset, (key, value) in enumerate(encoded)]
    assert share_group_facts("state", records) == [PAUSED]


def happened(event: Any, reason: str, at: int) -> ConsumedRecord:
    detail = JsonText.of({"reason": reason})
    fact = EventHappened(
        at=at, subject_kind="share_group", subject="g", id=str(at), event=event, by="User:o", detail=detail
    )
    _, key, value = encode(fact)
    return ConsumedRecord(at, key, value)


async def test_the_last_resume_is_read_from_events_and_the_latest_wins() -> None:
    kafka = FakeKafka()
    async with running(kafka) as service:
        await until(lambda: service.is_ready)
        assert service.status("g").last_resume is None
        assert kafka.listeners is not None
        records = [
            happened("resumed", "first", 1),
            happened("paused", '"resumed"', 2),
            happened("resumed", "mended", 3),
            happened("tripped", "again", 4),
            ConsumedRecord(5, b"[]", None),
            ConsumedRecord(6, b"[]", b'{"event":"resumed"'),
        ]
        kafka.listeners.on_happened(resumed_events(records))
        last = service.status("g").last_resume
        assert last is not None
        assert (last.reason, last.by, last.at) == ("mended", "User:o", 3)


async def test_the_worker_that_resumed_a_group_knows_it_before_it_has_read_the_event() -> None:
    async with running(FakeKafka()) as service:
        await until(lambda: service.is_ready)
        await service.resume("g", "mended", "User:ops")
        last = service.status("g").last_resume
        assert last is not None
        assert (last.reason, last.by) == ("mended", "User:ops")


async def test_pauses_and_resumes_are_logged_with_the_principal_and_the_reason(logs: list[EventDict]) -> None:
    kafka = FakeKafka()
    async with running(kafka) as service:
        await until(lambda: service.is_ready)
        await service.pause("g", "deploy", "User:ops")
        await service.resume("g", "mended", "User:other")
    lines = [one for one in logs if one["event"].startswith("share group ")]
    info = {"log_level": "info", "group": "g"}
    assert lines == [
        {"event": "share group paused", "reason": "deploy", "by": "User:ops", **info},
        {"event": "share group resumed", "reason": "mended", "by": "User:other", **info},
    ]


async def test_a_worker_that_lost_the_lead_stops_evaluating_before_it_has_read_the_spool_to_the_end() -> None:
    """A read that has begun takes up to three seconds."""
    async with scene() as on:
        reader = on.service._mover._transfer.opened.reader
        is_closed = asyncio.Event()
        reader.close = is_closed.wait  # type: ignore[method-assign,assignment]
        await on.service.start_leading()
        assert on.service.is_leading
        stopping = asyncio.create_task(on.service.stop_leading())
        await turns()
        is_leading, is_stopped = on.service.is_leading, stopping.done()
        is_closed.set()
        await stopping
        assert (is_leading, is_stopped) == (False, False)
