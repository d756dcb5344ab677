"""Clusters: the dead letters of a group by episode, each with its verdict.

A dead letter belongs to the episode in which it was written. The features of an episode are compared between its dead
letters and all other records from the first to the last of them in each partition, as far as these were read.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.dead_letters.model.episodes import Attempts, Episode, Pause, episodes_of
from headgate.dead_letters.model.rates import FailureRate
from headgate.dead_letters.model.verdict import DeadLetterCounts, EpisodeVerdict, FeatureRate, RecordSample, verdict_on
from headgate.share_groups.model.recorded_history import RecordedEvent, pauses

FEATURES: Final = ("key_hash", "schema_id", "producer_id", "type_header", "size_band")
MAX_TOPICS: Final = 20
# A dead letter is written a moment before its disposition is counted, and by another clock.
_SLACK_MS: Final = 5_000

Place = tuple[str, int]  # topic id and partition


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """A record that was read at its source: its offset, and its value of each feature, in their order."""

    offset: int
    features: Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What the verdict needs to know of a dead letter. Without a topic its record is not known."""

    topic: str | None
    topic_id: str
    partition: int
    offset: int
    at: int
    delivery_count: int | None

    @property
    def place(self) -> Place:
        return (self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterCluster:
    """The dead letters of one episode, and the verdict on it."""

    id: str
    episode: Episode
    letters: Sequence[Letter]
    verdict: EpisodeVerdict

    @property
    def topics(self) -> list[str]:
        return sorted({one.topic for one in self.letters if one.topic is not None})[:MAX_TOPICS]


def clusters_of(
    cluster_id: str,
    group: str,
    letters: Iterable[Letter],
    attempts: Iterable[Attempts],
    pauses: Sequence[Pause],
    sources: Mapping[Place, Sequence[SourceRecord]],
    *,
    now: int,
) -> list[LetterCluster]:
    """The clusters of one group, in the order of time; `sources` are in the order of offsets."""
    ordered = sorted(letters, key=lambda one: (one.at, one.topic_id, one.partition, one.offset))
    times = [one.at for one in ordered]
    found: list[LetterCluster] = []
    first = 0
    for episode in episodes_of(attempts, pauses, now=now):
        begin = max(first, bisect_left(times, episode.since - _SLACK_MS))
        first = max(begin, bisect_right(times, now if episode.ended_at is None else episode.ended_at))
        of_episode = ordered[begin:first]
        if of_episode:
            failing = _in_failing_part(episode, of_episode)
            counts = DeadLetterCounts(
                letters=len(of_episode),
                deliveries=sum(one.delivery_count or 1 for one in of_episode),
                failing=len(failing),
            )
            verdict = verdict_on(episode, _sample(failing, sources), counts)
            identity = cluster_name(cluster_id, group, episode.since)
            found.append(LetterCluster(id=identity, episode=episode, letters=of_episode, verdict=verdict))
    return found


def cluster_name(cluster_id: str, group: str, since: int) -> str:
    """The id of the cluster whose episode began then; short, because operators type it."""
    spelled = "".join(f"{len(part)}:{part}" for part in (cluster_id, group, str(since)))
    return hashlib.sha256(spelled.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _in_failing_part(episode: Episode, letters: Sequence[Letter]) -> list[Letter]:
    part = episode.failing
    since, until = part[0].since - _SLACK_MS, part[-1].until + _SLACK_MS
    return [one for one in letters if since <= one.at <= until]


def _sample(letters: Sequence[Letter], sources: Mapping[Place, Sequence[SourceRecord]]) -> RecordSample:
    """How the records around these dead letters fared, by feature."""
    failed_at: dict[Place, set[int]] = {}
    for letter in letters:
        if letter.topic is not None:
            failed_at.setdefault(letter.place, set()).add(letter.offset)
    failed, every = Counter[tuple[str, object]](), Counter[tuple[str, object]]()
    records = failures = 0
    for place, offsets in failed_at.items():
        read = sources.get(place, ())
        begin = bisect_left(read, min(offsets), key=lambda one: one.offset)
        end = bisect_right(read, max(offsets), key=lambda one: one.offset)
        for record in read[begin:end]:
            named = [(name, value) for name, value in zip(FEATURES, record.features, strict=True) if value is not None]
            every.update(named)
            records += 1
            if record.offset in offsets:
                failures += 1
                failed.update(named)
    features = [
        FeatureRate(name=name, value=str(value), rate=FailureRate(count, every[name, value]))
        for (name, value), count in failed.items()
    ]
    return RecordSample(rate=FailureRate(failures, records), features=features)


def pauses_of(events: Iterable[RecordedEvent]) -> list[Pause]:
    """The pauses of a group; the last one may still last."""
    return [Pause(since=since, until=until) for since, until in pauses(events)]


def source_ranges(offsets: Iterable[int], *, gap: int, longest: int) -> list[tuple[int, int]]:
    """Ranges of offsets, the end not included, that cover all of these and read few others.

    A range is at most `longest`, and no two of these offsets in it lie farther apart than `gap`.
    """
    found: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if found and offset - found[-1][1] < gap and offset - found[-1][0] < longest:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found
