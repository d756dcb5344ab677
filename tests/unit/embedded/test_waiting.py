"""A wait ends, can be given up, and is not silent."""

import pytest

from headgate.base.errors import ClusterError
from headgate.embedded import waiting
from headgate.embedded.waiting import Patience, StartGivenUpError, Wait


class Time:
    """The two functions of `time` that a wait uses, on a clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(waiting, "time", time)
    return time


def wait_on(wait: Wait) -> None:
    while True:
        wait.pause("waiting for node 0", look_into="the log")


def test_it_speaks_after_every_two_seconds(time: Time) -> None:
    heard: list[tuple[int, str]] = []
    wait = Wait(Patience(progress=lambda text: heard.append((round(time.now - 100), text))))
    while time.now < 105:
        wait.pause("waiting for node 0", look_into="the log")
    assert heard == [
        (2, "starting Kafka: waiting for node 0 (2 s; log the log)"),
        (4, "starting Kafka: waiting for node 0 (4 s; log the log)"),
    ]


def test_it_ends_and_says_where_to_look(time: Time) -> None:
    wait = Wait(Patience(limit_s=30).at_most(3))
    with pytest.raises(ClusterError, match="still waiting for node 0 after 3 s; look into the log"):
        wait_on(wait)
    assert time.now < 103.2


def test_it_can_be_given_up(time: Time) -> None:
    wait = Wait(Patience(give_up=lambda: time.now > 101))
    with pytest.raises(StartGivenUpError):
        wait_on(wait)
    assert time.now < 101.2
