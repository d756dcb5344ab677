"""Tracks the records that members hold, the acknowledgements that end this, and the dispositions that follow.

The ledger knows which offsets a member holds and how often they were delivered, as ShareFetch responses tell it. An
entry belongs to (group, holder, topic id, partition). The holder is a member as one principal: a broker lets every
client with READ on the group use a member's session if it knows the member's id, and another client must not find here
what it has not acquired itself. An offset without an entry was acquired through another gateway, before a restart, by
another principal, or so long ago that its entry was dropped: its history is unknown, which is a result and never an
error. A renewal changes nothing here, and the end of a lock drops nothing by itself: only the broker knows it, and its
response to a late acknowledgement says so.

Invalid batches are never repaired and never counted: the broker refuses them. Dispositions are counted from the
broker's responses, never from requests, and added up by second until they are written as facts. `delivered` of KIP-1316
is `accepted`, `dlq_written` is `dead_lettered`; a release, a gap or a renewal is in neither, and a write that timed out
is not a dead letter.
"""

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from headgate.facts import DispositionsCounted
from headgate.share_groups.model.dead_letter_records import PartitionKey, topic_id_text

# A row takes about half a kilobyte, and rows are removed every second.
MAX_ROWS = 20_000
OTHER: Final = "other"
UNKNOWN_COUNT = 0

# --- what members hold ------------------------------------------------------------------------------------------------


class Holder(NamedTuple):
    """A member as one client: `owner` is its principal, or the number of its connection where that is not known."""

    member: str
    owner: str | int


HeldKey = tuple[str, Holder, bytes, int]
"""Group, holder, topic id, partition."""


class AcquiredRange(NamedTuple):
    """Offsets with one history; None is unknown. A tuple, because one is made for each range that passes.

    `locked_until` is the earliest time at which their acquisition lock can end, if it is not renewed.
    """

    first: int
    last: int
    delivery_count: int | None
    generation: int | None
    locked_until: float | None = None


AckedRange = tuple[int, int, int]
"""First offset, last offset, and a tag, such as the type of their acknowledgement."""
AckedHistory = tuple[int, int | None, int | None]
"""Tag, delivery count, generation."""


class DeliveryLedger:
    """Evicts the partitions with the oldest acquisitions when there are more than `max_ranges` ranges."""

    __slots__ = ("_max", "_members", "_partitions", "_size", "evicted")

    def __init__(self, max_ranges: int) -> None:
        self._max = max_ranges
        # Ranges that do not overlap, ascending; never an empty list.
        self._partitions: OrderedDict[HeldKey, list[AcquiredRange]] = OrderedDict()
        self._members: dict[tuple[str, Holder], set[HeldKey]] = {}
        self._size = 0
        self.evicted = 0

    def __len__(self) -> int:
        return self._size

    def acquire(
        self,
        key: HeldKey,
        first: int,
        last: int,
        delivery_count: int,
        generation: int,
        locked_until: float | None = None,
    ) -> None:
        """The member acquired these offsets: the new entry replaces older ones."""
        if last < first:
            return
        held = self._partitions.get(key)
        if held is None:
            self._partitions[key] = [AcquiredRange(first, last, delivery_count, generation, locked_until)]
            of_member = self._members.get(key[:2])
            if of_member is None:
                self._members[key[:2]] = {key}
            else:
                of_member.add(key)
        else:
            self._partitions.move_to_end(key)
            if held[-1].last < first:
                held.append(AcquiredRange(first, last, delivery_count, generation, locked_until))
            else:
                at = self._cut(held, first, last)
                held.insert(at, AcquiredRange(first, last, delivery_count, generation, locked_until))
        self._size += 1
        if self._size > self._max:
            self._shrink()

    def has_any(self, key: HeldKey) -> bool:
        """Whether anything is known of the partition."""
        return key in self._partitions

    def lookup(self, key: HeldKey, first: int, last: int) -> list[AcquiredRange]:
        """The history of every offset from `first` to `last`, in order and without a gap."""
        if last < first:
            return []
        held = self._partitions.get(key)
        if held is None:
            return [AcquiredRange(first, last, None, None)]
        at = _reaching(held, first)
        if at < len(held) and (one := held[at]).first <= first and last <= one.last:  # the usual case
            return [AcquiredRange(first, last, one.delivery_count, one.generation, one.locked_until)]
        found, next_offset = [], first
        while at < len(held) and (one := held[at]).first <= last:
            if one.first > next_offset:
                found.append(AcquiredRange(next_offset, one.first - 1, None, None))
            start = max(one.first, first)
            end = min(one.last, last)
            found.append(AcquiredRange(start, end, *one[2:]))
            next_offset = end + 1
            at += 1
        if next_offset <= last:
            found.append(AcquiredRange(next_offset, last, None, None))
        return found

    def settle(self, key: HeldKey, first: int, last: int) -> None:
        """The broker accepted the acknowledgement of these offsets: the member holds them no longer."""
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
        elif self._size > self._max:  # the middle of a range was removed: two are left
            self._shrink()

    def overlapping(self, key: HeldKey, ranges: Sequence[AckedRange]) -> Iterator[AcquiredRange]:
        """The entries of which at least one offset is in these ranges, which ascend."""
        held = self._partitions.get(key)
        if held is None or not ranges:
            return
        last = ranges[-1][1]
        for number in range(_reaching(held, ranges[0][0]), len(held)):
            one = held[number]
            if one.first > last:
                return
            at = bisect_left(ranges, (one.first,))  # the first range that begins in the entry or after it
            if (at < len(ranges) and ranges[at][0] <= one.last) or (at and ranges[at - 1][1] >= one.first):
                yield one

    def take(self, key: HeldKey, ranges: Sequence[AckedRange]) -> dict[AckedHistory, int]:
        """Settle all of these ranges, which ascend; returns the number of offsets by their tag and history."""
        taken: dict[AckedHistory, int] = {}
        held = self._partitions.get(key, [])
        begin = at = _reaching(held, ranges[0][0]) if held and ranges else 0
        low = held[at].first if at < len(held) else 0  # where the rest of the next entry begins
        rest: list[AcquiredRange] = []  # what is left of the entries from `begin` on
        for first, last, tag in ranges:
            next_offset = first
            while at < len(held) and low <= last:
                one = held[at]
                if low < first:
                    rest.append(AcquiredRange(low, min(one.last, first - 1), *one[2:]))
                start, end = max(low, first), min(one.last, last)
                if start <= end:
                    if start > next_offset:
                        _add(taken, (tag, None, None), start - next_offset)
                    _add(taken, (tag, one.delivery_count, one.generation), end - start + 1)
                    next_offset = low = end + 1
                if one.last > last:
                    break
                at += 1
                low = held[at].first if at < len(held) else 0
            if next_offset <= last:
                _add(taken, (tag, None, None), last - next_offset + 1)
        if held:
            if at < len(held) and low > held[at].first:
                rest.append(AcquiredRange(low, *held[at][1:]))
                at += 1
            held[begin:at] = rest
            self._size += len(rest) - (at - begin)
            if not held:
                self._drop(key)
            elif self._size > self._max:
                self._shrink()
        return taken

    def forget_holder(self, group: str, holder: Holder) -> None:
        """The member's session ended: its records are available again, and are next delivered with a higher count."""
        for key in self._members.pop((group, holder), ()):
            self._size -= len(self._partitions.pop(key))

    def drop_expired(self, before: float, *, most: int = 1_000) -> bool:
        """Drop the partitions, longest silent first, whose locks all ended before this time; True if there may be more.

        Members that were killed never end their sessions. One call drops about `most` ranges, and at least a partition.
        """
        left = most
        while left > 0:
            key, held = next(iter(self._partitions.items()), (None, ()))
            if key is None or any(one.locked_until is None or one.locked_until >= before for one in held):
                return False
            left -= len(held)
            self._size -= len(held)
            self._drop(key)
        return bool(self._partitions)

    def _cut(self, held: list[AcquiredRange], first: int, last: int) -> int:
        """Remove these offsets; returns the index for a new range that begins at `first`."""
        begin = end = _reaching(held, first)
        rest: list[AcquiredRange] = []
        at = begin
        while end < len(held) and (one := held[end]).first <= last:
            if one.first < first:
                rest.append(AcquiredRange(one.first, first - 1, *one[2:]))
                at += 1
            if one.last > last:
                rest.append(AcquiredRange(last + 1, one.last, *one[2:]))
            end += 1
        held[begin:end] = rest
        self._size += len(rest) - (end - begin)
        return at

    def _drop(self, key: HeldKey) -> None:
        del self._partitions[key]
        of_member = self._members[key[:2]]
        of_member.discard(key)
        if not of_member:
            del self._members[key[:2]]

    def _shrink(self) -> None:
        while self._size > self._max and len(self._partitions) > 1:
            key, held = next(iter(self._partitions.items()))
            self._size -= len(held)
            self.evicted += len(held)
            self._drop(key)
        if self._size > self._max:
            # A single partition; a real one has a few thousand locks at most.
            (held,) = self._partitions.values()
            over = self._size - self._max
            del held[:over]
            self._size -= over
            self.evicted += over


def _add(taken: dict[AckedHistory, int], history: AckedHistory, number: int) -> None:
    taken[history] = taken.get(history, 0) + number


def _reaching(held: list[AcquiredRange], first: int) -> int:
    """The index of the first range that ends at or after this offset."""
    if held[0].last >= first:  # the usual case: acknowledged in the order of delivery
        return 0
    # A tuple is less than a longer one with the same beginning, so this finds the first range at or after `first`.
    at = bisect_left(held, (first,))
    return at - 1 if held[at - 1].last >= first else at


# --- acknowledgements -------------------------------------------------------------------------------------------------


class AckType(IntEnum):
    """AcknowledgeType of KIP-932, and RENEW of KIP-1222, from version 2 of the requests on."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_TYPES = tuple(AckType)
_EQUAL = re.compile(rb"(.)\1*", re.DOTALL)
AckRun = tuple[int, int, AckType]
"""First offset, last offset, and the type of all of them."""


def runs(first: int, last: int, types: Sequence[int]) -> list[AckRun]:
    """The batch as ranges of one type, with equal neighbours joined; nothing when the batch is invalid."""
    if last < first or not types:
        return []
    if min(types) < 0 or max(types) >= len(_TYPES):
        return []
    if len(types) == 1:
        return [(first, last, _TYPES[types[0]])]
    if len(types) != last - first + 1:
        return []
    codes = bytes(types)
    spans = map(re.Match.span, _EQUAL.finditer(codes))
    return [(first + start, first + end - 1, _TYPES[codes[start]]) for start, end in spans]


# --- dispositions -----------------------------------------------------------------------------------------------------


class DispositionKind(IntEnum):
    """The first four are dispositions of a record, the last two of its dead letter."""

    ACCEPTED = 0
    RELEASED = 1
    REJECTED = 2
    OVER_LIMIT = 3
    DEAD_LETTERED = 4
    WRITE_TIMEOUT = 5


_RowKey = tuple[str, str, bytes | None, int, int]


@dataclass(slots=True)
class _Row:
    counts: list[int] = field(default_factory=lambda: [0] * len(DispositionKind))
    by_delivery_count: dict[int, int] = field(default_factory=dict)


class Dispositions:
    """Counts rows of (second, group, member, partition, generation).

    Beyond `max_rows` rows each group has one more, for everything else; beyond twice as many, records are `lost`.
    """

    __slots__ = ("_max", "_rows", "_seconds", "lost")

    def __init__(self, *, max_rows: int = MAX_ROWS) -> None:
        self._max = max_rows
        self._seconds: dict[int, dict[_RowKey, _Row]] = {}
        self._rows = 0
        self.lost = 0

    def __len__(self) -> int:
        return self._rows

    def count(
        self, key: PartitionKey, generation: int, second: int, kind: DispositionKind, n: int, delivery_count: int | None
    ) -> None:
        """Count `n` records of one generation and delivery count (None: unknown)."""
        row = self._row(key, generation, second)
        if row is None:
            self.lost += n
            return
        row.counts[kind] += n
        if kind <= DispositionKind.OVER_LIMIT:
            deliveries = UNKNOWN_COUNT if delivery_count is None else delivery_count
            row.by_delivery_count[deliveries] = row.by_delivery_count.get(deliveries, 0) + n

    def drain(
        self, before_second: int, *, at: int, topic_name: Callable[[bytes], str | None]
    ) -> list[DispositionsCounted]:
        """Removes the rows of all seconds before this one and returns them as facts made at `at`."""
        drained: list[DispositionsCounted] = []
        for second in sorted(one for one in self._seconds if one < before_second):
            rows = self._seconds.pop(second)
            self._rows -= len(rows)
            drained.extend(_fact(at, second, key, row, topic_name) for key, row in rows.items())
        return drained

    def _row(self, key: PartitionKey, generation: int, second: int) -> _Row | None:
        rows = self._seconds.get(second)
        if rows is None:
            if self._rows >= 2 * self._max:
                return None
            rows = self._seconds[second] = {}
        row_key: _RowKey = (*key, generation)
        row = rows.get(row_key)
        if row is None and self._rows >= self._max:
            row_key = (key[0], OTHER, None, 0, generation)
            row = rows.get(row_key)
        if row is None:
            if self._rows >= 2 * self._max:
                return None
            row = rows[row_key] = _Row()
            self._rows += 1
        return row


def _fact(
    at: int, second: int, key: _RowKey, row: _Row, topic_name: Callable[[bytes], str | None]
) -> DispositionsCounted:
    group, member, topic_id, partition, generation = key
    accepted, released, rejected, over_limit, dead_lettered, write_timeouts = row.counts
    return DispositionsCounted(
        at=at,
        group=group,
        member=member,
        topic=None if topic_id is None else topic_name(topic_id),
        topic_id=None if topic_id is None else topic_id_text(topic_id),
        partition=partition,
        second=second,
        generation=generation,
        accepted=accepted,
        released=released,
        rejected=rejected,
        over_limit=over_limit,
        dead_lettered=dead_lettered,
        write_timeouts=write_timeouts,
        by_delivery_count=tuple(sorted(row.by_delivery_count.items())),
    )
