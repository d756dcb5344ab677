"""Who holds which offsets of a share partition, and how often they were delivered: learnt from ShareFetch answers.

One rule: an entry belongs to (group, member, topic id, partition), whatever the connection, as the broker's own share
sessions do. What is not here was acquired through another gateway, before a restart, or so long ago that it had to
make room: it is unknown, which is an answer and never an error.

A renewal changes nothing here, and nothing here expires: the broker alone knows when a lock ends, and its answer to a
late acknowledgement says so.
"""

from bisect import bisect_left
from collections import OrderedDict
from typing import NamedTuple

PartitionKey = tuple[str, str, bytes, int]
"""Group, member, topic id, partition."""


class Held(NamedTuple):
    """Offsets with one past; what nobody knows is None. A tuple, because one is made for each range that passes."""

    first: int
    last: int
    delivery_count: int | None
    generation: int | None


class Ledger:
    """Bounded: beyond `most_ranges` the partitions go whose last acquisition is longest ago."""

    __slots__ = ("_members", "_most", "_partitions", "_size", "evicted")

    def __init__(self, most_ranges: int) -> None:
        self._most = most_ranges
        # Ranges that do not overlap, ascending; an empty list is taken out.
        self._partitions: OrderedDict[PartitionKey, list[Held]] = OrderedDict()
        self._members: dict[tuple[str, str], set[PartitionKey]] = {}
        self._size = 0
        self.evicted = 0

    def __len__(self) -> int:
        """How many ranges are held."""
        return self._size

    def acquired(self, key: PartitionKey, first: int, last: int, delivery_count: int, generation: int) -> None:
        """The broker gave these to the member; what was known of them before is over."""
        if last < first:
            return
        held = self._partitions.get(key)
        if held is None:
            self._partitions[key] = [Held(first, last, delivery_count, generation)]
            mine = self._members.get(key[:2])
            if mine is None:
                self._members[key[:2]] = {key}
            else:
                mine.add(key)
        else:
            self._partitions.move_to_end(key)
            if held[-1].last < first:
                held.append(Held(first, last, delivery_count, generation))
            else:
                at = self._cut(held, first, last)
                held.insert(at, Held(first, last, delivery_count, generation))
        self._size += 1
        if self._size > self._most:
            self._shrink()

    def look(self, key: PartitionKey, first: int, last: int) -> list[Held]:
        """What is known of every offset from `first` to `last`, in order and without a hole."""
        if last < first:
            return []
        held = self._partitions.get(key)
        if held is None:
            return [Held(first, last, None, None)]
        at = _reaching(held, first)
        if at < len(held) and held[at].first == first and held[at].last == last:
            return [held[at]]
        found, next_offset = [], first
        while at < len(held) and (one := held[at]).first <= last:
            if one.first > next_offset:
                found.append(Held(next_offset, one.first - 1, None, None))
            start = max(one.first, first)
            end = min(one.last, last)
            found.append(Held(start, end, one.delivery_count, one.generation))
            next_offset = end + 1
            at += 1
        if next_offset <= last:
            found.append(Held(next_offset, last, None, None))
        return found

    def settle(self, key: PartitionKey, first: int, last: int) -> None:
        """The member has these no longer: the broker took its acknowledgement."""
        held = self._partitions.get(key)
        if held is None or last < first:
            return
        one = held[0]
        if one.first == first and one.last == last:
            del held[0]
            self._size -= 1
        else:
            self._cut(held, first, last)
        if not held:
            self._drop(key)
        elif self._size > self._most:  # out of the middle: of one range two were left
            self._shrink()

    def forget_member(self, group: str, member: str) -> None:
        """It left, or the broker dropped it: what it held is free, and comes back at a higher count."""
        for key in self._members.pop((group, member), ()):
            self._size -= len(self._partitions.pop(key))

    def _cut(self, held: list[Held], first: int, last: int) -> int:
        """Take these offsets out of what is held; where a range that begins at `first` belongs then."""
        begin = end = _reaching(held, first)
        rest: list[Held] = []
        at = begin
        while end < len(held) and (one := held[end]).first <= last:
            if one.first < first:
                rest.append(Held(one.first, first - 1, one.delivery_count, one.generation))
                at += 1
            if one.last > last:
                rest.append(Held(last + 1, one.last, one.delivery_count, one.generation))
            end += 1
        held[begin:end] = rest
        self._size += len(rest) - (end - begin)
        return at

    def _drop(self, key: PartitionKey) -> None:
        del self._partitions[key]
        mine = self._members[key[:2]]
        mine.discard(key)
        if not mine:
            del self._members[key[:2]]

    def _shrink(self) -> None:
        while self._size > self._most and len(self._partitions) > 1:
            key, held = next(iter(self._partitions.items()))
            self._size -= len(held)
            self.evicted += len(held)
            self._drop(key)
        if self._size > self._most:
            # One partition alone: brokers allow some thousand locks in one, so this is no real one.
            (held,) = self._partitions.values()
            over = self._size - self._most
            del held[:over]
            self._size -= over
            self.evicted += over


def _reaching(held: list[Held], first: int) -> int:
    """The index of the first range that ends at or behind this offset."""
    if held[0].last >= first:  # the usual case: acknowledged in the order in which it came
        return 0
    # A shorter tuple is less than a longer one with the same beginning: the ranges that begin at or behind it follow.
    at = bisect_left(held, (first,))
    return at - 1 if held[at - 1].last >= first else at
