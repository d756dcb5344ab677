"""The two readers of the spool: one follows all of it and keeps the index, the other reads single dead letters.

The follower runs in every worker, from the beginning of the topic, and keeps no key and no value. The leader reads the
dead letters that it moves again, by their places.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headgate.base.threads import off_loop
from headgate.facts.topics import LARGEST_DEAD_LETTER, MIB, SPOOL
from headgate.kafka.consumer_thread import ConsumedRecord, record_of
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.topic_consumer import TopicConsumer
from headgate.kafka.topics import quiet
from headgate.share_groups.spool.model.index import SpoolIndex, SpoolPlace, SpoolRecord, spool_record
from headgate.share_groups.spool.model.records import SpooledDeadLetter, decode_spooled

_LARGEST: Final = LARGEST_DEAD_LETTER + MIB
_READ_S: Final = 3.0
_POLL_S: Final = 0.1
_MESSAGES: Final = 500
_SEEK_FROM: Final = 1_000  # records that are not wanted: fewer are read and dropped
_FETCH_BYTES: Final = MIB // 16  # compressed; what is fetched beyond the last wanted record is dropped


class SpoolFollower:
    """Feeds an index with the records of the spool, from the beginning and on.

    The spool may hold hundreds of MiB, so its consumer is not that of trips.
    """

    def __init__(
        self,
        consumer: TopicConsumer,
        *,
        prefix: str,
        index: SpoolIndex,
        on_change: Callable[[], None],
    ) -> None:
        self._index = index
        self._on_change = on_change
        self._reader = FactReader[list[SpoolRecord] | None](
            consumer,
            topic=prefix + SPOOL,
            every_partition=True,
            digest=_records,
            forget=lambda _: None,
            take=self._take,
            detects_loss=True,
            with_headers=True,
        )

    @property
    def replayed(self) -> asyncio.Event:
        """Set when the end was reached for the first time."""
        return self._reader.replayed

    def start(self) -> None:
        self._reader.start()

    async def close(self) -> None:
        await self._reader.close()

    def _take(self, records: list[SpoolRecord] | None) -> None:
        if records is None:
            self._index.clear()
        else:
            for record in records:
                self._index.apply(record)
        self._on_change()


def _records(records: Sequence[ConsumedRecord]) -> list[SpoolRecord]:
    return [spool_record(one.partition, one.offset, decode_spooled(one.key, one.value, one.headers)) for one in records]


class ReadDeadLetters(NamedTuple):
    """Dead letters by spool partition and spool offset, and the partitions that could not be read."""

    dead_letters: dict[tuple[int, int], SpooledDeadLetter]
    unread: frozenset[int]


class SpoolReader:
    """Reads dead letters by their places; calls run one after the other."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        prefix: str,
        read_s: float = _READ_S,
        make_consumer: Callable[[dict[str, Any]], Consumer] = Consumer,
    ) -> None:
        self._read_s = read_s
        self._make_consumer = make_consumer
        self._settings = quiet(
            settings,
            group__id="headgate",  # never joined: the partitions are assigned by hand
            enable__auto__commit=False,
            enable__partition__eof=True,
            auto__offset__reset="error",
            fetch__message__max__bytes=_FETCH_BYTES,
            receive__message__max__bytes=max(100_000_000, _LARGEST + MIB),
            queued__max__messages__kbytes=1024,
            queued__min__messages=100,
            fetch__queue__backoff__ms=10,
            fetch__wait__max__ms=100,
            fetch__error__backoff__ms=100,
            reconnect__backoff__max__ms=1000,
        )
        self._topic = prefix + SPOOL
        self._turn = threading.Lock()
        self._consumer: Consumer | None = None

    async def read(self, places: Sequence[SpoolPlace]) -> ReadDeadLetters:
        """The dead letters at these places; those that lie there no more are left out."""
        return await off_loop(lambda: self._read(places))

    async def close(self) -> None:
        """Free what was fetched; the next read opens it again."""
        await off_loop(self._close)

    # --- on a thread

    def _read(self, places: Sequence[SpoolPlace]) -> ReadDeadLetters:
        wanted: dict[int, list[int]] = {}
        for one in places:
            wanted.setdefault(one.spool_partition, []).append(one.spool_offset)
        scans = {partition: _Scan(sorted(offsets, reverse=True)) for partition, offsets in wanted.items()}
        dead_letters: dict[tuple[int, int], SpooledDeadLetter] = {}
        with self._turn:
            try:
                self._scan(scans, dead_letters)
            except KafkaException:
                self._drop()
        return ReadDeadLetters(dead_letters, frozenset(partition for partition, scan in scans.items() if scan.left))

    def _scan(self, scans: "Mapping[int, _Scan]", dead_letters: dict[tuple[int, int], SpooledDeadLetter]) -> None:
        if self._consumer is None:
            self._consumer = self._make_consumer(self._settings)
        consumer = self._consumer
        consumer.assign([TopicPartition(self._topic, number, scan.left[-1]) for number, scan in scans.items()])
        until = time.monotonic() + self._read_s
        while any(scan.left for scan in scans.values()) and time.monotonic() < until:
            first = consumer.poll(_POLL_S)
            messages = [] if first is None else [first, *consumer.consume(_MESSAGES, timeout=0)]
            for message in messages:
                error = message.error()
                scan = scans.get(message.partition() or 0)
                if scan is None:
                    continue
                if error is None:
                    offset = message.offset() or 0
                    if scan.takes(offset):
                        record = record_of(message, with_headers=True)
                        found = decode_spooled(record.key, record.value, record.headers)
                        if isinstance(found, SpooledDeadLetter):
                            dead_letters[record.partition, record.offset] = found
                elif error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):  # noqa: SLF001
                    scan.left.clear()  # they lie there no more
            for number, scan in scans.items():
                if scan.left and scan.left[-1] - scan.next > _SEEK_FROM:
                    scan.next = scan.left[-1]
                    consumer.seek(TopicPartition(self._topic, number, scan.next))
        consumer.unassign()

    def _close(self) -> None:
        with self._turn:
            self._drop()

    def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


class _Scan:
    """The offsets of one partition that are still wanted, the next one last."""

    __slots__ = ("left", "next")

    def __init__(self, left: list[int]) -> None:
        self.left = left
        self.next = left[-1]

    def takes(self, offset: int) -> bool:
        """Whether the record at this offset is wanted; those before it that did not come are gone."""
        self.next = offset + 1
        while self.left and self.left[-1] < offset:
            self.left.pop()
        if self.left and self.left[-1] == offset:
            self.left.pop()
            return True
        return False
