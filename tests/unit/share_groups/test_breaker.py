"""The rolling window of KIP-1316: which second trips, and what is not counted."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.share_groups.model.breaker import CATCH_UP_S, BreakerRules, Breakers, BreakerWindow, WindowTotals

LINES = (Path(__file__).parents[2] / "fixtures" / "breaker" / "windows.txt").read_text("utf-8").splitlines()
CASES = [[part.strip() for part in line.split("|")] for line in LINES if line and not line.startswith("#")]
RULES = BreakerRules(threshold_percent=20, window_ms=60_000, min_messages=100)


def rules_of(text: str) -> BreakerRules:
    threshold, window_ms, least = map(int, text.split())
    return BreakerRules(threshold_percent=threshold, window_ms=window_ms, min_messages=least)


def events_of(text: str) -> list[tuple[int, int, int]]:
    return [
        (int(second), int(delivered), int(dlq_written))
        for second, counts in (event.split(":") for event in text.split())
        for delivered, dlq_written in (counts.split("/"),)
    ]


@pytest.mark.parametrize(
    ("rules_text", "events_text", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_first_bucket_that_trips_is(rules_text: str, events_text: str, expected: str) -> None:
    rules, events = rules_of(rules_text), events_of(events_text)
    window, tripped = BreakerWindow(rules.window_ms), []
    for second in range(events[-1][0] + rules.width_s + 2):
        for at, delivered, dlq_written in events:
            if at == second:
                window.count(second + 0.5, delivered, dlq_written)
        assert window.evaluate(second + 0.999, rules) is None, "a bucket is judged when it has ended"
        if window.evaluate(second + 1.0, rules) is not None:
            tripped.append(second)
    assert (str(tripped[0]) if tripped else "never") == expected
    assert window.is_empty


def test_a_bucket_is_evaluated_once() -> None:
    window = BreakerWindow(60_000)
    window.count(0.5, 0, 100)
    assert window.evaluate(1.0, RULES) is not None
    assert window.evaluate(1.9, RULES) is None
    assert window.evaluate(2.0, RULES) is not None, "the next end of a bucket says so again until it is reset"


def test_a_tally_has_the_numbers_of_its_own_bucket_and_not_of_the_open_one() -> None:
    window = BreakerWindow(60_000)
    window.count(0.5, 75, 25)
    window.count(1.1, 1000, 0)
    assert window.evaluate(1.2, RULES) == WindowTotals(
        delivered=75, dlq_written=25, threshold_percent=20, window_ms=60_000
    )
    assert window.totals(1.2) == (1075, 25)


def test_after_a_delay_every_end_of_a_bucket_is_judged() -> None:
    window = BreakerWindow(60_000)
    window.count(0.5, 75, 25)
    window.count(1.5, 1000, 0)
    assert window.evaluate(7.0, RULES) is not None, "the first bucket trips although the second one would not"


def test_of_a_very_long_delay_only_the_last_minute_is_judged() -> None:
    window = BreakerWindow(60_000)
    window.count(0.5, 0, 100)
    assert window.evaluate(60.0 + CATCH_UP_S, RULES) is None
    window = BreakerWindow(60_000)
    window.count(0.5, 0, 100)
    assert window.evaluate(59.0 + CATCH_UP_S, RULES) is not None


def test_a_narrower_window_counts_from_the_next_end_on() -> None:
    window = BreakerWindow(60_000)
    window.count(0.5, 1000, 0)
    window.count(30.5, 0, 100)
    assert window.evaluate(31.0, RULES) is None
    narrow = BreakerRules(threshold_percent=20, window_ms=10_000, min_messages=100)
    assert window.evaluate(32.0, narrow) == WindowTotals(
        delivered=0, dlq_written=100, threshold_percent=20, window_ms=10_000
    )


def test_a_lower_threshold_counts_from_the_next_end_on_without_a_new_record() -> None:
    window = BreakerWindow(60_000)
    window.count(0.5, 90, 10)
    assert window.evaluate(1.0, RULES) is None
    assert window.evaluate(2.0, BreakerRules(threshold_percent=10, window_ms=60_000, min_messages=100)) is not None


def test_without_rules_time_passes_and_nothing_trips() -> None:
    window = BreakerWindow(2_000)
    window.count(0.5, 0, 100)
    assert window.evaluate(1.0, None) is None
    assert window.evaluate(1.5, RULES) is None, "that end is over"
    assert window.evaluate(3.0, None) is None
    assert window.evaluate(200.0, None) is None
    assert window.is_empty


def test_a_window_that_nobody_judges_stays_small() -> None:
    window = BreakerWindow(2_000)
    for second in range(10_000):
        window.count(float(second), 1, 1)
    assert window.kept_seconds <= 2 + CATCH_UP_S + 1
    assert window.totals(9_999.0) == (2, 2)


@given(delivered=st.integers(0, 10**12), dlq_written=st.integers(0, 10**12), threshold=st.integers(1, 100))
def test_the_threshold_is_exact_for_any_numbers(delivered: int, dlq_written: int, threshold: int) -> None:
    rules = BreakerRules(threshold_percent=threshold, window_ms=1000, min_messages=1)
    total = delivered + dlq_written
    # The fewest dead letters of so many that reach the threshold.
    fewest = -(-threshold * total // 100)
    assert rules.trips(delivered, dlq_written) == (total > 0 and dlq_written >= fewest)


# --- all groups -----------------------------------------------------------------------------------------------------


def counted(
    breakers: Breakers, now: float, *, group: str = "sg", generation: int = 0, current: int = 0, age_ms: int = 0
) -> None:
    """A hundred dead letters."""
    breakers.count(
        group,
        now,
        generation=generation,
        current_generation=current,
        age_ms=age_ms,
        window_ms=60_000,
        delivered=0,
        dlq_written=100,
    )


def test_each_group_has_its_own_window_and_rules() -> None:
    breakers = Breakers()
    counted(breakers, 0.5, group="a")
    counted(breakers, 0.5, group="b")
    lenient = BreakerRules(threshold_percent=20, window_ms=60_000, min_messages=101)
    tripped = breakers.evaluate(1.0, lambda group: RULES if group == "a" else lenient)
    assert tripped == [("a", WindowTotals(delivered=0, dlq_written=100, threshold_percent=20, window_ms=60_000))]


def test_records_acquired_before_the_trip_never_count() -> None:
    breakers = Breakers()
    counted(breakers, 0.5, generation=3, current=4)
    assert breakers.old_generation == 100
    assert breakers.evaluate(1.0, lambda _: RULES) == []
    assert len(breakers) == 0
    counted(breakers, 1.5, generation=4, current=4)
    assert [group for group, _ in breakers.evaluate(2.0, lambda _: RULES)] == ["sg"]


def test_what_is_older_than_a_window_is_ignored_and_counted() -> None:
    breakers = Breakers()
    counted(breakers, 0.5, age_ms=60_001)
    assert (breakers.too_old, len(breakers)) == (100, 0)
    counted(breakers, 0.5, age_ms=60_000)
    counted(breakers, 0.5, age_ms=-5_000)  # the other one's clock is ahead
    assert breakers.too_old == 100
    assert breakers.totals("sg", 0.5) == (0, 200)


def test_a_resume_empties_the_groups_window_and_no_other() -> None:
    breakers = Breakers()
    counted(breakers, 0.5, group="a")
    counted(breakers, 0.5, group="b")
    breakers.reset("a")
    assert [group for group, _ in breakers.evaluate(1.0, lambda _: RULES)] == ["b"]
    breakers.reset_all()
    assert breakers.evaluate(2.0, lambda _: RULES) == []


def test_a_group_of_which_nothing_is_left_takes_no_room() -> None:
    breakers = Breakers(max_groups=1)
    counted(breakers, 0.5, group="a")
    counted(breakers, 0.5, group="b")
    assert (len(breakers), breakers.left_out) == (1, 100)
    breakers.evaluate(61.0, lambda _: None)
    counted(breakers, 61.5, group="b")
    assert breakers.totals("b", 61.5) == (0, 100)
    assert breakers.totals("a", 61.5) == (0, 0)


def test_nothing_at_all_is_no_window() -> None:
    breakers = Breakers()
    breakers.count("sg", 0.0, generation=0, current_generation=0, age_ms=0, window_ms=1_000, delivered=0, dlq_written=0)
    assert len(breakers) == 0
