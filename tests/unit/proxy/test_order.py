"""Answers come in the order of the requests, whatever passes, is opened, is answered here, or has no answer at all."""

import random
from collections.abc import Callable
from functools import partial
from struct import unpack_from

from headgate.proxy.chain import MOST_BEFORE_OPENED
from headgate.wire.codec import decode
from headgate.wire.messages.cluster import MetadataRequest, MetadataResponse
from headgate.wire.messages.data import ProducePartition, ProduceRequest, ProduceTopic
from headgate.wire.messages.groups import HeartbeatRequest
from tests.support.fake_upstream import HOST, Client, FakeUpstream, body_of, request
from tests.unit.proxy.stage import stage

PRODUCE, METADATA, HEARTBEAT, API_VERSIONS = 0, 3, 12, 18


def produce(acks: int, number: int, size: int = 10) -> bytes:
    topic = ProduceTopic(topic_id=bytes(16), partition_data=(ProducePartition(records=bytes(size)),))
    return request(PRODUCE, 13, ProduceRequest(acks=acks, topic_data=(topic,)), correlation_id=number)


def metadata(number: int) -> bytes:
    return request(METADATA, 12, MetadataRequest(topics=()), correlation_id=number)


def heartbeat(number: int) -> bytes:
    return request(HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m"), correlation_id=number)


def refused_api_versions(number: int) -> bytes:
    """A version that nobody has: the gateway answers it itself."""
    return request(API_VERSIONS, 99, b"\x05test\x021\x00", correlation_id=number)


async def numbers(client: Client, count: int) -> list[int]:
    """The correlation ids of the next answers."""
    return [unpack_from(">i", await client.frame(), 4)[0] for _ in range(count)]


async def test_200_requests_that_were_sent_before_the_upstream_was_there_are_all_answered() -> None:
    upstream = FakeUpstream()
    upstream.answers_metadata.clear()
    async with stage(upstream=upstream, seen=False) as on:
        client = await on.client()
        sent = [metadata(number) if number % 2 else heartbeat(number) for number in range(200)]
        await client.send(*sent)
        assert not upstream.has_connection()
        upstream.answers_metadata.set()
        broker = await upstream.accept()
        for frame in sent:
            asked = await broker.request()
            assert asked.frame == frame
            await broker.send(asked.answer(upstream.metadata() if asked.key == METADATA else None))
        assert await numbers(client, 200) == list(range(200))
        assert on.gateway.metrics.accepted == 1


async def test_a_request_without_an_answer_takes_no_place_in_the_order() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        acks = [1, 0, 0, -1, 0, 1, 0]
        await client.send(*(produce(value, number) for number, value in enumerate(acks)), metadata(99))
        for value in acks:
            asked = await broker.request()
            if value:
                await broker.send(asked.answer())
        await broker.reply(on.upstream.metadata())
        assert await numbers(client, 4) == [0, 3, 5, 99]
        assert not (await on.connection()).pending


async def test_opened_and_passing_calls_keep_their_order() -> None:
    chance = random.Random(1)
    choices: list[Callable[[int], bytes]] = [metadata, heartbeat, partial(produce, 1)]
    kinds = [chance.choice(choices) for _ in range(MOST_BEFORE_OPENED)]  # more wait until some are answered
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(*(kind(number) for number, kind in enumerate(kinds)))
        answers = []
        for _ in kinds:
            asked = await broker.request()
            answers.append(asked.answer(on.upstream.metadata() if asked.key == METADATA else None))
        stream = b"".join(answers)
        while stream:  # in pieces that have nothing to do with the frames
            size = chance.randrange(1, 200)
            await broker.send(stream[:size])
            stream = stream[size:]
        received = [await client.frame() for _ in kinds]
        assert [unpack_from(">i", frame, 4)[0] for frame in received] == list(range(len(kinds)))
        assert HOST.encode() not in b"".join(received)


async def test_an_answer_of_our_own_waits_for_those_in_front_of_it() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), refused_api_versions(2), metadata(3), refused_api_versions(4), heartbeat(5))
        first = await broker.request()
        second = await broker.request()
        third = await broker.request()
        assert await client.is_quiet()
        await broker.send(first.answer())
        assert await numbers(client, 2) == [1, 2]
        await broker.send(second.answer(on.upstream.metadata())[:30])
        assert await client.is_quiet()
        await broker.send(second.answer(on.upstream.metadata())[30:])
        assert await numbers(client, 2) == [3, 4]
        await broker.send(third.answer())
        assert await numbers(client, 1) == [5]


async def test_connections_do_not_mix() -> None:
    async with stage() as on:
        pairs = [await on.pair() for _ in range(10)]
        for number, (client, _) in enumerate(pairs):
            await client.send(metadata(number))
        for number, (_, broker) in reversed(list(enumerate(pairs))):
            answered = on.upstream.metadata()
            assert (await broker.reply(answered)).header.correlation_id == number
        for number, (client, _) in enumerate(pairs):
            frame = await client.frame()
            assert unpack_from(">i", frame, 4) == (number,)
            assert len(decode(MetadataResponse, 12, body_of(frame, 3, 12)).brokers) == 1
