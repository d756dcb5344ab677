"""When a downstream of the sample fails: by schedule, and by its switch."""

from pathlib import Path

import pytest

from headgate.sample.outages import Downstream, DownstreamState, OutageSchedule


@pytest.mark.parametrize(
    ("elapsed_s", "is_down"),
    [(0, False), (74.9, False), (75, True), (124.9, True), (125, False), (374, False), (375, True), (425, False)],
)
def test_an_outage_begins_every_few_minutes_and_lasts_fifty_seconds(elapsed_s: float, is_down: bool) -> None:
    assert OutageSchedule(every_s=300, first_part=0.25).is_down(elapsed_s) is is_down


@pytest.mark.parametrize(("elapsed_s", "is_down"), [(14.9, False), (15, True), (34.9, True), (35, False), (75, True)])
def test_of_a_short_cycle_a_third_is_an_outage(elapsed_s: float, is_down: bool) -> None:
    assert OutageSchedule(every_s=60, first_part=0.25).is_down(elapsed_s) is is_down


def test_a_cycle_of_zero_has_no_outage() -> None:
    schedule = OutageSchedule(every_s=0, first_part=0.25)
    assert not any(schedule.is_down(second) for second in range(1000))


def test_the_switch_comes_before_the_schedule_and_is_removed_at_the_start(tmp_path: Path) -> None:
    now = [1000.0]
    switch = tmp_path / "billing-is-down"
    switch.touch()
    downstream = Downstream(switch, OutageSchedule(every_s=300, first_part=0.25), lambda: now[0])
    assert downstream.state() is DownstreamState.UP
    now[0] += 80
    assert downstream.state() is DownstreamState.SCHEDULED_OUTAGE
    switch.touch()
    assert downstream.state() is DownstreamState.SWITCHED_OFF
