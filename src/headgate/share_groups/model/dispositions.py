"""What became of share groups' records, added up by second until it is written as a fact.

One rule: counted from the broker's answers, never from requests; who calls `count` has seen error code 0 for that
partition. `delivered` of KIP-1316 is `accepted`, `dlq_written` is `dead_lettered`; a release, a gap or a renewal is in
neither, and a write that timed out is not a dead letter.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from headgate.facts import DispositionsCounted
from headgate.share_groups.model.dead_letter_records import topic_id_text
from headgate.share_groups.model.delivery_ledger import PartitionKey

# A row takes about half a kilobyte, and rows are taken out every second.
MOST_ROWS = 20_000
OTHER: Final = "other"
UNKNOWN_COUNT = 0


class Kind(IntEnum):
    """The first four are what became of a record; the last two are what became of its dead letter."""

    ACCEPTED = 0
    RELEASED = 1
    REJECTED = 2
    OVER_LIMIT = 3
    DEAD_LETTERED = 4
    WRITE_TIMEOUT = 5


_RowKey = tuple[str, str, bytes | None, int, int]


@dataclass(slots=True)
class _Row:
    counts: list[int] = field(default_factory=lambda: [0] * len(Kind))
    by_delivery_count: dict[int, int] = field(default_factory=dict)


class Dispositions:
    """Bounded: beyond `most_rows` a group has one more row for all else, and beyond twice that many none: `lost`."""

    __slots__ = ("_most", "_rows", "_seconds", "lost")

    def __init__(self, *, most_rows: int = MOST_ROWS) -> None:
        self._most = most_rows
        self._seconds: dict[int, dict[_RowKey, _Row]] = {}
        self._rows = 0
        self.lost = 0

    def __len__(self) -> int:
        """How many rows wait."""
        return self._rows

    def count(
        self, key: PartitionKey, generation: int, second: int, kind: Kind, n: int, delivery_count: int | None
    ) -> None:
        """`n` records acquired under this generation, all delivered so often; None when nobody knows."""
        row = self._row(key, generation, second)
        if row is None:
            self.lost += n
            return
        row.counts[kind] += n
        if kind <= Kind.OVER_LIMIT:
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
            if self._rows >= 2 * self._most:
                return None
            rows = self._seconds[second] = {}
        row_key: _RowKey = (*key, generation)
        row = rows.get(row_key)
        if row is None and self._rows >= self._most:
            row_key = (key[0], OTHER, None, 0, generation)
            row = rows.get(row_key)
        if row is None:
            if self._rows >= 2 * self._most:
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
