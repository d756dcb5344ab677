"""Records of the `spool` topic: dead letters that wait until their dead-letter topic accepts them.

A record's key is the JSON array [group, topic id, partition, offset], the identity of a dead letter. Its value is a
version byte, then the key and the value of the dead letter, each as an int32 length (-1: null) and its bytes. Its
headers are those of the dead letter as it will be written, followed by Headgate's own (`headgate.*`). A null value
(a tombstone) means that the dead letter is in its topic.

One more record in each partition, `DeadlinesReported`, says up to when the leader has reported deadlines, so that the
next leader reports the others however long there was none.

A lane is (group, topic id, source partition). All dead letters of a lane go to one partition of the spool
(`spool_partition`), unless that one does not respond: then they go to the next (`spool_partitions`), so

- the order of a lane is that of `sequence`, not of offsets: epoch milliseconds * 1,000,000 plus a counter, ascending
  for each worker. It does not change when a dead letter is written again because it was parked;
- one dead letter can be in several partitions, and a tombstone removes only the record of its own partition. Readers
  keep what is outstanding by (partition, identity) and move a dead letter once for each identity.

Anyone who may write the topic chooses these bytes: decoding never raises, and returns None for any other record.
"""

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from headgate.share_groups.model.dead_letter_records import Header, header_bytes, topic_id_of, topic_id_text

TARGET: Final = "headgate.target"
DEADLINE: Final = "headgate.deadline"
SEQUENCE: Final = "headgate.sequence"
PARKED: Final = "headgate.parked"
MAX_LANE_PARTITIONS: Final = 3
MAX_GROUP_SPOOL_BYTES: Final = 256 * 1024 * 1024
_OWN: Final = frozenset({TARGET, DEADLINE, SEQUENCE, PARKED})
_VERSION: Final = 1
_LENGTH: Final = struct.Struct(">i")
SEQUENCES_A_MS: Final = 1_000_000
_MAX_INT64: Final = 2**63 - 1
_MAX_INT32: Final = 2**31 - 1
_RECORD_BYTES: Final = 64  # of a record beside its key, value and headers
_REPORTED_KEY: Final = b'["deadlines_reported"]'

DeadLetterIdentity = tuple[str, bytes, int, int]
"""Group, topic id, partition, offset."""
WireHeaders = Sequence[tuple[str, bytes | None]]


class SpoolLane(NamedTuple):
    """The dead letters of one source partition and group, which are moved in order."""

    group: str
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledDeadLetter:
    """A dead letter that waits for its topic, `target`.

    `deadline` (epoch milliseconds): when it is not in its topic by then, it is reported. `parked` is the reason why it
    cannot be moved.
    """

    group: str
    topic_id: bytes
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    target: str
    deadline: int
    sequence: int
    parked: str | None = None

    @property
    def lane(self) -> SpoolLane:
        return SpoolLane(self.group, self.topic_id, self.partition)

    @property
    def identity(self) -> DeadLetterIdentity:
        return (self.group, self.topic_id, self.partition, self.offset)

    @property
    def size(self) -> int:
        """About the bytes of its record in the spool."""
        return _RECORD_BYTES + len(self.group) + self.header_bytes + len(self.key or b"") + len(self.value or b"")

    @property
    def header_bytes(self) -> int:
        return header_bytes(self.headers)


@dataclass(frozen=True, slots=True)
class SpoolTombstone:
    """A dead letter that is in its topic now."""

    identity: DeadLetterIdentity

    @property
    def lane(self) -> SpoolLane:
        return SpoolLane(*self.identity[:3])


@dataclass(frozen=True, slots=True)
class DeadlinesReported:
    """The deadlines before this time (epoch milliseconds) were reported."""

    until: int


class SpoolView(Protocol):
    """The state of the spool as a worker that follows it knows it."""

    @property
    def times_cleared(self) -> int:
        """The number of times that the spool lost records and was read again, maybe with other offsets."""

    def has_dead_letters(self, lane: SpoolLane) -> bool:
        """Whether the lane has outstanding dead letters; those that are parked do not count."""

    def lane_progress(self, lane: SpoolLane) -> tuple[int, int]:
        """The number of dead letters of the lane, and of those removed since it had none; without parked ones."""

    def group_bytes(self, group: str) -> int:
        """The bytes of all dead letters of the group that are in the spool."""

    def has_read(self, partition: int, offset: int) -> bool:
        """Whether this record of the spool was followed: the other results cover it."""


class SpoolSequence:
    """Makes the `sequence` of dead letters: ascending, also when the wall clock steps back."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self, epoch_ms: int) -> int:
        self._last = max(self._last + 1, epoch_ms * SEQUENCES_A_MS)
        return self._last


def spool_partitions(lane: SpoolLane, partitions: int) -> tuple[int, ...]:
    """The partitions of the spool that may hold a lane: the usual one, then those that are tried when it fails.

    There are three, because after the restart of a broker the first two often have the same leader for some minutes.
    """
    first = crc32(_json(lane.group, lane.topic_id, lane.partition)) % partitions
    return tuple((first + number) % partitions for number in range(min(MAX_LANE_PARTITIONS, partitions)))


def spool_partition(lane: SpoolLane, partitions: int) -> int:
    """The partition of the spool to which a lane goes while that partition responds."""
    return spool_partitions(lane, partitions)[0]


def encode_identity(identity: DeadLetterIdentity) -> bytes:
    """The key of a dead letter's records in the spool."""
    return _json(*identity)


def encode_spooled(dead_letter: SpooledDeadLetter) -> tuple[bytes, bytes, list[Header]]:
    """Key, value and headers of the record."""
    own = {TARGET: dead_letter.target, DEADLINE: str(dead_letter.deadline), SEQUENCE: str(dead_letter.sequence)}
    if dead_letter.parked is not None:
        own[PARKED] = dead_letter.parked
    value = b"".join((bytes((_VERSION,)), *_sized(dead_letter.key), *_sized(dead_letter.value)))
    return (
        encode_identity(dead_letter.identity),
        value,
        [*dead_letter.headers, *((name, text.encode()) for name, text in own.items())],
    )


def encode_reported(reported: DeadlinesReported) -> tuple[bytes, bytes]:
    """Key and value of the record."""
    return _REPORTED_KEY, str(reported.until).encode()


def decode_spooled(
    key: bytes | None, value: bytes | None, headers: WireHeaders | None
) -> SpooledDeadLetter | SpoolTombstone | DeadlinesReported | None:
    """The content of a record; None when it is not a record of the spool."""
    if key == _REPORTED_KEY:
        until = _number((value or b"").decode(errors="replace"))
        return None if until is None else DeadlinesReported(until)
    identity = _identity(key)
    if identity is None:
        return None
    if value is None:
        return SpoolTombstone(identity)
    found = _pair(value)
    own = _own_headers(headers or ())
    if found is None or own is None or TARGET not in own:
        return None
    deadline, sequence = _number(own.get(DEADLINE)), _number(own.get(SEQUENCE))
    if deadline is None or sequence is None:
        return None
    group, topic_id, partition, offset = identity
    return SpooledDeadLetter(
        group=group,
        topic_id=topic_id,
        partition=partition,
        offset=offset,
        key=found[0],
        value=found[1],
        headers=tuple((name, text) for name, text in headers or () if name not in _OWN and text is not None),
        target=own[TARGET],
        deadline=deadline,
        sequence=sequence,
        parked=own.get(PARKED),
    )


def _json(group: str, topic_id: bytes, *numbers: int) -> bytes:
    return ",".join((_json_begin(group, topic_id), *map(str, numbers))).encode("ascii") + b"]"


@lru_cache(maxsize=256)  # the dead letters of a topic come in a row
def _json_begin(group: str, topic_id: bytes) -> str:
    return json.dumps([group, topic_id_text(topic_id)], separators=(",", ":"))[:-1]


def _identity(key: bytes | None) -> DeadLetterIdentity | None:
    try:
        parts = json.loads(key or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(parts, list) or len(parts) != 4:
        return None
    group, text, partition, offset = parts
    if not isinstance(group, str) or not isinstance(text, str):
        return None
    topic_id = topic_id_of(text)
    if topic_id is None or not _is_within(partition, _MAX_INT32) or not _is_within(offset, _MAX_INT64):
        return None
    return (group, topic_id, partition, offset)


def _is_within(number: object, high: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= high


def _sized(part: bytes | None) -> Iterable[bytes]:
    return (_LENGTH.pack(-1),) if part is None else (_LENGTH.pack(len(part)), part)


def _pair(value: bytes) -> tuple[bytes | None, bytes | None] | None:
    """The key and the value of the dead letter; None when the bytes are not exactly these two."""
    if not value or value[0] != _VERSION:
        return None
    found: list[bytes | None] = []
    at = 1
    for _ in range(2):
        if len(value) < at + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(value, at)
        at += _LENGTH.size
        if length < -1 or at + length > len(value):
            return None
        found.append(None if length == -1 else value[at : at + length])
        at += max(0, length)
    return (found[0], found[1]) if at == len(value) else None


def _own_headers(headers: WireHeaders) -> dict[str, str] | None:
    """Headgate's headers; None when one of them is there twice or is not a text."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name in _OWN:
            if name in found or value is None:
                return None
            try:
                found[name] = value.decode()
            except UnicodeDecodeError:
                return None
    return found


def _number(text: str | None) -> int | None:
    if text is None or len(text) > len(str(_MAX_INT64)) or not (text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if number <= _MAX_INT64 else None
