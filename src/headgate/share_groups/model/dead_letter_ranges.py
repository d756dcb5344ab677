"""Ranges of offsets that become dead letters, and what became of them."""

from collections.abc import Iterable
from typing import NamedTuple

from headgate.share_groups.model.dead_letter_records import Cause
from headgate.share_groups.model.delivery_ledger import PartitionKey

OffsetRanges = tuple[tuple[int, int], ...]


class DeadLetterRange(NamedTuple):
    """Offsets of one partition that become dead letters; `delivery_count` is None when it is not known.

    `generation` is the one under which they were acquired. A tuple, because one is made for each rejected range.
    """

    key: PartitionKey
    first: int
    last: int
    delivery_count: int | None
    generation: int
    cause: Cause

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def failed(self, reason: str) -> "DeadLetterOutcome":
        """The outcome when none of its dead letters was written."""
        return DeadLetterOutcome((), ((self.first, self.last),), reason)


class DeadLetterOutcome(NamedTuple):
    """The offsets of a `DeadLetterRange` whose dead letters are in their topic or in the spool, and the others.

    `reason` is why the first of the others is in neither.
    """

    written: OffsetRanges
    failed: OffsetRanges
    reason: str = ""


def record_count(found: OffsetRanges) -> int:
    if len(found) == 1:  # the usual case
        return found[0][1] - found[0][0] + 1
    return sum(last - first + 1 for first, last in found)


def offset_ranges(offsets: Iterable[int]) -> OffsetRanges:
    """Ascending offsets as ranges."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return tuple(found)


def ranges_text(found: OffsetRanges, limit: int = 20) -> str:
    """The ranges for a log line."""
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found[:limit])
    return text if len(found) <= limit else f"{text} and {len(found) - limit} more ranges"
