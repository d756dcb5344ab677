"""Writing uses to `headgate.activity`, and recording those of connectors."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from structlog.typing import EventDict

from headgate.activity.connect_recorder import ConnectRecorder
from headgate.activity.model.connect_records import ActiveTopics, TopicUsed
from headgate.activity.model.identity import GroupRef
from headgate.activity.service import ActivityService
from headgate.activity.topic_resolver import TopicResolver, topic_id_text
from headgate.activity.usage_tracker import UsageTracker
from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError
from headgate.facts import ActivityObserved, Fact, decode, encode
from headgate.proxy.interceptor import Session
from headgate.proxy.principals import Principals
from tests.unit.proxy.stage import until

ID_1, ID_2 = b"1" * 16, b"2" * 16
NAMES = {"orders": ID_1, "stock": ID_2}


class Connection:
    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.peer = "10.0.0.1"


class FixedPrincipal(Principals):
    def __init__(self, principal: str | None) -> None:
        super().__init__()
        self._principal = principal

    def principal_of(self, _: Session) -> str | None:
        return self._principal


class Cluster:
    """Topics, a writer of facts, and a status topic."""

    def __init__(self) -> None:
        self.facts: list[ActivityObserved] = []
        self.is_away = False
        self.refuses = False
        self.lookups = 0
        self.is_closed = False
        self.topics = ActiveTopics()
        self.records: list[TopicUsed] = []
        self.connectors = {"src-b"}
        self.status_topic = "connect-status"

    async def look_up(self, names: Sequence[str], ids: Sequence[bytes]) -> list[tuple[str, bytes]]:
        self.lookups += 1
        self._require()
        return [(name, topic_id) for name, topic_id in NAMES.items() if name in names or topic_id in ids]

    async def open(self) -> Any:
        self._require()
        return self

    async def write(self, fact: Fact) -> None:
        if self.refuses:
            raise ClusterError("full")
        assert isinstance(fact, ActivityObserved)
        self.facts.append(fact)

    async def close(self) -> None:
        self.is_closed = True

    def is_missing(self, topic: str, connector: str) -> bool:
        return self.is_away or (connector in self.connectors and not self.topics.has(topic, connector))

    async def record(self, used: TopicUsed) -> bool:
        self._require()
        if not self.is_missing(used.topic, used.connector):
            return False
        self.topics.apply(used)
        self.records.append(used)
        return True

    def _require(self) -> None:
        if self.is_away:
            raise ClusterError("away")


class World:
    def __init__(self, principal: str | None = "User:connect") -> None:
        self.cluster = Cluster()
        self.topics = TopicResolver(self.cluster.look_up)
        self.tracker = UsageTracker(
            FixedPrincipal(principal), self.topics, SystemClock(), connect_principals=["User:connect"]
        )
        self.service = ActivityService(self.tracker, SystemClock(), self.cluster.open, retry_s=0.01)

    def use(self, topic: bytes = ID_1, client_id: str = "svc", *, by_id: bool = True, number: int = 1) -> None:
        session: Any = Connection(number)
        usage = self.tracker.connection(session, client_id)
        interval = self.tracker.use(session, usage, topic, "write", by_id=by_id)
        interval.bytes += 10
        if not interval.touched:
            self.tracker.touch(interval)

    @asynccontextmanager
    async def recording(self, *clusters: Cluster, most_pending: int = 100) -> AsyncIterator[ConnectRecorder]:
        statuses: list[Any] = list(clusters or (self.cluster,))
        recorder = ConnectRecorder({"User:connect": statuses}, self.topics, SystemClock(), most_pending=most_pending)
        self.service.on_used = recorder.on_used
        self.service.spawn(recorder.run)
        async with self.service.running():
            yield recorder


async def test_a_first_use_is_written_at_once_with_the_name_of_its_topic() -> None:
    world = World()
    async with world.service.running():
        world.use()
        await until(lambda: bool(world.cluster.facts))
        [fact] = world.cluster.facts
        assert (fact.topic, fact.topic_id, fact.bytes, fact.direction) == ("orders", topic_id_text(ID_1), 10, "write")
        assert (fact.actor.name, fact.actor.rule) == ("User:connect", "principal")
        assert (fact.principal, fact.client_id, fact.host, fact.software) == ("User:connect", "svc", "10.0.0.1", None)
        suffix, key, value = encode(replace(fact, writer="w", boot="b", seq=1))
        assert isinstance(decode(suffix, key, value), ActivityObserved)


async def test_a_topic_name_gets_its_id_and_an_unknown_id_is_written_without_a_name() -> None:
    world = World()
    async with world.service.running():
        world.use(b"stock", by_id=False)
        world.use(b"3" * 16)
        await until(lambda: len(world.cluster.facts) == 2)
    assert {(one.topic, one.topic_id) for one in world.cluster.facts} == {
        ("stock", topic_id_text(ID_2)),
        (None, topic_id_text(b"3" * 16)),
    }


async def test_uses_that_were_not_reported_yet_are_written_at_the_end() -> None:
    world = World()
    async with world.service.running():
        world.use()
        await until(lambda: len(world.cluster.facts) == 1)
        world.use()
    assert [one.bytes for one in world.cluster.facts] == [10, 10]
    assert len(world.tracker.intervals) == 0


async def test_the_rest_is_written_and_the_writer_closed_when_the_end_is_cancelled_while_tasks_end() -> None:
    world = World()
    cancelled = asyncio.Event()

    async def end_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await asyncio.sleep(0.05)

    async def run() -> None:
        async with world.service.running():
            world.service.spawn(end_slowly)
            await until(lambda: world.service.is_writing)
            world.use()

    running = asyncio.create_task(run())
    await cancelled.wait()
    running.cancel()
    await asyncio.wait([running])
    assert world.cluster.is_closed
    assert [one.bytes for one in world.cluster.facts] == [10]


async def test_while_the_cluster_is_away_uses_are_added_up(logs: list[EventDict]) -> None:
    world = World()
    world.cluster.is_away = True
    async with world.service.running():
        world.use()
        await until(lambda: any(one["event"] == "activity not written yet, retrying" for one in logs))
        world.use()
        assert world.service.lost == 0
        world.cluster.is_away = False
        await until(lambda: len(world.cluster.facts) == 1)
        assert world.cluster.facts[0].bytes == 20


async def test_facts_that_the_cluster_refuses_are_counted(logs: list[EventDict]) -> None:
    world = World()
    async with world.service.running():
        await until(lambda: world.service.is_writing)
        world.cluster.refuses = True
        world.use()
        await until(lambda: world.service.lost == 1)
    assert any(one["event"] == "activity records could not be written" for one in logs)


async def test_a_task_that_fails_is_started_again(logs: list[EventDict]) -> None:
    world = World()
    failures = iter([RuntimeError("a defect")])

    def fail_once(_: object) -> None:
        for failure in failures:
            raise failure

    world.service.on_used = fail_once
    async with world.service.running():
        world.use()
        await until(lambda: any(one["event"] == "activity task failed" for one in logs))
        world.use(ID_2)
        await until(lambda: len(world.cluster.facts) == 2)


async def test_topics_are_bounded() -> None:
    topics = TopicResolver(Cluster().look_up, most=3)
    first = topics.ref(b"first", by_id=False)
    for number in range(10):
        topics.ref(str(number).encode(), by_id=False)
        assert topics.ref(b"first", by_id=False) is first  # used again and again
    assert len(topics) == 3
    assert topics.ref(b"9", by_id=False) is not topics.rest


async def test_ephemeral_topics_do_not_keep_a_later_topic_from_being_counted() -> None:
    world = World()
    for number in range(70_000):
        world.use(number.to_bytes(16, "big"), number=1 + number // 4000)
    world.use(ID_1, number=100)
    world.tracker.sweep()
    assert len(world.topics) == 65_536
    assert world.tracker.intervals.overflows == 0
    reports = world.tracker.intervals.take(0.0, 100_000)
    assert sum(one.bytes for one in reports) == 700_010  # those that left the table are reported, too
    [real] = [one for one in reports if one.topic.id == topic_id_text(ID_1)]
    await world.topics.resolve([real.topic])
    assert real.topic.name == "orders"


async def test_a_topic_that_left_the_table_is_reported_by_its_name_with_all_its_bytes() -> None:
    world = World()
    world.topics = world.tracker.topics = TopicResolver(world.cluster.look_up, most=3)
    async with world.service.running():
        world.use(ID_1)
        for number in range(10):
            world.use(number.to_bytes(16, "big"))
        world.use(ID_1)  # of the same connection: the use that is there goes on
        await until(lambda: len(world.cluster.facts) >= 11)
    assert sum(one.bytes for one in world.cluster.facts) == 120
    assert sum(one.bytes for one in world.cluster.facts if one.topic == "orders") == 20


async def test_concurrent_lookups_take_turns_and_an_unknown_topic_is_looked_up_three_times() -> None:
    world = World()
    refs = [world.topics.ref(ID_1, by_id=True), world.topics.ref(b"3" * 16, by_id=True)]
    await asyncio.gather(*(world.topics.resolve(refs) for _ in range(5)))
    assert refs[0].name == "orders"
    assert world.cluster.lookups == 3


def test_clients_that_come_and_go_under_ever_new_names_leave_nothing_behind() -> None:
    tracker = UsageTracker(Principals(), TopicResolver(Cluster().look_up), SystemClock(), most_intervals=100)
    sessions: list[Any] = [Connection(number) for number in range(1, 20_001)]
    for number, session in enumerate(sessions):
        usage = tracker.connection(session, f"client-{number}-x")
        tracker.touch(tracker.use(session, usage, ID_1, "write", by_id=True))
        tracker.on_membership(session, f"client-{number}-x", GroupRef("consumer_group", "g"))
        if number >= 500:  # so many are connected at the same time
            tracker.on_close(sessions[number - 500])
            tracker.sweep()
    assert len(tracker.intervals) <= 101
    assert tracker.intervals.overflows > 0
    assert len(tracker.groups) == 500
    for session in sessions[-500:]:
        tracker.on_close(session)
    assert len(tracker) == 0


async def test_the_first_use_of_a_connector_is_recorded_with_its_task_and_not_again_until_a_reset() -> None:
    world = World()
    async with world.recording():
        world.use(client_id="connector-producer-src-b-3")
        world.use(client_id="connector-producer-src-b-5", number=5)  # before the first use is recorded
        await until(lambda: bool(world.cluster.records))
        [used] = world.cluster.records
        assert (used.topic, used.connector, used.task) == ("orders", "src-b", 3)
        assert used.discover_timestamp_ms > 1_700_000_000_000
        world.use(client_id="connector-producer-src-b-3")
        world.use(client_id="connector-producer-src-b-4", number=2)
        world.use(ID_2, client_id="connector-producer-src-b-3", number=3)
        await until(lambda: len(world.cluster.records) == 2)
        assert world.cluster.records[1].topic == "stock"
        world.cluster.topics.clear()
        world.use(client_id="connector-producer-src-b-3")
        await until(lambda: len(world.cluster.records) == 3)


async def test_two_clusters_with_one_principal_record_only_their_own_connectors() -> None:
    world, other = World(), Cluster()
    other.connectors = {"snk"}
    async with world.recording(world.cluster, other):
        world.use(client_id="connector-producer-src-b-0")
        world.use(client_id="connector-producer-snk-1", number=2)
        world.use(client_id="connector-producer-elsewhere-0", number=3)
        await until(lambda: bool(world.cluster.records and other.records))
        world.use(client_id="connector-producer-elsewhere-0", number=3)
        world.use(ID_2, client_id="connector-producer-src-b-0")
        await until(lambda: len(world.cluster.records) == 2)
    assert {one.connector for one in world.cluster.records} == {"src-b"}
    assert {one.connector for one in other.records} == {"snk"}


async def test_a_cluster_that_cannot_be_written_does_not_hold_up_another() -> None:
    world, other = World(), Cluster()
    other.is_away = True
    async with world.recording(other, world.cluster):
        world.use(client_id="connector-producer-src-b-0")
        world.use(ID_2, client_id="connector-producer-src-b-0")
        await until(lambda: len(world.cluster.records) == 2)
    assert not other.records


async def test_a_cluster_that_stays_away_leaves_the_others_room_and_what_it_drops_is_logged_once_and_counted(
    logs: list[EventDict],
) -> None:
    world, other = World(), Cluster()
    other.is_away, other.status_topic = True, "other-status"
    async with world.recording(other, world.cluster, most_pending=1) as recorder:
        for number, topic in enumerate((ID_1, ID_2), 1):
            world.use(topic, client_id="connector-producer-src-b-0", number=number)
            await until(lambda: len(world.cluster.records) == number)  # noqa: B023
        world.use(b"3" * 16, client_id="connector-producer-src-b-0", number=3)
        await until(lambda: recorder.dropped >= 2)
    dropping = [one for one in logs if one["event"] == "too many active topics wait to be recorded, dropping others"]
    assert [(one["topic"], one["waiting"]) for one in dropping] == [("other-status", 1)]


async def test_a_client_of_another_principal_is_not_recorded_as_a_connector() -> None:
    for principal in ("User:eve", "User:ANONYMOUS", None):
        world = World(principal)
        async with world.recording():
            world.use(client_id="connector-producer-src-b-0")
            await until(lambda: bool(world.cluster.facts))  # noqa: B023
            assert world.cluster.records == []
            assert world.cluster.facts[0].actor.confidence == "likely"
