"""Producer ids of records by the headers of raw batches: what is read, what is not, and within which bounds."""

import asyncio
from typing import cast

import pytest

from headgate.config.addresses import Address
from headgate.config.model import UpstreamConfig
from headgate.kafka.connections import BrokerConnection
from headgate.kafka.producer_ids import ProducerIdReader, ProducerSpan, ProducerSpans, producer_spans
from headgate.wire.compression import Compression
from headgate.wire.messages.data import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from headgate.wire.records import WireRecord
from tests.support.record_batches import write_batch

PLACE = ("orders", 0)


def batch(first: int, count: int, producer_id: int = -1, *, control: bool = False) -> bytes:
    records = [WireRecord(offset=first + one, timestamp=1, value=b"secret") for one in range(count)]
    return write_batch(records, compression=Compression.GZIP, producer_id=producer_id, control=control)


def span(first: int, last: int, producer_id: int | None) -> ProducerSpan:
    return ProducerSpan(first=first, last=last, producer_id=producer_id)


class OneLog:
    """The leader of a partition with these batches; it answers a fetch with the batches from its offset on."""

    def __init__(self, *batches: bytes, at_once: int = 1, error: int = 0) -> None:
        self._batches, self._at_once, self._error = batches, at_once, error
        self.asked: list[tuple[int, int]] = []

    async def ask(self, request: FetchRequest, *, lowest: int, highest: int) -> FetchResponse:
        assert (lowest, highest) == (4, 12)
        [topic] = request.topics
        [partition] = topic.partitions
        self.asked.append((partition.fetch_offset, partition.partition_max_bytes))
        ends = [producer_spans(one)[-1].last for one in self._batches]
        some = [one for one, last in zip(self._batches, ends, strict=True) if last >= partition.fetch_offset]
        answer = FetchPartitionResponse(
            partition_index=0,
            error_code=self._error,
            high_watermark=0,
            aborted_transactions=None,
            records=b"".join(some[: self._at_once]),
        )
        topics = (FetchTopicResponse(topic=topic.topic, partitions=(answer,)),)
        return FetchResponse(session_id=0, responses=topics)


def read(log: OneLog, begin: int, end: int, **bounds: int) -> tuple[list[ProducerSpan] | None, ProducerIdReader]:
    reader = ProducerIdReader(UpstreamConfig(), **bounds)
    return asyncio.run(reader.read_range(cast(BrokerConnection, log), PLACE, begin, end)), reader


def test_successive_batches_of_one_producer_are_one_span_and_a_batch_without_an_id_has_none() -> None:
    records = batch(5, 2, 71) + batch(7, 3, 71) + batch(10, 1) + batch(11, 1, 0)
    assert producer_spans(records) == [span(5, 9, 71), span(10, 10, None), span(11, 11, 0)]


def test_a_batch_that_is_cut_off_is_left_out_and_markers_of_transactions_have_no_producer() -> None:
    records = batch(0, 1, 71) + batch(1, 1, 71, control=True) + batch(2, 4, 72)[:-1]
    assert producer_spans(records) == [span(0, 0, 71), span(1, 1, None)]


def test_an_offset_between_spans_or_outside_has_no_producer() -> None:
    spans = ProducerSpans([span(5, 9, 71), span(20, 20, 72)])
    assert [spans.producer_of(one) for one in (4, 5, 9, 10, 19, 20, 21)] == [None, 71, 71, None, None, 72, None]


def test_a_range_is_fetched_batch_by_batch_to_its_end_and_no_further() -> None:
    log = OneLog(batch(0, 5, 1), batch(5, 5, 2), batch(12, 3, 3), batch(15, 5, 4))
    found, _ = read(log, 3, 14)
    assert found == [span(0, 4, 1), span(5, 9, 2), span(12, 14, 3)]
    assert [offset for offset, _ in log.asked] == [3, 5, 10]


def test_a_range_ends_where_nothing_more_is_there() -> None:
    found, reader = read(OneLog(batch(0, 5, 1)), 0, 100)
    assert found == [span(0, 4, 1)]
    assert reader.problem is None


@pytest.mark.parametrize(
    ("bounds", "requests"),
    [({"max_requests": 2}, 2), ({"max_bytes": 1}, 1)],
)
def test_beyond_the_bounds_nothing_is_known_and_nothing_more_is_asked(bounds: dict[str, int], requests: int) -> None:
    log = OneLog(*(batch(5 * one, 5, one) for one in range(4)))
    found, reader = read(log, 0, 20, **bounds)
    assert found is None
    assert len(log.asked) == requests
    assert reader.problem == "more records than are read at once"
    assert reader.read({PLACE: (0, 20)}) == {}


def test_a_fetch_asks_for_no_more_bytes_than_are_left() -> None:
    log = OneLog(batch(0, 5, 1), batch(5, 5, 2))
    read(log, 0, 10, max_bytes=10_000)
    [(_, first), (_, second)] = log.asked
    assert first == 10_000
    assert second == 10_000 - len(batch(0, 5, 1))


def test_a_partition_that_may_not_be_read_has_unknown_producers() -> None:
    assert read(OneLog(batch(0, 5, 1), error=29), 0, 5)[0] is None


def test_a_cluster_that_does_not_respond_is_a_problem_and_no_error() -> None:
    nobody = UpstreamConfig(bootstrap=(Address("127.0.0.1", 1),), service_mechanism="none")
    reader = ProducerIdReader(nobody, max_seconds=0.5)
    assert reader.read({PLACE: (0, 5)}) == {}
    assert reader.problem is not None
