"""The rate of a replay, on a clock of the test's own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.dead_letters.model.pacing import Pacer


def written(pacer: Pacer, begin: float, seconds: float, stalls: list[float]) -> int:
    """What is written in this time when each transaction takes the next of these times."""
    now, total, turn = begin, 0, 0
    while True:
        number = pacer.allowed(now)
        if number:
            now += stalls[turn % len(stalls)]
            turn += 1
            if now > begin + seconds:
                return total
            pacer.on_written(number)
            total += number
        else:
            wait = pacer.wait_s(now)
            assert wait > 0
            now += wait + 1e-9
            if now > begin + seconds:
                return total


@settings(max_examples=50)
@given(st.floats(1, 50_000), st.lists(st.floats(0.001, 0.3), min_size=1, max_size=5), st.floats(0, 1e6))
def test_the_rate_is_kept_within_five_percent_whatever_transactions_take(
    rate: float, stalls: list[float], begin: float
) -> None:
    seconds = max(40.0, 40.0 / rate)
    total = written(Pacer(rate, begin, most=100_000), begin, seconds, stalls)
    assert total == pytest.approx(rate * seconds, rel=0.05, abs=2)


def test_a_pause_is_not_made_up_for() -> None:
    pacer = Pacer(100, 0.0, most=1000)
    assert written(pacer, 0.0, 10.0, [0.01]) == pytest.approx(1000, rel=0.05)
    pacer.restart(500.0)
    assert pacer.allowed(500.0) == 0
    assert written(pacer, 500.0, 10.0, [0.01]) == pytest.approx(1000, rel=0.05)


def test_a_stall_is_followed_by_one_second_of_records_at_most() -> None:
    pacer = Pacer(100, 0.0, most=1000)
    assert pacer.allowed(3600.0) == 100


def test_without_a_rate_a_transaction_is_as_large_as_it_may_be() -> None:
    pacer = Pacer(None, 0.0, most=1000)
    assert (pacer.allowed(0.0), pacer.wait_s(0.0)) == (1000, 0.0)
