"""The verdict on an episode: why records of a share group became dead letters, from all attempts, not failures alone.

The rules are tried in this order, and the first that holds decides: insufficient, member, content, outage, poison;
else mixed. Every rule compares bounds of Wilson's 95 % interval, so few attempts decide nothing. A verdict carries the
numbers that it was made from. `bench/TRIAGE.md` has how often it is right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headgate.dead_letters.model.episodes import Bucket, Episode
from headgate.dead_letters.model.rates import NONE, FailureRate

MIN_ATTEMPTS: Final = 30
MEMBER_LOWER: Final = 0.5
OTHERS_UPPER: Final = 0.10
CONTENT_LOWER: Final = 0.8
CONTENT_RECALL: Final = 0.8
OUTAGE_LOWER: Final = 0.4
OUTAGE_MEMBER_UPPER: Final = 0.3
OUTAGE_MEMBERS: Final = 0.8
POISON_UPPER: Final = 0.05
POISON_BUCKET_LOWER: Final = 0.2
POISON_TIMES_BASE: Final = 3
# More dead letters than this, and a larger part of the attempts, are no single records.
POISON_LETTERS: Final = 3
POISON_SHARE: Final = 0.05
PRODUCER: Final = "producer_id"
# So many members and features are in the evidence, the worst first.
EVIDENCE_ROWS: Final = 5


class EpisodeCause(StrEnum):
    """Why the records failed."""

    INSUFFICIENT = "insufficient"
    MEMBER = "member"
    CONTENT = "content"
    OUTAGE = "outage"
    POISON = "poison"
    MIXED = "mixed"


class OperatorAction(StrEnum):
    """What the operator is to do."""

    REPLAY_NOW = "replay_now"
    FIX_FIRST = "fix_first"
    QUARANTINE = "quarantine"
    RESTART_MEMBER = "restart_member"
    RESUME_AND_WATCH = "resume_and_watch"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRate:
    """How many records with one value of a feature failed, of all records of the episode that have it.

    Records are counted, not attempts: one record that fails five times is no pattern.
    """

    name: str
    value: str
    rate: FailureRate


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSample:
    """Records of the failing part that were read at their source: all of them, and by each feature."""

    rate: FailureRate = NONE
    features: Sequence[FeatureRate] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCounts:
    """The dead letters of an episode, the deliveries of all their records, and how many are of the failing part."""

    letters: int
    deliveries: int
    failing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeVerdict:
    """The cause, what to do, and the numbers. `member` and `feature` name the culprit, where there is one."""

    cause: EpisodeCause
    action: OperatorAction
    evidence: Mapping[str, object]
    member: str | None = None
    feature: str | None = None


@dataclass(frozen=True, slots=True)
class _EpisodeNumbers:
    """What the rules look at, and what they found."""

    episode: Episode
    failing: Sequence[Bucket]
    sample: RecordSample
    letters: DeadLetterCounts
    members: Mapping[str, FailureRate]
    total: FailureRate
    notes: dict[str, object] = field(default_factory=dict)


def verdict_on(episode: Episode, sample: RecordSample, letters: DeadLetterCounts) -> EpisodeVerdict:
    """The first rule that holds decides."""
    failing = episode.failing
    members = _by_member(failing)
    numbers = _EpisodeNumbers(episode, failing, sample, letters, members, sum(members.values(), start=NONE))
    if episode.rate.attempts < MIN_ATTEMPTS:
        return _verdict(numbers, EpisodeCause.INSUFFICIENT, OperatorAction.RESUME_AND_WATCH)
    if (member := _broken_member(numbers)) is not None:
        return _verdict(numbers, EpisodeCause.MEMBER, OperatorAction.RESTART_MEMBER, member=member)
    if (feature := _bad_content(numbers)) is not None:
        return _verdict(numbers, EpisodeCause.CONTENT, OperatorAction.FIX_FIRST, feature=feature)
    if _is_outage(numbers):
        action = OperatorAction.REPLAY_NOW if _has_recovered(episode) else OperatorAction.RESUME_AND_WATCH
        return _verdict(numbers, EpisodeCause.OUTAGE, action)
    if _is_poison(numbers):
        return _verdict(numbers, EpisodeCause.POISON, OperatorAction.QUARANTINE)
    return _verdict(numbers, EpisodeCause.MIXED, OperatorAction.RESUME_AND_WATCH)


def _broken_member(numbers: _EpisodeNumbers) -> str | None:
    """The member with a lower bound of at least .5, when all others together have an upper bound of at most .10."""
    worst = max(numbers.members, key=lambda one: (numbers.members[one].lower, one))
    others = numbers.total - numbers.members[worst]
    numbers.notes["other_members"] = others.figures
    is_broken = numbers.members[worst].lower >= MEMBER_LOWER and others.upper <= OTHERS_UPPER
    return worst if is_broken else None


def _bad_content(numbers: _EpisodeNumbers) -> str | None:
    """The feature whose records fail, when the rest does not and it has most of the failures."""
    whole = numbers.sample.rate
    for one in _worst_features(numbers.sample):
        rest = whole - one.rate
        recall = one.rate.failed / whole.failed if whole.failed else 0.0
        if one.rate.lower >= CONTENT_LOWER and rest.upper <= OTHERS_UPPER and recall >= CONTENT_RECALL:
            numbers.notes["other_records"] = rest.figures
            numbers.notes["recall"] = round(recall, 4)
            return f"{one.name}={one.value}"
    return None


def _worst_features(sample: RecordSample) -> list[FeatureRate]:
    """Sorts features by failures, most first; of two with equal failures, the rarer one comes first.

    A producer comes last of those that are equal: what its records have in common says more than its id.
    """
    return sorted(
        sample.features,
        key=lambda one: (-one.rate.failed, one.rate.attempts, one.name == PRODUCER, one.name, one.value),
    )


def _is_outage(numbers: _EpisodeNumbers) -> bool:
    """A bucket with a lower bound of at least .4, in which most members may have failed in more than .3.

    The members are compared in these buckets alone: what they did before and after says nothing about the outage.
    """
    down = [one for one in numbers.failing if one.rate.lower >= OUTAGE_LOWER]
    if not down:
        return False
    members = _by_member(down)
    failing = sum(1 for one in members.values() if one.upper > OUTAGE_MEMBER_UPPER)
    numbers.notes["outage_buckets"] = len(down)
    numbers.notes["failing_members"] = failing
    numbers.notes["members_then"] = len(members)
    return failing >= OUTAGE_MEMBERS * len(members)


def _is_poison(numbers: _EpisodeNumbers) -> bool:
    """All other records do not fail more than usual, and at no time did a large part of the attempts fail.

    And the dead letters are few: when every failure is rejected at once, the others never fail, however many failed.
    """
    of_letters = FailureRate(numbers.letters.deliveries, numbers.letters.deliveries)
    others = numbers.episode.rate - of_letters
    numbers.notes["attempts_of_others"] = others.figures
    limit = max(POISON_UPPER, POISON_TIMES_BASE * numbers.episode.base)
    highest = max(one.rate.lower for one in numbers.episode.buckets)
    few = max(POISON_LETTERS, POISON_SHARE * numbers.total.attempts)
    return others.upper <= limit and highest <= POISON_BUCKET_LOWER and numbers.letters.failing <= few


def _has_recovered(episode: Episode) -> bool:
    """Whether attempts after the last failing bucket say that the downstream works again, also after the end."""
    after = sum((one.rate for one in episode.after), start=episode.later)
    return after.attempts >= MIN_ATTEMPTS and after.upper <= max(OTHERS_UPPER, episode.threshold)


def _by_member(buckets: Sequence[Bucket]) -> dict[str, FailureRate]:
    found: dict[str, FailureRate] = {}
    for bucket in buckets:
        for member, rate in bucket.members.items():
            found[member] = found.get(member, NONE) + rate
    return found


def _verdict(
    numbers: _EpisodeNumbers,
    cause: EpisodeCause,
    action: OperatorAction,
    *,
    member: str | None = None,
    feature: str | None = None,
) -> EpisodeVerdict:
    episode = numbers.episode
    worst = max(episode.buckets, key=lambda one: (one.rate.lower, -one.since))
    by_failures = sorted(numbers.members.items(), key=lambda one: (-one[1].lower, one[0]))
    evidence: dict[str, object] = {
        "attempts": numbers.total.figures,
        "failing": {"since": numbers.failing[0].since, "until": numbers.failing[-1].until},
        "base_rate": round(episode.base, 4),
        "dead_letters": numbers.letters.letters,
        "members": len(numbers.members),
        "worst_members": [{"member": name} | rate.figures for name, rate in by_failures[:EVIDENCE_ROWS]],
        "worst_bucket": {"at": worst.since} | worst.rate.figures,
        "sampled_records": numbers.sample.rate.figures,
        "worst_features": [
            {"feature": f"{one.name}={one.value}"} | one.rate.figures
            for one in _worst_features(numbers.sample)[:EVIDENCE_ROWS]
        ],
        "paused_ms": episode.paused_ms,
    }
    return EpisodeVerdict(cause=cause, action=action, member=member, feature=feature, evidence=evidence | numbers.notes)
