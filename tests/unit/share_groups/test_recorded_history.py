"""When a group was paused, and with which settings it runs, by its recorded events."""

import json

import numpy as np
import pytest

from headgate.share_groups.model.backtest import CountColumns, GroupHistory, PausedPeriod
from headgate.share_groups.model.breaker import BreakerRules
from headgate.share_groups.model.group_configs import MIN_MESSAGES, THRESHOLD_PERCENT
from headgate.share_groups.model.group_state import BREAKER_PRINCIPAL
from headgate.share_groups.model.recorded_history import (
    RecordedEvent,
    paused_periods,
    recorded_event,
    recorded_settings,
    rules_of,
)

END = 1000


def event(second: int, name: str, by: str | None = "User:ops") -> RecordedEvent:
    return RecordedEvent(at=second * 1000 + 400, event=name, by=by)


def periods(*events: RecordedEvent) -> list[tuple[int, int]]:
    return [(one.begin, one.end) for one in paused_periods(events, end=END)]


def test_a_pause_lasts_from_the_trip_to_the_resume() -> None:
    assert periods(event(10, "tripped", None), event(40, "resumed"), event(60, "paused"), event(70, "resumed")) == [
        (11, 40),
        (61, 70),
    ]


def test_an_automatic_resume_does_not_end_the_pause_of_an_operator() -> None:
    both = (event(10, "tripped", None), event(20, "paused"), event(40, "resumed", BREAKER_PRINCIPAL))
    assert periods(*both) == [(11, END)]
    assert periods(*both, event(50, "resumed")) == [(11, 50)]


def test_the_resume_of_an_operator_ends_both_pauses() -> None:
    assert periods(event(10, "tripped", None), event(20, "paused"), event(40, "resumed")) == [(11, 40)]


def test_the_order_of_the_events_is_that_of_their_times() -> None:
    assert periods(event(40, "resumed"), event(10, "tripped", None)) == [(11, 40)]


def test_a_pause_within_a_second_leaves_nothing_out_and_a_resume_alone_is_none() -> None:
    assert paused_periods([event(10, "paused"), event(10, "resumed")], end=END) == [PausedPeriod(begin=11, end=11)]
    assert periods(event(10, "resumed"), event(20, "config_changed")) == []
    assert periods(event(END, "tripped")) == []


@pytest.mark.parametrize("resumed_at", [10, 11, 40])
def test_counts_that_were_written_in_the_second_of_their_trip_trip_in_the_back_test(resumed_at: int) -> None:
    paused = paused_periods([event(10, "tripped", None), event(resumed_at, "resumed")], end=END)
    once = np.array([10], dtype=np.int64)
    counts = CountColumns(second=once, member=0 * once, delivered=2 * once, dlq_written=2 * once)
    history = GroupHistory(counts, begin=0, end=END, paused=paused)
    trips = history.simulate(BreakerRules(threshold_percent=50, window_ms=10_000, min_messages=20), 300)
    assert [(trip.second, trip.second + 1 + trip.paused_s) for trip in trips] == [(10, max(resumed_at, 11))]


def test_settings_are_those_of_the_last_changes() -> None:
    first = recorded_event(1, "config_changed", None, json.dumps({"changes": {THRESHOLD_PERCENT: "35"}}))
    second = recorded_event(2, "config_changed", None, json.dumps({"changes": {MIN_MESSAGES: "7"}}))
    third = recorded_event(3, "config_changed", None, json.dumps({"changes": {THRESHOLD_PERCENT: None}}))
    rules = rules_of(recorded_settings([second, first]))
    assert (rules.threshold_percent, rules.min_messages, rules.window_ms) == (35, 7, 60_000)
    assert rules_of(recorded_settings([third, second, first])).threshold_percent == 20


@pytest.mark.parametrize("detail", ["", "[]", "{}", '{"changes":7}', '{"changes":null}', '{"changes":["a"]}', "nul"])
def test_details_of_another_form_change_nothing(detail: str) -> None:
    assert recorded_event(1, "config_changed", None, detail).changes == ()
