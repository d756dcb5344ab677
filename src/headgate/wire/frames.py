"""Where the parts of a frame stand: sizes, request headers, answer headers.

A frame is an int32 size and that many bytes. A request begins with key, version, correlation id and client id, and
from header version 2 on a tag section; a response with the correlation id and, from header version 1 on, a tag section.
"""

from dataclasses import dataclass
from struct import Struct

from headgate.base.errors import WireError
from headgate.wire.primitives import Buffer, check_tag_count, read_uvarint, skip_tags

REQUEST_START = Struct(">ihhih")  # size, api key, api version, correlation id, length of the client id
RESPONSE_START = Struct(">ii")  # size, correlation id
CORRELATION_ID = Struct(">i")
CORRELATION_ID_AT = 8  # in a request, its size included
SMALLEST_REQUEST = 10  # what the size of a request covers at least
SMALLEST_RESPONSE = 4
LONGEST_TAGS_PREFIX = 33 * 1024  # the client id has an int16 length
LONGEST_ACKS_PREFIX = 128 * 1024  # client id and transactional id have int16 lengths
MOST_HEADER_TAGS = 100  # Kafka's own headers have none; millions of them would keep the event loop

_LONGEST_UVARINT = 5
_REQUEST_HEADER = Struct(">hhih")
_SIZE = Struct(">i")
_I16 = Struct(">h").unpack_from


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """A request's header; `tags` is its raw tag section, empty in header version 1."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: bytes | None
    tags: bytes

    def encode(self) -> bytes:
        name = self.client_id
        length = -1 if name is None else len(name)
        start = _REQUEST_HEADER.pack(self.api_key, self.api_version, self.correlation_id, length)
        return start + (name or b"") + self.tags


def request_header(frame: Buffer, *, flexible: bool) -> tuple[RequestHeader, int]:
    """The header of a whole frame, its size included, and where the body begins."""
    _, key, version, correlation_id, length = REQUEST_START.unpack_from(frame, 0)
    pos = REQUEST_START.size + max(0, length)
    if pos > len(frame) or length < -1:
        raise WireError("the client id reaches past the end of the request")
    client_id = None if length < 0 else bytes(frame[REQUEST_START.size : pos])
    begin = pos
    if flexible:
        pos = skip_tags(frame, pos, len(frame), most=MOST_HEADER_TAGS)
    header = RequestHeader(
        api_key=key,
        api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        tags=bytes(frame[begin:pos]),
    )
    return header, pos


def check_tags_begin(frame: Buffer) -> None:
    """Refuse a request whose flexible header announces too many tags, if that much of the frame is there."""
    if len(frame) >= REQUEST_START.size:
        (length,) = _I16(frame, REQUEST_START.size - 2)
        pos = REQUEST_START.size + max(0, int(length))
        if len(frame) >= pos + _LONGEST_UVARINT:
            count, _ = read_uvarint(frame, pos)
            check_tag_count(count, MOST_HEADER_TAGS)


def plain_body(view: Buffer, pos: int, size: int, client_id_size: int, *, flexible: bool) -> int:
    """Where the body of the request at `pos` begins, if its header has no tags; 0 when that takes a closer look.

    `size` is where the received bytes end.
    """
    at = pos + REQUEST_START.size + max(0, client_id_size)
    if flexible:
        if at >= size or view[at]:
            return 0
        at += 1
    return at if at < size else 0


def frame(*parts: Buffer) -> bytes:
    """Parts as one frame: the size goes in front."""
    return b"".join((_SIZE.pack(sum(map(len, parts))), *parts))


def response_header(correlation_id: bytes, *, flexible: bool) -> bytes:
    """The header of a response of our own."""
    return correlation_id + b"\x00" if flexible else correlation_id


def response_body(content: Buffer, *, flexible: bool) -> int:
    """Where the body of a response begins, counted from its correlation id."""
    return skip_tags(content, 4, len(content), most=MOST_HEADER_TAGS) if flexible else 4


def produce_acks(view: Buffer, pos: int, end: int, *, flexible: bool) -> int | None:
    """Acks of the Produce request whose frame begins at `pos`; None when its bytes are not there yet.

    A request with acks=0 has no response, so that everything behind it would be matched wrongly.
    """
    begin = pos
    try:
        pos = _skip_string(view, pos + 12, end)
        if flexible:
            pos = skip_tags(view, pos, end, most=MOST_HEADER_TAGS)
            length, pos = read_uvarint(view, pos)
            pos += max(0, length - 1)
        else:
            pos = _skip_string(view, pos, end)
        if pos + 2 <= end:
            (acks,) = _I16(view, pos)
            return int(acks)
    except WireError:
        pass  # cut off in the middle of a length: the same as not there
    if end - begin > LONGEST_ACKS_PREFIX:
        raise WireError("a Produce request without acks in its first bytes")
    return None


def _skip_string(view: Buffer, pos: int, end: int) -> int:
    if pos + 2 > end:
        raise WireError("the request ends inside a length")
    (length,) = _I16(view, pos)
    return pos + 2 + max(0, int(length))


class ErrorCodeReader:
    """Reads the error code at the beginning of a passing response from its pieces, size and header included.

    `skipped` is how many bytes of the body precede the code: 4 behind ThrottleTimeMs. Only a few bytes are kept.
    `at` is where the code stands in a frame whose header has no tagged fields.
    """

    __slots__ = ("_flexible", "_kept", "at")

    def __init__(self, *, flexible: bool, skipped: int = 0) -> None:
        self._flexible = flexible
        self.at = RESPONSE_START.size + flexible + skipped
        self._kept: bytes | None = b""

    def feed(self, piece: memoryview) -> int | None:
        """The code, once, with the piece that completes it; None before and after, and if the header has tags."""
        if self._kept is None or not len(piece):
            return None
        needed = self.at + 2
        start = self._kept + bytes(piece[: needed - len(self._kept)])
        if len(start) < needed:
            self._kept = start
            return None
        self._kept = None
        if self._flexible and start[RESPONSE_START.size]:
            return None
        return int.from_bytes(start[self.at :], "big", signed=True)
