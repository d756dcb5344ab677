"""Writing down what was seen: at once, with names, at the end too, and nothing waits for it."""

import asyncio
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.activity import service as service_module
from headgate.activity.connect_recording import Recorder
from headgate.activity.coverage import CoverageTask
from headgate.activity.model.connect_topics import TopicUsed
from headgate.activity.model.identity import Group
from headgate.activity.service import ActivityService
from headgate.activity.topic_names import Topics, text_of
from headgate.activity.usage_tracker import Ledger
from headgate.activity.watchers import UseWatcher
from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError
from headgate.facts import ActivityObserved, Fact, decode, encode
from headgate.proxy.principals import Principals
from tests.unit.proxy.stage import until

ID_1, ID_2 = b"1" * 16, b"2" * 16
NAMES = {"orders": ID_1, "stock": ID_2}


class Connection:
    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.peer = "10.0.0.1"


class Cluster:
    """Topics, a writer of facts, and a status topic."""

    def __init__(self) -> None:
        self.facts: list[ActivityObserved] = []
        self.is_away = False
        self.refuses = False
        self.asked = 0
        self.known: set[tuple[str, str]] = set()
        self.records: list[TopicUsed] = []

    async def ask(self, names: Any, ids: Any) -> list[tuple[str, bytes]]:
        self.asked += 1
        if self.is_away:
            raise ClusterError("away")
        return [(name, number) for name, number in NAMES.items() if name in names or number in ids]

    async def open(self) -> "Cluster":
        if self.is_away:
            raise ClusterError("away")
        return self

    async def write(self, fact: Fact) -> None:
        if self.refuses:
            raise ClusterError("full")
        assert isinstance(fact, ActivityObserved)
        self.facts.append(fact)

    async def close(self) -> None:
        pass

    def is_known(self, topic: str, connector: str) -> bool:
        return (topic, connector) in self.known

    async def record(self, used: TopicUsed) -> bool:
        if self.is_away:
            raise ClusterError("away")
        if self.is_known(used.topic, used.connector):
            return False
        self.known.add((used.topic, used.connector))
        self.records.append(used)
        return True


class World:
    def __init__(self, principal: str | None = "User:connect") -> None:
        self.cluster = Cluster()
        self.topics = Topics(self.cluster.ask)
        principals: Any = Principals()
        principals.principal_of = lambda _: principal
        self.ledger = Ledger(principals, self.topics, SystemClock(), workers=["User:connect"])
        self.service = ActivityService(self.ledger, UseWatcher(self.ledger), SystemClock(), self.cluster.open)

    def use(self, topic: bytes = ID_1, client_id: str = "svc", *, by_id: bool = True, number: int = 1) -> None:
        session: Any = Connection(number)
        sight = self.ledger.sight(session, client_id)
        interval = self.ledger.use(session, sight, topic, "write", by_id=by_id)
        interval.bytes += 10
        if not interval.touched:
            self.ledger.touch(interval)

    def lost(self) -> float:
        return self.service.samples()["headgate_activity_facts", ("lost",)]


async def test_a_first_use_is_written_at_once_with_the_name_of_its_topic() -> None:
    world = World()
    async with world.service.running():
        world.use()
        await until(lambda: bool(world.cluster.facts))
        [fact] = world.cluster.facts
        assert (fact.topic, fact.topic_id, fact.bytes, fact.direction) == ("orders", text_of(ID_1), 10, "write")
        assert (fact.actor.name, fact.actor.rule) == ("User:connect", "principal")
        assert (fact.principal, fact.client_id, fact.host, fact.software) == ("User:connect", "svc", "10.0.0.1", None)
        suffix, key, value = encode(ActivityObserved(**{**as_dict(fact), "writer": "w", "boot": "b", "seq": 1}))
        assert isinstance(decode(suffix, key, value), ActivityObserved)


def as_dict(fact: ActivityObserved) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in fact.__dataclass_fields__}


async def test_a_topic_that_came_by_name_gets_its_id_and_one_that_nobody_knows_is_told_without() -> None:
    world = World()
    async with world.service.running():
        world.use(b"stock", by_id=False)
        world.use(b"3" * 16)
        await until(lambda: len(world.cluster.facts) == 2)
    assert {(one.topic, one.topic_id) for one in world.cluster.facts} == {
        ("stock", text_of(ID_2)),
        (None, text_of(b"3" * 16)),
    }


async def test_what_is_not_told_yet_is_told_at_the_end() -> None:
    world = World()
    async with world.service.running():
        world.use()
        await until(lambda: len(world.cluster.facts) == 1)
        world.use()
    assert [one.bytes for one in world.cluster.facts] == [10, 10]
    assert len(world.ledger.intervals) == 0


async def test_while_the_cluster_is_away_uses_are_added_up(logs: list[EventDict]) -> None:
    world = World()
    world.cluster.is_away = True
    async with world.service.running():
        world.use()
        await until(lambda: any("not written yet" in one["event"] for one in logs))
        world.use()
        assert world.lost() == 0
        assert world.ledger.intervals.take(0.0, 10)[0].bytes == 20


async def test_facts_that_the_cluster_refuses_are_counted(logs: list[EventDict]) -> None:
    world = World()
    async with world.service.running():
        await until(lambda: world.service.is_writing)
        world.cluster.refuses = True
        world.use()
        await until(lambda: world.lost() == 1)
    assert any(one["event"] == "facts of activity were not written" for one in logs)


async def test_topics_are_bounded() -> None:
    topics = Topics(Cluster().ask, most=3)
    refs = {topics.ref(str(number).encode(), by_id=False) for number in range(10)}
    assert len(topics) == 3
    assert len(refs) == 4


async def test_a_task_that_fails_is_begun_again(logs: list[EventDict], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "_AGAIN_S", 0.0)
    world = World()
    failures = iter([RuntimeError("a defect")])

    def saw(_: object) -> None:
        for failure in failures:
            raise failure

    world.service.on_used = saw
    async with world.service.running():
        world.use()
        await until(lambda: any(one["event"] == "task of activity failed" for one in logs))
        world.use(ID_2)
        await until(lambda: len(world.cluster.facts) == 2)


async def test_two_that_ask_for_names_at_a_time_take_turns() -> None:
    world = World()
    refs = [world.topics.ref(ID_1, by_id=True), world.topics.ref(b"3" * 16, by_id=True)]
    await asyncio.gather(*(world.topics.resolve(refs) for _ in range(5)))
    assert refs[0].name == "orders"
    assert world.cluster.asked == 3  # what nobody knows is asked for three times


def test_clients_that_come_and_go_under_ever_new_names_leave_nothing_behind() -> None:
    principals: Any = Principals()
    ledger = Ledger(principals, Topics(Cluster().ask), SystemClock(), most=100)
    group = Group("consumer_group", "g")
    for number in range(1, 20_001):
        session: Any = Connection(number)
        sight = ledger.sight(session, f"client-{number}-x")
        ledger.touch(ledger.use(session, sight, ID_1, "write", by_id=True))
        ledger.joined(session, f"client-{number}-x", group)
        if number > 500:  # so many are there at a time
            ledger.closed(Connection(number - 500))  # type: ignore[arg-type]
            ledger.swept()
    assert len(ledger.intervals) <= 101
    assert ledger.intervals.overflows > 0
    assert len(ledger.groups) == 500
    for number in range(19_501, 20_001):
        ledger.closed(Connection(number))  # type: ignore[arg-type]
    assert len(ledger.intervals) == len(ledger.groups) == 0
    assert not ledger._related


# Recording.


async def recording(world: World, principals: tuple[str, ...] = ("User:connect",)) -> "asyncio.Task[None]":
    recorder = Recorder({one: [world.cluster] for one in principals}, world.topics, SystemClock())
    world.service.on_used = recorder.saw
    return asyncio.create_task(recorder.run())


async def test_the_first_use_of_a_connector_is_recorded_with_its_task_and_not_again_until_a_reset() -> None:
    world = World()
    async with world.service.running():
        task = await recording(world)
        world.use(client_id="connector-producer-src-b-3")
        await until(lambda: bool(world.cluster.records))
        [used] = world.cluster.records
        assert (used.topic, used.connector, used.task) == ("orders", "src-b", 3)
        assert used.discover_timestamp_ms > 1_700_000_000_000
        world.use(client_id="connector-producer-src-b-3")
        world.use(client_id="connector-producer-src-b-4", number=2)
        world.use(ID_2, client_id="connector-producer-src-b-3", number=3)
        await until(lambda: len(world.cluster.records) == 2)
        assert world.cluster.records[1].topic == "stock"
        world.cluster.known.clear()
        world.use(client_id="connector-producer-src-b-3")
        await until(lambda: len(world.cluster.records) == 3)
        task.cancel()


async def test_nobody_else_is_believed_to_be_a_connector() -> None:
    for principal in ("User:eve", "User:ANONYMOUS", None):
        world = World(principal)
        async with world.service.running():
            task = await recording(world)
            world.use(client_id="connector-producer-src-b-0")
            await until(lambda: bool(world.cluster.facts))  # noqa: B023
            assert world.cluster.records == []
            assert world.cluster.facts[0].actor.confidence == "likely"
            task.cancel()


# Coverage.


async def test_what_was_appended_is_told_as_nobodys_use_without_bytes() -> None:
    ends = {("orders", ID_1): {0: 5}}
    told: list[Any] = []

    async def look() -> Any:
        return ends

    async def tell(facts: Any) -> None:
        told.extend(facts)

    class Clock(SystemClock):
        now = 1000

        def epoch_ms(self) -> int:
            type(self).now += 1000
            return self.now

    task = CoverageTask(look, tell, Clock())
    await task.look_once()
    ends["orders", ID_1] = {0: 12}
    await task.look_once()
    [fact] = told
    assert (fact.actor.kind, fact.actor.rule, fact.records, fact.bytes) == ("unattributed", "end-offsets", 7, 0)
    assert (fact.topic, fact.topic_id, fact.since, fact.until) == ("orders", text_of(ID_1), 2000, 3000)
