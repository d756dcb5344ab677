"""Dialling a broker: what cannot be reached is said once, and again when it has been reached meanwhile."""

import asyncio
import socket

from structlog.typing import EventDict

from headgate.config.addresses import Address
from headgate.proxy.endpoints import EndpointFactory
from tests.unit.proxy.stage import config


async def test_a_broker_that_is_away_is_said_once_and_again_after_it_was_there(logs: list[EventDict]) -> None:
    ends = EndpointFactory(config(1), asyncio.get_running_loop())
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
    ends = EndpointFactory(config(1), asyncio.get_running_loop())
    with socket.socket() as away, socket.create_server(("127.0.0.1", 0)) as there:
        away.bind(("127.0.0.1", 0))
        addresses = [Address(*one.getsockname()) for one in (away, there)]
        end = await ends.dial(addresses, lambda: None)
        assert end is not None
        assert end.sock.getpeername() == tuple(addresses[1])
        end.sock.close()
