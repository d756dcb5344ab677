"""What watches a replay: the circuit breaker of its group."""

from collections.abc import Callable

import pytest

from headgate.base.errors import ClusterError
from headgate.dead_letters import replay_run
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replay_run import BreakerWatch

Look = Callable[[], tuple[int, bool]]


def looks(*found: tuple[int, bool] | str) -> Look:
    """What the breaker is in each look, or a failure."""
    left = list(found)

    def look() -> tuple[int, bool]:
        one = left.pop(0)
        if isinstance(one, str):
            raise ClusterError(one)
        return one

    return look


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(replay_run, "_WATCH_S", 0.001)
    return []


def watched(look: Look, told: list[str]) -> ReplayControl:
    control = ReplayControl()
    watch = BreakerWatch("sg", control, look, told.append)
    watch.start()
    watch.join(20)
    assert not watch.is_alive()
    return control


def test_a_trip_during_the_replay_stops_it_and_earlier_ones_do_not(told: list[str]) -> None:
    control = watched(looks((4, True), (4, False), "no answer", (5, True)), told)
    assert control.stop_reason == "the circuit breaker of group sg tripped again"
    assert told == ["group sg is paused: it reads replayed records when it is resumed"]


def test_a_breaker_that_cannot_be_watched_is_told_and_stops_nothing(told: list[str]) -> None:
    control = watched(looks("not authorized"), told)
    assert control.stop_reason is None
    assert told == [
        "the circuit breaker of group sg cannot be watched, so the replay does not stop when it trips: not authorized"
    ]
