"""Broker addresses, replaced inside a response without decoding the rest of it.

Each function takes the bytes of one response and a `Lookup` that gives the new address of a node, and returns the
answer with only host and port of the brokers changed: every other byte, unknown tagged fields too, stays.
The layouts are Metadata, FindCoordinator (both shapes), DescribeCluster, and the NodeEndpoints of KIP-951.

Invariant: what cannot be walked raises `WireError`; a response never leaves with an address that was not looked at.
Nodes and tagged fields of one response are counted: a broker that announces millions must not keep the event loop.
Responses with many nodes are rewritten in steps, between which other connections are served.
"""

from collections.abc import Callable, Generator
from struct import Struct, error
from typing import Final, NamedTuple, Protocol

from headgate.base.errors import WireError
from headgate.base.ids import NodeId
from headgate.wire.primitives import Buffer, read_uvarint, skip_tags, write_uvarint

_I16 = Struct(">h").unpack_from
_I32 = Struct(">i").unpack_from
_NODE_ENDPOINTS: Final = 0  # tag of Produce v10+ and Fetch v16+
_PADDING_TAG: Final = 10_000  # Kafka's own tags go to 3; see KIP-482 on unknown tags
_PADDING_TAG_SHORT: Final = 127  # the largest tag number of one byte, as short as that of NodeEndpoints
MOST_PARTS: Final = 30_000  # nodes and their tagged fields in one response; a client may ask for as many coordinators
MOST_ENDPOINTS: Final = 1000  # nodes and their tagged fields in the NodeEndpoints of one response, rewritten at once
NODES_A_STEP: Final = 250
MOST_LAST_FIELDS: Final = 1000  # of the tag section that ends a response


class EncodedAddress(NamedTuple):
    """Host and port, ready to be written: `classic` with an int16 length, `compact` with a varint one."""

    classic: bytes
    compact: bytes

    @classmethod
    def of(cls, host: str, port: int) -> "EncodedAddress":
        name = host.encode()
        number = Struct(">i").pack(port)
        return cls(Struct(">h").pack(len(name)) + name + number, write_uvarint(len(name) + 1) + name + number)


Lookup = Callable[[NodeId], EncodedAddress]
Steps = Generator[None, None, bytes]  # returns the changed response


class TailSplice(Protocol):
    """Replaces the addresses in the tail of a response; with `keep_length` the result is as long as the tail."""

    def __call__(self, tail: Buffer, lookup: Lookup, *, keep_length: bool) -> bytes: ...


class _Splicer:
    """A cursor over a response: what is skipped is copied, what is replaced is not."""

    def __init__(self, buf: Buffer, *, flexible: bool, lookup: Lookup, most_parts: int = MOST_PARTS) -> None:
        self.buf = buf
        self.end = len(buf)
        self.flexible = flexible
        self.lookup = lookup
        self.pos = 0
        self.copied = 0
        self.parts: list[Buffer] = []
        self.parts_left = self._most_parts = most_parts

    def int32(self) -> int:
        try:
            (value,) = _I32(self.buf, self.pos)
        except error:
            raise WireError("the response ends inside a number") from None
        self.pos += 4
        return int(value)

    def string(self) -> None:
        if self.flexible:
            length, self.pos = read_uvarint(self.buf, self.pos)
            length -= 1
        else:
            try:
                (length,) = _I16(self.buf, self.pos)
            except error:
                raise WireError("the response ends inside a length") from None
            self.pos += 2
        self.skip(max(0, length))

    def skip(self, size: int) -> None:
        self.pos += size
        if self.pos > self.end:
            raise WireError("a length inside the response reaches past its end")

    def count(self) -> int:
        """How many nodes come; 0 or less for none."""
        if self.flexible:
            count, self.pos = read_uvarint(self.buf, self.pos)
            count -= 1
        else:
            count = self.int32()
        self.spend(count)
        return count

    def tags(self) -> None:
        if self.flexible:
            count, _ = read_uvarint(self.buf, self.pos)
            self.spend(count)
            self.pos = skip_tags(self.buf, self.pos, self.end)

    def spend(self, count: int) -> None:
        self.parts_left -= max(0, count)
        if self.parts_left < 0:
            raise WireError(f"more than {self._most_parts} nodes and tagged fields in one response")

    def node(self) -> None:
        """A node id with its host and port: the last two are replaced, unless the id says that there is no node."""
        node = self.int32()
        begin = self.pos
        self.string()
        self.skip(4)
        if node >= 0:
            address = self.lookup(NodeId(node))
            self.parts.append(self.buf[self.copied : begin])
            self.parts.append(address.compact if self.flexible else address.classic)
            self.copied = self.pos

    def result(self) -> bytes:
        self.parts.append(self.buf[self.copied :])
        return b"".join(self.parts)


def finish(steps: Steps) -> bytes:
    """The changed response, all of it at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return bytes(done.value)


def metadata(body: Buffer, version: int, lookup: Lookup) -> Steps:
    """A Metadata response's body, 0 to 13: only its brokers are walked."""
    at = _Splicer(body, flexible=version >= 9, lookup=lookup)
    if version >= 3:
        at.skip(4)  # ThrottleTimeMs
    for number in range(1, at.count() + 1):
        at.node()
        if version >= 1:
            at.string()  # Rack
        at.tags()
        if not number % NODES_A_STEP:
            yield
    return at.result()


def find_coordinator(body: Buffer, version: int, lookup: Lookup) -> Steps:
    """A FindCoordinator response's body: one coordinator up to version 3, an array of them from 4 on."""
    at = _Splicer(body, flexible=version >= 3, lookup=lookup)
    if version >= 1:
        at.skip(4)  # ThrottleTimeMs
    if version <= 3:
        at.skip(2)  # ErrorCode
        if version >= 1:
            at.string()  # ErrorMessage
        at.node()
        return at.result()
    for number in range(1, at.count() + 1):
        at.string()  # Key
        at.node()
        at.skip(2)  # ErrorCode
        at.string()  # ErrorMessage
        at.tags()
        if not number % NODES_A_STEP:
            yield
    return at.result()


def describe_cluster(body: Buffer, version: int, lookup: Lookup) -> Steps:
    at = _Splicer(body, flexible=True, lookup=lookup)
    at.skip(4 + 2)  # ThrottleTimeMs, ErrorCode
    at.string()  # ErrorMessage
    if version >= 1:
        at.skip(1)  # EndpointType
    at.string()  # ClusterId
    at.skip(4)  # ControllerId
    for number in range(1, at.count() + 1):
        at.node()
        at.string()  # Rack
        if version >= 2:
            at.skip(1)  # IsFenced
        at.tags()
        if not number % NODES_A_STEP:
            yield
    return at.result()


def plain_endpoints(tail: Buffer, lookup: Lookup, *, keep_length: bool) -> bytes:
    """The tail of a ShareFetch or ShareAcknowledge answer: the NodeEndpoints array and the tag section.

    With `keep_length` the frame's size has already gone out: the array is emptied and its bytes become the filling
    of a tagged field that no client knows, so that clients ask Metadata instead (KIP-951 allows both).
    """
    at = _Splicer(tail, flexible=True, lookup=lookup, most_parts=MOST_ENDPOINTS)
    count = at.count()
    if count <= 0:
        return bytes(tail)
    for _ in range(count):
        at.node()
        at.string()  # Rack
        at.tags()
    if not keep_length:
        return at.result()
    fields = _fields(tail, at.pos)
    kept = b"".join(map(_field, fields))
    head = b"\x01" + write_uvarint(len(fields) + 1)
    highest = max((tag for tag, _ in fields), default=0)  # tags ascend, so the filling stands last
    return head + kept + _padding(len(tail) - len(head) - len(kept), max(_PADDING_TAG, highest + 1))


def _padding(size: int, number: int) -> bytes:
    """A tagged field of exactly `size` bytes that no client knows."""
    tag = write_uvarint(number)
    filling = size - len(tag) - 1
    if filling < 0x80:
        return tag + write_uvarint(filling) + bytes(filling)
    filling -= 1
    while len(write_uvarint(filling)) + len(tag) + filling > size:
        filling -= 1
    length = write_uvarint(filling)
    if len(tag) + len(length) + filling < size:  # between two lengths of varints: a longer form of the same number
        length = length[:-1] + bytes((length[-1] | 0x80, 0))
    return tag + length + bytes(filling)


def tagged_endpoints(tail: Buffer, lookup: Lookup, *, keep_length: bool) -> bytes:
    """The tag section that ends a Produce v10+ or Fetch v16+ answer, where NodeEndpoints is tag 0.

    With `keep_length` the frame's size has already gone out: the field gets another number, its content is blanked,
    and clients ask Metadata instead.
    """
    if tail == b"\x00":
        return b"\x00"
    fields = _fields(tail, 0)
    if not any(tag == _NODE_ENDPOINTS for tag, _ in fields):
        return bytes(tail)
    changed = []
    for tag, content in fields:
        if tag != _NODE_ENDPOINTS:
            changed.append((tag, content))
        elif keep_length:
            changed.append((_PADDING_TAG_SHORT, bytes(len(content))))
        else:
            changed.append((tag, _endpoints_field(content, lookup)))
    changed.sort(key=lambda field: field[0])
    whole = write_uvarint(len(changed)) + b"".join(map(_field, changed))
    if keep_length and len(whole) != len(tail):
        raise WireError("a tag section that is not written in its shortest form")
    return whole


def _fields(tail: Buffer, pos: int) -> list[tuple[int, bytes]]:
    """The fields of the tag section that stands between `pos` and the end."""
    count, pos = read_uvarint(tail, pos)
    if count > MOST_LAST_FIELDS:
        raise WireError(f"tag section of {count} fields, more than {MOST_LAST_FIELDS}")
    fields: list[tuple[int, bytes]] = []
    for _ in range(count):
        tag, pos = read_uvarint(tail, pos)
        size, pos = read_uvarint(tail, pos)
        if pos + size > len(tail):
            raise WireError("a tagged field reaches past the end of the response")
        fields.append((tag, bytes(tail[pos : pos + size])))
        pos += size
    if pos != len(tail):
        raise WireError("bytes behind the last field of the response")
    return fields


def _field(field: tuple[int, bytes]) -> bytes:
    tag, content = field
    return write_uvarint(tag) + write_uvarint(len(content)) + content


def _endpoints_field(content: bytes, lookup: Lookup) -> bytes:
    at = _Splicer(content, flexible=True, lookup=lookup, most_parts=MOST_ENDPOINTS)
    for _ in range(at.count()):
        at.node()
        at.string()  # Rack
        at.tags()
    return at.result()
