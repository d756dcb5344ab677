"""Reads which producer wrote the records of a range of offsets: the producer ids of their batches.

The id is in the header of a record batch, and no consumer tells it, so batches are fetched as they are. Nothing is
decompressed, and no record is looked at. Invariant: one reader fetches a bounded number of bytes, in a bounded number
of requests and a bounded time; what was not read is missing, and never guessed.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.base.errors import HeadgateError
from headgate.config.addresses import Address
from headgate.config.model import UpstreamConfig
from headgate.kafka.connections import BrokerConnection, Connections, Dialler, dialler_of
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from headgate.wire.messages.data import FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic
from headgate.wire.records import batches

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_REQUESTS: Final = 500
MAX_SECONDS: Final = 10.0
_FETCH_BYTES: Final = 1024 * 1024
_WAIT_MS: Final = 500

OffsetRanges = Mapping[tuple[str, int], tuple[int, int]]  # the first offset and the end, by topic and partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpan:
    """The records from `first` to `last` are of one producer; without `producer_id` it has none."""

    first: int
    last: int
    producer_id: int | None


class ProducerSpans:
    """The spans of one range, in the order of offsets."""

    def __init__(self, spans: Sequence[ProducerSpan]) -> None:
        self._spans = spans
        self._firsts = [one.first for one in spans]

    def producer_of(self, offset: int) -> int | None:
        """The id of the producer of the record at this offset; None when it has none, or was not read."""
        index = bisect_right(self._firsts, offset) - 1
        if index < 0 or offset > self._spans[index].last:
            return None
        return self._spans[index].producer_id


def producer_spans(records: bytes) -> list[ProducerSpan]:
    """The spans of the batches of a Fetch response, successive ones of one producer joined; `WireError`."""
    found: list[ProducerSpan] = []
    for batch in batches(records):
        producer = batch.producer_id if batch.producer_id >= 0 and not batch.is_control else None
        if found and found[-1].producer_id == producer and found[-1].last + 1 == batch.base_offset:
            found[-1] = replace(found[-1], last=batch.last_offset)
        else:
            found.append(ProducerSpan(first=batch.base_offset, last=batch.last_offset, producer_id=producer))
    return found


class ProducerIdReader:
    """Reads as the service account, which needs READ on the topics. It blocks, on a thread without an event loop."""

    def __init__(
        self,
        upstream: UpstreamConfig,
        *,
        max_bytes: int = MAX_BYTES,
        max_requests: int = MAX_REQUESTS,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self._upstream = upstream
        self._bytes_left = max_bytes
        self._requests_left = max_requests
        self._seconds_left = max_seconds
        self.problem: str | None = None  # why the last ranges could not be read

    def read(self, ranges: OffsetRanges) -> dict[tuple[str, int], ProducerSpans]:
        """The spans of each range that could be read whole within the bounds. It never fails."""
        found: dict[tuple[str, int], ProducerSpans] = {}
        if not ranges or self._is_exhausted():
            return found
        began = time.monotonic()
        try:
            asyncio.run(self._read_all(dialler_of(self._upstream), ranges, found))
        except (HeadgateError, OSError, TimeoutError) as failure:
            self.problem = str(failure) or f"not read within {MAX_SECONDS:g} s"
        self._seconds_left -= time.monotonic() - began
        return found

    async def _read_all(
        self, dialler: Dialler, ranges: OffsetRanges, found: dict[tuple[str, int], ProducerSpans]
    ) -> None:
        bounded = replace(
            dialler,
            call_timeout_s=min(dialler.call_timeout_s, self._seconds_left),
            timeout_s=min(dialler.timeout_s, self._seconds_left),
        )
        async with asyncio.timeout(self._seconds_left), Connections(bounded) as connections:
            leaders = await _leaders(await connections.bootstrap(), sorted({topic for topic, _ in ranges}))
            for place, (begin, end) in ranges.items():
                if place not in leaders:
                    continue
                spans = await self.read_range(await connections.to(leaders[place]), place, begin, end)
                if spans is not None:
                    found[place] = ProducerSpans(spans)

    async def read_range(
        self, link: BrokerConnection, place: tuple[str, int], begin: int, end: int
    ) -> list[ProducerSpan] | None:
        """The spans of one range from its leader; None when it was not read whole."""
        found: list[ProducerSpan] = []
        at = begin
        while at < end:
            if self._is_exhausted():
                return None
            answer = await self._fetch(link, place, at)
            if answer is None or answer.error_code:
                return None
            spans = producer_spans(answer.records or b"")
            if not spans or spans[-1].last < at:
                return found  # nothing more was written, or what was is deleted
            found += spans
            at = spans[-1].last + 1
        return found

    def _is_exhausted(self) -> bool:
        is_exhausted = min(self._bytes_left, self._requests_left, self._seconds_left) <= 0
        if is_exhausted:
            self.problem = "more records than are read at once"
        return is_exhausted

    async def _fetch(self, link: BrokerConnection, place: tuple[str, int], at: int) -> FetchPartitionResponse | None:
        topic, number = place
        most = min(_FETCH_BYTES, self._bytes_left)  # the first batch comes whole, however large it is
        partition = FetchPartition(partition=number, fetch_offset=at, partition_max_bytes=most)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=most,
            topics=(FetchTopic(topic=topic, partitions=(partition,)),),
        )
        self._requests_left -= 1
        response = await link.ask(request, lowest=4, highest=12)  # later versions name topics by their ids
        if response.error_code:
            return None
        for one in response.responses:
            for answer in one.partitions:
                if (one.topic, answer.partition_index) == place:
                    self._bytes_left -= len(answer.records or b"")
                    return answer
        return None


async def _leaders(link: BrokerConnection, topics: Sequence[str]) -> dict[tuple[str, int], Address]:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in topics), allow_auto_topic_creation=False
    )
    answer = await link.ask(request, lowest=4, highest=12)
    brokers = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
    return {
        (topic.name, one.partition_index): brokers[one.leader_id]
        for topic in answer.topics
        if topic.name is not None and not topic.error_code
        for one in topic.partitions
        if one.leader_id in brokers
    }
