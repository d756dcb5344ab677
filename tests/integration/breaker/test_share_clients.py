"""The service account's clients for share groups against a real broker: dead letters, the lead, trips, the tail."""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from headgate.base.errors import ClusterError
from headgate.config.addresses import parse_address
from headgate.config.model import UpstreamConfig
from headgate.embedded import SecurityProtocol
from headgate.facts import BreakerTripped, DispositionsCounted, decode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactTail
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.leadership import Leadership
from headgate.kafka.topics import Origin, Settings, ensure_topics
from headgate.share_groups.broker_configs import ConfigRefusedError, GroupConfigClient
from headgate.share_groups.dead_letter_writer import DeadLetterWriter, WriteFailureCause
from headgate.share_groups.model.dead_letter_records import Cause, DeadLetter, DeadLetterSource
from headgate.share_groups.model.group_configs import LIMIT
from headgate.share_groups.resources import FencedError, TripWriter
from tests.integration.breaker.leading import trip
from tests.support.cluster import Cluster
from tests.support.dispositions import one_accepted

DEADLINE_S = 60.0  # of what should take moments, on a machine that is busy
ORIGIN = Origin(cluster="test", writer="gw/0", boot="b1")


def dead_letter(offset: int = 0, *, partition: int = 0, value: bytes | None = None) -> DeadLetter:
    source = DeadLetterSource(
        group="sg",
        member="m-1",
        cluster="test",
        topic="orders",
        topic_id=bytes(16),
        partition=partition,
        delivery_count=2,
        cause=Cause.REJECTED,
        at=1,
    )
    return DeadLetter(source, offset, value=value)


class Topics:
    """What an operator does to topics meanwhile; it blocks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.name = f"dlq.{uuid.uuid4().hex[:8]}"

    @property
    def admin(self) -> AdminClient:
        """Another each time: a test ends without sockets."""
        return AdminClient(self.settings | {"log_level": 0})

    def create(self, partitions: int = 3, **configs: str) -> str:
        wanted = NewTopic(
            self.name,
            num_partitions=partitions,
            replication_factor=1,
            config={name.replace("_", "."): value for name, value in configs.items()},
        )
        admin = self.admin
        admin.create_topics([wanted])[self.name].result(DEADLINE_S)
        return self.name

    def delete(self) -> None:
        admin = self.admin
        admin.delete_topics([self.name])[self.name].result(DEADLINE_S)

    def exists(self) -> bool:
        return self.name in self.admin.list_topics(timeout=DEADLINE_S).topics

    def records(self, topic: str | None = None, *, isolation: str = "read_committed") -> list[Message]:
        """Everything in the topic, by partition and offset."""
        name = topic or self.name
        consumer = Consumer(
            self.settings
            | {"group.id": "test", "enable.partition.eof": True, "isolation.level": isolation, "log_level": 0}
        )
        try:
            partitions = consumer.list_topics(name, timeout=DEADLINE_S).topics[name].partitions
            consumer.assign([TopicPartition(name, partition, 0) for partition in partitions])
            found: list[Message] = []
            ended = 0
            while ended < len(partitions):
                message = consumer.poll(DEADLINE_S)
                assert message is not None
                if message.error() is None:
                    found.append(message)
                else:
                    ended += 1
            return sorted(found, key=lambda one: (one.partition() or 0, one.offset() or 0))
        finally:
            consumer.close()

    def offsets(self) -> list[int]:
        """Which source offsets have a letter, sorted."""
        return sorted(int(dict(one.headers() or [])["__dlq.errors.offset"] or b"") for one in self.records())


@pytest.fixture
def topics(cluster: Cluster) -> Topics:
    return Topics(dict(cluster.client_config()))


@asynccontextmanager
async def writing(settings: Settings, **more: object) -> AsyncIterator[DeadLetterWriter]:
    writer = DeadLetterWriter(settings, **more)  # type: ignore[arg-type]
    try:
        yield writer
    finally:
        await writer.close()


async def until(condition: Callable[[], bool], seconds: float = DEADLINE_S) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what happens outside tells nobody
            await asyncio.sleep(0.02)


async def failure_of(writer: DeadLetterWriter, topic: str, wanted: DeadLetter, deadline_s: float) -> WriteFailureCause:
    [said] = await writer.write(topic, [wanted], deadline_s)
    assert said is not None
    return said.cause


@dataclass(frozen=True)
class Refusal:
    """The first letter that was refused; `unanswered` are those before it that may be written yet."""

    offset: int
    cause: WriteFailureCause
    unanswered: set[int]


async def first_refused(writer: DeadLetterWriter, topic: str, offsets: Iterator[int]) -> Refusal:
    """A broker hears a moment later of what was changed: letters are written until one is refused."""
    unanswered: set[int] = set()
    async with asyncio.timeout(DEADLINE_S):
        for offset in offsets:
            [said] = await writer.write(topic, [dead_letter(offset, partition=2)], 2.0)
            if said is not None and said.cause is not WriteFailureCause.UNREACHABLE:
                return Refusal(offset, said.cause, unanswered)
            if said is not None:
                unanswered.add(offset)
    raise AssertionError


# --- dead letters


async def test_dead_letters_go_to_the_partition_of_their_source_with_their_headers(topics: Topics) -> None:
    topic = topics.create(3)
    async with writing(topics.settings) as writer:
        await writer.open(topic)
        wanted = [dead_letter(offset, partition=offset % 5, value=b"v%d" % offset) for offset in range(200)]
        assert await writer.write(topic, wanted, DEADLINE_S) == [None] * 200
        assert (writer.dead_letters, writer.bytes) == (0, 0)
        facts = await writer.describe_topic(topic)
    assert (facts.partitions, facts.max_message_bytes) == (3, 1_048_588)
    found = {
        int(dict(one.headers() or [])["__dlq.errors.offset"] or b""): one
        for one in await asyncio.to_thread(topics.records)
    }
    assert {offset: one.partition() for offset, one in found.items()} == {
        offset: offset % 5 % 3 for offset in range(200)
    }
    for one in wanted:
        assert (found[one.offset].headers(), found[one.offset].value()) == (one.headers, one.value)


async def test_a_dead_letter_that_its_topic_never_takes_ends_at_once_and_without_its_value_it_is_taken(
    topics: Topics,
) -> None:
    topic = topics.create(1, max_message_bytes="2000")
    async with writing(topics.settings) as writer:
        large = dead_letter(1, value=os.urandom(4000))
        began = asyncio.get_running_loop().time()
        assert await failure_of(writer, topic, large, 100.0) is WriteFailureCause.TOO_LARGE
        assert asyncio.get_running_loop().time() - began < DEADLINE_S
        assert await writer.write(topic, [dead_letter(1)], DEADLINE_S) == [None]
        # Together they are larger than the topic takes in a batch, and each of them is not; the one that is too large
        # takes none of the others with it.
        many = [dead_letter(2 + one) for one in range(20)]
        said = await writer.write(topic, [*many[:10], large, *many[10:]], DEADLINE_S)
        assert [one and one.cause for one in said] == [None] * 10 + [WriteFailureCause.TOO_LARGE] + [None] * 10
        others = [writer.write(topic, [dead_letter(22 + one)], DEADLINE_S) for one in range(20)]
        assert await asyncio.gather(*others) == [[None]] * 20
    assert await asyncio.to_thread(topics.offsets) == list(range(1, 42))


async def test_a_dead_letter_larger_than_any_that_is_tried_is_too_large(topics: Topics) -> None:
    topic = topics.create(1)
    async with writing(topics.settings, largest=10_000) as writer:
        assert await failure_of(writer, topic, dead_letter(value=bytes(20_000)), 100.0) is WriteFailureCause.TOO_LARGE


async def test_a_deleted_topic_stays_deleted_and_dead_letters_go_on_when_it_is_made_again(topics: Topics) -> None:
    topic = topics.create(3)
    async with writing(topics.settings) as writer:
        assert await writer.write(topic, [dead_letter(1, partition=2)], DEADLINE_S) == [None]
        await asyncio.to_thread(topics.delete)
        refused = await first_refused(writer, topic, count(2))
        assert refused.cause is WriteFailureCause.NO_TOPIC
        assert not await asyncio.to_thread(topics.exists)
        waiting = asyncio.create_task(writer.write(topic, [dead_letter(refused.offset + 1, partition=2)], DEADLINE_S))
        await asyncio.to_thread(topics.create, 2)
        assert await waiting == [None]
    assert set(await asyncio.to_thread(topics.offsets)) - refused.unanswered == {refused.offset + 1}
    assert {one.partition() for one in await asyncio.to_thread(topics.records)} == {0}


async def test_an_absent_topic_is_made_only_when_the_operator_says_so(topics: Topics) -> None:
    async with writing(topics.settings) as writer:
        assert (await first_refused(writer, topics.name, count())).cause is WriteFailureCause.NO_TOPIC
        assert not (await writer.describe_topic(topics.name)).partitions
    assert not await asyncio.to_thread(topics.exists)
    async with writing(topics.settings, auto_create=True) as writer:
        assert await writer.write(topics.name, [dead_letter(one) for one in range(3)], DEADLINE_S) == [None] * 3
    assert await asyncio.to_thread(topics.offsets) == [0, 1, 2]


async def test_a_dead_letter_that_arrives_after_its_deadline_is_reported_as_late(topics: Topics) -> None:
    topic = topics.create(1)
    late: list[DeadLetter] = []
    async with writing(topics.settings) as writer:
        await writer.open(topic)
        wanted = dead_letter(7)
        [said] = await writer.write(topic, [wanted], 0.0, late.append)  # on its way, and no answer can be here yet
        assert said is not None
        assert said.cause is WriteFailureCause.UNREACHABLE
        assert (writer.dead_letters, late) == (1, [])
        await until(lambda: late == [wanted])
        assert (writer.dead_letters, writer.bytes) == (0, 0)
    assert await asyncio.to_thread(topics.offsets) == [7]


async def test_a_caller_that_went_away_hears_of_its_dead_letter_too(topics: Topics) -> None:
    topic = topics.create(1)
    late: list[DeadLetter] = []
    async with writing(topics.settings) as writer:
        assert await writer.write(topic, [dead_letter(1)], DEADLINE_S) == [None]
        going = asyncio.create_task(writer.write(topic, [dead_letter(2), dead_letter(3)], DEADLINE_S, late.append))
        await asyncio.sleep(0)
        going.cancel()
        await until(lambda: [one.offset for one in late] == [2, 3])
        assert (writer.dead_letters, writer.bytes) == (0, 0)


async def test_dead_letters_go_on_when_a_right_comes_back(cluster: Cluster, topics: Topics) -> None:
    topic = topics.create(1)
    settings = dict(cluster.client_config(SecurityProtocol.SASL_PLAINTEXT, user="bob"))
    async with writing(settings) as writer:
        with allowed(topics.admin, topic):
            assert await writer.write(topic, [dead_letter(1)], DEADLINE_S) == [None]
        refused = await first_refused(writer, topic, count(2))
        assert refused.cause is WriteFailureCause.NOT_ALLOWED
        waiting = asyncio.create_task(writer.write(topic, [dead_letter(refused.offset + 1)], DEADLINE_S))
        with allowed(topics.admin, topic):
            assert await waiting == [None]
    found = set(await asyncio.to_thread(topics.offsets))
    assert found - refused.unanswered == {*range(1, refused.offset), refused.offset + 1} - refused.unanswered


@contextmanager
def allowed(admin: AdminClient, topic: str) -> Iterator[None]:
    """Let bob write the topic, and see its configs."""
    parts = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:bob", "*")
    may = AclPermissionType.ALLOW
    bindings = [AclBinding(*parts, operation, may) for operation in (AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)]
    for created in admin.create_acls(bindings).values():
        created.result(DEADLINE_S)
    try:
        yield
    finally:
        for deleted in admin.delete_acls([AclBindingFilter(*parts, AclOperation.ANY, may)]).values():
            deleted.result(DEADLINE_S)


# --- the lead, and what the leader writes


@pytest.fixture
def prefix() -> str:
    return f"headgate-{uuid.uuid4().hex[:8]}."


class Candidate:
    def __init__(self, settings: Settings, prefix: str) -> None:
        self.said: list[str] = []
        self.leadership = Leadership(
            settings, topic=f"{prefix}leader", on_gained=self._on_gained, on_lost=self._on_lost
        )
        self.leadership.start()

    async def _on_gained(self) -> None:
        self.said.append("gained")

    async def _on_lost(self) -> None:
        self.said.append("lost")


async def test_one_leads_and_who_leaves_hands_over_at_once(topics: Topics, prefix: str) -> None:
    await ensure_topics(topics.settings, prefix=prefix, max_bytes=1024 * 1024)
    first = Candidate(topics.settings, prefix)
    await until(lambda: first.leadership.is_leader)
    second = Candidate(topics.settings, prefix)
    await until(lambda: second.leadership.problem is None)
    assert (first.said, second.said) == (["gained"], [])  # who joins takes the lead from nobody
    await first.leadership.close()
    assert first.said == ["gained", "lost"]
    await until(lambda: second.said == ["gained"])
    await second.leadership.close()


class Child:
    """A leader in another process, and what it says."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.said: list[str] = []
        program = Path(__file__).with_name("leading.py")
        self.process = subprocess.Popen(
            [sys.executable, str(program), bootstrap, prefix, "child"], stdout=subprocess.PIPE, text=True
        )
        self._listening = Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.said.append(line.strip())

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listening.join()


async def test_a_leader_that_hangs_is_followed_by_another_and_cannot_write_when_it_wakes(
    cluster: Cluster, topics: Topics, prefix: str
) -> None:
    await ensure_topics(topics.settings, prefix=prefix, max_bytes=1024 * 1024)
    child = Child(cluster.bootstrap, prefix)
    try:
        await until(lambda: "wrote" in child.said)
        candidate = Candidate(topics.settings, prefix)
        await until(lambda: candidate.leadership.problem is None)
        child.signal(signal.SIGSTOP)
        await until(lambda: candidate.said == ["gained"])
        writer = TripWriter(topics.settings, prefix=prefix)
        await writer.open()
        position = await writer.write(trip("mine", 1))
        child.signal(signal.SIGCONT)
        await until(lambda: not {"fenced", "lost"}.isdisjoint(child.said))
        await writer.write(trip("mine", 2))
        await writer.close()
        await candidate.leadership.close()
    finally:
        child.end()
    found = await asyncio.to_thread(topics.records, f"{prefix}trips")
    writers = [_group(one) for one in found]
    assert writers == ["child"] * writers.count("child") + ["mine", "mine"]
    assert position.offset == found[-2].offset()


def _group(message: Message) -> str:
    fact = decode("trips", message.key(), message.value())
    assert isinstance(fact, BreakerTripped)
    return fact.group


async def test_the_writer_of_trips_is_fenced_by_the_next_and_never_opens_itself_again(
    topics: Topics, prefix: str
) -> None:
    await ensure_topics(topics.settings, prefix=prefix, max_bytes=1024 * 1024)
    stale, now = (TripWriter(topics.settings, prefix=prefix) for _ in range(2))
    await stale.open()
    await stale.write(trip("stale", 1))
    await now.open()
    with pytest.raises(FencedError):
        await stale.write(trip("stale", 2))
    with pytest.raises(ClusterError, match="not open"):
        await stale.write(trip("stale", 3))
    await now.write(trip("now", 1))
    await now.write(trip("now", 2))
    await asyncio.gather(stale.close(), now.close())
    found = await asyncio.to_thread(topics.records, f"{prefix}trips")
    assert [_group(one) for one in found] == ["stale", "now", "now"]


# --- the tail


def seconds_of(records: Sequence[ConsumedRecord]) -> list[int]:
    facts = [decode("dispositions", record.key, record.value) for record in records]
    return [fact.second for fact in facts if isinstance(fact, DispositionsCounted)]


async def test_a_tail_hands_over_what_is_written_from_its_start_on_and_nothing_older(
    topics: Topics, prefix: str
) -> None:
    await ensure_topics(topics.settings, prefix=prefix, max_bytes=1024 * 1024)
    found: list[int] = []
    writer = FactWriter(topics.settings, prefix=prefix, origin=ORIGIN)
    tail: FactTail[list[int]] = FactTail(
        topics.settings, topic=f"{prefix}dispositions", digest=seconds_of, take=found.extend
    )
    try:
        await asyncio.gather(*(writer.write(one_accepted(one, f"g{one}")) for one in range(20)))
        tail.start()
        await asyncio.wait_for(tail.started.wait(), DEADLINE_S)
        await asyncio.gather(*(writer.write(one_accepted(100 + one, f"g{one}")) for one in range(50)))
        await until(lambda: len(found) >= 50)
        assert sorted(found) == list(range(100, 150))
        assert tail.problem is None
        for second in range(200, 205):
            await writer.write(one_accepted(second, "one"))
        await until(lambda: len(found) >= 55)
        assert found[50:] == list(range(200, 205))  # one group is one partition, so in order
    finally:
        await tail.close()
        await writer.close()


async def test_a_tail_goes_on_with_a_topic_that_was_made_again(topics: Topics, prefix: str) -> None:
    topics.name = f"{prefix}dispositions"
    topics.create(2)
    found: list[int] = []
    writer = FactWriter(topics.settings, prefix=prefix, origin=ORIGIN)
    tail: FactTail[list[int]] = FactTail(topics.settings, topic=topics.name, digest=seconds_of, take=found.extend)
    try:
        for one in range(5):
            await writer.write(one_accepted(one, f"g{one}"))
        tail.start()
        await asyncio.wait_for(tail.started.wait(), DEADLINE_S)
        await asyncio.to_thread(topics.delete)
        await until(lambda: not topics.exists())
        await asyncio.to_thread(topics.create, 2)
        await _written(writer, one_accepted(100, "g0"))
        await until(lambda: 100 in found)
        assert found == [100]
    finally:
        await tail.close()
        await writer.close()


async def _written(writer: FactWriter, fact: DispositionsCounted) -> None:
    """A producer may not have heard yet of a topic that was made a moment ago."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await writer.write(fact)
            except ClusterError:
                await asyncio.sleep(0.1)
            else:
                return


# --- the broker's own configs of groups


async def test_the_limit_of_a_group_is_read_set_and_restored(cluster: Cluster) -> None:
    upstream = UpstreamConfig(bootstrap=(parse_address(cluster.bootstrap),), service_mechanism="none")
    client, group = GroupConfigClient(upstream), f"sg-{uuid.uuid4().hex[:8]}"
    most = await client.max_limit()
    assert most is not None
    default = (await client.values([group]))[group][LIMIT]
    assert not default.is_set
    await client.set_limit(group, most)
    values = (await client.values([group, "another"]))[group]
    assert (values[LIMIT].value, values[LIMIT].is_set) == (str(most), True)
    with pytest.raises(ConfigRefusedError, match=LIMIT) as caught:
        await client.set_limit(group, most + 1)
    assert caught.value.code
    await client.set_limit(group, None)
    assert (await client.values([group]))[group][LIMIT] == default
