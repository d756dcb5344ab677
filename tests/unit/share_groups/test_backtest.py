"""What other settings of a breaker would have done, compared with the breaker itself."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headgate.share_groups.model.backtest import (
    DEAD_LETTER_DELAY_S,
    NO_KEY,
    BacktestSummary,
    CountColumns,
    DeadLetterColumns,
    GroupHistory,
    PausedPeriod,
    SimulatedTrip,
    configurations,
    recommended,
    summarize,
)
from headgate.share_groups.model.breaker import BreakerRules, BreakerWindow

START = 1_794_700_000
Row = tuple[int, int, int, int]  # second after START, member, delivered, written
Made = tuple[int, int]  # milliseconds after START, key


def columns(rows: Sequence[Row]) -> CountColumns:
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return CountColumns(second=START + table[:, 0], member=table[:, 1], delivered=table[:, 2], dlq_written=table[:, 3])


def history(
    rows: Sequence[Row], length_s: int = 600, paused: Sequence[tuple[int, int]] = (), dead_letters: Sequence[Made] = ()
) -> GroupHistory:
    periods = [PausedPeriod(begin=START + begin, end=START + end) for begin, end in paused]
    made = np.array(dead_letters, dtype=np.int64).reshape(-1, 2)
    of_keys = DeadLetterColumns(at=START * 1000 + made[:, 0], key=made[:, 1])
    return GroupHistory(columns(rows), begin=START, end=START + length_s, paused=periods, dead_letters=of_keys)


def rules(percent: int = 20, window_s: int = 10, least: int = 10) -> BreakerRules:
    return BreakerRules(threshold_percent=percent, window_ms=window_s * 1000, min_messages=least)


def trip_seconds(trips: Sequence[SimulatedTrip]) -> list[int]:
    return [trip.second - START for trip in trips]


def oracle(rows: Sequence[Row], of: BreakerRules, length_s: int, pause_s: int) -> list[int]:
    """The seconds at whose ends the breaker itself trips; records of a pause are not processed."""
    found: list[int] = []
    window = BreakerWindow(of.window_ms)
    resume_at = 0
    for second in range(length_s):
        if second < resume_at:
            continue
        for at, _, delivered, written in rows:
            if at == second:
                window.count(second, delivered, written)
        if window.evaluate(second + 1, of) is not None:
            found.append(second)
            window.reset()
            resume_at = second + 1 + pause_s
    return found


@given(
    st.lists(st.tuples(st.integers(0, 59), st.integers(0, 2), st.integers(0, 9), st.integers(0, 9)), max_size=40),
    st.integers(1, 100),
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(1, 20),
)
def test_it_trips_in_the_seconds_in_which_the_breaker_trips(
    rows: list[Row], percent: int, window_s: int, least: int, pause_s: int
) -> None:
    of = rules(percent, window_s, least)
    trips = history(rows, 60).simulate(of, pause_s)
    assert trip_seconds(trips) == oracle(rows, of, 60, pause_s)


def test_a_trip_has_the_counts_of_its_window_and_what_its_pause_avoids() -> None:
    rows = [(0, 0, 100, 0), (20, 0, 6, 4), (25, 0, 0, 7), (40, 0, 0, 3), (60, 0, 50, 0)]
    (trip,) = history(rows).simulate(rules(), 30)
    assert (trip.second - START, trip.delivered, trip.dlq_written) == (20, 6, 4)
    assert (trip.paused_s, trip.avoided) == (30, 10)


def test_the_time_in_which_the_group_was_paused_is_left_out_and_empties_the_window() -> None:
    rows = [(0, 0, 5, 1), (12, 0, 0, 100), (20, 0, 4, 1)]
    asked = rules(percent=15, window_s=60)
    paused = history(rows, paused=[(10, 20)])
    assert paused.left_out_s(START, START + 600) == 10
    assert paused.left_out_s(START + 15, START + 600) == 5
    assert paused.simulate(asked, 30) == [], "5 records before and 5 after the pause do not make 10"
    assert trip_seconds(history(rows).simulate(asked, 30)) == [12]


def test_a_trip_that_happened_is_followed_by_the_pause_that_happened() -> None:
    rows = [(8, 0, 0, 20), (31, 0, 0, 20)]
    trips = history(rows, paused=[(10, 30)]).simulate(rules(), 300)
    assert trip_seconds(trips) == [8, 31]
    assert [trip.paused_s for trip in trips] == [21, 300]
    assert trip_seconds(history(rows, paused=[(14, 30)]).simulate(rules(), 300)) == [8], "that pause has another cause"


def test_a_pause_ends_with_the_history() -> None:
    (trip,) = history([(595, 0, 0, 20), (599, 0, 0, 1)], 600).simulate(rules(), 300)
    assert (trip.paused_s, trip.avoided) == (4, 1)


def test_a_trip_is_false_when_one_member_alone_causes_it() -> None:
    one_is_broken = [(0, 0, 0, 10), (0, 1, 20, 0), (0, 2, 10, 0)]
    all_are = [(0, 0, 10, 5), (0, 1, 10, 5)]
    (broken,) = history(one_is_broken).simulate(rules(), 30)
    (outage,) = history(all_are).simulate(rules(), 30)
    assert broken.is_false
    assert not outage.is_false


def test_the_only_member_of_a_group_makes_no_trip_false() -> None:
    (alone,) = history([(0, 0, 0, 10), (0, 1, 9, 0)]).simulate(rules(), 30)
    assert not alone.is_false, "nine records of the others say nothing"


def test_only_records_of_the_window_decide_whether_a_trip_is_false() -> None:
    rows = [(0, 1, 100, 0), (50, 0, 0, 10)]
    (trip,) = history(rows).simulate(rules(), 30)
    assert not trip.is_false


def dead_letters_of(second: int, *counts: int) -> list[Made]:
    """As many letters of each key, made half a second before the gateway counted them."""
    return [(second * 1000 - 500, key) for key, n in enumerate(counts) for _ in range(n)]


def test_a_trip_is_false_when_the_dead_letters_of_one_key_cause_it() -> None:
    """The example of the documentation: 80 accepted records and 30 dead letters, of which one key has 15."""
    rows = [(5, 0, 40, 15), (5, 1, 40, 15)]
    one_order, all_orders = dead_letters_of(5, 15, *[2] * 7, 1), dead_letters_of(5, *[1] * 30)
    (trip,) = history(rows, dead_letters=one_order).simulate(rules(), 30)
    assert trip.is_false
    for made in (all_orders, one_order[:10], [(at, NO_KEY) for at, _ in one_order], ()):
        (trip,) = history(rows, dead_letters=made).simulate(rules(), 30)
        assert not trip.is_false, "15 of 95 records are below 20 %; 29 of 109, or 20 of 100, are not"


def test_a_key_that_failed_once_makes_no_trip_false() -> None:
    """12 dead letters of 60 records are just 20 %; without one or two of them it is less."""
    for made, is_false in ((dead_letters_of(5, *[1] * 12), False), (dead_letters_of(5, 2, *[1] * 10), True)):
        (trip,) = history([(5, 0, 24, 6), (5, 1, 24, 6)], dead_letters=made).simulate(rules(), 30)
        assert trip.is_false == is_false


def test_a_key_makes_no_trip_false_when_little_else_was_processed() -> None:
    for accepted, is_false in ((9, False), (10, True)):
        (trip,) = history([(0, 0, accepted, 50)], dead_letters=dead_letters_of(0, 50)).simulate(rules(), 30)
        assert trip.is_false == is_false


def test_dead_letters_that_were_not_counted_make_no_trip_false() -> None:
    """Letters of one key were made when no count is left for them: before, after, in a pause, and more than counted."""
    rows = [(20, 0, 30, 8), (20, 1, 30, 8), (40, 0, 0, 5)]
    others = dead_letters_of(20, *[1] * 16)
    late = (20 - DEAD_LETTER_DELAY_S) * 1000 - 1
    for made in ([(late, 99)] * 16, [*others, *dead_letters_of(20, *[0] * 99, 16)], [(21_000, 99)] * 16):
        (trip,) = history(rows, dead_letters=made).simulate(rules(), 60)
        assert (trip.second - START, trip.is_false) == (20, False)
    (trip,) = history(rows, dead_letters=[(late + 1, 99)] * 16).simulate(rules(), 60)
    assert trip.is_false, "they were counted when the last of their time had come"
    (trip,) = history([*rows, (12, 0, 0, 16)], dead_letters=[(11_900, 99)] * 16, paused=[(5, 19)]).simulate(rules(), 60)
    assert not trip.is_false, "they were counted in a pause"


def oracle_of_keys(
    rows: Sequence[Row], dead_letters: Sequence[Made], of: BreakerRules, trip: SimulatedTrip, start: int
) -> bool:
    """Whether the trip is false, with each count of a dead letter and each letter taken one by one."""
    waiting = sorted(dead_letters, key=lambda one: one[0])
    counted: list[tuple[int, int]] = []
    for second in sorted(at for at, _, _, written in rows for _ in range(written)):
        waiting = [one for one in waiting if second - one[0] // 1000 <= DEAD_LETTER_DELAY_S]
        if waiting and waiting[0][0] // 1000 <= second:
            counted.append((second, waiting.pop(0)[1]))
    at = trip.second - START
    window = range(max(start, at - of.window_ms // 1000 + 1), at + 1)
    inside = [row for row in rows if row[0] in window]
    rests = [[(a, w) for _, m, a, w in inside if m != member] for member in range(3)]
    for key in {key for _, key in counted} - {NO_KEY}:
        of_key = sum(one == key and second in window for second, one in counted)
        if of_key > 1:
            rests.append([*((a, w) for _, _, a, w in inside), (0, -of_key)])
    sums = [(sum(a for a, _ in rest), sum(w for _, w in rest)) for rest in rests]
    return any(a + w >= 10 and 100 * w < of.threshold_percent * (a + w) for a, w in sums)


@given(
    st.lists(st.tuples(st.integers(0, 59), st.integers(0, 2), st.integers(0, 9), st.integers(0, 9)), max_size=20),
    st.lists(st.tuples(st.integers(-20_000, 70_000), st.integers(NO_KEY, 3)), max_size=60),
    st.integers(1, 60),
    st.integers(1, 30),
)
def test_a_trip_is_false_when_it_is_for_a_plain_count(
    rows: list[Row], dead_letters: list[Made], percent: int, window_s: int
) -> None:
    of = rules(percent, window_s)
    start = 0
    for trip in history(rows, 60, dead_letters=dead_letters).simulate(of, 5):
        assert trip.is_false == oracle_of_keys(rows, dead_letters, of, trip, start)
        start = trip.second - START + 6


def test_a_history_without_records_trips_never() -> None:
    assert history([]).simulate(rules(least=1), 30) == []
    assert history([(5, 0, 0, 50)], paused=[(-5, 700)]).simulate(rules(), 30) == []
    assert history([], 0).simulate(rules(), 30) == []


def test_records_outside_of_the_history_and_impossible_counts_do_not_count() -> None:
    rows = [(-3, 0, 0, 50), (600, 0, 0, 50), (10, 0, 2**62, -5)]
    assert history(rows).simulate(rules(), 30) == []


def test_there_are_a_hundred_configurations_and_the_live_one_is_the_first() -> None:
    assert len(configurations(None)) == 100
    assert len(set(configurations(rules(percent=33)))) == 101
    assert configurations(rules(percent=33))[0] == rules(percent=33)
    known = rules(percent=20, window_s=60, least=100)
    assert configurations(known)[0] == known
    assert len(configurations(known)) == 100


def summary(
    *, percent: int = 20, trips: int = 1, paused_s: int = 60, avoided: int = 100, false_trips: int = 0
) -> BacktestSummary:
    return BacktestSummary(
        rules=rules(percent), trips=trips, paused_s=paused_s, avoided=avoided, false_trips=false_trips
    )


def test_a_recommendation_avoids_false_trips_first_then_dead_letters_then_pauses() -> None:
    assert recommended([summary(trips=0, paused_s=0, avoided=0)]) is None
    assert recommended([summary(trips=2, false_trips=1, avoided=500), summary(avoided=10)]) == 1
    assert recommended([summary(avoided=80), summary(avoided=100)]) == 1
    assert recommended([summary(avoided=100, paused_s=90), summary(avoided=91, paused_s=60)]) == 1
    assert recommended([summary(), summary(percent=90)]) == 0, "the live configuration stays"
    assert recommended([summary(trips=0), summary(percent=30), summary(percent=40)]) == 2


def test_a_summary_adds_up_its_trips() -> None:
    trips = history([(0, 0, 0, 10), (40, 0, 5, 5), (42, 0, 0, 2)]).simulate(rules(), 30)
    assert summarize(rules(), trips) == BacktestSummary(rules=rules(), trips=2, paused_s=60, avoided=2, false_trips=0)


def test_a_setting_whose_trips_are_all_false_is_not_recommended() -> None:
    calm = summary(trips=0, paused_s=0, avoided=0)
    assert recommended([calm, summary(trips=1, false_trips=1, avoided=500)]) is None
    assert recommended([calm, summary(trips=2, false_trips=1, avoided=10), summary(trips=1, false_trips=1)]) == 1
