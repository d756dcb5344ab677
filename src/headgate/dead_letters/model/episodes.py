"""Episodes: the times in which a share group failed clearly more often than it usually does.

Attempts are counted in buckets of five seconds, joined until they have 15 attempts, because the rate of fewer says
little. An episode begins with the first bucket whose failures exceed three times the group's base rate. It ends after
five minutes below that, or with a resume, after which the group is tried anew.

A paused group has no attempts, and so no failures: the time of a pause is not read as recovery, and no bucket reaches
over one.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from headgate.dead_letters.model.rates import NONE, FailureRate

BUCKET_MS: Final = 5_000
BUCKET_ATTEMPTS: Final = 15
QUIET_MS: Final = 300_000
TIMES_BASE: Final = 3
# The base rate is that of so long a time before, without episodes. With fewer attempts than this nothing is known of
# the group's past, and the rate of its other buckets counts, but never more than a healthy group may have.
BASE_MS: Final = 3_600_000
BASE_ATTEMPTS: Final = 300
HEALTHY: Final = 0.02
_MANY: Final = 0.2  # buckets whose rate is certainly higher than this are left out of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """What one member did in one second: a failure is a reject, a release, or a record over its delivery limit."""

    at: int  # epoch milliseconds
    member: str
    failed: int
    succeeded: int

    @property
    def rate(self) -> FailureRate:
        return FailureRate(self.failed, self.failed + self.succeeded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The group was paused, by its breaker or an operator; without `until` it still is."""

    since: int
    until: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Attempts of all members from `since` up to `until`."""

    since: int
    until: int
    members: Mapping[str, FailureRate]

    @property
    def rate(self) -> FailureRate:
        return sum(self.members.values(), start=NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode. `buckets` are those from the first to the last above the threshold, `after` those that follow in it.

    `later` are all attempts after its end but those of the failing buckets of later episodes: a resume ends an episode,
    and what the group does then says whether the cause is gone.
    """

    base: float
    buckets: Sequence[Bucket]
    after: Sequence[Bucket]
    ended_at: int | None
    paused_ms: int
    later: FailureRate = NONE

    @property
    def since(self) -> int:
        return self.buckets[0].since

    @property
    def until(self) -> int:
        return self.buckets[-1].until

    @property
    def threshold(self) -> float:
        return TIMES_BASE * self.base

    @property
    def failing(self) -> Sequence[Bucket]:
        """The part in which it failed most: the successive buckets with the most failures beyond half the worst rate.

        Single failures before and after the cause belong to the episode too, and would hide how bad it was.
        """
        usual = max(one.rate.lower for one in self.buckets) / 2
        best, sum_, start, found = 0.0, 0.0, 0, (0, len(self.buckets))
        for index, bucket in enumerate(self.buckets):
            if sum_ <= 0:
                sum_, start = 0.0, index
            sum_ += bucket.rate.failed - usual * bucket.rate.attempts
            if sum_ > best:
                best, found = sum_, (start, index + 1)
        return self.buckets[found[0] : found[1]]

    @property
    def rate(self) -> FailureRate:
        """The failure rate of all attempts from the beginning of the episode to its end."""
        return sum((one.rate for one in (*self.buckets, *self.after)), start=NONE)


def buckets_of(attempts: Iterable[Attempts], pauses: Sequence[Pause]) -> Iterator[Bucket]:
    """Buckets in the order of time. A resume begins another one, so that no bucket has attempts of both sides."""
    resumes = sorted(one.until for one in pauses if one.until is not None)
    since, until, resumed = 0, 0, 0
    members: dict[str, FailureRate] = {}
    count = 0
    for one in sorted(attempts, key=lambda found: found.at):
        start = one.at - one.at % BUCKET_MS
        while resumed < len(resumes) and resumes[resumed] <= one.at:
            start = max(start, resumes[resumed])
            resumed += 1
            if members and until > since and since < start:
                yield Bucket(since=since, until=min(until, start), members=members)
                members, count = {}, 0
        if members and count >= BUCKET_ATTEMPTS and one.at >= until:
            yield Bucket(since=since, until=until, members=members)
            members, count = {}, 0
        if not members:
            since = start
        until = max(start - start % BUCKET_MS + BUCKET_MS, since + 1)
        members[one.member] = members.get(one.member, NONE) + one.rate
        count += one.rate.attempts
    if members:
        yield Bucket(since=since, until=until, members=members)


def episodes_of(attempts: Iterable[Attempts], pauses: Sequence[Pause] = (), *, now: int) -> list[Episode]:
    """All episodes of one group by its attempts, in the order of time."""
    resumes = sorted(one.until for one in pauses if one.until is not None)
    found: list[Episode] = []
    calm: list[Bucket] = []  # of no episode, for the base rate
    hot: list[Bucket] = []
    tail: list[Bucket] = []
    buckets = list(buckets_of(attempts, pauses))
    usual = min(_rate_of_others(buckets), HEALTHY)
    base = usual

    def end(at: int | None) -> None:
        paused = _paused_ms(pauses, hot[0].since, now if at is None else at)
        episode = Episode(base=base, buckets=tuple(hot), after=tuple(tail), ended_at=at, paused_ms=paused)
        found.append(episode)
        calm.extend(tail)
        hot.clear()
        tail.clear()

    def ended_at(upto: int) -> int | None:
        """When the episode that lasts ended, if that was by this time."""
        last = hot[-1].until
        resumed = next((one for one in resumes if hot[0].since < one <= upto and one >= hot[-1].since), None)
        quiet = _after_quiet(pauses, last)
        ends = [one for one in (resumed, quiet) if one is not None and one <= upto]
        return min(ends, default=None)

    for bucket in buckets:
        if hot and (at := ended_at(bucket.since)) is not None:
            end(at)
        if not hot:
            base = _base(calm, bucket.since, usual)
        rate = bucket.rate
        is_above = rate.failed > TIMES_BASE * base * rate.attempts
        if is_above:
            hot.extend([*tail, bucket])
            tail.clear()
        elif hot:
            tail.append(bucket)
        else:
            calm.append(bucket)
    if hot:
        end(ended_at(now))
    return _with_later(found, calm)


def _with_later(episodes: Sequence[Episode], calm: Sequence[Bucket]) -> list[Episode]:
    """The episodes with the attempts after their ends, by the buckets that are above no threshold."""
    sums = list(accumulate((one.rate for one in reversed(calm)), initial=NONE))
    found: list[Episode] = []
    for one in episodes:
        ended_at = math.inf if one.ended_at is None else one.ended_at
        first = bisect_left(calm, ended_at, key=lambda bucket: bucket.since)
        found.append(replace(one, later=sums[len(calm) - first]))
    return found


def _base(calm: Sequence[Bucket], before: int, usual: float) -> float:
    recent = sum((one.rate for one in calm if before - BASE_MS <= one.since), start=NONE)
    return recent.rate if recent.attempts >= BASE_ATTEMPTS else usual


def _rate_of_others(buckets: Sequence[Bucket]) -> float:
    return sum((one.rate for one in buckets if one.rate.lower <= _MANY), start=NONE).rate


def _after_quiet(pauses: Sequence[Pause], since: int) -> int | None:
    """When five minutes have passed since then in which the group was not paused; None while it is paused."""
    at, left = since, QUIET_MS
    for pause in sorted(pauses, key=lambda one: one.since):
        if pause.until is not None and pause.until <= at:
            continue
        if pause.since - at >= left:
            break
        left -= max(pause.since - at, 0)
        if pause.until is None:
            return None
        at = pause.until
    return at + left


def _paused_ms(pauses: Sequence[Pause], since: int, until: int) -> int:
    spans = sorted((max(one.since, since), min(until if one.until is None else one.until, until)) for one in pauses)
    total, covered = 0, since
    for start, end in spans:
        total += max(end - max(start, covered), 0)
        covered = max(covered, end)
    return total
