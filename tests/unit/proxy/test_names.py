"""Host names of brokers are looked up beside the connections that need them, once for all."""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from headgate.config.addresses import Address
from headgate.proxy.endpoints import PeerSockets
from headgate.proxy.names import AddressInfo, HostAddresses
from tests.unit.proxy.stage import config, turns

BROKER = Address("broker.example", 9092)


class Resolver:
    """Answers when it is let, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.at = "192.0.2.1"
        self.problem: OSError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.now = 0.0

    async def look_up(self, host: str, port: int) -> Sequence[AddressInfo]:
        self.asked.append(host)
        await self.answers.wait()
        if self.problem is not None:
            raise self.problem
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.at, port))]

    def names(self) -> HostAddresses:
        return HostAddresses(self.look_up, lambda: self.now)


def host(found: Sequence[AddressInfo]) -> str:
    [(_, _, _, _, target)] = found
    return str(target[0])


async def test_a_name_is_looked_up_once_for_all_who_wait() -> None:
    resolver = Resolver()
    resolver.answers.clear()
    names = resolver.names()
    waiting = [asyncio.create_task(names.find(BROKER)) for _ in range(100)]
    await turns()
    waiting[0].cancel()  # who waits may give up
    resolver.answers.set()
    found = await asyncio.gather(*waiting[1:])
    assert {host(one) for one in found} == {"192.0.2.1"}
    assert resolver.asked == [BROKER.host]


async def test_a_known_name_waits_for_no_resolver_also_when_its_time_is_over() -> None:
    resolver = Resolver()
    names = resolver.names()
    await names.find(BROKER)
    resolver.answers.clear()
    resolver.now = 31.0
    resolver.at = "192.0.2.2"
    for _ in range(10):
        assert host(await names.find(BROKER)) == "192.0.2.1"
    resolver.answers.set()
    await turns()
    assert host(await names.find(BROKER)) == "192.0.2.2"
    assert len(resolver.asked) == 2


async def test_a_name_that_cannot_be_looked_up_any_more_keeps_its_addresses_until_they_fail() -> None:
    resolver = Resolver()
    names = resolver.names()
    await names.find(BROKER)
    resolver.now = 31.0
    resolver.problem = OSError("no such host")
    names.refresh([BROKER])
    await turns()
    assert host(await names.find(BROKER)) == "192.0.2.1"
    await turns()
    names.forget(BROKER)
    with pytest.raises(OSError, match="no such host"):
        await names.find(BROKER)


async def test_an_ip_address_needs_no_resolver() -> None:
    resolver = Resolver()
    names = resolver.names()
    for one in ("192.0.2.7", "::1"):
        assert (await names.find(Address(one, 9092)))[0][4][:2] == (one, 9092)
    names.refresh([Address("192.0.2.7", 9092)])
    assert resolver.asked == []


async def test_a_slow_resolver_delays_no_connection_to_a_known_broker() -> None:
    resolver = Resolver()
    resolver.at = "127.0.0.1"
    loop = asyncio.get_running_loop()
    ends = PeerSockets(config(1), loop, look_up=resolver.look_up)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        known = Address("known.example", listener.getsockname()[1])
        ends.look_up([known])
        await turns()
        resolver.answers.clear()
        unknown = asyncio.create_task(ends.dial([BROKER], lambda: None))
        for _ in range(20):
            end = await ends.dial([known], lambda: None)
            assert end is not None
            end.sock.close()
        assert not unknown.done()
        unknown.cancel()
        await asyncio.wait({unknown})
    assert resolver.asked == ["known.example", BROKER.host]
    ends.close()


async def test_a_broker_that_moved_is_looked_up_again_when_it_cannot_be_reached() -> None:
    resolver = Resolver()
    resolver.at = "127.0.0.78"
    ends = PeerSockets(config(1), asyncio.get_running_loop(), look_up=resolver.look_up)
    with socket.create_server(("127.0.0.79", 0)) as listener:
        moved = Address("moved.example", listener.getsockname()[1])
        assert await ends.dial([moved], lambda: None) is None
        ends.look_up([moved])
        await turns()
        resolver.at = "127.0.0.79"
        end = await ends.dial([moved], lambda: None)
        assert end is not None
        end.sock.close()
