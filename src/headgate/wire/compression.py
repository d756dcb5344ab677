"""The four compressions of record batches, in the forms that Kafka's Java classes read and write.

Invariant: a batch cannot make the gateway allocate more than `max_bytes`, whatever its sizes say. zlib is given the
limit, snappy's blocks announce their sizes beforehand, and LZ4 and zstd fill a buffer that we made, which grows to the
limit and no further.
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any

from headgate.base.errors import WireError

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_BLOCK = 32 * 1024
# Magic number; independent blocks without checksums, of 64 KiB at most; the checksum of these two bytes. Kafka reads
# independent blocks only, which is why the frames of `cramjam.lz4.compress` would not do.
LZ4_FRAME = bytes.fromhex("04224d18 60 40 82")
LZ4_BLOCK = 64 * 1024
LZ4_PLAIN = 0x80000000  # set in a block's size when its bytes are not compressed
FIRST_GUESS = 8  # times the compressed size


class Compression(IntEnum):
    """The lowest three attribute bits of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@cache
def _cramjam() -> Any:
    """The library of snappy, LZ4 and zstd, with the first batch that needs it: it takes 1.6 MB of a worker."""
    import cramjam  # noqa: PLC0415

    return cramjam


def compress(kind: Compression, data: bytes) -> bytes:
    match kind:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            squeeze = zlib.compressobj(wbits=31)
            return squeeze.compress(data) + squeeze.flush()
        case Compression.SNAPPY:
            return _xerial(data)
        case Compression.LZ4:
            return _lz4_frame(data)
        case Compression.ZSTD:
            return bytes(_cramjam().zstd.compress(data))


def decompress(kind: Compression, data: bytes, max_bytes: int) -> bytes:
    """The records section of a batch; a `WireError` if it is corrupt or larger than `max_bytes`."""
    try:
        match kind:
            case Compression.NONE:
                return _at_most(data, max_bytes)
            case Compression.GZIP:
                return _gunzip(data, max_bytes)
            case Compression.SNAPPY:
                return _unsnappy(data, max_bytes)
            case Compression.LZ4:
                return _fill(_cramjam().lz4.decompress_into, data, max_bytes)
            case Compression.ZSTD:
                return _fill(_cramjam().zstd.decompress_into, data, max_bytes)
    except (zlib.error, struct.error, _cramjam().DecompressionError) as error:
        raise WireError(f"records that {kind.name.lower()} cannot unpack into {max_bytes} bytes: {error}") from None


def _at_most(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise WireError(f"records larger than {max_bytes} bytes")
    return data


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    stretch = zlib.decompressobj(wbits=31)
    out = _at_most(stretch.decompress(data, max_bytes + 1), max_bytes)
    if not stretch.eof:
        raise WireError("gzip stream without an end")
    return out


def _xerial(data: bytes) -> bytes:
    pieces = [XERIAL_MAGIC, struct.pack(">ii", 1, 1)]  # version, and the oldest one that can read it
    for start in range(0, len(data), XERIAL_BLOCK):
        block = bytes(_cramjam().snappy.compress_raw(data[start : start + XERIAL_BLOCK]))
        pieces += (struct.pack(">i", len(block)), block)
    return b"".join(pieces)


def _unsnappy(data: bytes, max_bytes: int) -> bytes:
    """Blocks in xerial's framing, or one bare block, which Java accepts too."""
    blocks = _xerial_blocks(data) if data.startswith(XERIAL_MAGIC) else [data]
    total = sum(_cramjam().snappy.decompress_raw_len(block) for block in blocks)
    if total > max_bytes:
        raise WireError(f"records of {total} bytes, {max_bytes} is the limit")
    return b"".join(bytes(_cramjam().snappy.decompress_raw(block)) for block in blocks)


def _xerial_blocks(data: bytes) -> list[bytes]:
    pos, blocks = len(XERIAL_MAGIC) + 8, []
    while pos < len(data):
        (size,) = struct.unpack_from(">i", data, pos)
        pos += 4
        if not 0 < size <= len(data) - pos:
            raise WireError(f"snappy block of {size} bytes, {len(data) - pos} left")
        blocks.append(data[pos : pos + size])
        pos += size
    return blocks


def _lz4_frame(data: bytes) -> bytes:
    pieces = [LZ4_FRAME]
    for start in range(0, len(data), LZ4_BLOCK):
        plain = data[start : start + LZ4_BLOCK]
        block = bytes(_cramjam().lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            pieces += (struct.pack("<I", len(block)), block)
        else:
            pieces += (struct.pack("<I", len(plain) | LZ4_PLAIN), plain)
    pieces.append(bytes(4))
    return b"".join(pieces)


def _fill(unpack_into: Callable[[bytes, bytearray], int], data: bytes, max_bytes: int) -> bytes:
    """Unpack into a buffer; a too small one is an error like any other, so larger ones are tried."""
    size = min(max_bytes, max(4096, len(data) * FIRST_GUESS))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: unpack_into(data, buffer)])
        except _cramjam().DecompressionError:
            if size == max_bytes:
                raise
            size = min(max_bytes, size * FIRST_GUESS)
