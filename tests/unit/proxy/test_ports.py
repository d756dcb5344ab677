"""The ports: all or none at the start, one worker's for each node, and later ones when they can be had."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate.base.errors import PlatformError
from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.config.model import GatewayConfig
from headgate.proxy.listeners import Ports, belongs, bind_all
from tests.unit.proxy.stage import base_port

NODE_2 = NodeId(2)


def config(*nodes: int, workers: int = 1, host: str = "127.0.0.1", port: int | None = None) -> GatewayConfig:
    listen = Address(host, base_port() if port is None else port)
    return GatewayConfig(listen=listen, nodes=tuple(map(NodeId, nodes)), workers=workers)


@contextmanager
def bound(limits: GatewayConfig, worker: int | None = None) -> Iterator[Ports]:
    ports = Ports(limits, bind_all(limits), worker)
    try:
        yield ports
    finally:
        ports.close()


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def test_bootstrap_is_the_first_port_and_node_i_the_one_i_plus_one_behind_it() -> None:
    with bound(config(0, 2, 5)) as ports:
        found = {node: port_of(listener) - base_port() for node, listener in ports.listeners.items()}
    assert found == {None: 0, 0: 1, 2: 3, 5: 6}


def test_when_one_cannot_be_had_none_is_taken() -> None:
    with socket.create_server(("127.0.0.1", base_port() + 3)):
        with pytest.raises(PlatformError, match=rf"cannot listen on 127\.0\.0\.1:{base_port() + 3} for node 2: "):
            bind_all(config(0, 1, 2))
        for port in range(base_port(), base_port() + 3):
            socket.create_server(("127.0.0.1", port)).close()


def test_an_ipv6_address_is_listened_on() -> None:
    with bound(config(0, host="::1")) as ports, socket.create_connection(("::1", base_port() + 1), 5):
        assert ports.listeners[NodeId(0)].family == socket.AF_INET6


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_each_node_has_one_worker_and_bootstrap_all(workers: int) -> None:
    for node in map(NodeId, range(20)):
        assert [belongs(node, worker, workers) for worker in range(workers)].count(True) == 1
        assert belongs(node, node % workers, workers)
    assert all(belongs(None, worker, workers) for worker in range(workers))


def test_a_node_that_comes_later_gets_its_port() -> None:
    with bound(config(0)) as ports:
        listener = ports.open_node(NODE_2)
        assert listener is not None
        assert port_of(listener) == base_port() + 3
        assert ports.listeners[NODE_2] is listener
        assert ports.unreachable == {}


def test_a_node_of_another_worker_is_left_to_that_one() -> None:
    with bound(config(0, workers=2), worker=1) as ports:
        assert ports.open_node(NODE_2) is None
        assert ports.unreachable == {}
        assert ports.open_node(NodeId(3)) is not None


def test_a_later_port_that_is_taken_is_a_problem_until_it_is_free() -> None:
    with bound(config(0)) as ports:
        with socket.create_server(("127.0.0.1", base_port() + 3)):
            assert ports.open_node(NODE_2) is None
            assert (
                f"cannot listen on 127.0.0.1:{base_port() + 3} for node 2: Address already" in ports.unreachable[NODE_2]
            )
        assert ports.open_node(NODE_2) is not None
        assert ports.unreachable == {}


def test_a_later_port_above_the_last_one_says_what_to_change() -> None:
    ports = Ports(config(0, port=65000), {})
    assert ports.open_node(NodeId(600)) is None
    assert ports.unreachable == {600: "node 600 would need port 65601: choose a lower gateway.listen"}


def test_the_worker_that_replaces_another_can_have_its_later_port_too() -> None:
    with bound(config(0), worker=0) as old:
        new = Ports(config(0), {}, 0)
        assert old.open_node(NODE_2) is not None
        assert new.open_node(NODE_2) is not None
        new.close()


def test_a_gateway_without_workers_shares_its_later_port_with_nobody() -> None:
    with bound(config(0)) as one:
        other = Ports(config(0), {})
        assert one.open_node(NODE_2) is not None
        assert other.open_node(NODE_2) is None


def test_closing_frees_every_port() -> None:
    with bound(config(0, 1)) as ports:
        ports.open_node(NODE_2)
    for port in range(base_port(), base_port() + 4):
        socket.create_server(("127.0.0.1", port)).close()
