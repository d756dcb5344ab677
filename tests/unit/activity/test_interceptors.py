"""Watching requests: topics, bytes and actors, and that requests and responses pass unchanged."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from headgate.activity.interceptors import GroupMembershipInterceptor, TopicUsageInterceptor
from headgate.activity.model.identity import OTHER
from headgate.activity.model.intervals import Interval
from headgate.activity.topic_resolver import TopicResolver
from headgate.activity.usage_tracker import UsageTracker
from headgate.base.clock import SystemClock
from headgate.base.ids import ApiKey
from headgate.proxy.principals import Principals
from headgate.wire.messages.data import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from headgate.wire.messages.share import (
    ShareFetchPartitionResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopicResponse,
)
from headgate.wire.schema import Message
from tests.support.fake_upstream import Broker, Client, request
from tests.unit.proxy.stage import Stage, stage, until

PRODUCE, FETCH, HEARTBEAT, SHARE_FETCH = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.HEARTBEAT, ApiKey.SHARE_FETCH
ID_1, ID_2 = b"1" * 16, b"2" * 16


def batch(size: int = 200, records: int = 5) -> bytes:
    head = struct.pack(">qiibIhi", 0, size - 12, 0, 2, 0, 0, records - 1)
    return head + bytes(size - len(head))


def produce(*topics: bytes, acks: int = -1, transactional_id: str | None = None, size: int = 200) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        transactional_id=transactional_id,
        topic_data=tuple(
            ProduceTopic(name=one.decode(), topic_id=one, partition_data=(ProducePartition(records=batch(size)),))
            for one in topics
        ),
    )


def took(*topics: bytes, code: int = 0) -> ProduceResponse:
    partition = ProducePartitionResponse(error_code=code)
    return ProduceResponse(
        responses=tuple(
            ProduceTopicResponse(name=one.decode(), topic_id=one, partition_responses=(partition,)) for one in topics
        )
    )


def brought(*topics: bytes, size: int = 1000) -> FetchResponse:
    return FetchResponse(
        responses=tuple(
            FetchTopicResponse(
                topic=one.decode(),
                topic_id=one,
                partitions=(FetchPartitionResponse(records=batch(size) if size else b""),),
            )
            for one in topics
        )
    )


async def no_topics(_: object, __: object) -> list[tuple[str, bytes]]:
    return []


@dataclass
class Scene:
    """A gateway with both interceptors."""

    on: Stage
    tracker: UsageTracker
    watcher: TopicUsageInterceptor
    client: Client
    broker: Broker
    sent: list[int] = field(default_factory=list)

    async def call(self, key: int, version: int, asked: Message, said: Message | None, client_id: bytes = b"c") -> None:
        """One request and its response, which pass unchanged."""
        frame = request(key, version, asked, client_id=client_id)
        self.sent.append(len(frame) - 4)
        await self.client.send(frame)
        if said is None:
            assert (await self.broker.request()).frame == frame
            return
        there = await self.broker.reply(said)
        assert there.frame == frame
        assert await self.client.frame() == there.answer(said)

    def uses(self) -> dict[tuple[str | None, str], int]:
        """Bytes by topic and direction."""
        found: dict[tuple[str | None, str], int] = {}
        for one in self.tracker.intervals:
            key = (one.topic.name or one.topic.id, one.direction)
            found[key] = found.get(key, 0) + one.bytes
        return found

    def only(self) -> Interval:
        [interval] = self.tracker.intervals
        return interval


@asynccontextmanager
async def scene(most_uses: int = 100) -> AsyncIterator[Scene]:
    principals = Principals()
    tracker = UsageTracker(principals, TopicResolver(no_topics), SystemClock(), most_uses=most_uses)
    watcher = TopicUsageInterceptor(tracker)
    async with stage(principals, watcher, GroupMembershipInterceptor(tracker)) as on:
        client, broker = await on.pair()
        yield Scene(on, tracker, watcher, client, broker)
        assert on.gateway.metrics.chain_meter.failures == 0


TEXT_1 = "MTExMTExMTExMTExMTExMQ"  # ID_1 as Kafka prints it


@pytest.mark.parametrize(
    ("version", "name"), [(3, "orders"), (8, "orders"), (9, "orders"), (12, "orders"), (13, TEXT_1)]
)
async def test_a_produce_of_one_topic_counts_all_its_bytes(version: int, name: str) -> None:
    topic = ID_1 if version >= 13 else b"orders"
    async with scene() as it:
        for size in (200, 300, 400):
            await it.call(PRODUCE, version, produce(topic, size=size), took(topic))
        assert it.uses() == {(name, "write"): sum(it.sent)}
        assert it.only().topic.sampled_records == 5
        assert it.only().client == ("User:ANONYMOUS", "c", "127.0.0.1")


async def test_a_refused_produce_is_no_use_neither_the_first_nor_a_later_one() -> None:
    async with scene() as it:
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1, code=29))
        assert it.uses() == {}
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1))
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1, code=29))
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1))
        assert it.uses() == {(TEXT_1, "write"): it.sent[1] + it.sent[3]}


@pytest.mark.parametrize("refused", [0, 1, 2])
async def test_of_produces_under_way_at_once_only_the_refused_one_does_not_count(refused: int) -> None:
    async with scene() as it:
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1))
        frames = [request(PRODUCE, 13, produce(ID_1, size=size), client_id=b"c") for size in (200, 300, 400)]
        await it.client.send(*frames)
        asked = [await it.broker.request() for _ in frames]
        for number, one in enumerate(asked):
            await it.broker.send(one.answer(took(ID_1, code=29 if number == refused else 0)))
            await it.client.frame()
        accepted = sum(len(frame) - 4 for number, frame in enumerate(frames) if number != refused)
        assert it.uses() == {(TEXT_1, "write"): it.sent[0] + accepted}


async def test_a_produce_without_a_response_counts_when_it_is_sent_on_a_proved_connection() -> None:
    async with scene() as it:
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1))
        for _ in range(3):
            await it.call(PRODUCE, 13, produce(ID_1, acks=0), None)
        assert it.uses() == {(TEXT_1, "write"): sum(it.sent)}


async def test_nothing_counts_before_the_connection_is_proved() -> None:
    async with scene() as it:
        it.client, it.broker = await it.on.pair(proved=False)
        await it.client.send(request(PRODUCE, 13, produce(ID_2, acks=0)))
        probe = await it.broker.request()
        assert probe.key == ApiKey.METADATA  # of the gateway: without it, this client would never be proved
        await it.broker.request()
        for number in range(100):
            await it.call(PRODUCE, 13, produce(number.to_bytes(16, "big"), acks=0), None)
        assert it.uses() == {}
        assert len(it.tracker.topics) == len(it.tracker) == 0
        await it.broker.send(probe.answer(it.on.upstream.metadata()))
        await until(lambda: all(one.is_proved for one in it.on.gateway.connections))
        await it.call(PRODUCE, 13, produce(ID_1, acks=0), None)
        assert it.uses() == {(TEXT_1, "write"): it.sent[-1]}


async def test_topics_of_one_produce_share_its_bytes_and_those_of_skipped_ones() -> None:
    async with scene() as it:
        for _ in range(21):
            await it.call(PRODUCE, 12, produce(b"a", b"b"), took(b"a", b"b"))
        uses = it.uses()
        assert set(uses) == {("a", "write"), ("b", "write")}
        # The first one is parsed, eight are skipped, and the next one divides their bytes: twice.
        assert sum(uses.values()) == pytest.approx(sum(it.sent[:19]), abs=4)


async def test_a_later_topic_on_a_known_connection_is_seen_at_once() -> None:
    async with scene() as it:
        for topic in (ID_1, ID_1, ID_2, ID_1, ID_2):
            await it.call(PRODUCE, 13, produce(topic), took(topic))
        assert set(it.uses()) == {(TEXT_1, "write"), ("MjIyMjIyMjIyMjIyMjIyMg", "write")}
        for topic in (b"a", b"a", b"longer", b"b"):
            await it.call(FETCH, 12, FetchRequest(), brought(topic))
        assert {key for key in it.uses() if key[1] == "read"} == {("a", "read"), ("longer", "read"), ("b", "read")}


@pytest.mark.parametrize("version", [4, 6, 11, 12, 13, 17, 18])
async def test_a_fetch_counts_the_records_in_its_response(version: int) -> None:
    topic = ID_1 if version >= 13 else b"orders"
    async with scene() as it:
        await it.call(FETCH, version, FetchRequest(), FetchResponse())
        await it.call(FETCH, version, FetchRequest(), brought(topic, size=0))
        assert it.uses() == {}
        for _ in range(5):
            await it.call(FETCH, version, FetchRequest(), brought(topic))
        await it.call(FETCH, version, FetchRequest(), brought(topic, size=0))
        await it.call(FETCH, version, FetchRequest(), FetchResponse())
        [(_, size)] = it.uses().items()
        assert size == pytest.approx(5000, rel=0.02)


async def test_fetches_of_several_topics_are_parsed_in_part_and_counted_in_full() -> None:
    async with scene() as it:
        for _ in range(19):
            await it.call(FETCH, 17, FetchRequest(), brought(ID_1, ID_2))
        uses = it.uses()
        assert len(uses) == 2
        assert sum(uses.values()) == pytest.approx(19 * 2000, rel=0.1)


async def test_a_large_response_is_parsed_while_it_passes_in_chunks() -> None:
    async with scene() as it:
        for topics in ((ID_1,), (ID_1, ID_2), (ID_2,)):
            await it.call(FETCH, 17, FetchRequest(), brought(*topics, size=700_000))
        assert set(it.uses()) == {(TEXT_1, "read"), ("MjIyMjIyMjIyMjIyMjIyMg", "read")}
        assert sum(it.uses().values()) == pytest.approx(4 * 700_000, rel=0.01)


async def test_a_share_fetch_names_its_group() -> None:
    async with scene() as it:
        partition = ShareFetchPartitionResponse(records=batch())
        said = ShareFetchResponse(responses=(ShareFetchTopicResponse(topic_id=ID_1, partitions=(partition,)),))
        for _ in range(2):
            await it.call(SHARE_FETCH, 1, ShareFetchRequest(group_id="sg", member_id="m"), said)
        actor = it.only().actor
        assert (actor.kind, actor.name, actor.rule, actor.confidence) == ("share_group", "sg", "share-fetch", "certain")
        assert it.only().bytes == 400


async def test_a_group_that_the_broker_accepted_on_another_connection_names_the_actor() -> None:
    async with scene() as it:
        await it.call(FETCH, 17, FetchRequest(), brought(ID_1))
        assert it.only().actor.rule == "client-id-and-principal"
        other, broker = await it.on.pair()
        for code in (25, 0):
            assert it.only().actor.kind != "consumer_group"
            await other.send(request(HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m"), client_id=b"c"))
            await broker.reply(HeartbeatResponse(error_code=code))
            await other.frame()
            it.tracker.identify_again(10)
        actor = it.only().actor
        assert (actor.kind, actor.name, actor.rule) == ("consumer_group", "g", "group-member")
        other.close()
        await until(lambda: not len(it.tracker.groups))


async def test_a_transactional_producer_is_named_by_its_id() -> None:
    async with scene() as it:
        for _ in range(2):
            await it.call(PRODUCE, 13, produce(ID_1, transactional_id="ledger-3"), took(ID_1))
        assert (it.only().actor.name, it.only().qualifier) == ("ledger", "ledger-3")


async def test_a_use_ends_with_its_last_connection() -> None:
    async with scene() as it:
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1))
        it.tracker.sweep()
        it.client.close()
        await until(lambda: not len(it.tracker.intervals))
        [report] = it.tracker.intervals.take(0.0, 10)
        assert report.bytes == it.sent[0]
        assert len(it.tracker) == 0


async def test_a_connection_that_changes_its_client_id_too_often_is_added_up_under_other() -> None:
    async with scene() as it:
        for number in range(50):
            await it.call(PRODUCE, 13, produce(ID_1), took(ID_1), client_id=f"name{number}".encode())
            await it.call(FETCH, 17, FetchRequest(), brought(ID_2), client_id=f"name{number}".encode())
        assert len(it.tracker.intervals) <= 2 * 8 + 2
        assert it.tracker.intervals.overflows
        it.client.close()
        await until(lambda: not len(it.tracker.intervals))


async def test_two_client_ids_on_one_connection_are_counted_separately() -> None:
    async with scene() as it:
        for name in (b"x", b"y", b"x", b"y"):
            await it.call(PRODUCE, 13, produce(ID_1), took(ID_1), client_id=name)
        by_client = {one.client.client_id: one.bytes for one in it.tracker.intervals}
        assert by_client == {"x": it.sent[0] + it.sent[2], "y": it.sent[1] + it.sent[3]}


async def test_topics_above_the_bound_of_a_connection_are_added_up() -> None:
    async with scene(most_uses=3) as it:
        for number in range(6):
            topic = f"t{number}".encode()
            await it.call(PRODUCE, 12, produce(topic), took(topic))
        assert it.tracker.intervals.overflows == 1
        it.tracker.sweep()
        reports = it.tracker.intervals.take(0.0, 10)
        assert [one.topic.name for one in reports] == ["t0", "t1", "t2", None]
        assert (reports[-1].actor, reports[-1].bytes) == (OTHER, sum(it.sent[3:]))


@pytest.mark.parametrize("topics", [(ID_1,), (ID_1, ID_2)])
async def test_a_produce_that_ends_inside_what_is_compared_is_not_recognized(topics: tuple[bytes, ...]) -> None:
    async with scene() as it:
        await it.call(PRODUCE, 13, produce(*topics), took(*topics))
        await it.call(PRODUCE, 13, produce(*topics), took(*topics))
        frame = request(PRODUCE, 13, produce(*topics), client_id=b"c")
        await it.client.send((12).to_bytes(4, "big") + frame[4:])
        await until(lambda: not it.on.gateway.connections)
        assert it.on.ended == {"bad_request": 1}


async def test_unreadable_requests_pass_and_are_counted() -> None:
    async with scene() as it:
        broken = request(PRODUCE, 13, b"\x00\xff\xff" + bytes(4) + b"\xff\xff\xff\xff\xff\x0f")
        await it.client.send(broken)
        assert (await it.broker.request()).frame == broken
        assert it.watcher.unreadable == 1
        it.client, it.broker = await it.on.pair(proved=False)
        await it.client.send(broken)
        assert (await it.broker.request()).frame == broken
        assert it.watcher.unreadable == 1  # nothing counts before the proof
