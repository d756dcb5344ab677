"""What a tail reports about a topic that was just created."""

import asyncio
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from headgate.kafka.fact_reader import FactTail
from headgate.kafka.topic_consumer import TopicConsumer
from headgate.kafka.topics import TopicAdmin
from tests.unit.kafka.fake_topics import FakeTopics


class Failing(FactTail[int]):
    """Meets the same error again and again."""

    retry_s = 0.01

    def __init__(self, code: int, settling_s: float = 10.0) -> None:
        self.settling_s = settling_s
        super().__init__({}, topic="headgate.events", digest=len, take=lambda _: None)
        self._code = code
        self._tries = 0
        self.tried_thrice = threading.Event()

    def locate(self, _admin: TopicAdmin) -> dict[int, int]:
        self._tries += 1
        if self._tries == 3:
            self.tried_thrice.set()
        raise KafkaException(KafkaError(self._code))


async def warnings_of(tail: Failing, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many warnings the first tries bring."""
    FakeTopics().install(monkeypatch)
    with capture_logs() as logs:
        tail.start()
        assert await asyncio.to_thread(tail.tried_thrice.wait, 60)
        await tail.close()
    return sum(line["event"] == "consuming a topic failed" for line in logs)


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART])
async def test_leaders_that_are_not_elected_yet_are_waited_for_without_a_warning(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await warnings_of(Failing(code, settling_s=3600.0), monkeypatch) == 0


async def test_after_the_first_seconds_they_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await warnings_of(Failing(KafkaError.NOT_LEADER_FOR_PARTITION, settling_s=0.0), monkeypatch) == 1


async def test_a_tail_that_had_begun_expects_no_such_error() -> None:
    tail = Failing(KafkaError.NOT_LEADER_FOR_PARTITION)
    failure = KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    assert tail.is_expected(failure)
    tail.positions = {0: 5}
    assert not tail.is_expected(failure)


async def test_an_error_that_does_not_pass_by_itself_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tail = Failing(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert await warnings_of(tail, monkeypatch) == 1
    assert (
        tail.problem
        == "consuming headgate.events failed: Broker: Topic authorization failed (TOPIC_AUTHORIZATION_FAILED)"
    )


class Bounds:
    """An admin client that knows where a partition begins and ends."""

    def __init__(self, low: int, high: int) -> None:
        self._bounds = (low, high)

    def partitions(self, _topic: str, **_: object) -> list[int]:
        return [0]

    def bounds(self, *_: object, **__: object) -> dict[int, tuple[int, int]]:
        return {0: self._bounds}


@pytest.mark.parametrize(
    ("history", "low", "high", "first"), [(0, 3, 90, 90), (10, 3, 90, 80), (10, 85, 90, 85), (10, 0, 0, 0)]
)
async def test_a_tail_begins_at_the_end_or_so_many_records_before_it(
    history: int, low: int, high: int, first: int
) -> None:
    tail: FactTail[int] = FactTail({}, topic="t", digest=len, take=lambda _: None, history=history)
    admin: Any = Bounds(low, high)
    assert tail.locate(admin) == {0: first}


async def test_settings_that_librdkafka_rejects_are_reported_and_tried_again() -> None:
    consumer = TopicConsumer({"ssl.ca.location": 7, "x": 1})
    tail: FactTail[int] = FactTail(consumer, topic="t", digest=len, take=lambda _: None)
    with capture_logs() as logs:
        tail.start()
        async with asyncio.timeout(20):
            while "failed" not in (tail.problem or ""):  # noqa: ASYNC110 - set by the thread
                await asyncio.sleep(0.01)
        await tail.close()
        await consumer.close()
    assert [line["event"] for line in logs] == ["consuming a topic failed"]
