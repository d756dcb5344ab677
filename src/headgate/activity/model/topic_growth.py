"""How much was appended to each topic: what passed the gateway is judged against it, for each topic and hour.

End offsets are taken every few minutes and at each full hour, so that no span lies in two hours. What one look found
more than the look before is one `Appended`. Beside the writes that passed it tells whether others write past us: only
then can it be said of a topic that nobody uses it.

One rule: a span is told only if both its ends were seen. A topic that is new, was made again, or lost its end begins
anew. Pure: times come in as arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

EVERY_MS: Final = 300_000
_HOUR_MS: Final = 3_600_000


class Topic(NamedTuple):
    name: str
    id: str


Ends = Mapping[Topic, Mapping[int, int]]  # end offsets by partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """So many offsets were given out between two looks; markers of transactions have offsets too."""

    topic: Topic
    since_ms: int
    until_ms: int
    records: int


class Coverage:
    """The last look at all topics."""

    def __init__(self) -> None:
        self._ends: Ends = {}
        self._at_ms = 0

    def looked(self, ends: Ends, now_ms: int) -> list[Appended]:
        """What came to each topic since the last look; topics without anything new are left out."""
        told = []
        for topic, partitions in ends.items():
            before = self._ends.get(topic)
            if before is None or now_ms <= self._at_ms:
                continue
            # Partitions that were added count from their beginning; those that were not seen now do not count.
            grown = sum(max(0, end - before.get(number, 0)) for number, end in partitions.items())
            if grown:
                told.append(Appended(topic=topic, since_ms=self._at_ms, until_ms=now_ms, records=grown))
        # A leader that was away for one look must not make its partitions count from zero in the next.
        self._ends = {topic: {**self._ends.get(topic, {}), **partitions} for topic, partitions in ends.items()}
        self._at_ms = now_ms
        return told


def next_look_ms(now_ms: int) -> int:
    """After a few minutes, or at the full hour if that is sooner."""
    return min(now_ms + EVERY_MS, (now_ms // _HOUR_MS + 1) * _HOUR_MS)
