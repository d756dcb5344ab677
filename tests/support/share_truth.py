"""What really became of a share group's records: the broker's own log of their states, its lag, and the dead letters.

One rule: nothing here asks a gateway. The topic `__share_group_state` holds every state that was ever written, so what
became of an offset is still to be read when the group has gone past it, which ReadShareGroupState does not tell.
"""

import struct
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headgate.base.ids import ApiKey
from headgate.wire.messages.share import (
    DescribeShareGroupOffsetsRequest,
    ShareOffsetsRequestGroup,
    ShareOffsetsRequestTopic,
)
from headgate.wire.primitives import read_uvarint, skip_tags, write_uvarint
from tests.support.raw_client import RawClient

ACKNOWLEDGED, ARCHIVED = 2, 4
STATE_TOPIC = "__share_group_state"
_SNAPSHOT, _UPDATE = 0, 1
_DEADLINE_S = 60.0
_CALL_S = 30.0

Spot = tuple[int, int]  # partition, offset


@dataclass(frozen=True, slots=True)
class State:
    """The last state of an offset, and how often it had been delivered then."""

    state: int
    deliveries: int


@dataclass(slots=True)
class Fate:
    """What became of a topic's records in a group."""

    last: dict[Spot, State] = field(default_factory=dict)
    highest: dict[Spot, int] = field(default_factory=dict)  # the largest delivery count ever

    def those(self, state: int) -> set[Spot]:
        return {spot for spot, last in self.last.items() if last.state == state}

    @property
    def archived(self) -> set[Spot]:
        return self.those(ARCHIVED)

    @property
    def acknowledged(self) -> set[Spot]:
        return self.those(ACKNOWLEDGED)


def spots_of(detail: Mapping[str, Any]) -> set[Spot]:
    """The places that an event's detail names."""
    return {(detail["partition"], offset) for first, last in detail["offsets"] for offset in range(first, last + 1)}


class ShareHistory:
    """Reads the log of states on, from where it stopped."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._reader = Reading(config, STATE_TOPIC)
        self._fates: dict[tuple[str, bytes], Fate] = defaultdict(Fate)

    def close(self) -> None:
        self._reader.close()

    def of(self, group: str, topic_id: bytes) -> Fate:
        """As the log has it now."""
        for _, key, value, _ in self._reader.to_the_end():
            if key is not None and value is not None:
                self._take(key, value)
        return self._fates[group, topic_id]

    def _take(self, key: bytes, value: bytes) -> None:
        kind, size = struct.unpack_from(">hh", key)
        if kind not in {_SNAPSHOT, _UPDATE}:
            return
        group = key[4 : 4 + size].decode()
        topic_id = key[4 + size : 20 + size]
        [partition] = struct.unpack_from(">i", key, 20 + size)
        fate = self._fates[group, topic_id]
        # Version and epochs, the start offset, and in a snapshot two times: what follows are the batches.
        position = 2 + (12 + 8 + 16 if kind == _SNAPSHOT else 8 + 8)
        count, position = read_uvarint(value, position)
        for _ in range(count - 1):
            first, last, state, deliveries = struct.unpack_from(">qqbh", value, position)
            position = skip_tags(value, position + 19, len(value))
            for offset in range(first, last + 1):
                spot = (partition, offset)
                fate.last[spot] = State(state, deliveries)
                fate.highest[spot] = max(deliveries, fate.highest.get(spot, 0))


def share_states(address: str, group: str, topic_id: bytes, partition: int) -> dict[Spot, int]:
    """The state of each offset that ReadShareGroupState (84) lists: those that the group has not gone past."""
    name = group.encode()
    # Version 0: the group, one topic, one of its partitions, any leader epoch; an empty tag section behind each.
    body = (
        write_uvarint(len(name) + 1)
        + name
        + b"\x02"
        + topic_id
        + b"\x02"
        + struct.pack(">ii", partition, -1)
        + bytes(3)
    )
    with RawClient(address) as client:
        answer = client.ask(ApiKey.READ_SHARE_GROUP_STATE, 0, body)
    # One result of one topic: the partition, its error and text, the epoch of its state and its start offset.
    position = 1 + 16 + 1 + 4
    [error] = struct.unpack_from(">h", answer, position)
    if error:
        return {}
    size, position = read_uvarint(answer, position + 2)
    position += max(0, size - 1) + 4 + 8
    count, position = read_uvarint(answer, position)
    found: dict[Spot, int] = {}
    for _ in range(count - 1):
        first, last, state, _ = struct.unpack_from(">qqbh", answer, position)
        position = skip_tags(answer, position + 19, len(answer))
        found |= {(partition, offset): state for offset in range(first, last + 1)}
    return found


def lag(bootstrap: str, group: str, topic: str, partitions: int = 1) -> int:
    """How many records are not done with; -1 while the broker does not know."""
    request = DescribeShareGroupOffsetsRequest(
        groups=(
            ShareOffsetsRequestGroup(
                group_id=group,
                topics=(ShareOffsetsRequestTopic(topic_name=topic, partitions=tuple(range(partitions))),),
            ),
        )
    )
    with RawClient(bootstrap) as client:
        [found] = client.call(request, 1).groups
    lags = [partition.lag for one in found.topics for partition in one.partitions]
    return -1 if found.error_code or len(lags) < partitions or min(lags) < 0 else sum(lags)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record of a dead-letter topic."""

    partition: int  # of the dead-letter topic
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str]  # bytes that are no text show as such

    @property
    def spot(self) -> Spot:
        """The place that it came from."""
        return int(self.headers["__dlq.errors.partition"]), int(self.headers["__dlq.errors.offset"])


def dead_letters(config: Mapping[str, Any], topic: str) -> list[DeadLetter]:
    """The whole topic, each partition in order."""
    reader = Reading(config, topic)
    try:
        return [
            DeadLetter(
                partition=partition,
                key=key,
                value=value,
                headers={name: (held or b"").decode(errors="backslashreplace") for name, held in headers},
            )
            for partition, key, value, headers in reader.to_the_end()
        ]
    finally:
        reader.close()


Entry = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]  # partition, key, value, headers


class Reading:
    """All partitions of a topic from the beginning; `to_the_end` gives what is new."""

    def __init__(self, config: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "fetch.wait.max.ms": 10,
                **config,
                "group.id": "reading",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": False,
            }
        )
        self._next: dict[int, int] = {}

    def close(self) -> None:
        self._consumer.close()

    def to_the_end(self) -> list[Entry]:
        """What was written up to this moment and not given yet; nothing while there is no topic."""
        ends = self._ends()
        if not ends:
            return []
        if set(ends) != set(self._next):
            self._next = {partition: self._next.get(partition, 0) for partition in ends}
            self._consumer.assign([TopicPartition(self._topic, number, at) for number, at in self._next.items()])
        found: list[Entry] = []
        by = time.monotonic() + _DEADLINE_S
        while any(self._next[partition] < end for partition, end in ends.items()):
            assert time.monotonic() < by, f"{self._topic}: at {self._next} of {ends}"
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is not None:
                    continue
                partition = message.partition() or 0
                self._next[partition] = (message.offset() or 0) + 1
                headers = message.headers() or []
                found.append((partition, message.key(), message.value(), headers))  # type: ignore[arg-type]
            self._skip_what_is_no_record()
        return found

    def _skip_what_is_no_record(self) -> None:
        """Ends of transactions have offsets and are not given."""
        for one in self._consumer.position([TopicPartition(self._topic, number) for number in self._next]):
            self._next[one.partition] = max(self._next[one.partition], one.offset)

    def _ends(self) -> dict[int, int]:
        try:
            described = self._consumer.list_topics(self._topic, _CALL_S).topics[self._topic]
            if described.error is not None:
                return {}
            return {
                number: self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), _CALL_S)[1]
                for number in described.partitions
            }
        except KafkaException:
            return {}  # no leader yet
