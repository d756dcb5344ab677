"""The records of passing answers, kept for a while, so that a dead letter can have a copy of its record.

One rule: bytes are bounded, and so is what they are unpacked to. A batch stays compressed until one of its records is
wanted; then it is unpacked once for all that are wanted of it, beside the event loop.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.base.errors import WireError
from headgate.wire.primitives import Buffer
from headgate.wire.records import batches

MOST_BYTES: Final = 64 * 1024 * 1024
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


def unpack(raw: Iterable[bytes], offsets: Sequence[int], max_bytes: int) -> dict[int, Copy]:
    """What the batches say of these offsets; a batch that unpacks to more than `max_bytes` gives the reason instead."""
    wanted = sorted(offsets)
    found: dict[int, Copy] = {}
    for data in raw:
        for batch in batches(data):
            inside = set(wanted[bisect_left(wanted, batch.base_offset) : bisect_right(wanted, batch.last_offset)])
            if not inside or batch.is_control:
                continue
            try:
                for record in batch.records(max_bytes=max_bytes):
                    if record.offset in inside:
                        found[record.offset] = Copy(record.key, record.value)
            except WireError:
                found.update(dict.fromkeys(inside, Copy(problem=TOO_LARGE)))
    return found
