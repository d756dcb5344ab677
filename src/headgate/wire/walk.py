"""Walks through a Produce, Fetch or ShareFetch response while it passes, without storing it.

A `Walker` is fed the pieces of one frame as they arrive and returns up to where they may be sent on: everything but an
incomplete length (a few bytes, fed again with the next piece), and the *tail*, which begins where broker addresses may
be. Records are skipped by their length and never read.

Invariant: the walker's own memory does not depend on the frame, and the first byte of the tail is never sent on.
"""

from struct import Struct as Packed
from typing import Any, Final

from headgate.base.errors import WireError
from headgate.wire.primitives import Buffer, read_uvarint
from headgate.wire.schema import STRING, ArrayOf, Message, Scalar, Struct

# Operations of a program. A step is (operation, argument); arrays are flat: ARRAY .. END with jumps.
_SKIP: Final = 0  # the argument is a number of bytes
_END: Final = 1  # of an array's element; the argument is where the element begins
_TAIL: Final = 2
_TAG: Final = 3  # one tagged field
_ARRAY_I32: Final = 4  # the argument of the arrays is where the program goes on behind them
_ARRAY_COMPACT: Final = 5
_ARRAY_TAGS: Final = 6  # a tag section is an array of tagged fields
_STRING: Final = 7
_BYTES: Final = 8
_COMPACT: Final = 9  # string or bytes with a compact length

Step = tuple[int, int]
Program = tuple[Step, ...]

_ARRAYS = frozenset((_ARRAY_I32, _ARRAY_COMPACT, _ARRAY_TAGS))
_I16 = Packed(">h").unpack_from
_I32 = Packed(">i").unpack_from
_LONGEST_FIELD_START = 10  # two varints
_LONGEST_PLAIN_TAIL = 2  # bytes: an empty array and an empty tag section; no address fits into them
MOST_FIELDS: Final = 1000  # of a tag section; Kafka's own have three at most
MOST_FIELDS_IN_ALL: Final = 30_000  # of a frame: of ten thousand partitions with all that Kafka's have
_INCOMPLETE = (0, -1)


class Walker:
    """One frame's walk: `left` counts the bytes not yet walked; `at_tail` is set once only the tail is left."""

    __slots__ = ("_counts", "_fields_left", "_pc", "_program", "_skip", "at_tail", "left", "lengths")

    def __init__(self, program: Program, size: int) -> None:
        self._program = program
        self._pc = 0
        self._skip = 0
        self._fields_left = MOST_FIELDS_IN_ALL
        self._counts: list[int] = []  # elements still to come of each open array, the innermost last
        self.left = size
        self.at_tail = False
        # Where the lengths and counts stand that the walk has read, for one who asks by setting a list; None again when
        # a tag section is not empty.
        self.lengths: list[tuple[int, int]] | None = None

    @property
    def skip(self) -> int:
        """How many of the next bytes are skipped whatever they are; never all that are left of a frame."""
        return min(self._skip, self.left - 1)

    def jump(self, size: int) -> None:
        """Take `size` bytes for walked, no more than `skip`."""
        self._skip -= size
        self.left -= size

    def feed(self, buf: Buffer, pos: int, end: int) -> int:
        """Walk `buf[pos:end]`, bytes of this frame; the result is from where they must be kept and fed again."""
        begin = pos
        is_last = end - pos == self.left
        if self._skip > end - pos:
            self._skip -= end - pos
            kept = end
        else:
            pos += self._skip
            self._skip = 0
            kept = self._walk(buf, pos, end)
            if kept > end:
                self._skip = kept - end
                kept = end
        self.left -= kept - begin
        if self._skip > self.left:
            raise WireError("a length inside the frame reaches past the end of the frame")
        if is_last and not self.at_tail:
            raise WireError("the frame ends before its last field")
        return kept

    def _walk(self, buf: Buffer, pos: int, end: int) -> int:
        program = self._program
        counts = self._counts
        pc = self._pc
        while True:
            operation, argument = program[pc]
            if operation == _END:
                counts[-1] -= 1
                if counts[-1]:
                    pc = argument
                    continue
                counts.pop()
                pc += 1
                continue
            if operation == _TAIL:
                self.at_tail = pos <= end
                break
            if pos >= end:
                break
            if operation == _SKIP:
                pos += argument
                pc += 1
                continue
            if operation == _TAG:
                counts[-1], pos = _skip_fields(counts[-1], buf, pos, end)
                if not counts[-1]:
                    counts.pop()
                    pc += 2  # behind the end of this array
                    continue
                _, after = _length(_ARRAY_TAGS, buf, pos, end)
                length, after = _length(_ARRAY_TAGS, buf, after, end) if after > 0 else _INCOMPLETE
            else:
                length, after = _length(operation, buf, pos, end)
            if after < 0:
                break
            if self.lengths is not None:
                self.lengths.append((pos, after))
            if operation in _ARRAYS:
                pos = after
                if length > 0:
                    if operation == _ARRAY_TAGS:
                        self._spend_fields(length)
                    counts.append(length)
                    pc += 1
                else:
                    pc = argument
                continue
            pos = after + max(0, length)
            pc += 1
        self._pc = pc
        return pos

    def _spend_fields(self, count: int) -> None:
        """A frame may be nothing but empty fields of two bytes, and must not keep the event loop for that."""
        self.lengths = None
        self._fields_left -= count
        if count > MOST_FIELDS:
            raise WireError(f"tag section of {count} fields, more than {MOST_FIELDS}")
        if self._fields_left < 0:
            raise WireError(f"more than {MOST_FIELDS_IN_ALL} tagged fields in one response")


def _skip_fields(count: int, buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Skip tagged fields that are here whole, four times quicker than step by step; how many are left, and where."""
    while count and end - pos >= _LONGEST_FIELD_START:
        _, after = read_uvarint(buf, pos)
        size, after = read_uvarint(buf, after)
        if after + size > end:
            break
        pos = after + size
        count -= 1
    return count, pos


def _length(operation: int, buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """The length or count at `pos`, -1 for null, and the position behind it: -1 when it is not all there yet."""
    if operation == _STRING:
        if end - pos < 2:
            return _INCOMPLETE
        (length,) = _I16(buf, pos)
        pos += 2
    elif operation in (_BYTES, _ARRAY_I32):
        if end - pos < 4:
            return _INCOMPLETE
        (length,) = _I32(buf, pos)
        pos += 4
    else:
        length = shift = 0
        while True:
            if pos >= end:
                return _INCOMPLETE
            byte = buf[pos]
            pos += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise WireError("a length of more than five bytes")
        if length > 0xFFFFFFFF:
            raise WireError("a length over 32 bits")
        if operation != _ARRAY_TAGS:
            length -= 1
    if length < -1:
        raise WireError(f"a negative length ({length})")
    return length, pos


def plain_mask(walker: Walker, frame: Buffer, at: int) -> tuple[int, int] | None:
    """What decided the walk of a whole frame, its size in front, to its tail `at`: a mask of bits, and their value.

    `walker.lengths` was a list from the start. A frame of the same length with the same value under the mask is walked
    alike: lengths and counts are all that a walker reads, and the tail is under the mask too. None for a frame whose
    tail has room for an address, and for one with tagged fields.
    """
    if walker.lengths is None or not walker.at_tail or len(frame) - at > _LONGEST_PLAIN_TAIL:
        return None
    mask = bytearray(len(frame))
    for begin, end in (*walker.lengths, (at, len(frame))):
        mask[begin:end] = b"\xff" * (end - begin)
    bits = int.from_bytes(mask)
    return bits, int.from_bytes(frame) & bits


def response_program(cls: type[Message], version: int) -> Program:
    """The walk of a response frame from its correlation id on, made from its table.

    The tail begins at NodeEndpoints where that is a plain field, else at the last tag section, where it is tag 0.
    """
    layout = _Layout(version, flexible=version in cls.flexible)
    layout.skip(4)
    layout.tags()
    layout.fields(cls)
    return (*layout.steps, (_TAIL, 0))


class _Layout:
    """Builds the program of one message at one version."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.steps: list[Step] = []

    def skip(self, size: int) -> None:
        if self.steps and self.steps[-1][0] == _SKIP:
            size += self.steps.pop()[1]
        self.steps.append((_SKIP, size))

    def fields(self, cls: type[Struct]) -> None:
        """The fields of a struct in the order of the wire; its tag section is not among them."""
        for spec in cls.layout.fields:
            if self.version in spec.versions and spec.tag is None and spec.name != "node_endpoints":
                self._field(spec.type)

    def _field(self, kind: Scalar[Any] | ArrayOf | type[Struct]) -> None:
        if isinstance(kind, ArrayOf):
            self.steps.append((_ARRAY_COMPACT if self.flexible else _ARRAY_I32, 0))
            begin = len(self.steps)
            self._field(kind.element)
            self._close(begin)
        elif isinstance(kind, type):
            self.fields(kind)
            self.tags()
        elif kind.size:
            self.skip(kind.size)
        elif self.flexible:
            self.steps.append((_COMPACT, 0))
        else:
            self.steps.append((_STRING if kind is STRING else _BYTES, 0))

    def tags(self) -> None:
        if self.flexible:
            self.steps.append((_ARRAY_TAGS, 0))
            begin = len(self.steps)
            self.steps.append((_TAG, 0))
            self._close(begin)

    def _close(self, begin: int) -> None:
        self.steps.append((_END, begin))
        self.steps[begin - 1] = (self.steps[begin - 1][0], len(self.steps))
