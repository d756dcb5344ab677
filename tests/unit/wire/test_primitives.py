"""Varints and tag sections never reach past the end and never take more than five bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import WireError
from headgate.wire.primitives import read_uvarint, skip_tags, write_uvarint


@given(st.integers(0, 2**32 - 1))
def test_a_varint_reads_back_equal(value: int) -> None:
    written = write_uvarint(value)
    assert read_uvarint(b"x" + written + b"y", 1) == (value, 1 + len(written))


@given(st.binary(max_size=8))
def test_a_varint_is_read_or_refused(hostile: bytes) -> None:
    try:
        value, pos = read_uvarint(hostile, 0)
    except WireError:
        return
    assert 0 <= value < 2**32
    assert pos <= min(5, len(hostile))


@pytest.mark.parametrize("hostile", ["", "80", "ffffffff", "ffffffffff01", "ffffffff1f"])
def test_a_varint_without_end_or_over_32_bits_is_refused(hostile: str) -> None:
    with pytest.raises(WireError):
        read_uvarint(bytes.fromhex(hostile), 0)


def test_a_tag_section_is_skipped() -> None:
    assert skip_tags(bytes.fromhex("00 ff"), 0, 2) == 1
    assert skip_tags(bytes.fromhex("02 00 01 aa 90 4e 02 bb cc"), 0, 9) == 9


@pytest.mark.parametrize("hostile", ["ffffffff0f", "01", "0100", "010005aa", "020000"])
def test_a_tag_section_that_its_bytes_do_not_hold_is_refused(hostile: str) -> None:
    data = bytes.fromhex(hostile)
    with pytest.raises(WireError):
        skip_tags(data, 0, len(data))


def test_a_tag_section_of_more_fields_than_allowed_is_refused_before_they_are_read() -> None:
    assert skip_tags(bytes.fromhex("02 0000 0000"), 0, 5, most=2) == 5
    with pytest.raises(WireError, match="4294967295 fields, more than 2"):
        skip_tags(bytes.fromhex("ffffffff0f"), 0, 5, most=2)


def test_bytes_behind_the_end_do_not_count() -> None:
    """The shared buffer has stale bytes behind the received ones."""
    section = bytes.fromhex("02 0501aa 0601bb")
    for end in range(len(section)):
        with pytest.raises(WireError):
            skip_tags(section + bytes(16), 0, end)
    assert skip_tags(section + bytes(16), 0, len(section)) == len(section)


@pytest.mark.parametrize(("value", "size"), [(0, 1), (127, 1), (128, 2), (16383, 2), (16384, 3), (2**32 - 1, 5)])
def test_a_varint_is_as_short_as_it_can_be(value: int, size: int) -> None:
    assert len(write_uvarint(value)) == size
