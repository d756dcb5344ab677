"""The four compressions: what goes in comes out, and no more than the caller's limit."""

import contextlib
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import WireError
from headgate.wire.compression import Compression, compress, decompress

KINDS = list(Compression)
SQUEEZED = [kind for kind in KINDS if kind is not Compression.NONE]


@pytest.mark.parametrize("kind", KINDS)
@given(unit=st.binary(min_size=1, max_size=50), times=st.integers(0, 5000))
def test_what_goes_in_comes_out(kind: Compression, unit: bytes, times: int) -> None:
    data = unit * times
    assert decompress(kind, compress(kind, data), len(data)) == data


@pytest.mark.parametrize("kind", KINDS)
def test_noise_that_no_compression_shortens_comes_out(kind: Compression) -> None:
    noise = zlib.compress(bytes(range(256)) * 700, 9) * 300
    assert decompress(kind, compress(kind, noise), len(noise)) == noise


@pytest.mark.parametrize("kind", KINDS)
def test_a_byte_over_the_limit_is_refused(kind: Compression) -> None:
    packed = compress(kind, b"x" * 70_000)
    assert len(decompress(kind, packed, 70_000)) == 70_000
    with pytest.raises(WireError, match="69999"):
        decompress(kind, packed, 69_999)


@pytest.mark.parametrize("kind", SQUEEZED)
def test_a_bomb_allocates_no_more_than_the_limit(kind: Compression) -> None:
    bomb = compress(kind, bytes(30_000_000))
    tracemalloc.start()
    with pytest.raises(WireError):
        decompress(kind, bomb, 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_200_000 + 2 * len(bomb)


@pytest.mark.parametrize("kind", SQUEEZED)
@given(start=st.integers(0, 400), gone=st.integers(0, 20), put=st.binary(max_size=4))
def test_corrupt_bytes_are_unpacked_or_refused(kind: Compression, start: int, gone: int, put: bytes) -> None:
    packed = compress(kind, b"some bytes " * 30 + bytes(range(256)))
    hostile = packed[:start] + put + packed[start + gone :]
    with contextlib.suppress(WireError):
        assert len(decompress(kind, hostile, 5000)) <= 5000


def test_a_bare_snappy_block_is_read_as_java_does() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 9)), 100) == b"abc" * 9


def test_a_snappy_block_that_announces_gigabytes_is_refused_unopened() -> None:
    with pytest.raises(WireError, match=r"records of 4294967295 bytes|snappy cannot unpack"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f\x00", 1_000_000)
