"""Clients between accept and their connection: no task or timer for each, and nothing of what they send is lost."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.ids import ApiKey, NodeId
from headgate.config.addresses import Address
from headgate.proxy import server
from headgate.proxy.arrivals import Arrival, Arrivals
from headgate.proxy.endpoints import PeerSocket, PeerSockets
from headgate.proxy.interceptor import CloseCause
from headgate.proxy.listeners import Ports, bind_all
from headgate.proxy.unproved_queue import UnprovedPlace
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from tests.support.clock import FakeClock
from tests.support.fake_upstream import Client, request
from tests.unit.proxy.stage import GATEWAY_HOST, base_port, config, socket_of, stage, turns, until


@dataclass
class Owner:
    """Notes what becomes of arrivals."""

    addresses: tuple[Address, ...] = ()
    connected: list[tuple[bytes, Address]] = field(default_factory=list)
    unreached: list[tuple[bytes, Address | None]] = field(default_factory=list)
    refused: list[CloseCause] = field(default_factory=list)
    readers: set[int] = field(default_factory=set)  # see `track_readers`
    has_reader: bool | None = None  # the client that was connected or left to a task

    def known_addresses(self, _: NodeId | None) -> tuple[Address, ...]:
        return self.addresses

    def on_connected(self, arrival: Arrival, upstream: PeerSocket) -> None:
        self.has_reader = arrival.client.fileno() in self.readers
        asyncio.get_running_loop().remove_reader(arrival.client.fileno())
        self.connected.append((arrival.received, Address(*upstream.sock.getpeername())))
        upstream.sock.close()
        arrival.client.close()

    def on_unreached(self, arrival: Arrival, unreachable: Address | None) -> None:
        self.has_reader = arrival.client.fileno() in self.readers
        asyncio.get_running_loop().remove_reader(arrival.client.fileno())
        self.unreached.append((arrival.received, unreachable))
        arrival.client.close()

    def on_refused(self, arrival: Arrival, cause: CloseCause) -> None:
        self.refused.append(cause)
        arrival.client.close()

    @property
    def outcomes(self) -> int:
        return len(self.connected) + len(self.unreached) + len(self.refused)


def track_readers(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The sockets that the event loop watches for bytes, from now on."""
    loop, readers = asyncio.get_running_loop(), set[int]()
    add, remove = loop.add_reader, loop.remove_reader

    def add_reader(fd: int, *arguments: Any) -> None:
        readers.add(fd)
        add(fd, *arguments)

    def remove_reader(fd: int) -> None:
        readers.discard(fd)
        remove(fd)

    monkeypatch.setattr(loop, "add_reader", add_reader)
    monkeypatch.setattr(loop, "remove_reader", remove_reader)
    return readers


@asynccontextmanager
async def arriving(
    owner: Owner, *, first: bytes = b"x", clock: FakeClock | None = None
) -> AsyncIterator[tuple[Arrivals, socket.socket]]:
    """One arrival whose client, the second result, has sent its first bytes."""
    loop = asyncio.get_running_loop()
    ends = PeerSockets(config(1, connect_timeout_ms=1000, first_request_ms=2000), loop)
    arrivals = Arrivals(owner, ends, loop, (clock or FakeClock()).monotonic)
    client, accepted = socket.socketpair()
    accepted.setblocking(False)
    with client:
        client.sendall(first)
        arrivals.add(None, accepted, "10.0.0.1", UnprovedPlace("10.0.0.1"))
        yield arrivals, client
        arrivals.close()
        assert len(arrivals) == 0
        assert owner.outcomes == 1


@contextmanager
def listening(*, is_full: bool = False) -> Iterator[Address]:
    """An address that accepts; if it is full, its kernel does not answer any more."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((GATEWAY_HOST, 0))
        listener.listen(0)
        for _ in range(4 if is_full else 0):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield Address(*listener.getsockname())


async def test_the_first_bytes_make_it_dial_and_are_handed_on() -> None:
    with listening() as address:
        owner = Owner((address,))
        async with arriving(owner, first=b"first"):
            await until(lambda: owner.outcomes > 0)
        assert owner.connected == [(b"first", address)]


async def test_a_broker_that_answers_at_once_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_writer(*_: object) -> None:
        raise AssertionError("waits for a broker that is connected")

    with listening() as address:
        owner = Owner((address,), readers=track_readers(monkeypatch))
        async with arriving(owner, first=b"first"):
            monkeypatch.setattr(asyncio.get_running_loop(), "add_writer", add_writer)
            await until(lambda: owner.outcomes > 0)
        assert owner.connected == [(b"first", address)]
        assert owner.has_reader  # the link's takes its place


async def test_a_client_that_sends_nothing_in_time_is_refused_and_one_in_time_is_not() -> None:
    owner, clock = Owner(), FakeClock()
    async with arriving(owner, first=b"", clock=clock) as (arrivals, _):
        arrivals.end_overdue(clock.now + 2)
        assert owner.refused == []
        arrivals.end_overdue(clock.now + 2.001)
        assert owner.refused == [CloseCause.NO_REQUEST]


async def test_a_client_that_closes_first_is_counted_as_such() -> None:
    owner = Owner()
    async with arriving(owner, first=b"") as (_, client):
        client.close()
        await until(lambda: owner.outcomes > 0)
    assert owner.refused == [CloseCause.CLIENT_CLOSED]


async def test_a_broker_that_does_not_answer_in_time_is_left_to_a_task_with_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listening(is_full=True) as address:
        owner = Owner((address,), readers=track_readers(monkeypatch))
        clock = FakeClock()
        async with arriving(owner, clock=clock) as (arrivals, _):
            clock.now += 1.9  # the broker has its own second, from the client's first byte on
            await turns()
            arrivals.end_overdue(clock.now + 1)
            assert owner.outcomes == 0
            arrivals.end_overdue(clock.now + 1.001)
            assert owner.unreached == [(b"x", address)]
            assert owner.has_reader is False


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid", "127.0.0.1 "])
async def test_a_broker_that_refuses_or_whose_name_is_unknown_is_left_to_a_task(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as address:
        pass  # nothing listens there any more
    owner = Owner((Address(host, address.port),), readers=track_readers(monkeypatch))
    async with arriving(owner):
        await until(lambda: owner.outcomes > 0)
    assert owner.unreached == [(b"x", None)]
    assert owner.has_reader is False


async def test_what_still_arrives_when_the_gateway_ends_is_refused() -> None:
    with listening(is_full=True) as address:
        for first in (b"", b"x"):
            owner = Owner((address,))
            async with arriving(owner, first=first):
                await turns()
            assert owner.refused == [CloseCause.DRAINED]


# With a gateway.


async def test_a_client_whose_connection_cannot_be_made_is_closed_without_a_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers = track_readers(monkeypatch)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    async with stage() as on:
        before = set(readers)
        with monkeypatch.context() as patched:
            patched.setattr(server, "Connection", fail)
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            client = await on.client(0, first=SMALL)
            assert await client.rest() == b""
        assert readers == before
        assert on.ended == {"internal": 1}


async def test_clients_that_wait_have_no_tasks() -> None:
    async with stage() as on:
        before = len(asyncio.all_tasks())
        for _ in range(20):
            await on.client()
        await until(lambda: on.gateway.metrics.accepted == 20)
        assert len(asyncio.all_tasks()) == before


async def test_a_broker_that_does_not_answer_is_logged_once_and_its_client_retries(logs: list[EventDict]) -> None:
    async with stage(connect_timeout_ms=200) as on:
        with listening(is_full=True) as address:
            on.gateway.cluster.nodes = {NodeId(0): address}
            client = await on.client(0, first=b"\x00")
            assert await client.rest() == b""
        assert on.ended == {"upstream_unreachable": 1}
    assert [one["address"] for one in logs if one["event"] == "broker cannot be reached"] == [str(address)]


LARGE = request(12, 4, HeartbeatRequest(group_id="g", member_id="m" * 9000))
SMALL = request(12, 4, HeartbeatRequest(group_id="g", member_id="m"))


@pytest.mark.parametrize("sent", [LARGE, SMALL + LARGE, SMALL * 200])
@pytest.mark.parametrize("first", [1, 3, 4, 13, 14, 4095, 4096, 4097, 8000])
async def test_first_requests_reach_the_broker_however_they_are_cut(sent: bytes, first: int) -> None:
    async with stage() as on:
        client = await on.client(first=sent[:first])
        broker = await on.upstream.accept()
        await client.send(sent[first:])
        received = b""
        while len(received) < len(sent):
            asked = await broker.request()
            if asked.key != ApiKey.METADATA:  # the gateway's own, before a request that was received in part
                received += asked.frame
        assert received == sent
        assert on.gateway.metrics.client_meter.received_bytes == len(sent)


async def test_accepted_sockets_have_the_options_of_the_data_plane() -> None:
    async with stage(idle_ms=12_345) as on:
        client, broker = await on.pair()
        connection = await on.connection()
        for link in (connection.client, connection.upstream):
            assert not os.get_blocking(link.fileno())
            with socket_of(link) as sock:
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12_345
        await client.send(SMALL)
        assert (await broker.reply(HeartbeatResponse())).frame == SMALL


async def test_clients_that_came_before_the_gateway_listened_have_these_options_too() -> None:
    settings = config(1, idle_ms=12_345).gateway
    ports = Ports(settings, bind_all(settings))
    early = await Client.connect(GATEWAY_HOST, base_port())  # waits in the queue of the port
    async with stage(ports=ports, idle_ms=12_345) as on:
        on.ends.append(early)
        await on.greet(early)
        with socket_of((await on.connection()).client) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12_345
    ports.close()
