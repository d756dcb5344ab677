"""Frames that arrive in pieces, cut at every byte, come out as if they had arrived whole."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.link import LinkMeter
from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import (
    ApiVersionsRequest,
    Coordinator,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataBroker,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from headgate.wire.messages.data import (
    AbortedTransaction,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from headgate.wire.messages.share import (
    AcquiredRecords,
    ShareAcknowledgePartitionResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchPartitionResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopicResponse,
)
from headgate.wire.schema import Message
from tests.support.fake_upstream import HOST, Broker, Client, answer, body_of, request
from tests.unit.proxy.stage import GATEWAY_HOST, Stage, base_port, stage

TOPIC_ID = bytes(range(16))
UNKNOWN = ((10_000, b"kept"),)
ENDPOINTS = tuple(NodeEndpoint(node_id=node, host=HOST, port=19092 + node, rack="r") for node in (0, 1))
PARTITION = ProducePartitionResponse(
    index=1, error_code=6, current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=3), unknown_tags=UNKNOWN
)
FETCHED = FetchPartitionResponse(
    partition_index=1,
    error_code=6,
    high_watermark=7,
    aborted_transactions=(AbortedTransaction(producer_id=1, first_offset=2),),
    records=b"records",
    current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=3),
)
SHARED = ShareFetchPartitionResponse(
    partition_index=1,
    records=b"records",
    acquired_records=(AcquiredRecords(first_offset=1, last_offset=2, delivery_count=1),),
)


@dataclass(frozen=True)
class Call:
    """A call and what the broker answers."""

    key: int
    version: int
    asked: Message
    answered: Message

    def __str__(self) -> str:
        return f"{type(self.answered).__name__}-v{self.version}"


def metadata(version: int) -> Call:
    brokers = tuple(MetadataBroker(node_id=node, host=HOST, port=19092) for node in (0, 1))
    topic = MetadataTopic(name="orders", topic_id=TOPIC_ID if version >= 10 else bytes(16))
    answered = MetadataResponse(brokers=brokers, cluster_id="c", controller_id=0, topics=(topic,))
    return Call(3, version, MetadataRequest(topics=()), answered)


def find_coordinator(version: int) -> Call:
    if version <= 3:
        answered = FindCoordinatorResponse(node_id=1, host=HOST, port=19093)
        return Call(10, version, FindCoordinatorRequest(key="g"), answered)
    found = tuple(Coordinator(key=f"g{node}", node_id=node, host=HOST, port=19092) for node in (0, 1))
    return Call(
        10, version, FindCoordinatorRequest(coordinator_keys=("g0", "g1")), FindCoordinatorResponse(coordinators=found)
    )


def describe_cluster() -> Call:
    brokers = tuple(DescribeClusterBroker(broker_id=node, host=HOST, port=19092, rack="r") for node in (0, 1))
    answered = DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=brokers)
    return Call(60, 2, DescribeClusterRequest(), answered)


def produce(message: str | None = None, version: int = 13) -> Call:
    partition = replace(PARTITION, error_message=message)
    topic = ProduceTopicResponse(topic_id=TOPIC_ID, partition_responses=(partition,))
    asked = ProduceRequest(
        acks=1, topic_data=(ProduceTopic(topic_id=TOPIC_ID, partition_data=(ProducePartition(index=1, records=b"r"),)),)
    )
    return Call(0, version, asked, ProduceResponse(responses=(topic,), node_endpoints=ENDPOINTS, unknown_tags=UNKNOWN))


def fetch(records: bytes | None = b"records", version: int = 18) -> Call:
    topic = FetchTopicResponse(topic_id=TOPIC_ID, partitions=(replace(FETCHED, records=records), FETCHED))
    return Call(1, version, FetchRequest(), FetchResponse(responses=(topic,), node_endpoints=ENDPOINTS))


def share_fetch(records: bytes = b"records", version: int = 2) -> Call:
    topic = ShareFetchTopicResponse(topic_id=TOPIC_ID, partitions=(replace(SHARED, records=records), SHARED))
    answered = ShareFetchResponse(responses=(topic,), node_endpoints=ENDPOINTS, unknown_tags=UNKNOWN)
    return Call(78, version, ShareFetchRequest(group_id="g", member_id="m"), answered)


def share_acknowledge(message: str | None = None) -> Call:
    partition = ShareAcknowledgePartitionResponse(partition_index=1, error_code=6, error_message=message)
    topic = ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=(partition,) * (4 if message else 1))
    answered = ShareAcknowledgeResponse(responses=(topic,), node_endpoints=ENDPOINTS)
    return Call(79, 2, ShareAcknowledgeRequest(group_id="g", member_id="m"), answered)


HEARTBEAT = Call(12, 4, HeartbeatRequest(group_id="g", member_id="m"), HeartbeatResponse(error_code=25))
SMALL = [
    *map(metadata, (0, 3, 9, 13)),
    *map(find_coordinator, (0, 3, 6)),
    describe_cluster(),
    produce(),
    produce(version=10),
    fetch(),
    fetch(version=16),
    share_fetch(),
    share_acknowledge(),
    HEARTBEAT,
]
LONG = "e" * 30_000
LARGE = [
    fetch(records=bytes(70_000)),
    fetch(records=bytes(300_000)),
    share_fetch(records=bytes(70_000)),
    share_acknowledge(message=LONG),
]


async def reach(meter: LinkMeter, count: int) -> None:
    """Wait until the gateway has read so many bytes."""
    async with asyncio.timeout(20):
        while meter.received_bytes < count:  # noqa: ASYNC110 - the gateway has no event for it
            await asyncio.sleep(0)


async def send_cut(on: Stage, broker: Broker, frame: bytes, cut: int) -> None:
    """Send a frame in two pieces; the gateway reads the first before the second is sent."""
    meter = on.gateway.metrics.upstream_meter
    before = meter.received_bytes
    await broker.send(frame[:cut])
    await reach(meter, before + cut)
    await broker.send(frame[cut:])


async def ask(client: Client, broker: Broker, call: Call, number: int) -> bytes:
    """Send the request; the frame with which the broker will answer."""
    await client.send(request(call.key, call.version, call.asked, correlation_id=number))
    asked = await broker.request()
    return asked.answer(encode(call.answered, call.version))


def moved(call: Call) -> Message:
    """The answer with the gateway's addresses."""
    answered: Any = call.answered

    def node(one: Any) -> Any:
        number = one.broker_id if hasattr(one, "broker_id") else one.node_id
        return replace(one, host=GATEWAY_HOST, port=base_port() + 1 + number)

    changed: Message = answered
    if hasattr(answered, "brokers"):
        changed = replace(answered, brokers=tuple(map(node, answered.brokers)))
    elif hasattr(answered, "node_endpoints"):
        changed = replace(answered, node_endpoints=tuple(map(node, answered.node_endpoints)))
    elif isinstance(answered, FindCoordinatorResponse):
        found = tuple(map(node, answered.coordinators))
        changed = replace(answered, coordinators=found) if call.version > 3 else node(answered)
    return changed


@pytest.mark.parametrize("call", SMALL, ids=str)
async def test_an_answer_is_the_same_wherever_it_is_cut(call: Call) -> None:
    async with stage() as on:
        client, broker = await on.pair()
        await broker.send(await ask(client, broker, call, 7))
        whole = await client.frame()
        assert whole == answer(call.key, call.version, 7, encode(moved(call), call.version))
        for cut in range(1, len(encode(call.answered, call.version)) + 8):
            frame = await ask(client, broker, call, 7)
            await send_cut(on, broker, frame, cut)
            assert await client.frame() == whole
        assert HOST.encode() not in whole


async def test_api_versions_is_the_same_wherever_it_is_cut() -> None:
    asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    async with stage() as on:
        client, broker = await on.pair()
        wholes = []
        for version in (0, 3, 5):
            call = Call(18, version, asked, on.upstream.api_versions())
            await client.send(request(18, version, asked))
            sent = await broker.request()
            frame = sent.answer(encode(call.answered, sent.version))
            await broker.send(frame)
            whole = await client.frame()
            wholes.append(whole)
            for cut in range(1, len(frame), 1 if version == 5 else 13):
                await client.send(request(18, version, asked))
                await send_cut(on, broker, (await broker.request()).answer(encode(call.answered, sent.version)), cut)
                assert await client.frame() == whole


@pytest.mark.parametrize("call", LARGE, ids=lambda call: f"{call}-{len(encode(call.answered, call.version))}")
async def test_a_large_answer_never_shows_an_address_wherever_it_is_cut(call: Call) -> None:
    body: Any = call.answered
    async with stage() as on:
        client, broker = await on.pair()
        size = len(encode(call.answered, call.version)) + 9
        cuts = [*range(1, 100), *range(200, size - 400, size // 20), *range(size - 400, size)]
        for number, cut in enumerate(cuts):
            frame = await ask(client, broker, call, number)
            await send_cut(on, broker, frame, cut)
            got = await client.frame()
            assert HOST.encode() not in got
            answered: Any = decode(type(body), call.version, body_of(got, call.key, call.version))
            if answered.node_endpoints:  # cut inside the first eight bytes: nothing had gone out yet
                assert answered == moved(call)
                assert cut < 8
            else:
                assert len(got) == len(frame)
                assert replace(answered, unknown_tags=()) == replace(body, node_endpoints=(), unknown_tags=())
                assert set(body.unknown_tags) <= set(answered.unknown_tags)
        route = on.gateway.routes.route(ApiKey(call.key), ApiVersion(call.version))
        assert route.spliced_calls == len(cuts)


async def test_answers_are_the_same_when_every_byte_comes_alone() -> None:
    calls = [metadata(12), HEARTBEAT, fetch(), produce(), share_fetch()]
    async with stage() as on:
        client, broker = await on.pair()
        frames = [await ask(client, broker, call, number) for number, call in enumerate(calls)]
        expected = b"".join(
            answer(call.key, call.version, number, encode(moved(call), call.version))
            for number, call in enumerate(calls)
        )
        meter = on.gateway.metrics.upstream_meter
        for byte in b"".join(frames):
            before = meter.received_bytes
            await broker.send(bytes((byte,)))
            await reach(meter, before + 1)
        assert await client.exactly(len(expected)) == expected


REQUESTS = [
    request(3, 12, MetadataRequest(topics=())),
    request(0, 13, produce().asked),
    request(0, 3, ProduceRequest(acks=1, transactional_id="t")),
    request(12, 4, HEARTBEAT.asked, client_id=None),
    request(10, 2, FindCoordinatorRequest(key="g"), client_id=b""),
]


async def test_requests_are_the_same_wherever_they_are_cut() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        meter = on.gateway.metrics.client_meter
        for frame in REQUESTS:
            for cut in range(1, len(frame)):
                before = meter.received_bytes
                await client.send(frame[:cut])
                await reach(meter, before + cut)
                await client.send(frame[cut:])
                asked = await broker.request()
                assert asked.frame == frame
                await broker.send(asked.answer())
                await client.frame()


async def test_requests_are_the_same_when_every_byte_comes_alone() -> None:
    sent = b"".join(REQUESTS) + request(0, 13, ProduceRequest(acks=0)) + REQUESTS[0]
    async with stage() as on:
        client, broker = await on.pair()
        meter = on.gateway.metrics.client_meter
        for byte in sent:
            before = meter.received_bytes
            await client.send(bytes((byte,)))
            await reach(meter, before + 1)
        assert await broker.exactly(len(sent)) == sent
        connection = await on.connection()
        assert len(connection.pending) == len(REQUESTS) + 1  # acks=0 waits for no answer


async def test_unknown_tags_in_the_header_of_an_opened_answer_survive() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        call = metadata(12)
        await ask(client, broker, call, 3)
        tags = b"\x01\x90\x4e\x02ab"
        await broker.send(answer(3, 12, 3, call.answered, tags=tags))
        assert await client.frame() == answer(3, 12, 3, moved(call), tags=tags)
