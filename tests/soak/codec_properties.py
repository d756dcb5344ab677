"""What must hold of any bytes that the codec, the walkers and the splices are given: success or `WireError`.

An input is two bytes that choose a message and version, one that says where pieces are cut, and the message. One
rule: `check` holds properties, not examples. What was decoded encodes to bytes that decode to the same; a frame is
walked alike in one piece and in many; a splice with its length kept keeps it. `fuzz_codec` finds the inputs.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate.base.errors import WireError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.routes import Route
from headgate.wire import frames, records, splice
from headgate.wire.apis import APIS, has_flexible_request, has_flexible_response
from headgate.wire.codec import decode, encode
from headgate.wire.schema import Message
from headgate.wire.walk import Program, Walker
from tests.support.messages import REQUESTS, VERSIONED, random_message

CORPUS: Final = Path(__file__).parent / "corpus"
LONGEST: Final = 4096
START: Final = 3  # bytes of an input in front of the message
_SPLICES: Final = {3: splice.metadata, 10: splice.find_coordinator, 60: splice.describe_cluster}


def lookup(node: int) -> splice.EncodedAddress:
    return splice.EncodedAddress.of("gateway.example", node % 65536)


def check(data: bytes) -> None:
    """Everything that reads this message's bytes; raises for a broken property."""
    if len(data) < START:
        return
    cls, version = VERSIONED[int.from_bytes(data[:2], "big") % len(VERSIONED)]
    cut, content = data[2], data[START:]
    _check_decoding(cls, version, content)
    key = cls.api_key
    if cls is REQUESTS[key]:
        _check_request(key, version, content)
    else:
        _check_answer(key, version, content, cut)
    with suppress(WireError):
        for batch in records.batches(content):
            batch.check_crc()
            list(batch.records(max_bytes=1 << 20))


def _check_decoding(cls: type[Message], version: int, content: bytes) -> None:
    try:
        message = decode(cls, version, content)
    except WireError:
        return
    again = encode(message, version)
    assert decode(cls, version, again) == message, f"{cls.__name__} v{version} does not read back equal"
    assert len(again) <= len(content), f"{cls.__name__} v{version} is written longer than it came"


def _check_request(key: int, version: int, content: bytes) -> None:
    flexible = has_flexible_request(key, version)
    frame = frames.frame(frames.REQUEST_START.pack(0, key, version, 7, 1)[4:], content)
    with suppress(WireError):
        header, body_at = frames.request_header(frame, flexible=flexible)
        assert frame[4:body_at] == header.encode(), "a header is not written as it came"
    if key == 0:
        _check_acks(frame, flexible=flexible)


def _check_acks(frame: bytes, *, flexible: bool) -> None:
    """Acks that are there in a part of the frame are the same in all of it."""
    with suppress(WireError):
        whole = frames.produce_acks(frame, 0, len(frame), flexible=flexible)
        for end in range(14, min(len(frame), 200), 7):
            part = frames.produce_acks(frame, 0, end, flexible=flexible)
            assert part is None or part == whole, f"acks {part} in {end} bytes, {whole} in all"


def _check_answer(key: int, version: int, content: bytes, cut: int) -> None:
    if key in _SPLICES:
        with suppress(WireError):
            splice.finish(_SPLICES[key](content, version, lookup))
    program = Route(ApiKey(key), ApiVersion(version), ()).tail_program
    if program is None:
        return
    header = bytes(4) + (b"\x00" if has_flexible_response(key, version) else b"")
    tail = _check_walk(program, header + content, cut)
    if tail is None:
        return
    rewrite = splice.tagged_endpoints if key in {0, 1} else splice.plain_endpoints
    with suppress(WireError):
        rewrite(tail, lookup, keep_length=False)
    with suppress(WireError):
        assert len(rewrite(tail, lookup, keep_length=True)) == len(tail), "a tail did not keep its length"


def _check_walk(program: Program, frame: bytes, cut: int) -> bytes | None:
    """The tail of a frame, the same whether it comes whole or in pieces of `cut` bytes; None when it has none."""
    whole = _walk(program, frame, len(frame) or 1)
    pieces = _walk(program, frame, cut % 64 + 1)
    assert whole == pieces, f"{whole!r} in one piece, {pieces!r} in pieces of {cut % 64 + 1}"
    return whole


def _walk(program: Program, frame: bytes, size: int) -> bytes | None:
    walker = Walker(program, len(frame))
    kept = received = 0
    try:
        while not walker.at_tail and received < len(frame):
            received = min(received + size, len(frame))
            kept = walker.feed(frame, kept, received)
    except WireError:
        return None
    return frame[kept:] if walker.at_tail else None


# The corpus.


def seeds() -> Iterator[bytes]:
    """Inputs to begin with: recorded frames, and two messages of every version."""
    for file in sorted(CORPUS.glob("*.hex")):
        yield from _recorded(file)
    rng = random.Random(1)
    for number, (cls, version) in enumerate(VERSIONED):
        for _ in range(2):
            content = encode(random_message(rng, cls, version), version)
            if len(content) <= LONGEST:
                yield number.to_bytes(2, "big") + b"\x07" + content


def _recorded(file: Path) -> Iterator[bytes]:
    """`request-3-12.hex`, `response-3-12.hex`: one frame a line, its size included."""
    side, key_text, version_text = file.stem.split("-")
    key, version = int(key_text), int(version_text)
    cls = REQUESTS[key] if side == "request" else REQUESTS[key].response_class()
    number = VERSIONED.index((cls, version))
    for line in file.read_text(encoding="ascii").splitlines():
        frame = bytes.fromhex(line)
        if side == "request":
            _, begin = frames.request_header(frame, flexible=APIS[key].is_flexible(version))
        else:
            begin = 4 + frames.response_body(frame[4:], flexible=has_flexible_response(key, version))
        yield number.to_bytes(2, "big") + b"\x07" + frame[begin:]
