"""The listening ports of a gateway, and its limits of connections; both are shared by all workers.

Ports: one for bootstrap, one for each node. They are bound before anything else starts, all or none. The supervisor of
workers binds them and hands them down, so that a port stays open, and clients wait in its queue, while a worker is
replaced. All workers accept on the bootstrap port; a node's port belongs to one of them (node id modulo workers), so
that a broker's share sessions and coordinator traffic stay in one process.

Limits: each worker counts its own connections in its own row of a table in shared memory, and sums all rows before it
admits one more. Addresses are counted in buckets by their checksum: two addresses may share a bucket, and then they
share the limit; memory does not grow with the number of addresses.
"""

import socket
from array import array
from dataclasses import dataclass, field
from zlib import crc32

from headgate.base.errors import PlatformError
from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.config.model import GatewayConfig

_BACKLOG = 1024
_HIGHEST_PORT = 65535


def bind_all(config: GatewayConfig) -> dict[NodeId | None, socket.socket]:
    """Listening sockets by node, None for bootstrap; on the first that cannot be had the others are closed again."""
    listeners: dict[NodeId | None, socket.socket] = {}
    try:
        listeners[None] = _bind(config.listen, "the bootstrap port")
        for node in config.nodes:
            listeners[node] = _bind(config.node_address(node), f"node {node}")
    except PlatformError:
        for listener in listeners.values():
            listener.close()
        raise
    return listeners


def _bind(address: Address, whose: str, *, shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = None
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as failure:
        if listener is not None:
            listener.close()
        raise PlatformError(
            f"cannot listen on {address} for {whose}: {failure.strerror}. Choose another gateway.listen "
            "(node i needs its port + 1 + i), or end the program that has the port"
        ) from None
    listener.setblocking(False)
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
            listener = _bind(self.config.node_address(node), f"node {node}", shared=self.worker is not None)
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
_COUNTER = array("I").itemsize
UNKNOWN_HOST = "?"  # a client whose address is not known yet: it counts, but not for an address


class ConnectionLimits:
    """The caps of one worker, which counts in `row`; `memory` is shared with the other workers, or its own."""

    def __init__(self, config: GatewayConfig, *, memory: memoryview | None = None, row: int = 0) -> None:
        self._most = config.max_connections
        self._most_from_one = config.max_connections_per_address
        self._width = row_counters(config)
        if memory is None:
            memory = memoryview(bytearray(table_bytes(config, rows=row + 1)))
        self._table = memory.cast("I")
        self._rows = range(0, len(self._table), self._width)
        self._own = row * self._width

    def admit(self, host: str) -> bool:
        """Count one more connection from `host`, unless that were one too many."""
        if self._sum(0) >= self._most:
            return False
        bucket = self._bucket(host)
        if bucket:
            if self._most_from_one is not None and self._sum(bucket) >= self._most_from_one:
                return False
            self._table[self._own + bucket] += 1
        self._table[self._own] += 1
        return True

    def leave(self, host: str) -> None:
        self._table[self._own] -= 1
        if bucket := self._bucket(host):
            self._table[self._own + bucket] -= 1

    def forget_all(self) -> None:
        """The worker of this row has ended, and its connections with it."""
        self._table[self._own : self._own + self._width] = memoryview(bytearray(self._width * _COUNTER)).cast("I")

    def _sum(self, counter: int) -> int:
        return sum(self._table[row + counter] for row in self._rows)

    def _bucket(self, host: str) -> int:
        return 0 if self._most_from_one is None or host == UNKNOWN_HOST else 1 + crc32(host.encode()) % _BUCKETS


def row_counters(config: GatewayConfig) -> int:
    return 1 if config.max_connections_per_address is None else 1 + _BUCKETS


def table_bytes(config: GatewayConfig, *, rows: int) -> int:
    """The size of the memory that the workers share."""
    return rows * row_counters(config) * _COUNTER
