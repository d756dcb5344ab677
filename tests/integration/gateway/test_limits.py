"""How many connections there may be, over all workers; who a client is behind a balancer; and calls that are hidden."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess
from tests.support.raw_client import RawClient, is_served
from tests.support.sockets import listening_ports

Start = Callable[..., GatewayProcess]

LIST_GROUPS, CREATE_TOPICS = 16, 19


def use(client: RawClient) -> None:
    """Make the connection one that counts as proved: unproved ones make room for others."""
    client.api_versions()
    client.ask(LIST_GROUPS, 0, b"")


class Crowd:
    """Connections that stay open until the end of the test."""

    def __init__(self, gateway: GatewayProcess, stack: ExitStack) -> None:
        self._gateway = gateway
        self._stack = stack

    def join(self, node: int | None = None, *, source: str | None = None, preface: bytes = b"") -> bool:
        """One more, at a node's port or at bootstrap; False when it is turned away."""
        address = self._gateway.bootstrap if node is None else self._gateway.address(node)
        client = self._stack.enter_context(RawClient(address, source=source, preface=preface))
        try:
            use(client)
        except (EOFError, ConnectionError):
            return False
        return True

    def join_second_worker(self, count: int) -> list[RawClient]:
        """Some more, all at the worker that does not have node 0: the other one sleeps meanwhile."""
        owner = owner_of_node_0(self._gateway)
        os.kill(owner, signal.SIGSTOP)
        try:
            clients = [self._stack.enter_context(RawClient(self._gateway.bootstrap)) for _ in range(count)]
            for client in clients:
                use(client)
        finally:
            os.kill(owner, signal.SIGCONT)
        return clients


def owner_of_node_0(gateway: GatewayProcess) -> int:
    [owner] = [pid for pid in gateway.workers() if gateway.setup.port + 1 in listening_ports(pid)]
    return owner


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def refused(gateway: GatewayProcess) -> float:
    return gateway.metric("headgate_connections_ended_total", cause="too_many_connections")


def test_the_cap_counts_the_connections_of_all_workers(cluster: Cluster, start: Start, stack: ExitStack) -> None:
    gateway = start(cluster.bootstrap, gateway__workers=2, gateway__max_connections=5)
    crowd = Crowd(gateway, stack)
    second = crowd.join_second_worker(3)
    assert [crowd.join(0) for _ in range(3)] == [True, True, False]
    assert not crowd.join()
    until(lambda: refused(gateway) == 2)
    second[0].close()
    until(lambda: is_served(gateway.address(0)))


def test_a_killed_workers_connections_do_not_count_any_more(cluster: Cluster, start: Start, stack: ExitStack) -> None:
    gateway = start(cluster.bootstrap, gateway__workers=2, gateway__max_connections=2)
    crowd = Crowd(gateway, stack)
    crowd.join_second_worker(2)
    assert not crowd.join(0)
    [second] = set(gateway.workers()) - {owner_of_node_0(gateway)}
    os.kill(second, signal.SIGKILL)
    until(lambda: is_served(gateway.address(0)))


def test_one_address_has_a_cap_of_its_own_over_all_workers(cluster: Cluster, start: Start, stack: ExitStack) -> None:
    gateway = start(cluster.bootstrap, gateway__workers=2, gateway__max_connections_per_address=3)
    crowd = Crowd(gateway, stack)
    crowd.join_second_worker(1)  # from 127.0.0.1
    assert [crowd.join(0) for _ in range(3)] == [True, True, False]
    assert [crowd.join(0, source="127.0.0.8") for _ in range(4)] == [True, True, True, False]


# The PROXY protocol.

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def proxied(source: str) -> bytes:
    """The header of a balancer in front of us, for a client of IPv4."""
    addresses = IPv4Address(source).packed + IPv4Address("127.0.0.1").packed + (40000).to_bytes(2) + (9092).to_bytes(2)
    return SIGNATURE + b"\x21\x11" + len(addresses).to_bytes(2) + addresses


LOCAL = SIGNATURE + b"\x20\x00\x00\x00"


def test_behind_a_balancer_the_cap_is_of_the_address_that_the_header_names(
    cluster: Cluster, start: Start, stack: ExitStack
) -> None:
    gateway = start(
        cluster.bootstrap, gateway__workers=2, gateway__proxy_protocol=True, gateway__max_connections_per_address=2
    )
    crowd = Crowd(gateway, stack)
    assert [crowd.join(0, preface=proxied("192.0.2.1")) for _ in range(3)] == [True, True, False]
    assert not crowd.join(preface=proxied("192.0.2.1"))
    assert crowd.join(preface=proxied("192.0.2.2"))
    assert crowd.join(preface=LOCAL)
    assert not crowd.join()  # without a header


# Calls that an operator has hidden.


def test_denied_calls_are_not_announced_and_not_carried(cluster: Cluster, start: Start) -> None:
    gateway = start(cluster.bootstrap, gateway__deny_api_keys=[CREATE_TOPICS])
    with RawClient(cluster.bootstrap) as direct, RawClient(gateway.bootstrap) as client:
        assert CREATE_TOPICS in direct.api_versions()
        assert CREATE_TOPICS not in client.api_versions()
        client.send(CREATE_TOPICS, 2, bytes(16))
        assert client.has_ended()
    until(lambda: gateway.metric("headgate_connections_ended_total", cause="unsupported_call") == 1)
    admin = AdminClient(cluster.client_config(bootstrap=gateway.bootstrap))
    with pytest.raises(KafkaException) as failure:
        admin.create_topics([NewTopic("denied", 1, 1)])["denied"].result(20)
    assert "_UNSUPPORTED_FEATURE" in str(failure.value)
    assert "denied" not in AdminClient(cluster.client_config()).list_topics(timeout=20).topics
