"""A plain oracle of breakers, and a long random walk of both side by side.

The oracle is what KIP-1316 says in the plainest words: it keeps every event and adds them up anew at each second, in
fractions. In a walk groups change their rules, trip, are resumed, and hear of old and of late counts.
"""

import random
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from headgate.share_groups.model.breaker import BreakerRules, Breakers, WindowTotals

GROUPS = ("a", "b", "c")
WIDTHS_MS = (1_000, 1_500, 2_000, 5_000, 10_000)


@dataclass(slots=True)
class PlainGroup:
    """Events as (second, delivered, dead-lettered), since the last reset."""

    rules: BreakerRules
    generation: int = 0
    is_judged: bool = True
    width_s: int = 0
    events: list[tuple[int, int, int]] = field(default_factory=list)

    def count(self, second: int, delivered: int, dlq_written: int) -> None:
        if delivered + dlq_written == 0:
            return
        if not self.events:
            self.width_s = self._width_s()
        self.events.append((second, delivered, dlq_written))

    def window(self, second: int) -> tuple[int, int]:
        """Delivered and dead-lettered in the seconds of the window that ends with this one."""
        inside = [event for event in self.events if second - self.width_s < event[0] <= second]
        return sum(event[1] for event in inside), sum(event[2] for event in inside)

    def end(self, second: int) -> WindowTotals | None:
        """A second is over; what has left the window does not come back when that becomes wider."""
        if self.is_judged:
            self.width_s = self._width_s()
        self.events = [event for event in self.events if event[0] > second - self.width_s]
        delivered, dlq_written = self.window(second)
        total = delivered + dlq_written
        if not self.is_judged or total < self.rules.min_messages:
            return None
        if Fraction(dlq_written, total) < Fraction(self.rules.threshold_percent, 100):
            return None
        return WindowTotals(
            delivered=delivered,
            dlq_written=dlq_written,
            threshold_percent=self.rules.threshold_percent,
            window_ms=self.rules.window_ms,
        )

    def _width_s(self) -> int:
        return ceil(Fraction(self.rules.window_ms, 1000))


@dataclass(slots=True)
class Walk:
    """Breakers and oracle, and what was seen, so that a walk in which nothing happened is not called a success."""

    second: int = 0
    breakers: Breakers = field(default_factory=Breakers)
    plain: dict[str, PlainGroup] = field(default_factory=dict)
    events: int = 0
    trips: int = 0
    ignored: int = 0

    def count(self, group: str, delivered: int, dlq_written: int, *, age_ms: int = 0, before: int = 0) -> None:
        """`before`: by how many generations."""
        one = self.plain[group]
        self.breakers.count(
            group,
            self.second + 0.5,
            generation=one.generation - before,
            current_generation=one.generation,
            age_ms=age_ms,
            window_ms=one.rules.window_ms,
            delivered=delivered,
            dlq_written=dlq_written,
        )
        if before == 0 and age_ms <= one.rules.window_ms:
            one.count(self.second, delivered, dlq_written)
        else:
            self.ignored += delivered + dlq_written
        self.events += 1

    def pass_seconds(self, seconds: int) -> None:
        """So many seconds without a look, then all their ends are judged; who trips begins anew."""
        ended = range(self.second, self.second + seconds)
        self.second += seconds
        expected = {}
        for group, one in self.plain.items():
            tallies = [tally for second in ended if (tally := one.end(second)) is not None]
            if tallies:
                expected[group] = tallies[0]
        found = self.breakers.evaluate(float(self.second), self._rules_of)
        assert dict(found) == expected, f"at {self.second}"
        assert len(found) == len(expected)
        for group in expected:
            self.plain[group].generation += 1
            self.reset(group)
        self.trips += len(expected)

    def reset(self, group: str) -> None:
        self.plain[group].events.clear()
        self.breakers.reset(group)

    def reset_all(self) -> None:
        for one in self.plain.values():
            one.events.clear()
        self.breakers.reset_all()

    def check(self) -> None:
        for group, one in self.plain.items():
            assert self.breakers.totals(group, self.second + 0.999) == one.window(self.second), f"{group} {self.second}"
        assert self.breakers.old_generation + self.breakers.too_old == self.ignored
        assert self.breakers.left_out == 0

    def _rules_of(self, group: str) -> BreakerRules | None:
        return self.plain[group].rules if self.plain[group].is_judged else None


def random_rules(rng: random.Random) -> BreakerRules:
    return BreakerRules(
        threshold_percent=rng.choice((1, 19, 20, 21, 50, 100)),
        window_ms=rng.choice(WIDTHS_MS),
        min_messages=rng.choice((1, 5, 20, 100)),
    )


def walk(seed: int, events: int) -> Walk:
    """Raises when the breakers and the oracle disagree at any second."""
    rng = random.Random(seed)
    both = Walk(second=rng.randrange(10**6), plain={group: PlainGroup(rules=random_rules(rng)) for group in GROUPS})
    share = dict.fromkeys(GROUPS, 0.1)
    while both.events < events:
        for _ in range(rng.randrange(40)):
            group = rng.choice(GROUPS)
            one = both.plain[group]
            records = rng.choice((0, 1, 1, 2, 7, 30))
            dlq_written = sum(rng.random() < share[group] for _ in range(records))
            late = one.rules.window_ms + (rng.random() < 0.2)
            both.count(
                group,
                records - dlq_written,
                dlq_written,
                age_ms=rng.choice((-50, 0, 300, 900, late)),
                before=int(one.generation > 0 and rng.random() < 0.05),
            )
        both.check()
        both.pass_seconds(1 if rng.random() < 0.95 else rng.randint(2, 20))
        if rng.random() < 0.05:
            _change(rng, both, share)
    return both


def _change(rng: random.Random, both: Walk, share: dict[str, float]) -> None:
    group = rng.choice(GROUPS)
    match rng.randrange(5):
        case 0:
            both.reset(group)
        case 1:
            both.plain[group].rules = random_rules(rng)
        case 2:
            both.plain[group].is_judged = not both.plain[group].is_judged
        case 3:
            both.reset_all()
        case _:
            share[group] = rng.choice((0.0, 0.05, 0.19, 0.2, 0.21, 0.9))
