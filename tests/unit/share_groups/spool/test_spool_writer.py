"""The writer of the spool with a producer whose partitions answer, hang or fail as a test says."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaError

from headgate.share_groups.dead_letter_writer import WriteFailureCause
from headgate.share_groups.spool.model.records import (
    DeadlinesReported,
    SpooledDeadLetter,
    decode_spooled,
    encode_identity,
    spool_partitions,
)
from headgate.share_groups.spool.writer import SpoolWriter
from tests.unit.proxy.stage import until

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
DEAD_LETTER = SpooledDeadLetter(
    group="g",
    topic_id=b"t" * 16,
    partition=3,
    offset=0,
    key=b"k",
    value=b"v",
    headers=(("a", b"b"),),
    target="dlq.g",
    deadline=1,
    sequence=1,
)
FIRST, NEXT, LAST = spool_partitions(DEAD_LETTER.lane, 8)
DEAD_LETTERS = [replace(DEAD_LETTER, offset=offset) for offset in range(3)]
LONG_S = 30.0


class Delivered:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


class PlayedSpool:
    """Partitions in `hanging` answer when they are released, those in `failing` with an error.

    Those in `lagging` have a replica that does not: only their leaders answer.
    """

    def __init__(self) -> None:
        self.produced: list[tuple[int, bytes, bytes | None]] = []
        self.to_leaders: list[int] = []
        self.hanging: set[int] = set()
        self.lagging: set[int] = set()
        self.failing: set[int] = set()
        self._held: list[tuple[int, Callable[[], None]]] = []

    def add(
        self, topic: str, *, key: bytes, value: bytes | None, partition: int, on_delivery: Any, headers: Any, acks: str
    ) -> None:
        assert topic == "headgate.spool"
        offset = len(self.of(partition))
        self.produced.append((partition, key, value))
        if value is not None:
            assert isinstance(decode_spooled(key, value, headers), SpooledDeadLetter | DeadlinesReported)
        error = KafkaError(KafkaError.NOT_ENOUGH_REPLICAS) if partition in self.failing else None
        if acks == "1":
            self.to_leaders.append(partition)
        if partition in self.hanging or (acks == "all" and partition in self.lagging):
            self._held.append((partition, lambda: on_delivery(error, Delivered(offset))))
        else:
            on_delivery(error, Delivered(offset))

    def release(self, partition: int) -> None:
        self.hanging.discard(partition)
        self.lagging.discard(partition)
        for held, answer in self._held:
            if held == partition:
                answer()

    def of(self, partition: int) -> list[tuple[bytes, bytes | None]]:
        return [(key, value) for found, key, value in self.produced if found == partition]

    def tombstones(self, partition: int) -> list[bytes]:
        return [key for key, value in self.of(partition) if value is None]


class PlayedProducer:
    def __init__(self, spool: PlayedSpool, acks: str) -> None:
        self.produce = partial(spool.add, acks=acks)

    def poll(self, _timeout: float) -> None:
        time.sleep(0.001)

    def __len__(self) -> int:
        return 0

    def purge(self) -> None:
        pass


@asynccontextmanager
async def opened(**bounds: float) -> AsyncIterator[tuple[SpoolWriter, PlayedSpool]]:
    spool = PlayedSpool()

    def make(settings: dict[str, Any]) -> Any:
        return PlayedProducer(spool, settings["acks"])

    given: dict[str, Any] = {"patience_s": 0.0, "partitions": 8, **bounds}
    writer = SpoolWriter(NOWHERE, prefix="headgate.", make_producer=make, **given)
    try:
        yield writer, spool
    finally:
        await writer.close(timeout_s=0)


async def test_dead_letters_go_to_the_partition_of_their_lane() -> None:
    written: list[tuple[int, int, int]] = []
    async with opened() as (writer, producer):
        results = await writer.write(
            DEAD_LETTERS, LONG_S, on_written=lambda dead_letter, *place: written.append((dead_letter.offset, *place))
        )
        assert results == [None, None, None]
        assert len(producer.of(FIRST)) == len(producer.produced) == 3
        assert written == [(0, FIRST, 0), (1, FIRST, 1), (2, FIRST, 2)]
        assert writer.dead_letters == 0


async def test_when_a_partition_hangs_the_next_one_gets_them_and_later_ones_at_once() -> None:
    async with opened() as (writer, producer):
        producer.hanging = {FIRST}
        began = time.monotonic()
        assert await writer.write(DEAD_LETTERS[:2], LONG_S) == [None, None]
        assert time.monotonic() - began < 2, "0.2 s for each attempt"
        assert (len(producer.of(FIRST)), len(producer.of(NEXT))) == (4, 2), "all replicas, then the leader alone"
        assert await writer.write(DEAD_LETTERS[2:], LONG_S) == [None]
        assert (len(producer.of(FIRST)), len(producer.of(NEXT))) == (4, 3), "the hanging one is not tried again"
        assert producer.to_leaders == [FIRST] * 2 + [NEXT] * 3
        assert writer.dead_letters == 2, "the attempts in flight count"
        producer.release(FIRST)
        await asyncio.sleep(0.01)
        assert set(producer.tombstones(FIRST)) == {encode_identity(one.identity) for one in DEAD_LETTERS[:2]}
        assert (producer.tombstones(NEXT), writer.dead_letters) == ([], 0)
        assert await writer.write(DEAD_LETTERS[2:], LONG_S) == [None]
        assert len(producer.of(NEXT)) == 3, "the first one has answered and is used again"
        assert len(producer.to_leaders) == 5, "and all replicas"


async def test_while_replicas_lag_everywhere_leaders_get_the_dead_letters() -> None:
    async with opened() as (writer, producer):
        producer.lagging = set(range(8))
        assert await writer.write(DEAD_LETTERS[:1], LONG_S) == [None]
        assert producer.to_leaders == [FIRST]
        assert await writer.write(DEAD_LETTERS[1:2], LONG_S) == [None]
        assert producer.to_leaders == [FIRST, FIRST], "at once"
        assert len(producer.produced) == 3
        other = replace(DEAD_LETTER, group="h")
        assert await writer.write([other], LONG_S) == [None]
        assert producer.to_leaders[2:] == [spool_partitions(other.lane, 8)[0]]
        producer.release(FIRST)
        await asyncio.sleep(0.01)
        assert await writer.write([other], LONG_S, partition=FIRST) == [None]
        assert len(producer.to_leaders) == 3, "the cluster has noticed what is wrong"
        assert producer.tombstones(FIRST) == [], "the two records of the first dead letter are one"


async def test_while_the_whole_cluster_stands_still_a_write_waits_for_some_seconds() -> None:
    async with opened(patience_s=LONG_S) as (writer, producer):
        producer.hanging = set(range(8))
        writing = asyncio.create_task(writer.write(DEAD_LETTERS[:1], LONG_S))
        await until(lambda: len(producer.produced) == 4)
        later = asyncio.create_task(writer.write(DEAD_LETTERS[1:2], LONG_S))
        await asyncio.sleep(0.3)
        assert not writing.done()
        assert not later.done()
        for partition in (FIRST, NEXT, LAST):
            producer.release(partition)
        assert await writing == await later == [None]


async def test_a_partition_that_fails_is_replaced_by_the_next_at_once() -> None:
    async with opened() as (writer, producer):
        producer.failing = {FIRST}
        assert await writer.write(DEAD_LETTERS, LONG_S) == [None] * 3
        assert len(producer.of(NEXT)) == 3


async def test_when_no_partition_answers_the_write_fails_and_a_late_arrival_is_told_once() -> None:
    late: list[tuple[int, int]] = []
    async with opened() as (writer, producer):
        producer.hanging = {FIRST, NEXT, LAST}
        [failure] = await writer.write(
            DEAD_LETTERS[:1], LONG_S, on_late=lambda dead_letter, at, _: late.append((dead_letter.offset, at))
        )
        assert failure is not None
        assert failure.text == "the dead letter could not be written to the spool: no answer came"
        producer.release(NEXT)
        producer.release(FIRST)
        await asyncio.sleep(0.01)
        assert late == [(0, NEXT)]
        assert set(producer.tombstones(FIRST)) == {encode_identity(DEAD_LETTER.identity)}


async def test_while_no_partition_answers_only_one_is_waited_for() -> None:
    async with opened() as (writer, producer):
        producer.hanging = set(range(8))
        await writer.write(DEAD_LETTERS[:1], LONG_S)
        assert len(producer.produced) == 4
        await writer.write(DEAD_LETTERS[1:2], LONG_S)
        assert len(producer.produced) == 5


async def test_the_deadline_is_divided_between_the_partitions() -> None:
    async with opened() as (writer, producer):
        producer.hanging = {FIRST}
        assert await writer.write(DEAD_LETTERS[:1], 0.05) == [None]


async def test_a_record_that_replaces_another_goes_to_its_partition_only() -> None:
    async with opened() as (writer, producer):
        producer.failing = {5}
        [failure] = await writer.write(DEAD_LETTERS[:1], LONG_S, partition=5)
        assert failure is not None
        assert failure.cause is WriteFailureCause.UNREACHABLE
        assert "NOT_ENOUGH_REPLICAS" in failure.text
        assert {partition for partition, _, _ in producer.produced} == {5}


async def test_tombstones_go_to_every_partition_that_may_hold_the_dead_letter_or_to_the_given_one() -> None:
    async with opened() as (writer, producer):
        assert await writer.remove([one.identity for one in DEAD_LETTERS]) == [None] * 3
        assert [len(producer.tombstones(one)) for one in (FIRST, NEXT, LAST)] == [3, 3, 3]
        assert await writer.remove([DEAD_LETTER.identity], partition=5) == [None]
        assert producer.tombstones(5) == [encode_identity(DEAD_LETTER.identity)]
        producer.failing = {NEXT}
        [failure] = await writer.remove([DEAD_LETTER.identity])
        assert failure is not None
        assert await writer.remove([]) == []


async def test_the_time_up_to_which_deadlines_are_reported_goes_to_one_partition_after_the_other() -> None:
    async with opened() as (writer, producer):
        for until in range(1, 10):
            writer.mark_reported(until)
        written = [decode_spooled(key, value, None) for _, key, value in producer.produced]
        assert written == [DeadlinesReported(until) for until in range(1, 10)]
        assert [partition for partition, _, _ in producer.produced] == [*range(8), 0]
        producer.failing = set(range(8))
        writer.mark_reported(10)
        assert len(producer.produced) == 10
    async with opened(partitions=0) as (writer, producer):
        writer.mark_reported(11)
        assert not producer.produced, "not before it is open"


async def test_a_group_whose_writes_hang_does_not_refuse_another_group() -> None:
    other = replace(DEAD_LETTER, group="h")
    async with opened(max_dead_letters=4) as (writer, producer):
        producer.hanging = set(range(8))
        results = await writer.write(DEAD_LETTERS, 0.0)
        assert [one and one.cause for one in results] == [WriteFailureCause.UNREACHABLE] * 2 + [
            WriteFailureCause.OVERLOADED
        ]
        producer.hanging = set()
        assert await writer.write([other], LONG_S) == [None]


async def test_before_it_is_open_and_after_it_is_closed_nothing_is_accepted() -> None:
    async with opened(partitions=0) as (writer, _):
        [failure] = await writer.write(DEAD_LETTERS[:1], LONG_S)
        assert failure is not None
        [failure] = await writer.remove([DEAD_LETTER.identity])
        assert failure is not None
    closed = SpoolWriter(NOWHERE, prefix="headgate.", partitions=8)
    await closed.close(timeout_s=0)
    [failure] = await closed.write(DEAD_LETTERS[:1], LONG_S)
    assert failure is not None
    assert "closed" in failure.text
