"""Ports are bound all or none and belong to workers; connections are limited in all and by address."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.base.errors import PlatformError
from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.config.model import GatewayConfig
from headgate.proxy.interceptor import CloseCause
from headgate.proxy.listeners import UNKNOWN_HOST, ConnectionLimits, Ports, belongs, bind_all, table_bytes
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


ROWS, MOST, MOST_FROM_ONE, MOST_UNPROVED, MOST_UNPROVED_FROM_ONE = 3, 7, 3, 5, 2
HOSTS = ("192.0.2.1", "192.0.2.2", "2001:db8::1", UNKNOWN_HOST)


def limits(most: int = MOST, most_from_one: int | None = MOST_FROM_ONE) -> GatewayConfig:
    return GatewayConfig(
        max_connections=most,
        max_connections_per_address=most_from_one,
        max_unproved_connections=MOST_UNPROVED,
        max_unproved_connections_per_address=MOST_UNPROVED_FROM_ONE,
        workers=ROWS,
    )


def rows(count: int, config: GatewayConfig) -> list[ConnectionLimits]:
    """The limits of several workers over one table."""
    memory = memoryview(bytearray(table_bytes(config, rows=count)))
    return [ConnectionLimits(config, memory=memory, row=row) for row in range(count)]


def test_without_a_cap_for_one_address_the_table_is_two_numbers_a_worker() -> None:
    config = GatewayConfig(max_connections=10, max_unproved_connections_per_address=None)
    assert table_bytes(config, rows=4) == 32
    caps = ConnectionLimits(config)
    assert [caps.admit("a") for _ in range(10)] == [None] * 10
    for _ in range(10):
        caps.mark_proved("a")
    assert caps.admit("a") is CloseCause.TOO_MANY_CONNECTIONS


def test_unproved_connections_have_caps_of_their_own_over_all_workers() -> None:
    config = GatewayConfig(max_unproved_connections=5, max_unproved_connections_per_address=3, workers=2)
    first, second = rows(2, config)
    assert [caps.admit("a") for caps in (first, second, first)] == [None] * 3
    assert second.admit("a") is CloseCause.TOO_MANY_UNPROVED
    assert [second.admit("b"), second.admit(UNKNOWN_HOST)] == [None] * 2
    assert first.excess_unproved == second.excess_unproved == 0
    assert first.admit("c") is None  # an older one makes room
    assert first.excess_unproved == 1
    first.leave("a", is_proved=False)
    assert first.excess_unproved == 0
    first.mark_proved("a")
    assert (first.unproved, second.unproved) == (1, 3)
    assert first.admit("a") is None  # proved ones do not count
    first.leave("a", is_proved=True)
    second.forget_all()
    assert (first.connections, first.unproved) == (2, 2)


@pytest.mark.parametrize(
    ("host", "same", "other"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:2::1"),
        ("fe80::1%eth0", "fe80::2%eth0", "fe80:0:0:1::1%eth0"),
        ("::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"),
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("no address", "no address", "another one"),
    ],
)
def test_an_address_of_ipv6_counts_with_all_others_of_its_64_bits(host: str, same: str, other: str) -> None:
    """A host has as many addresses of its own network as it likes."""
    caps = ConnectionLimits(GatewayConfig(max_unproved_connections_per_address=1))
    assert caps.admit(host) is None
    assert caps.admit(same) is CloseCause.TOO_MANY_UNPROVED
    assert caps.admit(other) is None
    caps.leave(same, is_proved=False)
    assert caps.admit(host) is None


def test_which_addresses_share_a_limit_depends_on_the_key_of_this_gateway() -> None:
    """Otherwise an attacker could choose addresses that share the limit of another's."""
    config = GatewayConfig(max_unproved_connections_per_address=1)
    hosts = [f"10.0.{number >> 8}.{number & 255}" for number in range(2_000)]

    def refused(key: bytes) -> set[str]:
        caps = ConnectionLimits(config, key=key)
        return {host for host in hosts if caps.admit(host) is not None}

    one, other = refused(b"a" * 16), refused(b"b" * 16)
    assert one == refused(b"a" * 16), "as all workers of a gateway have it"
    assert 0 < len(one) < 100
    assert len(one & other) < len(one) / 4


def test_a_worker_closes_unproved_connections_beyond_its_share_only() -> None:
    config = GatewayConfig(max_unproved_connections=4, max_unproved_connections_per_address=None, workers=2)
    flooded, other = rows(2, config)
    for _ in range(4):
        flooded.admit("a")
    assert flooded.excess_unproved == 0
    for excess in (1, 2):
        assert other.admit("b") is None
        assert (flooded.excess_unproved, other.excess_unproved) == (excess, 0)
    assert other.admit("b") is None
    assert (flooded.excess_unproved, other.excess_unproved) == (2, 1)  # each down to its share


def test_without_a_limit_no_unproved_connection_makes_room() -> None:
    caps = ConnectionLimits(GatewayConfig(max_unproved_connections=None))
    for _ in range(10):
        caps.admit("a")
    assert caps.excess_unproved == 0


def test_unproved_connections_make_room_where_every_place_is_taken() -> None:
    caps = ConnectionLimits(GatewayConfig(max_connections=10, max_unproved_connections=None))
    for number in range(10):
        assert caps.admit("a") is None
        if number < 6:
            caps.mark_proved("a")
    assert caps.excess_unproved == 0
    assert caps.admit("b") is None
    assert caps.excess_unproved == 1
    caps.leave("a", is_proved=False)
    for host in "aaab":  # now all are proved
        caps.mark_proved(host)
    assert caps.admit("b") is CloseCause.TOO_MANY_CONNECTIONS


def test_a_worker_makes_room_for_workers_that_have_no_unproved_connections() -> None:
    config = GatewayConfig(max_connections=1000, max_unproved_connections_per_address=None, workers=2)
    flooded, other = rows(2, config)
    for _ in range(600):
        other.admit("a")
        other.mark_proved("a")
    for _ in range(390):
        flooded.admit("b")
    assert flooded.excess_unproved == 0
    for _ in range(10):
        flooded.admit("b")
    assert other.admit("c") is CloseCause.TOO_MANY_CONNECTIONS
    assert flooded.excess_unproved == 10
    for _ in range(10):
        flooded.leave("b", is_proved=False)
    assert [other.admit("c") for _ in range(5)] == [None] * 5
    assert other.excess_unproved == 0, "those that have just come stay"


class Crowd(RuleBasedStateMachine):
    """Workers that let in, let go and die, beside a list of who is in."""

    def __init__(self) -> None:
        super().__init__()
        self.caps = rows(ROWS, limits())
        self.inside: list[tuple[int, str, bool]] = []  # row, host, proved

    @rule(row=st.integers(0, ROWS - 1), host=st.sampled_from(HOSTS))
    def comes(self, row: int, host: str) -> None:
        room = len(self.inside) < MOST or any(one[0] == row and not one[2] for one in self.inside)
        if host != UNKNOWN_HOST:
            room = room and sum(other == host for _, other, _ in self.inside) < MOST_FROM_ONE
        unproved = [other for _, other, proved in self.inside if not proved]
        few = host == UNKNOWN_HOST or unproved.count(host) < MOST_UNPROVED_FROM_ONE
        refusal = CloseCause.TOO_MANY_UNPROVED if room else CloseCause.TOO_MANY_CONNECTIONS
        assert self.caps[row].admit(host) is (None if room and few else refusal)
        if room and few:
            self.inside.append((row, host, False))
        # The oldest make room: after each of the workers has looked, there are not too many.
        for number, caps in enumerate(self.caps):
            for _ in range(caps.excess_unproved):
                oldest = next(one for one in self.inside if one[0] == number and not one[2])
                self.inside.remove(oldest)
                caps.leave(oldest[1], is_proved=False)
        assert sum(not proved for _, _, proved in self.inside) <= MOST_UNPROVED
        assert len(self.inside) <= MOST

    @rule(which=st.integers(0, 100))
    def is_proved(self, which: int) -> None:
        if self.inside:
            row, host, proved = self.inside.pop(which % len(self.inside))
            if not proved:
                self.caps[row].mark_proved(host)
            self.inside.append((row, host, True))

    @rule(which=st.integers(0, 100))
    def goes(self, which: int) -> None:
        if self.inside:
            row, host, proved = self.inside.pop(which % len(self.inside))
            self.caps[row].leave(host, is_proved=proved)

    @rule(row=st.integers(0, ROWS - 1))
    def dies(self, row: int) -> None:
        self.caps[row].forget_all()
        self.inside = [one for one in self.inside if one[0] != row]

    @invariant()
    def nobody_is_counted_twice(self) -> None:
        assert self.caps[0].connections == len(self.inside)
        assert sum(caps.unproved for caps in self.caps) == sum(not proved for _, _, proved in self.inside)


# A worker that dies clears 65,536 counters, which takes long on a busy machine.
SLOW = [HealthCheck.too_slow]
Crowd.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=SLOW)
test_the_table_agrees_with_a_list_of_who_is_in = Crowd.TestCase
