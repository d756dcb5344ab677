"""Simulates a circuit breaker with other settings: the breaker of KIP-1316 over recorded counts.

A history has the counts of a group by second, and the times in which it was really paused. Those are left out: nothing
was processed then, so no setting can be judged by them. The windows begin anew after them, as those of the leader do.
`simulate` gives the trips of one configuration, in the seconds in which `BreakerWindow` trips. It works on columns of
numbers, because a week of a group is 600,000 seconds and there are a hundred configurations.

After a simulated trip the group is paused as it really was, when it really tripped in these seconds; otherwise for the
time of an automatic resume. Dead letters of a simulated pause count as avoided: the records would have waited.

A trip is false when one member or one key alone caused it. The counts name members but no keys; keys are known of
dead letters, each with the time at which it was made. So every dead letter is assigned to a second in which one was
counted, and one for which no count is left is ignored: dead letters can make a trip false only as far as the counts
have them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from headgate.share_groups.model.breaker import BreakerRules

Numbers = npt.NDArray[np.int64]

DAY_S: Final = 86_400
# The leader writes a trip within seconds of the records that cause it: a pause that begins so soon is that of the trip.
TRIP_DELAY_S: Final = 5
# What is left of a window without one member or one key says nothing if it has fewer records.
LEAST_REST: Final = 10
# A breaker trips when its window is just at the threshold, so without any one record it would often be below: a key
# that failed once caused nothing.
LEAST_OF_KEY: Final = 2
# A dead letter is counted when its acknowledgement has succeeded and the counts of that second are written.
DEAD_LETTER_DELAY_S: Final = 10
# The key of a dead letter whose record has none, or was gone before its key was read.
NO_KEY: Final = -1

# More records than a member processes in a second; sums of a week of them still fit into a number.
_MOST: Final = 10**9

_THRESHOLDS: Final = (5, 10, 15, 20, 25, 30, 40, 50, 60, 75)
LONGEST_WINDOW_MS: Final = 300_000  # of the configurations to compare; a live one may be longer
_WINDOWS_MS: Final = (10_000, 30_000, 60_000, 120_000, LONGEST_WINDOW_MS)
_LEAST_MESSAGES: Final = (20, 100)
# How much of the dead letters that the best configuration avoids a recommended one may let through.
_NEARLY_ALL: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class CountColumns:
    """Counts of the records that members processed: rows of a member and a second, in any order, also several."""

    second: Numbers
    member: Numbers  # a number for each member, from 0
    delivered: Numbers
    dlq_written: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterColumns:
    """Dead letters of a group: a row for each, in any order; some that were counted may be missing."""

    at: Numbers  # when it was made, epoch milliseconds
    key: Numbers  # a number for each key, from 0; `NO_KEY` where it is unknown


_NO_DEAD_LETTERS: Final = DeadLetterColumns(at=np.zeros(0, dtype=np.int64), key=np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedPeriod:
    """The group was really paused from the second `begin` up to, and not including, `end`.

    Where both are the same nothing is left out, and the windows begin anew.
    """

    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTrip:
    second: int
    delivered: int
    dlq_written: int
    paused_s: int
    avoided: int
    is_false: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestSummary:
    """The result of one configuration over the whole history."""

    rules: BreakerRules
    trips: int
    paused_s: int
    avoided: int
    false_trips: int


class GroupHistory:
    """The counts of one group between two seconds, `end` not included, without the times in which it was paused."""

    def __init__(
        self,
        counts: CountColumns,
        *,
        begin: int,
        end: int,
        paused: Iterable[PausedPeriod] = (),
        dead_letters: DeadLetterColumns = _NO_DEAD_LETTERS,
    ) -> None:
        self.begin = begin
        self.end = max(end, begin)
        self._open = list(_open_periods(self.begin, self.end, paused))
        kept = self._is_open(counts.second)
        order = np.argsort(counts.second[kept], kind="stable")
        self._at = counts.second[kept][order] - begin
        self._members = counts.member[kept][order]
        self._member_delivered = np.clip(counts.delivered[kept][order], 0, _MOST)
        self._member_written = np.clip(counts.dlq_written[kept][order], 0, _MOST)
        self._delivered = self._summed(self._member_delivered)
        self._written = self._summed(self._member_written)
        self._dead_letter_at, self._dead_letter_keys = self._counted_dead_letters(counts, dead_letters)
        self._rolling: dict[int, tuple[Numbers, Numbers, Numbers]] = {}

    @property
    def dead_letters(self) -> int:
        return int(self._written[-1])

    def left_out_s(self, begin: int, end: int) -> int:
        """The number of seconds between these two in which the group was paused."""
        return end - begin - sum(max(0, min(to, end) - max(start, begin)) for start, to in self._open)

    def simulate(self, rules: BreakerRules, pause_s: int) -> list[SimulatedTrip]:
        """The trips of this configuration, in the order of time; a pause that did not happen takes `pause_s`."""
        hits = self._hits(rules)
        trips: list[SimulatedTrip] = []
        resume_at = 0
        for number, (begin, end) in enumerate(self._open):
            start = max(begin - self.begin, resume_at)
            last = end - self.begin
            while start < last and (at := self._first_trip(rules, hits, start, last)) is not None:
                really_paused = last < self.end - self.begin and last - at <= TRIP_DELAY_S
                if really_paused:
                    following = self._open[number + 1][0] if number + 1 < len(self._open) else self.end
                    resume_at = following - self.begin
                else:
                    resume_at = at + 1 + max(pause_s, 1)
                trips.append(self._trip(rules, start, at, resume_at))
                start = resume_at
        return trips

    # --- one configuration

    def _first_trip(self, rules: BreakerRules, hits: Numbers, start: int, end: int) -> int | None:
        """The first second whose end trips, when the window was emptied before `start`."""
        whole = start + rules.width_s - 1  # from here on the window lies behind `start` as a whole
        stop = min(whole, end)
        if stop > start:
            delivered = self._delivered[start + 1 : stop + 1] - self._delivered[start]
            written = self._written[start + 1 : stop + 1] - self._written[start]
            found = np.flatnonzero(_trips(rules, delivered, written))
            if found.size:
                return start + int(found[0])
        place = int(np.searchsorted(hits, whole))
        return int(hits[place]) if place < hits.size and hits[place] < end else None

    def _hits(self, rules: BreakerRules) -> Numbers:
        """The seconds whose whole windows would trip."""
        seconds, delivered, written = self._windows(rules.width_s)
        return seconds[_trips(rules, delivered, written)]

    def _windows(self, width: int) -> tuple[Numbers, Numbers, Numbers]:
        """The seconds whose whole windows have a dead letter, and their counts.

        No other window trips, because a threshold is at least 1 %. In most weeks they are few.
        """
        if width not in self._rolling:
            before = np.maximum(np.arange(self.end - self.begin) - width + 1, 0)
            written = self._written[1:] - self._written[before]
            seconds = np.flatnonzero(written)
            delivered = self._delivered[seconds + 1] - self._delivered[before[seconds]]
            self._rolling[width] = seconds, delivered, written[seconds]
        return self._rolling[width]

    def _trip(self, rules: BreakerRules, start: int, at: int, resume_at: int) -> SimulatedTrip:
        first = max(start, at - rules.width_s + 1)
        until = min(resume_at, self.end - self.begin)
        return SimulatedTrip(
            second=self.begin + at,
            delivered=int(self._delivered[at + 1] - self._delivered[first]),
            dlq_written=int(self._written[at + 1] - self._written[first]),
            paused_s=until - at - 1,
            avoided=int(self._written[until] - self._written[at + 1]),
            is_false=self._is_by_one_member(rules, first, at) or self._is_by_one_key(rules, first, at),
        )

    def _is_by_one_member(self, rules: BreakerRules, first: int, at: int) -> bool:
        """Whether the window would have been below the threshold without the records of one member."""
        within = slice(*(int(np.searchsorted(self._at, one)) for one in (first, at + 1)))
        members = self._members[within]
        delivered = np.zeros(members.max() + 1, dtype=np.int64)
        written = np.zeros_like(delivered)
        np.add.at(delivered, members, self._member_delivered[within])
        np.add.at(written, members, self._member_written[within])
        return _is_one_below(rules, delivered.sum() - delivered, written.sum() - written)

    def _is_by_one_key(self, rules: BreakerRules, first: int, at: int) -> bool:
        """Whether it would have been without the dead letters of one key; those that were accepted are not known."""
        within = slice(*(int(np.searchsorted(self._dead_letter_at, one)) for one in (first, at + 1)))
        _, of_key = np.unique(self._dead_letter_keys[within], return_counts=True)
        of_key = of_key[of_key >= LEAST_OF_KEY]
        written = self._written[at + 1] - self._written[first] - of_key
        delivered = np.full_like(written, self._delivered[at + 1] - self._delivered[first])
        return _is_one_below(rules, delivered, written)

    # --- columns

    def _summed(self, counts: Numbers) -> Numbers:
        """The sum of all counts before each second."""
        sums = np.zeros(self.end - self.begin + 1, dtype=np.int64)
        np.add.at(sums, self._at + 1, counts)
        return np.cumsum(sums)

    def _counted_dead_letters(self, counts: CountColumns, dead_letters: DeadLetterColumns) -> tuple[Numbers, Numbers]:
        """The seconds in which dead letters with a key were counted, ascending, and their keys."""
        is_within = (counts.second >= self.begin) & (counts.second < self.end)
        written = np.zeros(self.end - self.begin, dtype=np.int64)
        np.add.at(written, counts.second[is_within] - self.begin, np.clip(counts.dlq_written[is_within], 0, _MOST))
        order = np.argsort(dead_letters.at, kind="stable")
        keys = dead_letters.key[order]
        counted = _counted_at(dead_letters.at[order] // 1000 - self.begin, written)
        is_used = (counted >= 0) & (keys != NO_KEY) & self._is_open(counted + self.begin)
        return counted[is_used], keys[is_used]

    def _is_open(self, seconds: Numbers) -> npt.NDArray[np.bool_]:
        begins = np.array([begin for begin, _ in self._open], dtype=np.int64)
        ends = np.array([end for _, end in self._open], dtype=np.int64)
        if not begins.size:
            return np.zeros(seconds.shape, dtype=np.bool_)
        place = np.searchsorted(begins, seconds, side="right") - 1
        return (place >= 0) & (seconds < ends[np.maximum(place, 0)])


def _open_periods(begin: int, end: int, paused: Iterable[PausedPeriod]) -> Iterator[tuple[int, int]]:
    """The times from `begin` to `end` that are in none of these periods, which may overlap."""
    for one in sorted(paused, key=lambda period: period.begin):
        if one.begin > begin:
            yield begin, min(one.begin, end)
        begin = max(begin, one.end)
        if begin >= end:
            return
    if begin < end:
        yield begin, end


def _counted_at(made: Numbers, written: Numbers) -> Numbers:
    """The second in which each dead letter was counted, by the ascending seconds in which they were made; -1 for none.

    It is the first second that has a count left for it, within `DEAD_LETTER_DELAY_S`: dead letters are counted in their
    order.
    """
    counted = np.full(made.shape, -1, dtype=np.int64)
    slots = np.flatnonzero(written)
    seconds, left = slots.tolist(), written[slots].tolist()
    slot = 0
    starts = np.flatnonzero(np.diff(made, prepend=made[:1] - 1)).tolist()
    for start, end in pairwise([*starts, made.size]):
        second, at = int(made[start]), start
        while at < end:
            while slot < len(seconds) and (seconds[slot] < second or not left[slot]):
                slot += 1
            if slot == len(seconds) or seconds[slot] > second + DEAD_LETTER_DELAY_S:
                break
            taken = min(left[slot], end - at)
            counted[at : at + taken] = seconds[slot]
            left[slot] -= taken
            at += taken
    return counted


def _trips(rules: BreakerRules, delivered: Numbers, written: Numbers) -> npt.NDArray[np.bool_]:
    """`BreakerRules.trips` of many windows."""
    total = delivered + written
    return (total >= max(rules.min_messages, 1)) & (100 * written >= rules.threshold_percent * total)


def _is_one_below(rules: BreakerRules, delivered: Numbers, written: Numbers) -> bool:
    """Whether one of these rests of a window is below the threshold, and has records enough to say so."""
    rest = delivered + written
    return bool(((100 * written < rules.threshold_percent * rest) & (rest >= LEAST_REST)).any())


def configurations(live: BreakerRules | None) -> tuple[BreakerRules, ...]:
    """A hundred configurations to compare; the live one, if it is known, is the first and is not repeated."""
    others = (
        BreakerRules(threshold_percent=percent, window_ms=window_ms, min_messages=least)
        for percent in _THRESHOLDS
        for window_ms in _WINDOWS_MS
        for least in _LEAST_MESSAGES
    )
    return tuple(dict.fromkeys((*(() if live is None else (live,)), *others)))


def summarize(rules: BreakerRules, trips: Sequence[SimulatedTrip]) -> BacktestSummary:
    return BacktestSummary(
        rules=rules,
        trips=len(trips),
        paused_s=sum(trip.paused_s for trip in trips),
        avoided=sum(trip.avoided for trip in trips),
        false_trips=sum(trip.is_false for trip in trips),
    )


def recommended(summaries: Sequence[BacktestSummary]) -> int | None:
    """The place of the configuration to use, with the live one first in the list.

    None when no configuration would have had a trip that is not false: such trips stop nothing that a pause helps.
    Of those that would, the fewest false trips come first. Of these, a configuration must avoid nearly as many dead
    letters as the best one. Then the shortest pauses and the fewest trips decide, then the live one stays, and then the
    highest threshold wins, because it is the least likely to trip by chance.
    """
    tripping = [number for number, one in enumerate(summaries) if one.trips > one.false_trips]
    if not tripping:
        return None
    fewest = min(summaries[number].false_trips for number in tripping)
    sound = [number for number in tripping if summaries[number].false_trips == fewest]
    most = max(summaries[number].avoided for number in sound)
    enough = [number for number in sound if summaries[number].avoided >= _NEARLY_ALL * most]

    def cost(number: int) -> tuple[int, int, bool, int, int]:
        one = summaries[number]
        return one.paused_s, one.trips, number != 0, -one.rules.threshold_percent, number

    return min(enough, key=cost)
