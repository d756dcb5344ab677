"""Computes how many records were appended to each topic between two polls of all end offsets.

The first complete poll is the baseline. A topic id that appears later was created since the poll before, so it counts
from offset 0, and so does an added partition. A topic that was deleted and created again has a new id. A partition
whose end offset could not be read keeps its last one; if it never had one, its first end offset is its baseline.

Invariant: records that were in a topic before the first complete poll are never reported. Times are arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

POLL_INTERVAL_MS: Final = 300_000
_HOUR_MS: Final = 3_600_000
_MOST_ABSENT: Final = 10_000  # topics that were deleted, or that a broker did not list for a while


class TopicKey(NamedTuple):
    name: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsets:
    """The end offsets of all partitions, None where the leader did not return one.

    `is_complete` is False when the cluster has topics that are not listed here.
    """

    topics: Mapping[TopicKey, Mapping[int, int | None]]
    is_complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsAppended:
    """The growth of one topic between two polls; transaction markers occupy offsets and are included."""

    topic: TopicKey
    since_ms: int
    until_ms: int
    records: int


class EndOffsetTracker:
    """Keeps the last known end offset of every partition."""

    def __init__(self) -> None:
        self._ends: dict[TopicKey, dict[int, int | None]] = {}
        self._lists_all_topics = False  # a topic that is not in `_ends` is then a new one
        self._at_ms = 0

    def update(self, polled: EndOffsets, now_ms: int) -> list[RecordsAppended]:
        """The topics that grew since the last poll."""
        appended = []
        for topic, partitions in polled.topics.items():
            ends = self._ends.pop(topic, None)
            not_listed = None if ends is None and not self._lists_all_topics else 0
            ends = ends or {}
            growth = 0
            for partition, end in partitions.items():
                before = ends.setdefault(partition, not_listed)
                if end is not None:
                    growth += 0 if before is None else max(0, end - before)  # a log may have been truncated
                    ends[partition] = end
            self._ends[topic] = ends  # inserted again, so that absent topics stand first
            if growth and now_ms > self._at_ms:
                appended.append(RecordsAppended(topic=topic, since_ms=self._at_ms, until_ms=now_ms, records=growth))
        absent = len(self._ends) - len(polled.topics)
        for topic in list(self._ends)[: max(0, absent - _MOST_ABSENT)]:
            del self._ends[topic]
        self._lists_all_topics = self._lists_all_topics or polled.is_complete
        self._at_ms = now_ms
        return appended


def next_poll_ms(now_ms: int) -> int:
    """The end of the poll interval, or the full hour if that is sooner: a span never lies in two hours."""
    return min(now_ms + POLL_INTERVAL_MS, (now_ms // _HOUR_MS + 1) * _HOUR_MS)
