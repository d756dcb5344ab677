import threading
import time
from collections.abc import Iterator

import pytest

from headgate.base.errors import ClusterError
from headgate.dead_letters.model.plans import PlanRecord
from headgate.dead_letters.read_ahead import ReadAhead
from headgate.dead_letters.record_reader import ReadRecord
from headgate.dead_letters.replay_transactions import ReplayAttempt


def attempt(position: int, *, size: int = 100) -> ReplayAttempt:
    record = PlanRecord(
        position=position,
        topic="orders",
        topic_id="id",
        partition=0,
        offset=position,
        dlq_topic="dlq.orders",
        dlq_topic_id=None,
        dlq_partition=0,
        dlq_offset=position,
        copied=False,
        action="replay",
        why=None,
        target_topic="orders",
        target_partition=0,
    )
    return ReplayAttempt(record, ReadRecord(None, b"", [], None, size), None)


def test_attempts_come_in_their_order() -> None:
    with ReadAhead(attempt(number) for number in range(10_000)) as ahead:
        assert [one.record.position for one in ahead] == list(range(10_000))


def test_an_error_is_raised_where_its_record_would_have_come() -> None:
    def reading() -> Iterator[ReplayAttempt]:
        yield from (attempt(number) for number in range(700))
        raise ClusterError("the broker does not respond")

    with ReadAhead(reading()) as ahead:
        attempts = iter(ahead)
        assert [next(attempts).record.position for _ in range(700)] == list(range(700))
        with pytest.raises(ClusterError, match="does not respond"):
            next(attempts)


@pytest.mark.parametrize(("size", "most"), [(100, 10_000), (1024 * 1024, 40), (10 * 1024 * 1024, 5)])
def test_reading_stops_a_bounded_number_of_records_and_bytes_ahead(size: int, most: int) -> None:
    read: list[int] = []

    def reading() -> Iterator[ReplayAttempt]:
        for number in range(1_000_000):
            read.append(number)
            yield attempt(number, size=size)

    with ReadAhead(reading()) as ahead:
        next(iter(ahead))
        until = time.monotonic() + 10
        seen = -1
        while seen != len(read) and time.monotonic() < until:
            seen = len(read)
            threading.Event().wait(0.3)
        assert len(read) <= most


def test_leaving_stops_the_thread_also_when_it_is_ahead() -> None:
    with ReadAhead(attempt(number) for number in range(1_000_000)) as ahead:
        next(iter(ahead))
    assert not [one for one in threading.enumerate() if one.name == "headgate-replay-reader"]
