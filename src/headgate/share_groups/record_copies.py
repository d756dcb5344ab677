"""The records of passing answers, kept for a while, so that a dead letter can have a copy of its record.

One rule: bytes are bounded, and so is what they are unpacked to. A batch stays compressed until one of its records is
wanted; then it is unpacked whole, beside the event loop, and that is kept for the next that is wanted of it.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.base.errors import WireError
from headgate.proxy.decoding import SMALL_BYTES, run_off_loop
from headgate.wire.primitives import Buffer
from headgate.wire.records import batches

MOST_BYTES: Final = 64 * 1024 * 1024
MOST_UNPACKED_BYTES: Final = 16 * 1024 * 1024
_PACKED: Final = 0x07  # the bits of the compression
TOO_LARGE: Final = "the record's batch is larger than the dead-letter topic takes"
_OVERHEAD: Final = 300  # what a batch costs beside its bytes
GONE: Final = "the record is not in the log any more"


@dataclass(frozen=True, slots=True)
class Copy:
    """A record's key and value, or why there is none."""

    key: bytes | None = None
    value: bytes | None = None
    problem: str | None = None


class Copies:
    """Batches by topic id, partition and base offset; those that came first go first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._batches: OrderedDict[tuple[bytes, int, int], bytes] = OrderedDict()
        self._bases: dict[tuple[bytes, int], list[int]] = {}
        self.bytes = 0

    def keep(self, topic_id: bytes, partition: int, records: Buffer) -> None:
        """The record set of one partition of an answer."""
        for batch in batches(records):
            size = len(batch.raw) + _OVERHEAD
            key = (topic_id, partition, batch.base_offset)
            if batch.is_control or size > self._most_bytes or key in self._batches:
                continue
            self._batches[key] = bytes(batch.raw)
            insort(self._bases.setdefault((topic_id, partition), []), batch.base_offset)
            self.bytes += size
            while self.bytes > self._most_bytes:
                self._drop_first()

    def of(self, topic_id: bytes, partition: int, offsets: Sequence[int]) -> tuple[bytes, ...]:
        """The batches that hold these offsets, as far as they are here."""
        bases = self._bases.get((topic_id, partition), [])
        found: dict[int, None] = {}
        for offset in offsets:
            at = bisect_right(bases, offset)
            if at:
                found[bases[at - 1]] = None
        return tuple(self._batches[topic_id, partition, base] for base in found)

    def _drop_first(self) -> None:
        (topic_id, partition, base), raw = self._batches.popitem(last=False)
        self.bytes -= len(raw) + _OVERHEAD
        bases = self._bases[topic_id, partition]
        bases.remove(base)
        if not bases:
            del self._bases[topic_id, partition]


@dataclass(frozen=True, slots=True)
class Records:
    """All that was read of some batches; `problem` is why the rest could not be."""

    found: Mapping[int, Copy]
    problem: str | None
    size: int

    def copy_of(self, offset: int) -> Copy | None:
        copy = self.found.get(offset)
        if copy is None and self.problem is not None:
            return Copy(problem=self.problem)
        return copy


def unpack(raw: bytes, max_bytes: int) -> Records:
    """Every record of the batches; one that unpacks to more than `max_bytes` gives the reason instead.

    What is not packed is here already, so that it may be as large as it is.
    """
    found: dict[int, Copy] = {}
    size = 0
    for batch in batches(raw):
        if batch.is_control:
            continue
        try:
            most = max_bytes if batch.attributes & _PACKED else len(raw)
            for record in batch.records(max_bytes=most):
                found[record.offset] = Copy(record.key, record.value)
                size += _OVERHEAD + len(record.key or b"") + len(record.value or b"")
        except WireError:
            return Records(found, TOO_LARGE, size)
    return Records(found, None, size)


class Unpacked:
    """What was unpacked last: the dead letters of one request are often of one batch, each wanted by itself."""

    def __init__(self, most_bytes: int = MOST_UNPACKED_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[bytes, int], Records] = OrderedDict()  # by the packed bytes and their bound
        self._bytes = 0

    async def of(self, raw: bytes, max_bytes: int) -> Records:
        """Read now, beside the event loop when it is large, or kept from before."""
        key = (raw, max_bytes)
        records = self._kept.get(key)
        if records is not None:
            return records
        is_small = len(raw) <= SMALL_BYTES and not any(batch.attributes & _PACKED for batch in batches(raw))
        records = unpack(raw, max_bytes) if is_small else await run_off_loop(lambda: unpack(raw, max_bytes))
        if key not in self._kept:
            self._kept[key] = records
            self._bytes += records.size + len(raw)
            while self._bytes > self._most_bytes:
                (gone, _), dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.size + len(gone)
        return records
