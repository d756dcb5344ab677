"""Topics in memory, and consumers and an AdminClient of them as `TopicConsumer` and its followers use them."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from headgate.kafka import topic_consumer

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]] | None]


class FakeTopicMessage:
    def __init__(self, place: tuple[str, int, int], record: Record | None, code: int | None = None) -> None:
        self._place, self._record = place, record or (None, None, None)
        self._error = None if code is None else KafkaError(code)

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._place[2]

    def error(self) -> KafkaError | None:
        return self._error

    def key(self) -> bytes | None:
        return self._record[0]

    def value(self) -> bytes | None:
        return self._record[1]

    def headers(self) -> Any:
        return self._record[2]


class FakeTopics:
    """`topics` by name and partition; `first` is the first offset that a partition still has."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, list[Record]]] = {}
        self.first: dict[tuple[str, int], int] = {}
        self.ids: dict[str, str] = {}
        self.consumers: list[FakeTopicsConsumer] = []
        self.on_lookup: Callable[[str], None] = lambda _: None  # runs on the thread of a lookup
        self.changed = threading.Condition()
        self.not_fetched: tuple[str, int] | None = None  # a partition that the first consumer does not fetch
        self.busy: tuple[str, int] | None = None  # a partition that is written all the time: its end is not reported

    def create(self, topic: str, partitions: int = 1, topic_id: str = "first") -> None:
        with self.changed:
            self.topics[topic] = {number: [] for number in range(partitions)}
            self.ids[topic] = topic_id

    def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        self.append(topic, *((b"k", value, None) for value in values), partition=partition)

    def append(self, topic: str, *records: Record, partition: int = 0) -> None:
        with self.changed:
            self.topics[topic][partition].extend(records)
            self.changed.notify_all()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(topic_consumer, "Consumer", self.consumer)

    def consumer(self, settings: Mapping[str, Any]) -> "FakeTopicsConsumer":
        self.consumers.append(FakeTopicsConsumer(self, settings))
        return self.consumers[-1]

    @property
    def admin(self) -> Any:
        return FakeAdmin(self)


class FakeTopicsConsumer:
    """Delivers a message of one partition after the other; the end of a partition once."""

    def __init__(self, log: FakeTopics, settings: Mapping[str, Any]) -> None:
        self._log = log
        self.settings = settings
        self.next: dict[tuple[str, int], int] = {}
        self.ended: set[tuple[str, int]] = set()
        self.assignments: list[tuple[str, int, int]] = []
        self.is_closed = False

    def incremental_assign(self, places: Collection[TopicPartition]) -> None:
        for one in places:
            place = (one.topic, one.partition)
            assert place not in self.next, "assigned twice"
            self.assignments.append((one.topic, one.partition, one.offset))
            self.next[place] = self._log.first.get(place, 0) if one.offset == OFFSET_BEGINNING else one.offset
            self.ended.discard(place)

    def incremental_unassign(self, places: Collection[TopicPartition]) -> None:
        for one in places:
            del self.next[one.topic, one.partition]

    def poll(self, timeout: float) -> FakeTopicMessage | None:
        with self._log.changed:
            found = self._pop()
            if found is None:
                self._log.changed.wait(min(timeout, 0.01))
                found = self._pop()
            return found

    def consume(self, num_messages: int, timeout: float) -> list[FakeTopicMessage]:  # noqa: ARG002
        with self._log.changed:
            found: list[FakeTopicMessage] = []
            while len(found) < num_messages and (message := self._pop()) is not None:
                found.append(message)
            return found

    def _pop(self) -> FakeTopicMessage | None:
        for place, offset in self.next.items():
            if place == self._log.not_fetched and self is self._log.consumers[0]:
                continue
            records = self._log.topics.get(place[0], {}).get(place[1])
            if records is None:
                continue
            if offset > len(records) or offset < self._log.first.get(place, 0):
                self.next[place] = len(records)
                self.ended.add(place)
                return FakeTopicMessage((*place, offset), None, KafkaError._AUTO_OFFSET_RESET)
            if offset < len(records):
                self.next[place] = offset + 1
                self.ended.discard(place)
                return FakeTopicMessage((*place, offset), records[offset])
            if place not in self.ended and place != self._log.busy:
                self.ended.add(place)
                return FakeTopicMessage((*place, offset), None, KafkaError._PARTITION_EOF)
        return None

    def get_watermark_offsets(self, place: TopicPartition, *, cached: bool) -> tuple[int, int]:
        assert cached, "it is called between records"
        return (-1001, len(self._log.topics[place.topic][place.partition]))

    def close(self) -> None:
        self.is_closed = True


class FakeAdmin:
    def __init__(self, log: FakeTopics) -> None:
        self._log = log

    def partitions(self, topic: str, **_: object) -> list[int]:
        self._log.on_lookup(topic)
        if topic not in self._log.topics:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return sorted(self._log.topics[topic])

    def bounds(self, topic: str, partitions: Collection[int], **_: object) -> dict[int, tuple[int, int]]:
        self._log.on_lookup(topic)
        topics = self._log.topics[topic]
        return {number: (self._log.first.get((topic, number), 0), len(topics[number])) for number in partitions}

    def ids(self, names: Collection[str], **_: object) -> dict[str, str]:
        return {name: self._log.ids[name] for name in names if name in self._log.ids}

    def first_offsets(self, wanted: Mapping[str, Collection[int]], **_: object) -> dict[tuple[str, int], int]:
        for topic in wanted:
            self._log.on_lookup(topic)
        places = [(topic, number) for topic, numbers in wanted.items() for number in numbers]
        return {place: self._log.first.get(place, 0) for place in places if place[0] in self._log.topics}
