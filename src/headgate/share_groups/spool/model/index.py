"""The index of the spool: which dead letters are outstanding, without their keys and values.

It is what follows from the records of the topic alone: of each partition and identity the last record counts, and a
tombstone removes it. So any two workers that have read the same records have the same index, in whatever order the
partitions were read. The order of a lane is that of `sequence` (see `records`).

A dead letter takes about 150 bytes: its numbers are packed, its lane and target are shared.
"""

import heapq
import struct
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from headgate.share_groups.spool.model.records import (
    SEQUENCES_A_MS,
    DeadLetterIdentity,
    DeadlinesReported,
    SpooledDeadLetter,
    SpoolLane,
    SpoolTombstone,
)

_NUMBERS: Final = struct.Struct("<QQQI")  # spool offset, deadline, sequence, size
_MAX_SIZE: Final = 2**32 - 1
_PARTITION_BITS: Final = 16
_REBUILD_FROM: Final = 256
_MAX_LATER: Final = 1_000
T = TypeVar("T")
_Target = tuple[str, str | None]  # a topic, and the reason of those that are parked


class SpoolPlace(NamedTuple):
    """An outstanding dead letter: where its record lies in the spool, and what the mover must know of it."""

    lane: SpoolLane
    offset: int
    target: str
    parked: str | None
    spool_partition: int
    spool_offset: int
    deadline: int
    sequence: int
    size: int

    @property
    def identity(self) -> DeadLetterIdentity:
        return (*self.lane, self.offset)


class SpoolTotals(NamedTuple):
    """Dead letters of one group; `oldest_at` (epoch milliseconds) is of those that are not parked."""

    dead_letters: int = 0
    bytes: int = 0
    oldest_at: int | None = None
    parked_dead_letters: int = 0
    parked_bytes: int = 0


SpoolRecord = tuple[int, int, SpoolPlace | SpoolTombstone | DeadlinesReported | None]
"""Partition and offset of a record, and its content: None when it is not a record of the spool."""


def spool_record(
    spool_partition: int, spool_offset: int, found: SpooledDeadLetter | SpoolTombstone | DeadlinesReported | None
) -> SpoolRecord:
    """The part of a record that the index keeps: not its key and value."""
    if not isinstance(found, SpooledDeadLetter):
        return (spool_partition, spool_offset, found)
    place = SpoolPlace(
        lane=found.lane,
        offset=found.offset,
        target=found.target,
        parked=found.parked,
        spool_partition=spool_partition,
        spool_offset=spool_offset,
        deadline=found.deadline,
        sequence=found.sequence,
        size=min(found.size, _MAX_SIZE),
    )
    return (spool_partition, spool_offset, place)


class SpoolIndex:
    """Fed with the records of the spool in the order of each partition; implements `SpoolView`."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._waiting: dict[str, dict[SpoolLane, _Queue]] = {}
        self._parked: dict[str, dict[SpoolLane, None]] = {}
        self._deadlines: dict[int, dict[SpoolLane, array[int]]] = {}  # offsets, by second
        self._seconds: list[int] = []  # a heap of the keys of `_deadlines`
        self._read: dict[int, int] = {}  # the next offset of each partition
        self.times_cleared = 0
        self.reported_until = 0  # the deadlines before this time were reported by a leader; 0: not known

    # --- records

    def apply(self, record: SpoolRecord) -> None:
        """Take in the next record of a partition."""
        partition, offset, found = record
        match found:
            case SpoolPlace():
                self._put(found)
            case SpoolTombstone():
                lane = self._lane(found.lane)
                if lane is not None and self._remove(lane, _key(found.identity[3], partition)):
                    lane.removed += 1
            case DeadlinesReported():
                self.reported_until = max(self.reported_until, found.until)
            case None:
                pass
        self._read[partition] = offset + 1

    def clear(self) -> None:
        """Forget all, because the topic is read again from its start."""
        for kept in (self._groups, self._waiting, self._parked, self._deadlines, self._seconds, self._read):
            kept.clear()
        self.reported_until = 0
        self.times_cleared += 1

    def _put(self, place: SpoolPlace) -> None:
        key = _key(place.offset, place.spool_partition)
        group = self._groups.setdefault(place.lane.group, _Group())
        lane = group.lanes.get(place.lane)
        if lane is None:
            lane = group.lanes[place.lane] = _Lane(place.lane)
        has_deadline = place.deadline in self._remove(lane, key, keeps_lane=True)
        target = (place.target, place.parked)
        queue = lane.queues.get(target)
        if queue is None:
            queue = lane.queues[target] = _Queue()
            if place.parked is None:
                self._waiting.setdefault(place.target, {})[lane.name] = queue
            else:
                self._parked.setdefault(place.target, {})[lane.name] = None
        queue.add(key, place.sequence, _NUMBERS.pack(place.spool_offset, place.deadline, place.sequence, place.size))
        group.count(place.size, 1, is_parked=place.parked is not None)
        if not has_deadline:
            self._add_deadline(lane.name, place.offset, place.deadline // 1000)

    def _remove(self, lane: "_Lane", key: int, *, keeps_lane: bool = False) -> tuple[int, ...]:
        """Remove the record; returns its deadline, if there was one."""
        target = next((target for target, queue in lane.queues.items() if key in queue.dead_letters), None)
        if target is None:
            return ()
        queue, (topic, parked) = lane.queues[target], target
        packed = queue.remove(key)
        _, deadline, _, size = _NUMBERS.unpack(packed)
        group = self._groups[lane.name.group]
        group.count(size, -1, is_parked=parked is not None)
        if not queue.dead_letters:
            del lane.queues[target]
            if parked is None:
                _drop(self._waiting, topic, lane.name)
            elif not any(one == topic and why is not None for one, why in lane.queues):
                _drop(self._parked, topic, lane.name)
        if not lane.queues and not keeps_lane:
            del group.lanes[lane.name]
            if not group.lanes:
                del self._groups[lane.name.group]
        return (deadline,)

    def _add_deadline(self, lane: SpoolLane, offset: int, second: int) -> None:
        lanes = self._deadlines.get(second)
        if lanes is None:
            lanes = self._deadlines[second] = {}
            heapq.heappush(self._seconds, second)
        lanes.setdefault(lane, array("q")).append(offset)

    def _lane(self, name: SpoolLane) -> "_Lane | None":
        group = self._groups.get(name.group)
        return None if group is None else group.lanes.get(name)

    # --- questions

    def has_dead_letters(self, lane: SpoolLane) -> bool:
        """Whether the lane has outstanding dead letters that are not parked."""
        found = self._lane(lane)
        return found is not None and any(parked is None for _, parked in found.queues)

    def lane_progress(self, lane: SpoolLane) -> tuple[int, int]:
        """The number of dead letters of the lane, and of those removed since it had none; without parked ones."""
        found = self._lane(lane)
        if found is None:
            return (0, 0)
        return (
            sum(len(queue.dead_letters) for (_, parked), queue in found.queues.items() if parked is None),
            found.removed,
        )

    def group_bytes(self, group: str) -> int:
        """The bytes of all dead letters of the group, also of parked ones."""
        found = self._groups.get(group)
        return 0 if found is None else found.bytes + found.parked_bytes

    def has_read(self, partition: int, offset: int) -> bool:
        return self._read.get(partition, 0) > offset

    def groups(self) -> Iterator[str]:
        """The groups that have dead letters in the spool."""
        return iter(tuple(self._groups))

    def totals(self, group: str) -> SpoolTotals:
        found = self._groups.get(group)
        if found is None:
            return SpoolTotals()
        firsts = [
            queue.first_sequence()
            for lane in found.lanes.values()
            for (_, parked), queue in lane.queues.items()
            if parked is None
        ]
        return SpoolTotals(
            dead_letters=found.dead_letters,
            bytes=found.bytes,
            oldest_at=min(firsts) // SEQUENCES_A_MS if firsts else None,
            parked_dead_letters=found.parked_dead_letters,
            parked_bytes=found.parked_bytes,
        )

    def parked_counts(self, group: str) -> Mapping[str, Mapping[str, int]]:
        """The parked dead letters of a group: their number by topic and reason."""
        counts: dict[str, Counter[str]] = {}
        found = self._groups.get(group)
        for lane in () if found is None else found.lanes.values():
            for (topic, parked), queue in lane.queues.items():
                if parked is not None:
                    counts.setdefault(topic, Counter())[parked] += len(queue.dead_letters)
        return counts

    # --- for the mover

    def targets(self) -> tuple[str, ...]:
        """The topics for which dead letters wait."""
        return tuple(self._waiting)

    def lanes(self, target: str) -> tuple[SpoolLane, ...]:
        """The lanes whose dead letters wait for this topic."""
        return tuple(self._waiting.get(target, ()))

    def waiting(self, target: str, lane: SpoolLane) -> Iterator[SpoolPlace]:
        """The outstanding dead letters of a lane for a topic, in order; the index must not change meanwhile."""
        queue = self._waiting.get(target, {}).get(lane)
        if queue is not None:
            yield from _places(lane, (target, None), queue)

    def parked_targets(self) -> tuple[str, ...]:
        """The topics that have parked dead letters."""
        return tuple(self._parked)

    def parked(self, target: str, skip: int, count: int) -> list[SpoolPlace]:
        """Parked dead letters of a topic, those of a lane and reason in order; without the first `skip` of them."""
        found = (
            (name, key, item)
            for name in self._parked.get(target, ())
            if (lane := self._lane(name)) is not None
            for key, queue in lane.queues.items()
            if key[0] == target and key[1] is not None
            for item in queue.items()
        )
        return [_place(name, key, *item) for name, key, item in islice(found, skip, skip + count)]

    def places(self, identity: DeadLetterIdentity) -> list[SpoolPlace]:
        """The places of a dead letter's records: usually one, and two after an outage of a partition."""
        name, offset = SpoolLane(*identity[:3]), identity[3]
        lane = self._lane(name)
        if lane is None:
            return []
        keys = [_key(offset, partition) for partition in self._read]
        found = []
        for target, queue in lane.queues.items():
            dead_letters = queue.dead_letters
            found += [_place(name, target, key, dead_letters[key]) for key in keys if key in dead_letters]
        return found

    def take_expired(self, until_ms: int) -> list[SpoolPlace] | None:
        """The outstanding dead letters whose deadline lay in the earliest second before that of `until_ms`.

        Each deadline is returned once; None when no such second is left.
        """
        if not self._seconds or self._seconds[0] >= until_ms // 1000:
            return None
        second = heapq.heappop(self._seconds)
        found = (
            [one for one in self.places((*lane, offset)) if one.deadline // 1000 == second]
            for lane, offsets in self._deadlines.pop(second).items()
            for offset in dict.fromkeys(offsets)
        )
        return [places[0] for places in found if places]

    def drop_expired(self, until_ms: int) -> None:
        """Forget the deadlines before the second of `until_ms`, because the leader reports them."""
        while self._seconds and self._seconds[0] < until_ms // 1000:
            del self._deadlines[heapq.heappop(self._seconds)]


class _Queue:
    """Dead letters of one lane and target by their keys, in the order of their sequences when they are iterated."""

    __slots__ = ("_is_sorted", "_last", "_removed", "dead_letters")

    def __init__(self) -> None:
        self.dead_letters: dict[int, bytes] = {}
        self._last = -1
        self._is_sorted = True
        self._removed = 0

    def add(self, key: int, sequence: int, packed: bytes) -> None:
        later = self._pop_later(sequence) if sequence < self._last else []
        self._last = max(self._last, sequence)
        self.dead_letters[key] = packed
        self.dead_letters.update(reversed(later))

    def _pop_later(self, sequence: int) -> list[tuple[int, bytes]]:
        """Take out those that come after this one, the last one first: several workers write to a lane.

        If they are many, as when the partitions of the spool are read one after the other, all are sorted later.
        """
        found: list[tuple[int, bytes]] = []
        while self._is_sorted and self.dead_letters:
            if len(found) == _MAX_LATER:
                self._is_sorted = False
                break
            key, packed = self.dead_letters.popitem()
            if _NUMBERS.unpack(packed)[2] <= sequence:
                self.dead_letters[key] = packed
                break
            found.append((key, packed))
        return found

    def remove(self, key: int) -> bytes:
        packed = self.dead_letters.pop(key)
        self._removed += 1
        if self._removed > max(_REBUILD_FROM, len(self.dead_letters)):  # a dict keeps the places of removed keys
            self._rebuild()
        return packed

    def first_sequence(self) -> int:
        _, _, sequence, _ = _NUMBERS.unpack(next(self.items())[1])
        return int(sequence)

    def items(self) -> Iterator[tuple[int, bytes]]:
        if not self._is_sorted:
            self._rebuild()
        return iter(self.dead_letters.items())

    def _rebuild(self) -> None:
        items = list(self.dead_letters.items())
        if not self._is_sorted:
            items.sort(key=lambda item: _NUMBERS.unpack(item[1])[2])
        self.dead_letters = dict(items)
        self._removed = 0
        self._is_sorted = True


class _Lane:
    __slots__ = ("name", "queues", "removed")

    def __init__(self, name: SpoolLane) -> None:
        self.name = name
        self.removed = 0
        self.queues: dict[_Target, _Queue] = {}


class _Group:
    __slots__ = ("bytes", "dead_letters", "lanes", "parked_bytes", "parked_dead_letters")

    def __init__(self) -> None:
        self.lanes: dict[SpoolLane, _Lane] = {}
        self.dead_letters = self.bytes = self.parked_dead_letters = self.parked_bytes = 0

    def count(self, size: int, number: int, *, is_parked: bool) -> None:
        if is_parked:
            self.parked_dead_letters += number
            self.parked_bytes += number * size
        else:
            self.dead_letters += number
            self.bytes += number * size


def _drop(lanes: dict[str, dict[SpoolLane, T]], target: str, lane: SpoolLane) -> None:
    del lanes[target][lane]
    if not lanes[target]:
        del lanes[target]


def _key(offset: int, spool_partition: int) -> int:
    return offset << _PARTITION_BITS | spool_partition


def _place(lane: SpoolLane, target: _Target, key: int, packed: bytes) -> SpoolPlace:
    offset, partition = key >> _PARTITION_BITS, key & ((1 << _PARTITION_BITS) - 1)
    spool_offset, deadline, sequence, size = _NUMBERS.unpack(packed)
    return SpoolPlace(lane, offset, *target, partition, spool_offset, deadline, sequence, size)


def _places(lane: SpoolLane, target: _Target, queue: _Queue) -> Iterator[SpoolPlace]:
    return (_place(lane, target, key, packed) for key, packed in queue.items())
