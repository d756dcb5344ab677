"""How many connections there may be, in all and from one address, over all workers of the gateway.

Each worker counts its own connections in its own row of a table, and adds all rows up before it lets one more in. The
table may be memory that the workers share. Addresses are counted in buckets by their checksum: with thousands of
addresses two of them may share a bucket, and then they share the cap; memory does not grow with their number.
"""

from array import array
from zlib import crc32

from headgate.config.model import GatewayConfig

_BUCKETS = 1 << 16
_COUNTER = array("I").itemsize
ANYBODY = "?"  # a client whose address is not known yet: it counts, but not for an address


class Caps:
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
        return 0 if self._most_from_one is None or host == ANYBODY else 1 + crc32(host.encode()) % _BUCKETS


def row_counters(config: GatewayConfig) -> int:
    return 1 if config.max_connections_per_address is None else 1 + _BUCKETS


def table_bytes(config: GatewayConfig, *, rows: int) -> int:
    """The size of the memory that the workers share."""
    return rows * row_counters(config) * _COUNTER
