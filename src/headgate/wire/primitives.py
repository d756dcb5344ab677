"""The few integers that frame walkers read by hand: varints and tag sections.

Invariant: never trust a length. Every function raises `WireError` instead of reading past the end, and a loop over
a count on the wire ends no later than the bytes do.
"""

from headgate.base.errors import WireError

Buffer = bytes | bytearray | memoryview


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """The unsigned varint at `pos` (32 bits at most) and the position behind it."""
    try:
        value = buf[pos]
        pos += 1
        if value < 0x80:
            return value, pos
        value &= 0x7F
        shift = 7
        while True:
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    raise WireError("varint over 32 bits")
                return value, pos
            shift += 7
            if shift > 28:
                raise WireError("varint longer than five bytes")
    except IndexError:
        raise WireError("message ends inside a varint") from None


def write_uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def check_tag_count(count: int, most: int) -> None:
    if count > most:
        raise WireError(f"tag section of {count} fields, more than {most}")


def skip_tags(buf: Buffer, pos: int, end: int, *, most: int | None = None) -> int:
    """The position behind the tag section at `pos`, which ends at or before `end` and has `most` fields at most."""
    count, pos = read_uvarint(buf, pos)
    if most is not None:
        check_tag_count(count, most)
    for _ in range(count):
        if pos >= end:
            raise WireError(f"tag section announces {count} fields, but the message ends before them")
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
    if pos > end:
        raise WireError("tag section reaches past the end of the message")
    return pos
