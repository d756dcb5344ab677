"""Members that die with their group: they end when the broker does not list them any more."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.errors import ClusterError
from headgate.cli.features import make_features
from headgate.config.model import Config
from headgate.facts import MemberTasksEnded
from headgate.kafka.group_admin import GroupOutline
from headgate.topologies.feature import TopologyFeature
from headgate.topologies.model.group_members import SESSION_S
from headgate.topologies.older_clients.classic_groups import ClassicGroup, ClassicMember
from headgate.topologies.tasks.classic_tasks import ClassicTasks
from headgate.topologies.tasks.lost_groups import EVERY_S, RETRY_S
from headgate.topologies.tasks.task_watch import AFTER_CHANGE_S, REFRESH_S
from headgate.wire.classic_streams import StreamsTask
from tests.support.clock import FakeClock
from tests.unit.topologies.test_task_watch import FakeService, FakeSession, Record, Watching, group, member
from tests.unit.topologies.topic_store import START_MS

NOT_FOUND = GroupOutline(group="g", error_code=69)
NOT_ALLOWED = GroupOutline(group="g", error_code=30)


class Account:
    """The service account; `answer` is how the broker describes the group, or why it does not."""

    def __init__(self) -> None:
        self.answer: GroupOutline | Exception = ClusterError("not set")
        self.asked: list[Sequence[str]] = []
        self.meanwhile: Any = None

    async def describe(self, groups: Sequence[str]) -> Mapping[str, GroupOutline]:
        self.asked.append(tuple(groups))
        if self.meanwhile is not None:
            self.meanwhile()
        if isinstance(self.answer, Exception):
            raise self.answer
        return {self.answer.group: self.answer}

    def lists(self, *members: str) -> None:
        self.answer = GroupOutline(group="g", state="Stable" if members else "Empty", member_ids=members)


class Losing(Watching):
    """A group of two members that were written, and whose connections have closed."""

    def __init__(self) -> None:
        self.account = Account()
        super().__init__(self.account.describe)

    async def lose(self, *names: str) -> None:
        session = FakeSession(group(*(member(name, place) for place, name in enumerate(names))))
        self.beat(session, names[0], epoch=0)
        assert len(await self.after(AFTER_CHANGE_S)) == len(names)
        del session
        assert await self.after(REFRESH_S) == []

    async def checked(self, seconds: float) -> list[Record]:
        """What a check after some time has written."""
        self.clock.now_ms += int(seconds * 1000)
        before = len(self.service.written)
        assert self.watch.lost is not None
        await self.watch.lost.check()
        return self.service.written[before:]

    def is_lost(self) -> bool:
        assert self.watch.lost is not None
        return len(self.watch.lost) > 0


def ended(*names: str) -> list[MemberTasksEnded]:
    return [MemberTasksEnded(group="g", member=name) for name in names]


@pytest.mark.parametrize("answer", [GroupOutline(group="g", state="Empty"), NOT_FOUND])
async def test_the_last_members_end_when_their_sessions_are_over(answer: GroupOutline) -> None:
    it = Losing()
    await it.lose("a", "b")
    it.account.answer = answer
    assert await it.checked(SESSION_S - 1) == []
    assert it.account.asked == [], "the broker still lists members whose sessions are not over"
    assert await it.checked(1) == ended("a", "b")
    assert not it.is_lost()
    assert await it.checked(10 * EVERY_S) == []
    assert it.account.asked == [("g",)]


async def test_a_member_that_the_broker_lists_is_connected_elsewhere_and_stays() -> None:
    it = Losing()
    await it.lose("a", "b")
    it.account.lists("b", "c")
    assert await it.checked(SESSION_S) == ended("a")
    assert await it.checked(EVERY_S - 1) == []
    assert len(it.account.asked) == 1
    it.account.lists("c")
    assert await it.checked(1) == ended("b")
    assert not it.is_lost()


async def test_a_group_whose_member_is_connected_again_is_left_to_it() -> None:
    it = Losing()
    await it.lose("a", "b")
    it.account.lists()
    session = FakeSession(group(member("b", 0)))
    it.beat(session, "b", epoch=0)
    assert await it.checked(SESSION_S) == []
    assert it.account.asked == []
    records = await it.after(0)
    assert ended("a")[0] in records


async def test_a_member_that_connects_while_the_broker_is_asked_does_not_end() -> None:
    it = Losing()
    await it.lose("a")
    it.account.lists()
    session = FakeSession(group(member("a", 0)))
    it.account.meanwhile = lambda: it.beat(session, "a", epoch=0)
    assert await it.checked(SESSION_S) == []
    assert it.account.asked == [("g",)]
    assert not it.is_lost()


async def test_a_group_that_cannot_be_described_stays_and_is_tried_again(logs: list[EventDict]) -> None:
    it = Losing()
    await it.lose("a")
    it.account.answer = ClusterError("no broker")
    assert await it.checked(SESSION_S) == []
    assert [one["event"] for one in logs] == ["Streams groups without connected members cannot be described"]
    it.account.answer = NOT_ALLOWED
    assert await it.checked(RETRY_S) == []
    it.account.lists()
    assert await it.checked(RETRY_S) == []
    assert await it.checked(EVERY_S - RETRY_S) == ended("a")


async def test_an_end_that_is_not_written_is_written_later() -> None:
    it = Losing()
    await it.lose("a", "b")
    it.account.lists()
    it.service.failure = ClusterError("the topic is away")
    assert await it.checked(SESSION_S) == []
    it.service.failure = None
    assert await it.checked(RETRY_S) == ended("a", "b")


async def test_a_group_that_was_never_written_is_not_asked_about() -> None:
    it = Losing()
    session = FakeSession(ClusterError("it ended"))
    it.beat(session, "a", epoch=0)
    del session
    await it.after(REFRESH_S)
    assert not it.is_lost()


async def test_the_last_member_of_a_classic_group_ends_too() -> None:
    clock, fake, account = FakeClock(START_MS), FakeService(), Account()
    service: Any = fake
    tasks = ClassicTasks(service, clock, account.describe)
    found = ClassicMember(member="a", host="h", active=(StreamsTask("0", 0),))
    await tasks.write("g", ClassicGroup(topics=frozenset(), subtopologies={}, members=(found,)))
    assert tasks.lost is not None
    account.lists("a")
    for seconds in (SESSION_S, EVERY_S):
        clock.now_ms += int(seconds * 1000)
        await tasks.lost.check()
    assert len(fake.written) == 1
    account.lists()
    clock.now_ms += int(EVERY_S * 1000)
    await tasks.lost.check()
    assert fake.written[1:] == ended("a")
    assert len(tasks.lost) == 0


@pytest.mark.parametrize("worker", [0, 1])
async def test_every_worker_asks_for_its_groups(worker: int) -> None:
    [feature] = [one for one in make_features(Config(), worker=worker) if isinstance(one, TopologyFeature)]
    for tasks in (feature._tasks, feature._classic_tasks):
        assert tasks is not None
        assert tasks.lost is not None
