"""The listening ports of a gateway, and its limits of connections; both are shared by all workers.

Ports: one for bootstrap, one for each node. They are bound before anything else starts, all or none. The supervisor of
workers binds them and hands them down, so that a port stays open, and clients wait in its queue, while a worker is
replaced. All workers accept on the bootstrap port; a node's port belongs to one of them (node id modulo workers), so
that a broker's share sessions and coordinator traffic stay in one process.

Limits: of connections, and of *unproved* ones, whose broker has not got a request yet that it answers only to
authenticated clients; both in all and for each address. One more unproved connection than there may be in all is
admitted, and an older one makes room (`excess_unproved`); so it is where all places are taken. Each worker counts its
own connections in its own row of a table in shared memory, and sums all rows before it admits one more. Addresses are
counted in buckets by a hash: two addresses may share a bucket, and then they share the limit; memory does not grow with
the number of addresses. The hash has a key that all workers of a gateway are given and no client knows: no client can
choose addresses that share the bucket of another. IPv6 addresses count by their network of 64 bits, of which a host may
have all.
"""

import os
import socket
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from headgate.base.errors import PlatformError
from headgate.base.ids import NodeId
from headgate.base.networks import network_of
from headgate.config.addresses import Address
from headgate.config.model import Config, GatewayConfig
from headgate.proxy.endpoints import prepare
from headgate.proxy.interceptor import CloseCause

_BACKLOG = 1024
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a worker is given at birth; file descriptors keep their numbers."""

    config: Config
    worker: int
    caps_row: int
    listeners: Mapping[NodeId | None, int]  # its own ones: a port is free when all who hold it are gone
    caps: int
    caps_key: bytes
    reports: int


def bind_all(config: GatewayConfig) -> dict[NodeId | None, socket.socket]:
    """Listening sockets by node, None for bootstrap; on the first that cannot be had the others are closed again."""
    listeners: dict[NodeId | None, socket.socket] = {}
    try:
        listeners[None] = _bind(config, config.listen, "the bootstrap port")
        for node in config.nodes:
            listeners[node] = _bind(config, config.node_address(node), f"node {node}")
    except PlatformError:
        for listener in listeners.values():
            listener.close()
        raise
    return listeners


def _bind(config: GatewayConfig, address: Address, whose: str, *, shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = None
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        prepare(listener, patience_ms=config.idle_ms)  # before the first client: what it accepts inherits it
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as failure:
        if listener is not None:
            listener.close()
        raise PlatformError(
            f"cannot listen on {address} for {whose}: {failure.strerror}. Choose another gateway.listen "
            "(node i needs its port + 1 + i), or end the program that has the port"
        ) from None
    return listener


def belongs(node: NodeId | None, worker: int, workers: int) -> bool:
    """True when this worker accepts on the port of `node`; on the bootstrap port all of them do."""
    return node is None or node % workers == worker


@dataclass(slots=True)
class Ports:
    """The ports of one process; a `worker` has a supervisor, and is one of the `config.workers`."""

    config: GatewayConfig
    listeners: dict[NodeId | None, socket.socket]
    worker: int | None = None
    unreachable: dict[NodeId, str] = field(default_factory=dict)  # nodes that have no port, and why

    def open_node(self, node: NodeId) -> socket.socket | None:
        """A port for a node outside `gateway.nodes`; None when it is another worker's, or cannot be had."""
        if self.worker is not None and not belongs(node, self.worker, self.config.workers):
            return None
        port = self.config.listen.port + 1 + node
        if port > _HIGHEST_PORT:
            self.unreachable[node] = f"node {node} would need port {port}: choose a lower gateway.listen"
            return None
        try:
            # Shared, because the worker that replaces this one binds it before this one has drained.
            address = self.config.node_address(node)
            listener = _bind(self.config, address, f"node {node}", shared=self.worker is not None)
            self.listeners[node] = listener
        except PlatformError as problem:
            self.unreachable[node] = str(problem)
            return None
        self.unreachable.pop(node, None)
        return listener

    def close(self) -> None:
        for listener in self.listeners.values():
            listener.close()
        self.listeners.clear()


_BUCKETS = 1 << 16
_MOST_HOSTS = 1024
# Of all places so many are kept free of unproved connections that are not new, for workers that have none to close.
_FREE_SHARE = 100
_COUNTER = array("I").itemsize
_KEY_BYTES = 16
UNKNOWN_HOST = "?"  # a client whose address is not known yet: it counts, but not for an address


class ConnectionLimits:
    """The caps of one worker, which counts in `row`; `memory` and `key` are those of all workers, or its own."""

    def __init__(
        self, config: GatewayConfig, *, memory: memoryview | None = None, row: int = 0, key: bytes = b""
    ) -> None:
        width = row_counters(config)
        if memory is None:
            memory = memoryview(bytearray(table_bytes(config, rows=row + 1)))
        table = memory.cast("I")
        self._row = table[row * width : (row + 1) * width]
        rows = [table[start : start + width] for start in range(0, len(table), width)]
        all_limits, unproved_limits = _limits(config)
        self._all = _SharedCount(self._row, rows, 0, key, *all_limits)
        self._unproved = _SharedCount(self._row, rows, _counters(all_limits), key, *unproved_limits)
        self._most = config.max_connections
        self._most_unproved = config.max_unproved_connections
        self._unproved_share = max(1, (config.max_unproved_connections or 0) // config.workers)
        self._free_places = config.max_connections // _FREE_SHARE
        self._newest = max(1, self._free_places // config.workers)

    @property
    def connections(self) -> int:
        """The connections of all workers."""
        return self._all.total

    @property
    def unproved(self) -> int:
        """The unproved connections of this worker."""
        return self._unproved.own

    @property
    def excess_unproved(self) -> int:
        """How many unproved connections this worker has to close, so that there are not too many in all.

        Too many unproved ones: a worker that has no more than its share of them closes none, so that a flood of one
        worker does not keep the clients of the others out. Too many of any kind: unproved ones make room, all but the
        newest, and before every place is taken.
        """
        own = self._unproved.own
        over = self._all.total - self._most
        excess = max(min(over, own - 1), min(over + self._free_places, own - self._newest))
        if self._most_unproved is not None:
            excess = max(excess, min(self._unproved.total - self._most_unproved, own - self._unproved_share))
        return max(0, excess)

    def admit(self, host: str) -> CloseCause | None:
        """Count one more connection from `host`, as unproved; a cause if that were one too many.

        That there are too many in all is no cause while unproved ones can make room: see `excess_unproved`.
        """
        if not (self._all.has_room or self._unproved.own) or not self._all.has_room_from(host):
            return CloseCause.TOO_MANY_CONNECTIONS
        if not self._unproved.has_room_from(host):
            return CloseCause.TOO_MANY_UNPROVED
        self._all.add(host, 1)
        self._unproved.add(host, 1)
        return None

    def mark_proved(self, host: str) -> None:
        """A connection from `host` does not count as unproved any more."""
        self._unproved.add(host, -1)

    def leave(self, host: str, *, is_proved: bool) -> None:
        self._all.add(host, -1)
        if not is_proved:
            self._unproved.add(host, -1)

    def forget_all(self) -> None:
        """The worker of this row has ended, and its connections with it."""
        self._row[:] = memoryview(bytearray(self._row.nbytes)).cast("I")


class _SharedCount:
    """A number of connections, in all and by address, and its limits (None: off): counters from `first` on in a row."""

    def __init__(
        self,
        own: memoryview,
        rows: list[memoryview],
        first: int,
        key: bytes,
        most: int | None,
        most_from_one: int | None,
    ) -> None:
        self._own = own
        self._rows = rows
        self._first = first
        self._key = key
        self._most = most
        self._most_from_one = most_from_one

    @property
    def own(self) -> int:
        """The connections that are counted in this process's own row."""
        counter: int = self._own[self._first]
        return counter

    @property
    def total(self) -> int:
        return self._sum(self._first)

    @property
    def has_room(self) -> bool:
        return self._most is None or self.total < self._most

    def has_room_from(self, host: str) -> bool:
        if self._most_from_one is None or host == UNKNOWN_HOST:
            return True
        return self._sum(self._bucket(host)) < self._most_from_one

    def add(self, host: str, step: int) -> None:
        self._own[self._first] += step
        if self._most_from_one is not None and host != UNKNOWN_HOST:
            self._own[self._bucket(host)] += step

    def _sum(self, counter: int) -> int:
        total = 0
        for row in self._rows:  # a generator would take longer than this
            total += row[counter]
        return total

    def _bucket(self, host: str) -> int:
        return self._first + 1 + _bucket_number(host, self._key)


def new_key() -> bytes:
    """The key of a gateway's hash of addresses."""
    return os.urandom(_KEY_BYTES)


@lru_cache(_MOST_HOSTS)
def _bucket_number(host: str, key: bytes) -> int:
    """It is needed six times for each connection."""
    return int.from_bytes(blake2b(network_of(host), digest_size=8, key=key).digest()) % _BUCKETS


_Limits = tuple[int | None, int | None]  # in all, and for one address


def _limits(config: GatewayConfig) -> tuple[_Limits, _Limits]:
    """The limits of all connections, and those of unproved ones."""
    return (
        (config.max_connections, config.max_connections_per_address),
        (config.max_unproved_connections, config.max_unproved_connections_per_address),
    )


def _counters(limits: _Limits) -> int:
    return 1 if limits[1] is None else 1 + _BUCKETS


def row_counters(config: GatewayConfig) -> int:
    return sum(map(_counters, _limits(config)))


def table_bytes(config: GatewayConfig, *, rows: int) -> int:
    """The size of the memory that the workers share."""
    return rows * row_counters(config) * _COUNTER
