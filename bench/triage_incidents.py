"""Simulated incidents of share groups, to evaluate the verdict on an episode (`headgate.dead_letters.model.verdict`).

A group of members processes records second by second. A record has features; a fault decides by record, member and
time whether an attempt fails. A failed attempt is rejected, and the record is a dead letter at once, or it is released
and tried again until its delivery limit. A breaker as in KIP-1316 may pause the group. Every incident follows from its
family and its seed.

The families are in two halves: the rule and its limits were chosen on `TUNING` with even seeds alone. `HELD_OUT`, and
odd seeds, were written before and not run until the rule was final. In `OVERLAPPING` several causes coincide, or the
cause is too faint, so no single verdict is right. `bench.triage_late_families` has a third set.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from headgate.dead_letters.model.episodes import Attempts, Pause, episodes_of
from headgate.dead_letters.model.rates import FailureRate
from headgate.dead_letters.model.verdict import (
    DeadLetterCounts,
    EpisodeCause,
    EpisodeVerdict,
    FeatureRate,
    RecordSample,
    verdict_on,
)

FEATURES = ("key", "schema_id", "producer_id", "type_header", "size_band")
_BREAKER_WINDOW_S, _BREAKER_SHARE, _BREAKER_MIN = 60, 0.2, 100
_SAMPLED = 20_000
_LONG_S = 10_000  # longer than any incident


@dataclass(slots=True)
class Record:
    """One record: its features, and how often it was delivered."""

    offset: int
    features: tuple[object, ...]
    is_marked: bool = False  # by a fault that fails single records
    deliveries: int = 0
    is_dead: bool | None = None  # None while it is in flight
    dead_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The truth about an incident: `chance` is how likely an attempt fails; `marks` makes single records bad."""

    cause: EpisodeCause
    chance: Callable[[Record, int, int], float]
    marks: Callable[[int], int] = lambda _: 0
    is_overlapping: bool = False


@dataclass(slots=True, kw_only=True)
class Group:
    """A share group and its traffic. `start_s` and `length_s` are those of the incident."""

    random: Random
    members: int
    rate: float
    base: float
    limit: int = 5
    releases: bool = False
    has_breaker: bool = True
    start_s: int = 240
    length_s: int = 60
    after_s: int = 420
    paused_s: int = 120
    keys: int = 400

    def is_on(self, at: int) -> bool:
        return self.start_s <= at < self.start_s + self.length_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What Headgate would know about a simulated incident, and the truth."""

    truth: EpisodeCause
    is_overlapping: bool
    attempts: list[Attempts]
    pauses: list[Pause]
    letters: list[Record]
    records: list[Record]
    now: int


def simulate(group: Group, fault: Fault) -> Incident:
    """Run the group through its incident."""
    random, step = group.random, 1000
    records: list[Record] = []
    letters: list[Record] = []
    attempts: list[Attempts] = []
    pauses: list[Pause] = []
    waiting: deque[tuple[int, Record]] = deque()
    window: deque[tuple[int, int, int]] = deque()
    resume_at = -1
    for second in range(group.start_s + group.length_s + group.after_s):
        fresh = _new_records(group, fault, second, len(records))
        records.extend(fresh)
        waiting.extend((second, one) for one in fresh)
        if second < resume_at:
            continue
        budget = max(int(group.rate * 3), 3)  # after a pause the group catches up at three times its rate
        counted: dict[int, list[int]] = {}
        dead = accepted = 0
        again: list[tuple[int, Record]] = []
        while waiting and waiting[0][0] <= second and budget:
            budget -= 1
            _, record = waiting.popleft()
            member = random.randrange(group.members)
            record.deliveries += 1
            is_failed = random.random() < fault.chance(record, member, second) or random.random() < group.base
            counts = counted.setdefault(member, [0, 0])
            counts[0 if is_failed else 1] += 1
            if not is_failed:
                record.is_dead = False
                accepted += 1
            elif group.releases and record.deliveries < group.limit:
                again.append((second + random.randint(1, 3), record))
            else:
                record.is_dead, record.dead_at = True, second * step
                letters.append(record)
                dead += 1
        waiting.extend(again)
        attempts.extend(
            Attempts(at=second * step + random.randrange(step), member=f"m-{one}", failed=failed, succeeded=good)
            for one, (failed, good) in counted.items()
        )
        window.append((second, dead, accepted))
        while window[0][0] <= second - _BREAKER_WINDOW_S:
            window.popleft()
        in_window = sum(one[1] for one in window), sum(one[2] for one in window)
        if group.has_breaker and sum(in_window) >= _BREAKER_MIN and in_window[0] >= _BREAKER_SHARE * sum(in_window):
            resume_at = second + 1 + group.paused_s
            pauses.append(Pause(since=(second + 1) * step, until=resume_at * step))
            window.clear()
    now = (group.start_s + group.length_s + group.after_s) * step
    pauses = [Pause(since=one.since, until=one.until if one.until and one.until < now else None) for one in pauses]
    return Incident(
        truth=fault.cause,
        is_overlapping=fault.is_overlapping,
        attempts=attempts,
        pauses=pauses,
        letters=letters,
        records=records,
        now=now,
    )


def _new_records(group: Group, fault: Fault, second: int, offset: int) -> list[Record]:
    random = group.random
    count = _poisson(random, group.rate)
    found = [Record(offset + index, _features(group)) for index in range(count)]
    marked = fault.marks(second)
    for one in found[:marked]:
        one.is_marked = True
    return found


def _features(group: Group) -> tuple[object, ...]:
    """Key (a few are frequent), schema id, producer id, type and size: mostly the usual ones."""
    random = group.random
    key = int(random.paretovariate(0.9)) % group.keys
    kind = random.choices(("Created", "Paid", "Shipped"), (6, 3, 1))[0]
    producer = random.choices((71, 72, 73), (5, 4, 1))[0]
    schema = random.choices((5, 6, 7), (17, 2, 1))[0]
    size = random.choices((7, 8, 9, 13), (8, 8, 3, 1))[0]
    return (key, schema, producer, kind, size)


def _poisson(random: Random, mean: float) -> int:
    if mean > 30:
        return max(round(random.gauss(mean, math.sqrt(mean))), 0)
    limit, product, count = math.exp(-mean), random.random(), 0
    while product > limit:
        product *= random.random()
        count += 1
    return count


def judge(incident: Incident) -> EpisodeVerdict | None:
    """The verdict on the episode with the most dead letters; None when there is no episode with one."""
    best: tuple[int, EpisodeVerdict] | None = None
    for episode in episodes_of(incident.attempts, incident.pauses, now=incident.now):
        of_episode = [one for one in incident.letters if episode.since <= one.dead_at < episode.until]
        part = episode.failing
        failing = [one for one in of_episode if part[0].since <= one.dead_at < part[-1].until]
        if of_episode and (best is None or len(of_episode) > best[0]):
            counts = DeadLetterCounts(
                letters=len(of_episode), deliveries=sum(one.deliveries for one in of_episode), failing=len(failing)
            )
            best = (len(of_episode), verdict_on(episode, _sample(incident, failing), counts))
    return None if best is None else best[1]


def _sample(incident: Incident, letters: list[Record]) -> RecordSample:
    """The records between the first and the last dead letter, as they are read at their source."""
    if not letters:
        return RecordSample()
    first, last = min(one.offset for one in letters), max(one.offset for one in letters)
    read = [one for one in incident.records[first : last + 1][:_SAMPLED] if one.is_dead is not None]
    failed, every = Counter[tuple[str, object]](), Counter[tuple[str, object]]()
    for one in read:
        named = list(zip(FEATURES, one.features, strict=True))
        every.update(named)
        if one.is_dead:
            failed.update(named)
    features = [
        FeatureRate(name=name, value=str(value), rate=FailureRate(count, every[name, value]))
        for (name, value), count in failed.items()
    ]
    return RecordSample(rate=FailureRate(sum(bool(one.is_dead) for one in read), len(read)), features=features)


# --- families ---------------------------------------------------------------------------------------------------------

Family = Callable[[Group], Fault]


def group_of(seed: int, family: str) -> Group:
    """The group of this seed, before its family changes what matters to it."""
    random = Random(f"{family}/{seed}")
    return Group(
        random=random,
        members=random.choice((2, 3, 4, 6, 10)),
        rate=random.choice((5, 12, 25, 60)),
        base=random.choice((0.0, 0.0, 0.001, 0.005)),
        limit=random.choice((3, 5, 5, 8)),
        releases=random.random() < 0.5,
        has_breaker=random.random() < 0.7,
        length_s=random.choice((30, 60, 120, 240)),
        paused_s=random.choice((30, 60, 300, _LONG_S)),
    )


def outage_of(group: Group, chance: Callable[[int], float]) -> Fault:
    """The chance depends on the time since the beginning alone."""
    return Fault(
        cause=EpisodeCause.OUTAGE,
        chance=lambda _record, _member, at: chance(at - group.start_s) if group.is_on(at) else 0.0,
    )


def outage_total(group: Group) -> Fault:
    return outage_of(group, lambda _: 0.97)


def outage_partial(group: Group) -> Fault:
    share = group.random.uniform(0.6, 0.85)
    return outage_of(group, lambda _: share)


def outage_ramp(group: Group) -> Fault:
    return outage_of(group, lambda since: min(0.1 + 1.2 * since / group.length_s, 1.0))


def outage_flapping(group: Group) -> Fault:
    period = group.random.choice((10, 20, 40))
    return outage_of(group, lambda since: 0.95 if since % period < period * 0.6 else 0.02)


def outage_slow(group: Group) -> Fault:
    """Calls time out: records are released until they reach their limit."""
    group.releases = True
    return outage_of(group, lambda _: 0.9)


def poison_of(group: Group, marks: Callable[[int], int]) -> Fault:
    return Fault(
        cause=EpisodeCause.POISON,
        chance=lambda record, _member, _at: 1.0 if record.is_marked else 0.0,
        marks=lambda at: marks(at) if group.is_on(at) else 0,
    )


def poison_single(group: Group) -> Fault:
    group.releases = True
    return poison_of(group, lambda at: int(at == group.start_s))


def poison_scattered(group: Group) -> Fault:
    group.rate = max(group.rate, 25)
    every = group.random.choice((15, 20, 30))
    return poison_of(group, lambda at: int(at % every == 0))


def poison_burst(group: Group) -> Fault:
    group.rate = max(group.rate, 25)
    many = group.random.randint(2, 3)
    return poison_of(group, lambda at: many if at == group.start_s else 0)


def poison_among_noise(group: Group) -> Fault:
    group.base, group.rate, group.releases = 0.01, max(group.rate, 25), True
    return poison_of(group, lambda at: int(at % 20 == 0))


def content_of(group: Group, feature: str, value: object) -> Fault:
    index = FEATURES.index(feature)
    group.rate, group.length_s = max(group.rate, 25), max(group.length_s, 120)
    return Fault(
        cause=EpisodeCause.CONTENT,
        chance=lambda record, _member, at: 0.99 if group.is_on(at) and record.features[index] == value else 0.0,
    )


def content_schema(group: Group) -> Fault:
    return content_of(group, "schema_id", group.random.choice((6, 7)))


def content_key(group: Group) -> Fault:
    return content_of(group, "key", group.random.choice((1, 2)))


def content_producer(group: Group) -> Fault:
    return content_of(group, "producer_id", group.random.choice((72, 73)))


def content_type(group: Group) -> Fault:
    return content_of(group, "type_header", group.random.choice(("Paid", "Shipped")))


def content_size(group: Group) -> Fault:
    return content_of(group, "size_band", group.random.choice((9, 13)))


def member_of(group: Group, chance: float) -> Fault:
    return Fault(
        cause=EpisodeCause.MEMBER,
        chance=lambda _record, member, at: chance if group.is_on(at) and member == 0 else 0.0,
    )


def member_broken(group: Group) -> Fault:
    group.members, group.rate = group.random.choice((2, 3, 4)), max(group.rate, 12)
    return member_of(group, 1.0)


def member_of_many(group: Group) -> Fault:
    group.members, group.rate = group.random.choice((8, 12)), max(group.rate, 25)
    return member_of(group, 0.95)


def member_mostly_broken(group: Group) -> Fault:
    group.members, group.rate = group.random.choice((3, 4, 6)), max(group.rate, 25)
    return member_of(group, group.random.uniform(0.75, 0.95))


def quiet_group(group: Group) -> Fault:
    group.rate, group.length_s, group.after_s, group.base = 0.1, 60, 30, 0.0
    group.start_s, group.releases = 20, False
    return cause_of(outage_of(group, lambda _: 1.0), EpisodeCause.INSUFFICIENT)


def quiet_group_paused(group: Group) -> Fault:
    group.rate, group.length_s, group.after_s, group.base = 0.15, 40, 20, 0.0
    group.start_s, group.releases = 10, False
    return cause_of(outage_of(group, lambda _: 0.8), EpisodeCause.INSUFFICIENT)


def cause_of(fault: Fault, cause: EpisodeCause) -> Fault:
    return Fault(cause=cause, chance=fault.chance, marks=fault.marks)


def both(first: Fault, second: Fault) -> Fault:
    return Fault(
        cause=EpisodeCause.MIXED,
        chance=lambda record, member, at: max(first.chance(record, member, at), second.chance(record, member, at)),
        marks=lambda at: max(first.marks(at), second.marks(at)),
        is_overlapping=True,
    )


def poison_in_outage(group: Group) -> Fault:
    return both(outage_total(group), poison_scattered(group))


def member_and_content(group: Group) -> Fault:
    return both(member_broken(group), content_of(group, "schema_id", 6))


def two_features(group: Group) -> Fault:
    return both(content_of(group, "schema_id", 6), content_of(group, "type_header", "Shipped"))


def brownout(group: Group) -> Fault:
    """The downstream fails for a small part of all records, whatever they are."""
    share = group.random.uniform(0.1, 0.25)
    faint = outage_of(group, lambda _: share)
    return Fault(cause=EpisodeCause.MIXED, chance=faint.chance, is_overlapping=True)


TUNING: Mapping[str, Family] = {
    one.__name__: one
    for one in (
        outage_total,
        outage_partial,
        poison_single,
        poison_scattered,
        content_schema,
        content_key,
        member_broken,
        quiet_group,
    )
}
HELD_OUT: Mapping[str, Family] = {
    one.__name__: one
    for one in (
        outage_ramp,
        outage_flapping,
        outage_slow,
        poison_burst,
        poison_among_noise,
        content_producer,
        content_type,
        content_size,
        member_of_many,
        member_mostly_broken,
        quiet_group_paused,
    )
}
OVERLAPPING: Mapping[str, Family] = {
    one.__name__: one for one in (poison_in_outage, member_and_content, two_features, brownout)
}
FAMILIES: Mapping[str, Family] = {**TUNING, **HELD_OUT, **OVERLAPPING}


def incident(family: str, seed: int) -> Incident:
    """The incident of this family and seed, always the same."""
    group = group_of(seed, family)
    fault = FAMILIES[family](group)
    return simulate(group, fault)
