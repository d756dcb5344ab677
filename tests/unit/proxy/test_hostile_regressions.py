"""What the hostile campaign found once, each in its smallest form: `tests/support/hostile.py` is the whole."""

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from struct import pack
from typing import Any

import pytest

from headgate.base.errors import WireError
from headgate.base.ids import NodeId
from headgate.proxy.chain import MOST_BEFORE_OPENED, MOST_PENDING, OpenedRequests
from headgate.proxy.interceptor import CloseCause
from headgate.proxy.routes import Route
from headgate.wire import frames, splice, walk
from headgate.wire.codec import decode
from headgate.wire.messages.cluster import (
    ApiVersionRange,
    ApiVersionsResponse,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataBroker,
    MetadataRequest,
)
from headgate.wire.messages.data import FetchResponse
from headgate.wire.messages.groups import HeartbeatRequest
from headgate.wire.primitives import write_uvarint
from tests.support.fake_upstream import HOST, Client, FakeUpstream, body_of, request
from tests.unit.proxy.stage import LIST_GROUPS, base_port, socket_of, stage, turns, until

METADATA, HEARTBEAT, API_VERSIONS = 3, 12, 18
LONGEST_SECONDS = 0.1  # that the event loop may be kept, in processor time: a busy machine is no defect


def heartbeat(number: int) -> bytes:
    return request(HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id="m"), correlation_id=number)


def metadata(number: int) -> bytes:
    return request(METADATA, 12, MetadataRequest(topics=()), correlation_id=number)


async def prove(client: Client, broker: Any) -> None:
    """One honest call: behind it the higher caps hold."""
    await client.send(heartbeat(1))
    await broker.reply()
    await client.frame()


# uvloop stops watching a socket at its first error, and what had come before the error hid it.


@pytest.mark.parametrize("size", [1, 400_000], ids=["a byte", "more than one read"])
async def test_a_client_that_resets_behind_its_last_bytes_is_noticed(size: int) -> None:
    async with stage() as on:
        client, _ = await on.pair()
        await on.connection()
        frame = request(HEARTBEAT, 4, bytes(size))
        client.sock.send(frame)  # both before the gateway's turn
        client.reset()
        await until(lambda: not on.gateway.connections)
        assert sum(on.ended.values()) == 1


async def test_a_broker_that_resets_behind_its_last_bytes_is_noticed_and_they_reach_the_client() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        answer = (await broker.request()).answer()
        broker.sock.send(answer)
        broker.reset()
        assert await client.rest() == answer
        await on.ends_with(CloseCause.UPSTREAM_RESET)


# Calls of 14 bytes, each of which is opened, decoded, queued and sent by itself.


@pytest.mark.parametrize(("call", "most"), [(metadata, MOST_BEFORE_OPENED), (heartbeat, MOST_PENDING)])
async def test_a_client_that_sends_thousands_of_calls_waits_for_its_answers(
    call: Callable[[int], bytes], most: int
) -> None:
    count = 3000
    async with stage() as on:
        client, broker = await on.pair()
        connection = await on.connection()
        await client.send(*(call(number) for number in range(count)))
        deepest = 0
        for number in range(count):
            asked = await broker.request()
            assert asked.header.correlation_id == number
            deepest = max(deepest, len(connection.pending))
            await broker.send(asked.answer(on.upstream.metadata() if asked.key == METADATA else None))
        for number in range(count):
            assert int.from_bytes((await client.frame())[4:8], "big") == number
        assert deepest <= most


# ApiVersions is decoded whole, and a tag section of megabytes took seconds.


async def test_an_api_versions_request_over_64_kib_is_refused() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        await prove(client, broker)
        tags = write_uvarint(30_000) + b"".join(write_uvarint(tag) + b"\x00" for tag in range(1, 30_001))
        await client.send(request(API_VERSIONS, 3, b"\x02a\x021" + tags))
        assert await client.rest() == b""
        await on.ends_with(CloseCause.FRAME_TOO_LARGE)


# Metadata is gathered whole: 40 MB of tagged fields in its header were received and copied, and then refused.


@pytest.mark.parametrize("cuts", [(), range(1, 23)], ids=["at once", "byte by byte"])
async def test_a_header_of_too_many_tagged_fields_is_refused_before_it_is_gathered(cuts: Sequence[int]) -> None:
    frame = request(METADATA, 12, b"", tags=write_uvarint(20_000_000) + b"\x01\x00" * 500)
    frame = pack(">i", 40_000_000) + frame[4:]
    async with stage() as on:
        client, broker = await on.pair()
        await prove(client, broker)
        for begin, end in pairwise((0, *cuts, len(frame))):
            await client.send(frame[begin:end])
            await turns()
        assert await client.rest() == b""
        await on.ends_with(CloseCause.BAD_REQUEST)


async def test_a_gathered_request_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 MB took 24 ms of one turn of the event loop."""
    opened: list[object] = []
    open_request = OpenedRequests.open

    def watched(self: OpenedRequests, route: Route, frame: bytes | bytearray) -> None:
        opened.append(frame)
        open_request(self, route, frame)

    monkeypatch.setattr(OpenedRequests, "open", watched)
    asked = metadata(2)
    async with stage() as on:
        client, broker = await on.pair()
        await prove(client, broker)
        connection = await on.connection()
        await client.send(asked[:20])
        await until(lambda: connection.requests._gathered is not None)
        gathered = connection.requests._gathered
        await client.send(asked[20:])
        await broker.reply(on.upstream.metadata())
        assert opened[-1] is gathered


async def test_an_api_versions_answer_over_64_kib_ends_the_connection() -> None:
    many = tuple(ApiVersionRange(api_key=key % 2**15) for key in range(10_000))
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(request(API_VERSIONS, 3, b"\x02a\x021\x00"))
        await broker.reply(ApiVersionsResponse(api_keys=many))
        assert await client.rest() == b""
        await on.ends_with(CloseCause.BAD_ANSWER)


async def test_a_request_stays_what_it_is_when_the_brokers_versions_change_while_it_comes() -> None:
    """It used to be taken for ApiVersions, and answered with that call's refusal."""
    without_metadata = tuple(
        ApiVersionRange(api_key=key, min_version=0, max_version=4) for key in (HEARTBEAT, API_VERSIONS)
    )
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(request(API_VERSIONS, 3, b"\x02a\x021\x00"), metadata(2)[:20])
        await broker.reply(ApiVersionsResponse(api_keys=without_metadata))
        await client.frame()
        await client.send(metadata(2)[20:])
        assert await client.rest() == b""
        await on.ends_with(CloseCause.UNSUPPORTED_CALL)


# A broker that reads nothing: its clients are not read either, so nobody saw that they had gone.


async def test_a_client_that_left_a_broker_that_takes_nothing_is_let_go() -> None:
    async with stage(idle_ms=60_000, abandoned_s=0.2) as on:
        client, _ = await on.pair()
        connection = await on.connection()
        while connection.client.is_reading:
            client.sock.send(request(HEARTBEAT, 4, bytes(100_000)))
            await turns()
        client.reset()
        await on.ends_with(CloseCause.CLIENT_CLOSED)


async def test_a_broker_that_takes_nothing_for_as_long_as_a_connection_may_be_idle_is_given_up() -> None:
    async with stage(idle_ms=1000) as on:
        client, _ = await on.pair()
        connection = await on.connection()
        while connection.client.is_reading:
            client.sock.send(request(HEARTBEAT, 4, bytes(100_000)))
            await turns()
        with socket_of(connection.upstream) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000
        await on.ends_with(CloseCause.UPSTREAM_RESET)


# A broker that names nodes at addresses where nobody answers: they used to be asked one after the other.


async def test_nodes_that_never_answer_delay_the_others_once_and_not_each_for_itself() -> None:
    with socket.socket() as hole:
        hole.bind((HOST, 0))
        hole.listen(1)  # it never accepts: two calls wait for an answer, the others for a connection
        port = hole.getsockname()[1]
        upstream = FakeUpstream()
        upstream.extra_brokers = tuple(MetadataBroker(node_id=70_000 + one, host=HOST, port=port) for one in range(10))
        began = time.monotonic()
        async with stage(upstream=upstream, connect_timeout_ms=500) as on:
            assert on.gateway.cluster.problem is None
            assert time.monotonic() - began < 2.0
            client, broker = await on.pair(0)
            await prove(client, broker)


# Answers of a hostile broker: small numbers of bytes, large numbers in them.


def lookup(_node: NodeId) -> splice.EncodedAddress:
    return splice.EncodedAddress.of("gateway.example", 9092)


NODE = pack(">i", 1) + b"\x01" + pack(">i", 9092) + b"\x00\x00"
TAGS = write_uvarint(500_000) + b"\x01\x00" * 500_000
REFUSED: dict[str, Callable[[], object]] = {
    "a tail of tagged fields": lambda: splice.tagged_endpoints(TAGS, lookup, keep_length=False),
    "a tail of tagged fields, length kept": lambda: splice.tagged_endpoints(TAGS, lookup, keep_length=True),
    "a tail of nodes": lambda: splice.plain_endpoints(
        write_uvarint(90_001) + NODE * 90_000 + b"\x00", lookup, keep_length=False
    ),
    "Metadata with too many nodes": lambda: splice.finish(
        splice.metadata(bytes(4) + write_uvarint(90_001) + NODE * 90_000, 12, lookup)
    ),
    "Metadata with too many tagged fields": lambda: splice.finish(
        splice.metadata(bytes(4) + write_uvarint(2) + NODE[:-1] + TAGS, 12, lookup)
    ),
    "a header of tagged fields": lambda: frames.response_body(bytes(4) + TAGS, flexible=True),
}


@pytest.mark.parametrize("answer", REFUSED.values(), ids=REFUSED)
def test_an_answer_of_more_parts_than_any_cluster_has_is_refused_at_once(answer: Callable[[], object]) -> None:
    began = time.thread_time()
    with pytest.raises(WireError):
        answer()
    assert time.thread_time() - began < LONGEST_SECONDS / 10


def test_as_many_nodes_as_are_allowed_do_not_keep_the_event_loop() -> None:
    body = bytes(4) + write_uvarint(splice.MOST_PARTS + 1) + NODE * splice.MOST_PARTS
    steps = splice.metadata(body, 12, lookup)
    times = [time.thread_time()]
    times.extend(time.thread_time() for _ in steps)
    assert len(times) == splice.MOST_PARTS // splice.NODES_A_STEP + 1
    longest = max(later - earlier for earlier, later in pairwise(times))
    assert longest < LONGEST_SECONDS / 5  # a millisecond where it was measured; slow machines are slower
    endpoints = write_uvarint(splice.MOST_ENDPOINTS + 1) + NODE * splice.MOST_ENDPOINTS + b"\x00"
    began = time.thread_time()
    assert len(splice.plain_endpoints(endpoints, lookup, keep_length=False)) > len(endpoints)
    assert time.thread_time() - began < LONGEST_SECONDS / 2


async def test_a_response_with_many_nodes_is_rewritten_in_steps() -> None:
    """A client may ask for the coordinators of 30,000 groups in one request."""
    coordinators = tuple(
        Coordinator(key=str(number), node_id=number % 2, host="b", port=9092) for number in range(splice.MOST_PARTS)
    )
    async with stage() as on:
        client, broker = await on.pair()
        other, others_broker = await on.pair()
        await client.send(request(10, 6, FindCoordinatorRequest()))
        asked = await broker.request()
        answer = asked.answer(FindCoordinatorResponse(coordinators=coordinators))
        receiving = asyncio.gather(broker.send(answer), client.frame())
        calls = 0
        while not receiving.done():
            await other.send(LIST_GROUPS)
            await others_broker.reply()
            await other.frame()
            calls += 1
        _, received = await receiving
        told = decode(FindCoordinatorResponse, 6, body_of(received, 10, 6))
    assert [one.port - base_port() for one in told.coordinators] == [1 + one.node_id for one in coordinators]
    assert calls > 20, "another client waited"


def test_a_frame_of_nothing_but_tagged_fields_is_refused_before_it_keeps_the_event_loop() -> None:
    program = walk.response_program(FetchResponse, 17)
    section = write_uvarint(walk.MOST_FIELDS) + b"\x01\x00" * walk.MOST_FIELDS
    with pytest.raises(WireError, match="tag section of 1001 fields"):
        walk.Walker(program, 1 << 30).feed(bytes(4) + write_uvarint(walk.MOST_FIELDS + 1) + section, 0, 99)
    # Every partition has a section of its own.
    topic = bytes(16) + write_uvarint(8001)
    partition = bytes(4 + 2 + 8 + 8 + 8) + b"\x00" + bytes(4) + b"\x01" + section
    frame = bytes(4) + b"\x00" + bytes(4 + 2 + 4) + b"\x02" + topic + partition * 100
    walker = walk.Walker(program, 1 << 30)
    began = time.thread_time()
    with pytest.raises(WireError, match="more than 30000 tagged fields"):
        walker.feed(frame, 0, len(frame))
    assert time.thread_time() - began < LONGEST_SECONDS / 2
    whole = frame[: -70 * len(partition)]
    assert walk.Walker(program, 1 << 30).feed(whole, 0, len(whole)) == len(whole)


def test_a_tag_section_that_is_cut_anywhere_is_walked_as_when_it_is_whole() -> None:
    fields = b"".join(
        write_uvarint(tag) + write_uvarint(size) + bytes(size) for tag, size in ((1, 0), (300, 5), (2, 200))
    )
    frame = bytes(4) + b"\x03" + fields + bytes(4 + 6) + b"\x01" + b"\x00"
    for cut in range(len(frame)):
        walker = walk.Walker(walk.response_program(FetchResponse, 17), len(frame))
        kept = walker.feed(frame, 0, cut)
        assert walker.feed(frame, kept, len(frame)) == len(frame) - 1
        assert walker.at_tail
