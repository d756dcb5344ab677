"""What no client and no broker may send ends that connection, with its cause, and reaches nobody."""

import asyncio
import random
from struct import pack

import pytest
from structlog.typing import EventDict

from headgate.base.ids import ApiKey
from headgate.proxy.interceptor import CloseCause
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import ApiVersionsRequest, MetadataRequest, MetadataResponse
from headgate.wire.messages.data import FetchRequest, ProduceRequest
from headgate.wire.messages.groups import HeartbeatRequest
from headgate.wire.messages.share import ShareFetchRequest
from headgate.wire.primitives import write_uvarint
from tests.support.fake_upstream import HOST, UNKNOWN_KEY, request
from tests.unit.proxy.stage import Stage, stage, until
from tests.unit.proxy.test_order import heartbeat, metadata, produce
from tests.unit.proxy.test_split import SMALL, Call, ask

MIB = 1024 * 1024


def start(size: int, key: int = 3, version: int = 12, client_id_length: int = -1) -> bytes:
    """The first 14 bytes of a request, and more zeros than it has."""
    return pack(">ihhih", size, key, version, 1, client_id_length) + bytes(64)


BAD_REQUESTS = {
    "negative size": (start(-1), CloseCause.BAD_REQUEST),
    "lowest size": (start(-(2**31)), CloseCause.BAD_REQUEST),
    "no size": (start(0), CloseCause.BAD_REQUEST),
    "smaller than a header": (start(9), CloseCause.BAD_REQUEST),
    "size 0 in front of a good request": (bytes(4) + metadata(1), CloseCause.BAD_REQUEST),
    "one byte over the cap": (start(MIB + 1), CloseCause.FRAME_TOO_LARGE),
    "largest size": (start(2**31 - 1), CloseCause.FRAME_TOO_LARGE),
    "a passing call over the cap": (start(MIB + 1, key=12, version=4), CloseCause.FRAME_TOO_LARGE),
    "a TLS hello": (bytes.fromhex("16030100f1010000ed0303") + bytes(50), CloseCause.UNSUPPORTED_CALL),
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n", CloseCause.UNSUPPORTED_CALL),
    "a key that Kafka does not have": (start(20, key=1000, version=0), CloseCause.UNSUPPORTED_CALL),
    "a key that only the broker has": (start(20, key=UNKNOWN_KEY, version=0), CloseCause.UNSUPPORTED_CALL),
    "a retired key": (start(20, key=4, version=0), CloseCause.UNSUPPORTED_CALL),
    "a negative key": (start(20, key=-1, version=0), CloseCause.UNSUPPORTED_CALL),
    "a negative version": (start(20, key=3, version=-1), CloseCause.UNSUPPORTED_CALL),
    "a version over all": (start(20, key=3, version=14), CloseCause.UNSUPPORTED_CALL),
    "Produce before 3": (start(20, key=0, version=2), CloseCause.UNSUPPORTED_CALL),
    "SaslHandshake 0": (start(20, key=17, version=0), CloseCause.UNSUPPORTED_CALL),
    "StreamsGroupHeartbeat 1, which 4.3 lacks": (start(20, key=88, version=1), CloseCause.UNSUPPORTED_CALL),
    "DeleteGroups 3, which 4.3 lacks": (start(20, key=42, version=3), CloseCause.UNSUPPORTED_CALL),
    "a topology push, which 4.3 lacks": (start(20, key=93, version=0), CloseCause.UNSUPPORTED_CALL),
    "a client id that is not there": (start(30, client_id_length=100), CloseCause.BAD_REQUEST),
    "a client id of negative length": (start(30, client_id_length=-2), CloseCause.BAD_REQUEST),
    "a header of 20 million tags": (
        pack(">ihhih", 20, 3, 12, 1, -1) + write_uvarint(20_000_000) + bytes(20),
        CloseCause.BAD_REQUEST,
    ),
    "Produce that ends before its acks": (request(0, 13, b"\x00\x00"), CloseCause.BAD_REQUEST),
    "ApiVersions whose body is none": (request(18, 3, b"\xff\xff\xff"), CloseCause.BAD_REQUEST),
    "ApiVersions with bytes behind it": (
        request(18, 3, encode(ApiVersionsRequest(client_software_name="x"), 3) + b"x"),
        CloseCause.BAD_REQUEST,
    ),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
async def test_a_bad_request_ends_its_connection_and_is_never_forwarded(name: str) -> None:
    frame, cause = BAD_REQUESTS[name]
    async with stage(max_frame_bytes=MIB) as on:
        client, broker = await on.pair()
        await client.send(frame)
        await on.ends_with(cause)
        assert await client.rest() == b""
        assert await broker.rest() == b""


async def test_what_was_answered_before_a_bad_request_has_been_answered() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        answer = (await broker.request()).answer()
        await broker.send(answer)
        assert await client.frame() == answer
        await client.send(start(-1))
        await on.ends_with(CloseCause.BAD_REQUEST)


@pytest.mark.parametrize("pieces", [[14], [4, 10], [1] * 14])
async def test_a_size_is_judged_before_the_rest_of_the_frame_comes(pieces: list[int]) -> None:
    async with stage() as on:
        client, _ = await on.pair()
        data = start(2**31 - 1, key=12, version=4)
        for size in pieces:
            await client.send(data[:size])
            data = data[size:]
            await asyncio.sleep(0)
        await on.ends_with(CloseCause.FRAME_TOO_LARGE)


async def test_a_denied_call_is_refused() -> None:
    async with stage(deny_api_keys=frozenset((ApiKey(12),))) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await on.ends_with(CloseCause.UNSUPPORTED_CALL)
        assert await broker.rest() == b""


async def test_a_large_first_request_passes_and_a_large_opened_one_waits_for_proof() -> None:
    """On a new connection a producer's first call may have a megabyte; it is not stored, so it may."""
    large = MetadataRequest(topics=(), unknown_tags=((10_000, bytes(600 * 1024)),))
    async with stage() as on:
        client, broker = await on.pair(proved=False)
        asked = produce(1, 1, size=MIB)
        await client.send(asked)
        assert (await broker.request()).key == 3  # the gateway's own probe
        assert (await broker.request()).frame == asked
        await client.send(request(3, 12, large))
        await on.ends_with(CloseCause.FRAME_TOO_LARGE)
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await broker.reply()
        await client.frame()
        await client.send(request(3, 12, large))
        assert (await broker.request()).key == 3


def without_answer(size: int) -> bytes:
    return pack(">ii", size, 1) + bytes(64)


BAD_ANSWERS = {
    "another correlation id": (heartbeat(1), pack(">ii", 10, 2) + bytes(6)),
    "a negative size": (heartbeat(1), without_answer(-1)),
    "no size": (heartbeat(1), without_answer(0)),
    "a size without a correlation id": (heartbeat(1), without_answer(3)),
    "an answer that nobody asked for": (b"", pack(">ii", 10, 1) + bytes(6)),
    "two answers to one call": (heartbeat(1), (pack(">ii", 10, 1) + bytes(6)) * 2),
    "an opened answer over the cap": (metadata(1), pack(">ii", MIB + 1, 1) + bytes(64)),
    "an opened answer of 2 GiB": (metadata(1), pack(">ii", 2**31 - 1, 1) + bytes(64)),
    "an opened answer that is cut off": (metadata(1), pack(">ii", 10, 1) + bytes(6)[:-1] + b"\x05"),
    "2^32 brokers": (metadata(1), pack(">ii", 14, 1) + b"\x00" + bytes(4) + b"\xff\xff\xff\xff\x0f"),
    "2^32 tags in an opened answer's header": (metadata(1), pack(">ii", 14, 1) + b"\xff\xff\xff\xff\x0f" + bytes(5)),
    "a Fetch answer without a tail": (
        request(1, 18, FetchRequest()),
        pack(">ii", 16, 1) + b"\x00" + bytes(4 + 2 + 4) + b"\x01",
    ),
    "a Fetch answer with bytes behind its tail": (
        request(1, 18, FetchRequest()),
        pack(">ii", 18, 1) + b"\x00" + bytes(4 + 2 + 4) + b"\x01\x00\x00",
    ),
    "a large Fetch answer that ends inside a number": (
        request(1, 18, FetchRequest()),
        pack(">ii", 70_000, 1)
        + b"\x00"
        + bytes(10)
        + b"\x02"
        + bytes(16)
        + b"\x01"
        + b"\x01\x05"
        + b"\xff\xff\xff\x00"
        + bytes(69_961)
        + b"\x80",
    ),
    "a large Fetch answer with a huge tail": (
        request(1, 18, FetchRequest()),
        pack(">ii", 3 * MIB, 1) + b"\x00" + bytes(10) + b"\x01" + b"\x01\x05" + bytes(100),
    ),
    "a large ShareFetch answer without end": (
        request(78, 2, ShareFetchRequest(group_id="g", member_id="m")),
        pack(">ii", 70_000, 1) + b"\xff\xff\xff\xff\x0f" + bytes(70_000),
    ),
    "an ApiVersions answer that is none": (
        request(18, 3, ApiVersionsRequest(client_software_name="x")),
        pack(">ii", 10, 1) + b"\x00\x00\xff\xff\xff\xff",
    ),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_a_bad_answer_ends_its_connection_and_does_not_reach_the_client(name: str) -> None:
    asked, answered = BAD_ANSWERS[name]
    async with stage(max_frame_bytes=MIB) as on:
        client, broker = await on.pair()
        if asked:
            await client.send(asked)
            await broker.request()
        await broker.send(answered)
        await on.ends_with(CloseCause.BAD_ANSWER)
        got = await client.rest()
        assert got == answered[: len(got)] or name == "an opened answer that is cut off"
        assert await broker.rest() == b""


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """The same frame with some of its content broken, its size right."""
    content = bytearray(frame[4:])
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(content))
        match chance.randrange(4):
            case 0:
                content[at] ^= 1 << chance.randrange(8)
            case 1:
                content[at : at + chance.randrange(1, 8)] = b""
            case 2:
                content[at:at] = chance.choice((b"\xff", b"\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f"))
            case _:
                content[at : at + 4] = chance.randbytes(4)
        content = content or bytearray(10)
    return pack(">i", len(content)) + bytes(content)


async def is_served(on: Stage) -> None:
    """The canary: another client gets its answer."""
    client, broker = await on.pair()
    await client.send(metadata(1))
    await broker.reply(on.upstream.metadata())
    assert HOST.encode() not in await client.frame()
    client.close()
    await broker.rest()


OPENED = [call for call in SMALL if call.key in {3, 10, 60}]


@pytest.mark.parametrize("call", [SMALL[3], SMALL[6], SMALL[7], SMALL[8]], ids=str)
async def test_mutated_requests_end_their_connection_or_pass(call: Call, logs: list[EventDict]) -> None:
    chance = random.Random(str(call))
    whole = request(call.key, call.version, call.asked)
    async with stage() as on:
        for _ in range(60):
            client, broker = await on.pair()
            await client.send(mutated(whole, chance))
            client.sock.shutdown(1)
            await client.rest()
            broker.close()
        await until(lambda: not on.gateway.connections)
        assert on.ended.get("internal") is None
        await is_served(on)
    assert not [event for event in logs if event["log_level"] in {"error", "critical"}]


@pytest.mark.parametrize("call", SMALL[:-1], ids=str)
async def test_a_hostile_broker_ends_only_its_own_connections(call: Call, logs: list[EventDict]) -> None:
    chance = random.Random(str(call))
    async with stage() as on:
        for number in range(60):
            client, broker = await on.pair()
            await broker.send(mutated(await ask(client, broker, call, number), chance))
            broker.close()
            await client.rest()
        await until(lambda: not on.gateway.connections)
        assert on.ended.get("internal") is None
        await is_served(on)
    assert not [event for event in logs if event["log_level"] in {"error", "critical"}]


async def test_hostile_texts_of_a_broker_stay_out_of_the_log(logs: list[EventDict]) -> None:
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(metadata(1))
        asked = await broker.request()
        await broker.send(asked.answer(encode(MetadataResponse(cluster_id="\n\x1b[31mroot"), 12)[:-1] + b"\x7f"))
        await client.frame()
        await client.send(request(0, 13, ProduceRequest(acks=1)), heartbeat(2))
        await broker.request()
        await broker.send(pack(">ii", 10, 77) + bytes(6))
        await on.ends_with(CloseCause.BAD_ANSWER)
    ended = [event for event in logs if event["event"] == "connection ended"]
    assert [event["detail"] for event in ended] == ["the broker answered correlation id 77 instead of 1"]
    assert "root" not in str(logs)


async def test_requests_that_are_never_finished_are_ended_as_idle() -> None:
    async with stage(idle_ms=100) as on:
        client, _ = await on.pair()
        await client.send(metadata(1)[:20])
        passing, _ = await on.pair()
        await passing.send(request(12, 4, HeartbeatRequest(group_id="g" * 100, member_id="m"))[:50])
        silent, _ = await on.pair()
        await silent.send(b"\x00\x00")
        await until(lambda: on.ended == {"idle": 3})
        for end in (client, passing, silent):
            assert await end.rest() == b""
