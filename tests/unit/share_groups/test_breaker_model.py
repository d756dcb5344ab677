"""Breakers beside a plain oracle: short histories that shrink, and long ones.

HEADGATE_TEST_HISTORIES is how many short ones are tried, HEADGATE_TEST_BREAKER_EVENTS how many events the long ones
have together; a soak walks a million.
"""

import os
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.share_groups.model.breaker import BreakerRules
from tests.unit.share_groups.breaker_walk import GROUPS, WIDTHS_MS, PlainGroup, Walk, walk

EVENTS = int(os.environ.get("HEADGATE_TEST_BREAKER_EVENTS", "50000"))
WALKS = 5
GROUP = st.sampled_from(GROUPS[:2])
RULES = st.builds(
    BreakerRules,
    threshold_percent=st.sampled_from([1, 20, 50, 100]),
    window_ms=st.sampled_from(WIDTHS_MS),
    min_messages=st.sampled_from([1, 5, 10]),
)


class Windows(RuleBasedStateMachine):
    walk: Walk

    @initialize(rules=RULES, second=st.integers(0, 3))
    def begin(self, rules: BreakerRules, second: int) -> None:
        self.walk = Walk(second=second, plain={group: PlainGroup(rules=rules) for group in GROUPS[:2]})

    @rule(group=GROUP, delivered=st.integers(0, 12), dlq_written=st.integers(0, 6))
    def records_are_counted(self, group: str, delivered: int, dlq_written: int) -> None:
        self.walk.count(group, delivered, dlq_written)

    @rule(group=GROUP, by_ms=st.integers(-1, 1), dlq_written=st.integers(1, 9))
    def records_of_about_a_window_ago_are_counted(self, group: str, by_ms: int, dlq_written: int) -> None:
        self.walk.count(group, 0, dlq_written, age_ms=self.walk.plain[group].rules.window_ms + by_ms)

    @precondition(lambda self: any(one.generation for one in self.walk.plain.values()))
    @rule(group=GROUP, dlq_written=st.integers(1, 9))
    def records_acquired_before_the_trip_are_counted(self, group: str, dlq_written: int) -> None:
        self.walk.count(group, 0, dlq_written, before=min(1, self.walk.plain[group].generation))

    @rule(seconds=st.sampled_from([1, 1, 1, 2, 5, 10, 11]))
    def time_passes(self, seconds: int) -> None:
        self.walk.pass_seconds(seconds)

    @rule(group=GROUP, rules=RULES)
    def the_rules_change(self, group: str, rules: BreakerRules) -> None:
        self.walk.plain[group].rules = rules

    @rule(group=GROUP)
    def the_breaker_is_switched(self, group: str) -> None:
        self.walk.plain[group].is_judged = not self.walk.plain[group].is_judged

    @rule(group=GROUP)
    def the_group_is_resumed(self, group: str) -> None:
        self.walk.reset(group)

    @rule()
    def another_leader_begins(self) -> None:
        self.walk.reset_all()

    @invariant()
    def totals_agree(self) -> None:
        if hasattr(self, "walk"):
            self.walk.check()


TestRandomWindows: Any = Windows.TestCase
TestRandomWindows.settings = settings(
    max_examples=int(os.environ.get("HEADGATE_TEST_HISTORIES", "100")), stateful_step_count=40, deadline=None
)


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_long_walk_agrees_with_an_oracle_at_every_second(seed: int) -> None:
    seen = walk(seed, EVENTS // WALKS)
    assert seen.trips > seen.events // 5_000
    assert seen.ignored > seen.events // 100
