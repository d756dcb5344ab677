"""Episodes: when they begin and end, and that a pause is not read as recovery."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.dead_letters.model.episodes import (
    BUCKET_ATTEMPTS,
    BUCKET_MS,
    QUIET_MS,
    Attempts,
    Pause,
    buckets_of,
    episodes_of,
)
from headgate.dead_letters.model.rates import FailureRate

SECOND = 1000


def steady(first_s: int, last_s: int, *, failed: int = 0, succeeded: int = 20, member: str = "m") -> list[Attempts]:
    seconds = range(first_s, last_s)
    return [Attempts(at=one * SECOND, member=member, failed=failed, succeeded=succeeded) for one in seconds]


def test_wilson_bounds_are_those_of_the_books() -> None:
    rate = FailureRate(8, 10)
    assert (round(rate.lower, 4), round(rate.upper, 4)) == (0.4902, 0.9433)
    assert (FailureRate(0, 0).lower, FailureRate(0, 0).upper) == (0.0, 1.0)
    assert FailureRate(0, 10).lower == 0.0
    assert FailureRate(10, 10).upper == pytest.approx(1.0)


def test_buckets_have_five_seconds_and_are_joined_until_they_have_15_attempts() -> None:
    found = list(buckets_of(steady(0, 10) + steady(10, 40, succeeded=1), ()))
    assert [(one.since, one.until, one.rate.attempts) for one in found] == [
        (0, 5_000, 100),
        (5_000, 10_000, 100),
        (10_000, 25_000, 15),
        (25_000, 40_000, 15),
    ]


def test_an_episode_begins_with_the_first_bucket_above_three_times_the_base_rate_and_ends_after_five_minutes() -> None:
    base = [*steady(0, 600), *steady(0, 600, failed=1, succeeded=0, member="n")[::5]]  # 1 %
    failing = steady(600, 630, failed=10, succeeded=10)
    found = episodes_of([*base, *failing, *steady(630, 1200)], now=1_200_000)
    assert [(one.since, one.until, one.ended_at) for one in found] == [(600_000, 630_000, 630_000 + QUIET_MS)]
    assert found[0].base == pytest.approx(120 / 12_120, rel=0.01)


def test_an_episode_lasts_while_it_has_not_been_quiet_for_five_minutes() -> None:
    attempts = [*steady(0, 300), *steady(300, 330, failed=20, succeeded=0), *steady(330, 400)]
    [found] = episodes_of(attempts, now=400_000)
    assert (found.since, found.ended_at, len(found.after)) == (300_000, None, 14)


def test_failures_within_five_minutes_belong_to_the_same_episode() -> None:
    first, second = (steady(at, at + 10, failed=20, succeeded=0) for at in (300, 500))
    calm = [*steady(0, 300), *steady(310, 500), *steady(510, 1000)]
    [found] = episodes_of([*calm, *first, *second], now=1_000_000)
    assert (found.since, found.until) == (300_000, 510_000)


def test_a_pause_is_not_read_as_recovery() -> None:
    """The breaker stops all attempts: no failures, for an hour, are no sign that the cause is gone."""
    attempts = [*steady(0, 300), *steady(300, 330, failed=20, succeeded=0)]
    pause = Pause(since=330_000, until=None)
    [found] = episodes_of(attempts, [pause], now=4_000_000)
    assert (found.ended_at, found.paused_ms) == (None, 3_670_000)
    [unpaused] = episodes_of(attempts, now=4_000_000)
    assert unpaused.ended_at == 330_000 + QUIET_MS


def test_a_resume_ends_an_episode_and_failures_after_it_begin_another() -> None:
    before, after = (steady(at, at + 20, failed=20, succeeded=0) for at in (300, 421))
    pause = Pause(since=320_000, until=421_500)
    first, second = episodes_of([*steady(0, 300), *before, *after], [pause], now=450_000)
    assert (first.ended_at, first.paused_ms) == (421_500, 100_000 + 1_500)
    assert second.since >= 421_500
    assert second.ended_at is None


def test_the_attempts_after_a_resume_are_told_for_every_episode_before_them() -> None:
    """Also where the group failed again meanwhile; what failed then is of that episode alone."""
    outages = (steady(at, at + 20, failed=20, succeeded=0) for at in (300, 421))
    pauses = [Pause(since=320_000, until=421_000), Pause(since=441_000, until=600_000)]
    calm = [*steady(0, 300), *steady(600, 610, succeeded=5)]
    first, second = episodes_of([*calm, *(one for outage in outages for one in outage)], pauses, now=610_000)
    assert (first.ended_at, second.ended_at) == (421_000, 600_000)
    assert (first.after, second.after) == ((), ())
    assert first.later == second.later == FailureRate(0, 50)


def test_an_episode_that_lasts_has_nothing_after_its_end() -> None:
    attempts = [*steady(0, 300), *steady(300, 330, failed=20, succeeded=0), *steady(330, 400)]
    [found] = episodes_of(attempts, now=400_000)
    assert found.later == FailureRate(0, 0)


def test_a_group_that_fails_from_its_first_record_has_an_episode() -> None:
    [found] = episodes_of(steady(0, 60, failed=18, succeeded=2), now=60_000)
    assert found.since == 0


def test_single_failures_long_before_do_not_hide_the_part_that_failed() -> None:
    noise = [*steady(0, 600), *(Attempts(at=one, member="m", failed=1, succeeded=0) for one in (9_000, 250_000))]
    [found] = episodes_of([*noise, *steady(500, 530, failed=60, succeeded=0)], now=600_000)
    assert found.since == 5_000
    assert (found.failing[0].since, found.failing[-1].until) == (500_000, 530_000)


_ATTEMPTS = st.lists(
    st.builds(
        Attempts,
        at=st.integers(0, 2_000_000),
        member=st.sampled_from("abc"),
        failed=st.integers(0, 30),
        succeeded=st.integers(0, 30),
    ),
    max_size=60,
)


@st.composite
def _pauses(draw: st.DrawFn) -> list[Pause]:
    times = sorted(draw(st.lists(st.integers(0, 2_000_000), max_size=6, unique=True)))
    return [Pause(since=since, until=until) for since, until in zip(times[::2], times[1::2], strict=False)]


@given(_ATTEMPTS, _pauses())
def test_buckets_hold_every_attempt_once_in_the_order_of_time(attempts: list[Attempts], pauses: list[Pause]) -> None:
    found = list(buckets_of(attempts, pauses))
    total = sum((one.rate for one in found), start=FailureRate(0, 0))
    assert total == sum((one.rate for one in attempts), start=FailureRate(0, 0))
    assert all(one.since < one.until for one in found)
    assert all(one.until <= other.since for one, other in pairwise(found))
    resumes = [one.until for one in pauses]
    assert not any(one.since < (resume or 0) < one.until - BUCKET_MS for one in found for resume in resumes)
    if not pauses:
        assert all(one.rate.attempts >= BUCKET_ATTEMPTS for one in found[:-1])


@given(_ATTEMPTS, _pauses())
def test_episodes_are_in_order_and_the_failing_part_is_of_the_episode(
    attempts: list[Attempts], pauses: list[Pause]
) -> None:
    found = episodes_of(attempts, pauses, now=2_000_000)
    for one in found:
        assert one.since < one.until
        assert one.failing
        assert all(part in one.buckets for part in one.failing)
        assert one.rate.failed > 0
    for one, other in pairwise(found):
        assert one.ended_at is not None
        assert one.ended_at <= other.since
        assert one.later.attempts >= other.later.attempts
