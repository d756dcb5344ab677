"""Acknowledgement batches of ShareFetch and ShareAcknowledge, and the dispositions of records that follow from them.

Invalid batches are never repaired and never counted: the broker refuses them. Dispositions are counted from the
broker's responses, never from requests, and added up by second until they are written as facts. `delivered` of KIP-1316
is `accepted`, `dlq_written` is `dead_lettered`; a release, a gap or a renewal is in neither, and a write that timed out
is not a dead letter.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from headgate.facts import DispositionsCounted
from headgate.share_groups.model.dead_letter_records import topic_id_text
from headgate.share_groups.model.delivery_ledger import PartitionKey

# A row takes about half a kilobyte, and rows are removed every second.
MAX_ROWS = 20_000
OTHER: Final = "other"
UNKNOWN_COUNT = 0


Batch = tuple[int, int, tuple[int, ...]]
"""First offset, last offset, AcknowledgeTypes: one for all offsets, or one for each."""


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


def merge_rejects(batches: Sequence[Batch], rejects: Sequence[tuple[int, int]]) -> list[Batch]:
    """The client's batches and a REJECT for all of `rejects` that they do not name, in the order of offsets.

    When the client's batches do not ascend they are returned alone, because the broker refuses the whole partition.
    """
    client = list(batches)
    if not rejects or not _ascend(client):
        return client
    added: list[Batch] = []
    at, next_offset = 0, -1
    for first, last in sorted(rejects):
        start = max(first, next_offset)
        next_offset = max(next_offset, last + 1)
        while at < len(client) and client[at][1] < start:
            at += 1
        after = at
        while after < len(client) and client[after][0] <= last:
            if client[after][0] > start:
                added.append(_reject(start, client[after][0] - 1))
            start = client[after][1] + 1
            after += 1
        if start <= last:
            added.append(_reject(start, last))
    return sorted([*client, *added])


def _reject(first: int, last: int) -> Batch:
    return (first, last, (int(AckType.REJECT),))


def _ascend(batches: Sequence[Batch]) -> bool:
    end = -1
    for first, last, _ in batches:
        if first <= end or last < first:
            return False
        end = last
    return True


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
