"""What the watcher sees of calls that pass: which topic, how many bytes, who; and that the calls pass as they came."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from headgate.activity import usage_tracker as ledger_module
from headgate.activity.group_watcher import GroupWatcher
from headgate.activity.model.intervals import Interval
from headgate.activity.topic_names import Topics
from headgate.activity.usage_tracker import Ledger
from headgate.activity.watchers import UseWatcher
from headgate.base.clock import SystemClock
from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import CloseCause, Interceptor, Session
from headgate.proxy.principals import Principals
from headgate.wire.codec import encode
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

PRODUCE, FETCH, HEARTBEAT, SHARE_FETCH = 0, 1, 12, 78
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


async def nobody(_: object, __: object) -> list[tuple[str, bytes]]:
    return []


@dataclass
class Scene:
    """A gateway that watches."""

    on: Stage
    ledger: Ledger
    watcher: UseWatcher
    client: Client
    broker: Broker
    sent: list[int] = field(default_factory=list)

    async def call(self, key: int, version: int, asked: Message, said: Message | None, client_id: bytes = b"c") -> None:
        """One call through the gateway, unchanged both ways."""
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
        """Bytes by topic and direction; topics are known by what the calls carry."""
        found: dict[tuple[str | None, str], int] = {}
        for one in self.ledger.intervals:
            key = (one.topic.name or one.topic.id, one.direction)
            found[key] = found.get(key, 0) + one.bytes
        return found

    def only(self) -> Interval:
        [interval] = self.ledger.intervals
        return interval


@asynccontextmanager
async def scene(workers: tuple[str, ...] = (), most: int = 0) -> AsyncIterator[Scene]:
    principals = Principals()
    ledger = Ledger(principals, Topics(nobody), SystemClock(), workers=workers, most=most)
    watcher = UseWatcher(ledger)
    async with stage(principals, watcher, GroupWatcher(ledger)) as on:
        client, broker = await on.pair()
        yield Scene(on, ledger, watcher, client, broker)
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


async def test_a_produce_that_was_refused_is_no_use_neither_the_first_nor_a_later_one() -> None:
    async with scene() as it:
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1, code=29))
        assert it.uses() == {}
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1))
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1, code=29))
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1))
        assert it.uses() == {(TEXT_1, "write"): it.sent[1] + it.sent[3]}


async def test_a_produce_without_an_answer_counts_as_it_is_sent() -> None:
    async with scene() as it:
        for _ in range(3):
            await it.call(PRODUCE, 13, produce(ID_1, acks=0), None)
        assert it.uses() == {(TEXT_1, "write"): sum(it.sent)}


async def test_topics_of_one_call_share_its_bytes_and_those_of_calls_that_were_not_looked_at() -> None:
    async with scene() as it:
        for _ in range(21):
            await it.call(PRODUCE, 12, produce(b"a", b"b"), took(b"a", b"b"))
        uses = it.uses()
        assert set(uses) == {("a", "write"), ("b", "write")}
        # The first was looked at, then eight were not, then the next shared them out: twice.
        assert sum(uses.values()) == pytest.approx(sum(it.sent[:19]), abs=4)


async def test_a_topic_that_comes_later_on_a_known_connection_is_seen_at_once() -> None:
    async with scene() as it:
        for topic in (ID_1, ID_1, ID_2, ID_1, ID_2):
            await it.call(PRODUCE, 13, produce(topic), took(topic))
        assert set(it.uses()) == {(TEXT_1, "write"), ("MjIyMjIyMjIyMjIyMjIyMg", "write")}
        for topic in (b"a", b"a", b"longer", b"b"):
            await it.call(FETCH, 12, FetchRequest(), brought(topic))
        assert {key for key in it.uses() if key[1] == "read"} == {("a", "read"), ("longer", "read"), ("b", "read")}


@pytest.mark.parametrize("version", [4, 6, 11, 12, 13, 17, 18])
async def test_a_fetch_counts_the_records_that_it_brings(version: int) -> None:
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


async def test_a_fetch_of_several_topics_is_seen_in_part_and_counted_in_all() -> None:
    async with scene() as it:
        for _ in range(19):
            await it.call(FETCH, 17, FetchRequest(), brought(ID_1, ID_2))
        uses = it.uses()
        assert len(uses) == 2
        assert sum(uses.values()) == pytest.approx(19 * 2000, rel=0.1)


async def test_a_large_answer_is_read_while_it_passes_in_pieces() -> None:
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
        who = it.only().who
        assert (who.kind, who.name, who.rule, who.confidence) == ("share_group", "sg", "share-fetch", "certain")
        assert it.only().bytes == 400


async def test_a_group_that_the_broker_accepted_on_another_connection_names_who_fetches() -> None:
    async with scene() as it:
        await it.call(FETCH, 17, FetchRequest(), brought(ID_1))
        assert it.only().who.rule == "client-id-and-principal"
        other, broker = await it.on.pair()
        for code in (25, 0):
            assert it.only().who.kind != "consumer_group"
            await other.send(request(HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m"), client_id=b"c"))
            await broker.reply(HeartbeatResponse(error_code=code))
            await other.frame()
            it.ledger.identify_again(10)
        who = it.only().who
        assert (who.kind, who.name, who.rule) == ("consumer_group", "g", "group-member")
        other.close()
        await until(lambda: not len(it.ledger.groups))


async def test_a_transactional_producer_is_named_by_its_id() -> None:
    async with scene() as it:
        for _ in range(2):
            await it.call(PRODUCE, 13, produce(ID_1, transactional_id="ledger-3"), took(ID_1))
        assert (it.only().who.name, it.only().named) == ("ledger", "ledger-3")


async def test_with_its_last_connection_a_use_ends() -> None:
    async with scene() as it:
        await it.call(PRODUCE, 13, produce(ID_1), took(ID_1))
        it.ledger.swept()
        it.client.close()
        await until(lambda: not len(it.ledger.intervals))
        [told] = it.ledger.intervals.take(0.0, 10)
        assert told.bytes == it.sent[0]
        assert not it.ledger._sights
        assert not it.ledger._related
        assert not it.watcher._produce


async def test_a_connection_that_changes_its_name_all_the_time_is_counted_with_the_rest() -> None:
    async with scene() as it:
        for number in range(50):
            await it.call(PRODUCE, 13, produce(ID_1), took(ID_1), client_id=f"name{number}".encode())
            await it.call(FETCH, 17, FetchRequest(), brought(ID_2), client_id=f"name{number}".encode())
        assert len(it.ledger.intervals) <= 2 * 8 + 2
        assert it.ledger.intervals.overflows
        it.client.close()
        await until(lambda: not len(it.ledger.intervals))


async def test_two_names_on_one_connection_are_told_apart_whoever_comes_when() -> None:
    async with scene() as it:
        for name in (b"x", b"y", b"x", b"y"):
            await it.call(PRODUCE, 13, produce(ID_1), took(ID_1), client_id=name)
        by_client = {one.client.client_id: one.bytes for one in it.ledger.intervals}
        assert by_client == {"x": it.sent[0] + it.sent[2], "y": it.sent[1] + it.sent[3]}


async def test_more_topics_than_a_connection_may_have_are_counted_with_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_module, "_MOST_USES", 3)
    async with scene() as it:
        for number in range(6):
            topic = f"t{number}".encode()
            await it.call(PRODUCE, 12, produce(topic), took(topic))
        assert it.ledger.intervals.overflows == 1
        [sight] = it.ledger._sights.values()
        assert len(sight.uses) == 4
        [other] = it.ledger.intervals._others.values()
        assert (other.topic.name, other.bytes) == (None, sum(it.sent[3:]))


async def test_an_answer_behind_the_end_of_its_client_leaves_nothing_behind() -> None:
    class Farewell(Interceptor):
        async def before_upstream_close(self, session: Session, _cause: CloseCause, _deadline: float) -> None:
            await session.call(ApiKey(HEARTBEAT), ApiVersion(4), encode(HeartbeatRequest(), 4))

    principals = Principals()
    ledger = Ledger(principals, Topics(nobody), SystemClock())
    watcher = UseWatcher(ledger)
    async with stage(principals, watcher, GroupWatcher(ledger), Farewell()) as on:
        client, broker = await on.pair()
        beat = HeartbeatRequest(group_id="g", member_id="m")
        await client.send(request(PRODUCE, 13, produce(ID_1)), request(HEARTBEAT, 4, beat))
        asked = [await broker.request() for _ in range(2)]
        client.close()
        last = await broker.request()
        await broker.send(asked[0].answer(took(ID_1)), asked[1].answer(HeartbeatResponse()))
        await broker.send(last.answer(HeartbeatResponse()))
        await until(lambda: not on.gateway._farewells)
        assert len(ledger.intervals) == len(ledger.groups) == 0
        assert not ledger._sights
        assert not ledger._memberships


async def test_calls_that_nobody_can_read_pass_and_are_counted() -> None:
    async with scene() as it:
        broken = request(PRODUCE, 13, b"\x00\xff\xff" + bytes(4) + b"\xff\xff\xff\xff\xff\x0f")
        await it.client.send(broken)
        assert (await it.broker.request()).frame == broken
        assert it.watcher.unreadable == 1
