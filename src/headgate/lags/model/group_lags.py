"""Lags from offsets: the facts of a group, and which of them have to be written.

A fact is written when it differs from the last one of its group and topic, and again after half an hour to an hour, so
that readers can tell a group that stands still from one that is gone. The hash of a group's name spreads that over the
half hour.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from headgate.facts import GroupLagsObserved
from headgate.facts.json_form import dumps
from headgate.facts.lags import MOST_PARTITIONS, GroupKind

_WRITTEN_AGAIN_S: Final = 1800
# Of a record without names and partitions, and of a partition: three offsets of twelve digits and its number.
_FACT_BYTES: Final = 250
_PARTITION_BYTES: Final = 40

TopicPartition = tuple[str, int]
_Part = tuple[str, int]  # the topic, and the first partition of the fact


class TopicOffsets(NamedTuple):
    """The offsets of a group in one topic, in parallel lists; `lags` only where the broker counts them itself."""

    topic: str
    partitions: tuple[int, ...]
    committed: tuple[int | None, ...]
    lags: tuple[int | None, ...] | None = None


class PolledGroup(NamedTuple):
    group: str
    kind: GroupKind
    topics: tuple[TopicOffsets, ...]

    @property
    def partition_count(self) -> int:
        return sum(len(one.partitions) for one in self.topics)

    @property
    def fact_bytes(self) -> int:
        """About how many bytes its facts take."""
        name = len(dumps(self.group))  # with its escapes
        return sum(_FACT_BYTES + name + len(one.topic) + _PARTITION_BYTES * len(one.partitions) for one in self.topics)


def lag_facts(
    polled: PolledGroup, ends: Mapping[TopicPartition, int], ids: Mapping[str, str], at: int
) -> list[GroupLagsObserved]:
    """The facts of a group; an end offset that is not in `ends` is unknown, and with it the lag."""
    facts = []
    for topic in polled.topics:
        found = tuple(ends.get((topic.topic, number)) for number in topic.partitions)
        lags = topic.lags
        if lags is None:
            # A commit may be past the end: the topic was created again, or records were lost.
            lags = tuple(
                None if end is None or committed is None else max(0, end - committed)
                for end, committed in zip(found, topic.committed, strict=True)
            )
        for first in range(0, len(topic.partitions), MOST_PARTITIONS):
            part = slice(first, first + MOST_PARTITIONS)
            facts.append(
                GroupLagsObserved(
                    at=at,
                    group=polled.group,
                    topic=topic.topic,
                    kind=polled.kind,
                    topic_id=ids.get(topic.topic),
                    partitions=topic.partitions[part],
                    committed=topic.committed[part],
                    ends=found[part],
                    lags=lags[part],
                )
            )
    return facts


class WrittenLags:
    """The hash of the last fact that was written of each group and topic, and when; facts themselves are not kept."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[_Part, tuple[int, float]]] = {}

    def due(self, group: str, facts: Iterable[GroupLagsObserved], now_s: float) -> list[GroupLagsObserved]:
        """The facts of a group that have to be written; partitions that are not in `facts` any more are forgotten."""
        by_part = {_part(fact): fact for fact in facts}
        written = {part: last for part, last in self._groups.get(group, {}).items() if part in by_part}
        if written:
            self._groups[group] = written
        else:
            self._groups.pop(group, None)
        stays_s = _WRITTEN_AGAIN_S + zlib.crc32(group.encode("utf-8", "surrogatepass")) % _WRITTEN_AGAIN_S
        return [
            fact
            for part, fact in by_part.items()
            if part not in written or written[part][0] != _digest(fact) or now_s - written[part][1] >= stays_s
        ]

    def on_written(self, fact: GroupLagsObserved, now_s: float) -> None:
        self._groups.setdefault(fact.group, {})[_part(fact)] = _digest(fact), now_s

    def retain(self, groups: Iterable[str]) -> None:
        """Forget all groups but these."""
        self._groups = {group: self._groups[group] for group in groups if group in self._groups}

    def __len__(self) -> int:
        return len(self._groups)


def _part(fact: GroupLagsObserved) -> _Part:
    return fact.topic, fact.partitions[0] if fact.partitions else -1


def _digest(fact: GroupLagsObserved) -> int:
    return hash((fact.kind, fact.topic_id, fact.partitions, fact.committed, fact.ends, fact.lags))
