"""Clients arrive with their PROXY header, brokers are dialled: failures are logged once."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.typing import EventDict

from headgate.base.errors import WireError
from headgate.config.addresses import Address
from headgate.proxy.endpoints import PeerSockets, read_source
from headgate.proxy.interceptor import CloseCause
from tests.support.fake_upstream import request
from tests.unit.proxy.stage import Stage, config, stage, until


async def test_a_broker_that_is_away_is_said_once_and_again_after_it_was_there(logs: list[EventDict]) -> None:
    ends = PeerSockets(config(1), asyncio.get_running_loop())
    failures: list[int] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", listener.getsockname()[1])
        for _ in range(3):
            assert await ends.dial([address], lambda: failures.append(1)) is None
        assert len(failures) == 3
        assert [event["event"] for event in logs] == ["broker cannot be reached"]
        assert logs[0]["address"] == str(address)
        listener.listen()
        end = await ends.dial([address], lambda: None)
        assert end is not None
        end.sock.close()
    assert await ends.dial([address], lambda: None) is None
    assert len(logs) == 2


async def test_the_next_broker_is_dialled_when_one_is_away() -> None:
    ends = PeerSockets(config(1), asyncio.get_running_loop())
    with socket.socket() as away, socket.create_server(("127.0.0.1", 0)) as there:
        away.bind(("127.0.0.1", 0))
        addresses = [Address(*one.getsockname()) for one in (away, there)]
        end = await ends.dial(addresses, lambda: None)
        assert end is not None
        assert end.sock.getpeername() == tuple(addresses[1])
        end.sock.close()


SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LOCAL, PROXY = 0x20, 0x21
TCP4, UDP4, TCP6, UNIX = 0x11, 0x12, 0x21, 0x31
PORTS = (40000).to_bytes(2) + (9092).to_bytes(2)
HEARTBEAT = request(12, 4, b"\x02g\x00\x00\x00\x01\x02m\x00\x00", correlation_id=5)


def header(command: int, family: int, rest: bytes, *, length: int | None = None) -> bytes:
    return SIGNATURE + bytes((command, family)) + (len(rest) if length is None else length).to_bytes(2) + rest


def proxied(source: str, *, tlvs: bytes = b"") -> bytes:
    address = ip_address(source)
    family, other = (TCP4, ip_address("127.0.0.1")) if address.version == 4 else (TCP6, ip_address("::1"))
    return header(PROXY, family, address.packed + other.packed + PORTS + tlvs)


async def source_of(sent: bytes) -> tuple[str | None, bytes]:
    """What is read from the header, and what is left behind it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(5):
            source = await read_source(ours, asyncio.get_running_loop())
        return source, ours.recv(65536)


@pytest.mark.parametrize(
    ("sent", "source"),
    [
        (proxied("192.0.2.7"), "192.0.2.7"),
        (proxied("192.0.2.7", tlvs=b"\x03\x00\x04abcd"), "192.0.2.7"),
        (proxied("2001:db8::7"), "2001:db8::7"),
        (proxied("::ffff:192.0.2.7"), "192.0.2.7"),
        (header(LOCAL, 0, b""), None),
        (header(LOCAL, TCP4, bytes(12)), None),
        (header(PROXY, TCP4, bytes(4096)), "0.0.0.0"),
    ],
    ids=["TCP4", "TLVs", "TCP6", "IPv4 in IPv6", "LOCAL", "LOCAL with addresses", "longest"],
)
async def test_a_header_is_taken_to_its_last_byte(sent: bytes, source: str | None) -> None:
    assert await source_of(sent + b"the first request") == (source, b"the first request")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 40000 9092\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20),
        HEARTBEAT,
        header(0x22, TCP4, bytes(12)),
        header(0x11, TCP4, bytes(12)),
        header(PROXY, 0, b""),
        header(PROXY, UDP4, bytes(12)),
        header(PROXY, UNIX, bytes(216)),
        header(PROXY, TCP4, bytes(11)),
        header(PROXY, TCP6, bytes(35)),
        header(PROXY, TCP4, bytes(12), length=4097),
        header(PROXY, TCP4, bytes(12), length=65535),
        proxied("192.0.2.7")[:-1],
        SIGNATURE,
        b"",
    ],
    ids=[
        "HTTP", "version 1", "TLS", "Kafka", "another command", "another version", "unspecified", "UDP", "UNIX",
        "too short for IPv4", "too short for IPv6", "too long", "much too long", "cut off", "a signature", "nothing",
    ],
)  # fmt: skip
async def test_what_is_no_header_is_refused(sent: bytes) -> None:
    with pytest.raises(WireError):
        await source_of(sent)


@given(sent=st.binary(max_size=64), begins=st.sampled_from([b"", SIGNATURE, SIGNATURE + b"\x21\x11"]))
def test_no_bytes_are_more_than_a_refusal(sent: bytes, begins: bytes) -> None:
    try:
        source, _ = asyncio.run(source_of(begins + sent))
    except WireError:
        return
    assert source is None or ip_address(source)


# In front of a gateway.


@asynccontextmanager
async def behind_balancer(**settings: Any) -> AsyncIterator[Stage]:
    async with stage(proxy_protocol=True, **settings) as one:
        yield one


async def test_what_follows_the_header_is_the_clients_and_its_address_is_the_sessions() -> None:
    async with behind_balancer() as one:
        client = await one.client()
        await client.send(proxied("192.0.2.7") + HEARTBEAT)
        broker = await one.upstream.accept()
        assert (await broker.request()).frame == HEARTBEAT
        assert (await one.connection()).peer == "192.0.2.7"


async def test_a_balancers_own_check_is_from_the_balancer() -> None:
    async with behind_balancer() as one:
        client = await one.client()
        await client.send(header(LOCAL, 0, b"") + b"\x00")
        assert (await one.connection()).peer == "127.0.0.1"


async def test_a_header_may_come_byte_by_byte() -> None:
    async with behind_balancer() as one:
        client = await one.client()
        for byte in proxied("192.0.2.7") + b"\x00":
            await client.send(bytes((byte,)))
        assert (await one.connection()).peer == "192.0.2.7"


@pytest.mark.parametrize("sent", [b"", SIGNATURE, proxied("192.0.2.7")[:-1]])
async def test_a_header_that_does_not_come_in_time_ends_the_connection(sent: bytes) -> None:
    async with behind_balancer(connect_timeout_ms=50) as one:
        client = await one.client()
        await client.send(sent)
        assert await client.rest() == b""
        await one.ends_with(CloseCause.HANDSHAKE_FAILED)


async def test_garbage_ends_the_connection_before_a_broker_is_dialled() -> None:
    async with behind_balancer() as one:
        client = await one.client()
        await client.send(HEARTBEAT)
        assert await client.rest() == b""
        await one.ends_with(CloseCause.HANDSHAKE_FAILED)
        assert not one.upstream.has_connection()


async def test_the_cap_of_an_address_counts_the_address_in_the_header() -> None:
    async with behind_balancer(max_connections_per_address=1) as one:
        first, second, third = [await one.client() for _ in range(3)]
        await first.send(proxied("192.0.2.7") + b"\x00")
        await until(lambda: len(one.gateway.connections) == 1)
        await second.send(proxied("192.0.2.7"))
        assert await second.rest() == b""
        await third.send(proxied("192.0.2.8") + b"\x00")
        await until(lambda: len(one.gateway.connections) == 2)
        first.close()
        await until(lambda: len(one.gateway.connections) == 1)
        again = await one.client()
        await again.send(proxied("192.0.2.7") + b"\x00")
        await until(lambda: len(one.gateway.connections) == 2)


async def test_those_who_have_not_said_who_they_are_count_for_the_cap_of_all() -> None:
    async with behind_balancer(max_connections=2, max_connections_per_address=1) as one:
        silent = [await one.client() for _ in range(2)]
        await until(lambda: one.gateway.metrics.accepted == 2)
        third = await one.client()
        assert await third.rest() == b""
        for client in silent:
            client.close()
        await until(lambda: one.ended.get("handshake_failed") == 2)
        again = await one.client()
        await again.send(proxied("192.0.2.7") + b"\x00")
        await one.connection()
