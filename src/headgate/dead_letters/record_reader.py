"""Reads records by exact offset: at their source, or the copy in the dead letter where the source is gone.

Invariant: a record counts only if the offset that comes back is the one that was asked for, in a topic with the id that
the plan names. A later record is never taken for a missing one. The id of a deleted topic never comes back, so it is
read after each fetch: if it is the same then, the records were fetched from that very topic.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headgate.base.errors import ClusterError
from headgate.dead_letters.model.plans import PlanRecord
from headgate.kafka.topics import TopicAdmin, quiet, reason
from headgate.share_groups.model.dead_letter_records import OWN, SHIPPED

SOURCE_MISSING: Final = "source_missing"
COPY_DIFFERS: Final = "copy_differs"
_CALL_S: Final = 30.0
_SILENCE_S: Final = 30.0
_POLL_S: Final = 0.1
_AT_ONCE: Final = 500
# To read on is faster than to fetch anew where the next record is this near.
_NEAR: Final = 2000
# Headers that were added when the record became a dead letter.
_ADDED: Final = (SHIPPED, OWN, "__connect.errors.", "__streams.errors.", "kafka_dlt-")
_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own codes begin so
_OUT_OF_RANGE: Final = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001 - the same

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record; `size` is at least what it takes in a batch."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None
    size: int
    is_copy: bool = False  # of the dead letter, because the source is gone


class _OffsetCursor:
    """One consumer that reads one partition at a time, forwards."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._consumer = Consumer(
            quiet(
                settings,
                group__id="headgate-replay",  # never joined: partitions are assigned by hand
                enable__auto__commit=False,
                enable__partition__eof=True,
                auto__offset__reset="error",
                isolation__level="read_committed",
                queued__max__messages__kbytes=32 * 1024,
            )
        )
        self._place: tuple[str, int] | None = None
        self._next = 0
        self._buffer: deque[Message] = deque()
        self._passed = 0  # no record before this offset will come any more

    def message_at(self, topic: str, partition: int, offset: int, is_same: Callable[[], bool]) -> Message | None:
        """The record with exactly this offset; None when there is none. It blocks.

        `is_same` tells after each fetch whether the topic is still the one that was asked for.
        """
        if self._place != (topic, partition) or offset < self._next or offset > self._next + _NEAR:
            self._consumer.assign([TopicPartition(topic, partition, offset)])
            self._place = (topic, partition)
            self._buffer.clear()
            self._passed = 0
        self._next = offset
        until: float | None = None
        while True:
            while self._buffer:
                found = self._buffer[0].offset()
                assert found is not None
                if found > offset:
                    return None
                message = self._buffer.popleft()
                if found == offset:
                    self._next = offset + 1
                    return message
            if self._passed > offset:
                return None
            now = time.monotonic()
            until = now + _SILENCE_S if until is None else until
            fetched = self._fill()
            if fetched and not is_same():
                self._place = None
                self._buffer.clear()
                return None
            if now > until:
                raise ClusterError(
                    f"offset {offset} of {topic}-{partition} could not be read within {_SILENCE_S:.0f} s: its broker "
                    "does not respond, or a transaction before it is still open"
                )

    def _fill(self) -> bool:
        """Whether records came."""
        came = False
        for message in self._consumer.consume(_AT_ONCE, _POLL_S):
            error = message.error()
            offset = message.offset()
            if error is None:
                self._buffer.append(message)
                came = True
            elif error.code() == _END:
                self._passed = max(self._passed, offset or 0)
            elif error.code() in _OUT_OF_RANGE:
                self._passed = self._next + 1  # deleted since the bounds were read
            elif message.topic() is not None and not error.retriable():  # one without a topic is about the unused group
                raise ClusterError(f"{message.topic()} cannot be read: {reason(error)}")
        return came

    def close(self) -> None:
        self._consumer.close()


class RecordReader:
    """Reads the records of a plan, best in its order; `close` it."""

    def __init__(self, settings: Mapping[str, Any], admin: TopicAdmin) -> None:
        self._admin = admin
        self._sources = _OffsetCursor(settings)
        self._letters = _OffsetCursor(settings)
        self._ids: dict[str, str | None] = {}
        self._bounds: dict[tuple[str, int], tuple[int, int]] = {}

    def read(self, record: PlanRecord) -> ReadRecord | str:
        """The record, or the reason why it cannot be replayed."""
        message = self._message(self._sources, record.topic, record.topic_id, record.partition, record.offset)
        if message is not None:
            return _read(message, _headers(message))
        if not record.copied:
            return SOURCE_MISSING
        letter = self._message(
            self._letters, record.dlq_topic, record.dlq_topic_id, record.dlq_partition, record.dlq_offset
        )
        if letter is None:
            return SOURCE_MISSING
        headers = _headers(letter)
        if not _is_about(headers, record):
            return COPY_DIFFERS
        return _read(letter, [one for one in headers if not one[0].startswith(_ADDED)], is_copy=True)

    def close(self) -> None:
        self._sources.close()
        self._letters.close()

    def _message(
        self, cursor: _OffsetCursor, topic: str, topic_id: str | None, partition: int, offset: int
    ) -> Message | None:
        if topic_id is not None and self._topic_id(topic) != topic_id:
            return None
        first, end = self._range(topic, partition)
        if not first <= offset < end:
            return None

        def is_same() -> bool:
            return topic_id is None or self._read_topic_id(topic) == topic_id

        return cursor.message_at(topic, partition, offset, is_same)

    def _topic_id(self, topic: str) -> str | None:
        return self._ids[topic] if topic in self._ids else self._read_topic_id(topic)

    def _read_topic_id(self, topic: str) -> str | None:
        self._ids[topic] = self._admin.ids([topic], timeout_s=_CALL_S).get(topic)
        return self._ids[topic]

    def _range(self, topic: str, partition: int) -> tuple[int, int]:
        place = topic, partition
        if place not in self._bounds:
            try:
                self._bounds[place] = self._admin.bounds(topic, [partition], timeout_s=_CALL_S)[partition]
            except KafkaException as failure:
                error = failure.args[0] if failure.args else None
                if not isinstance(error, KafkaError) or error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise ClusterError(f"the offsets of {topic} cannot be read: {reason(failure)}") from None
                self._bounds[place] = (0, 0)
        return self._bounds[place]


def _headers(message: Message) -> Headers:
    headers: Any = message.headers()  # a list of pairs, though the stubs also allow what `produce` takes
    return list(headers or ())


def _read(message: Message, headers: Headers, *, is_copy: bool = False) -> ReadRecord:
    kind, timestamp = message.timestamp()
    key, value = message.key(), message.value()
    size = len(key or b"") + len(value or b"") + 70
    for name, content in headers:
        size += len(name) + len(content or b"") + 10
    return ReadRecord(key, value, headers, timestamp if kind and timestamp >= 0 else None, size, is_copy)


def _is_about(headers: Headers, record: PlanRecord) -> bool:
    """Whether the dead letter names this record, as far as it has Kafka's headers, each of them once."""
    wanted = {"topic": record.topic, "partition": str(record.partition), "offset": str(record.offset)}
    for name, text in wanted.items():
        values = [value for header, value in headers if header == SHIPPED + name]
        if values and values != [text.encode()]:
            return False
    return True
