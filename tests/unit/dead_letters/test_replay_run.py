"""What watches a replay: the circuit breaker of its group."""

import pytest

from headgate.base.errors import ClusterError, HeadgateError, UsageError
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replay_run import FAILURES_TOLD, BreakerWatch
from headgate.share_groups.admin import WatchedBreaker
from headgate.share_groups.model.breaker import STATUS_TAG
from headgate.wire.messages.share import DescribedShareGroup, ShareGroupDescribeResponse
from headgate.wire.schema import Message
from tests.support.scripted_cluster import ScriptedCluster

API_VERSIONS, SHARE_GROUP_DESCRIBE = 18, 77


class FakeBreaker:
    """What the breaker is in each look, or a failure."""

    def __init__(self, *found: tuple[int, bool] | HeadgateError) -> None:
        self.left = list(found)
        self.is_closed = False

    async def generation(self) -> tuple[int, bool]:
        one = self.left.pop(0)
        if isinstance(one, HeadgateError):
            raise one
        return one

    async def close(self) -> None:
        self.is_closed = True


def watched(breaker: FakeBreaker) -> tuple[ReplayControl, list[str]]:
    control, told = ReplayControl(), list[str]()
    watch = BreakerWatch("sg", control, breaker, told.append, every_s=0.001)
    watch.start()
    watch.join(20)
    assert not watch.is_alive()
    assert breaker.is_closed
    return control, told


def test_a_trip_during_the_replay_stops_it_and_earlier_ones_do_not() -> None:
    breaker = FakeBreaker((4, True), (4, False), ClusterError("no answer"), (5, True))
    control, told = watched(breaker)
    assert breaker.left == []
    assert control.stop_reason == "the circuit breaker of group sg tripped again"
    assert told == ["group sg is paused: it reads replayed records when it is resumed"]


def test_a_breaker_that_cannot_be_watched_is_told_and_stops_nothing() -> None:
    control, told = watched(FakeBreaker(UsageError("not authorized")))
    assert control.stop_reason is None
    assert told == [
        "the circuit breaker of group sg cannot be watched, so the replay does not stop when it trips: not authorized"
    ]


def test_a_breaker_that_can_no_longer_be_watched_is_told_once_and_its_next_trip_stops_the_replay() -> None:
    failures = [UsageError(f"no {number}") for number in range(1, FAILURES_TOLD + 3)]
    control, told = watched(FakeBreaker((4, False), *failures, (4, False), ClusterError("one more"), (5, True)))
    assert told == [
        "the circuit breaker of group sg can no longer be watched, so the replay does not stop when it trips: no 5",
        "the circuit breaker of group sg is watched again",
    ]
    assert control.stop_reason == "the circuit breaker of group sg tripped again"


async def test_a_breaker_is_watched_over_one_connection_until_that_fails() -> None:
    looks: list[tuple[int, bytes]] = [(0, b'{"generation":4}'), (0, b'{"generation":5,"paused":true}'), (30, b"")]
    looks.append((0, b'{"generation":6}'))

    def describe(_node: int, _request: Message) -> Message:
        code, field = looks.pop(0)
        group = DescribedShareGroup(group_id="sg", error_code=code, unknown_tags=((STATUS_TAG, field),))
        return ShareGroupDescribeResponse(groups=(group,))

    async with ScriptedCluster({SHARE_GROUP_DESCRIBE: describe}) as cluster:
        breaker = WatchedBreaker(cluster.dialler(), "sg")
        found = [await breaker.generation() for _ in range(2)]
        assert (found, len(cluster.requests(API_VERSIONS))) == ([(4, False), (5, True)], 1)
        with pytest.raises(ClusterError, match="cannot be described"):
            await breaker.generation()
        assert await breaker.generation() == (6, False)
        assert len(cluster.requests(API_VERSIONS)) == 2
        await breaker.close()
