"""Record batches: written ones read back equal, headers alone are enough to walk, and nothing is trusted."""

import dataclasses
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.errors import WireError
from headgate.wire.compression import Compression
from headgate.wire.records import HEADER_SIZE, Batch, WireRecord, batches, last_offset
from tests.support.record_batches import write_batch

LIMIT = 1_000_000
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
OPTIONAL = st.none() | st.binary(max_size=20)
RECORDS = st.lists(
    st.builds(
        WireRecord,
        offset=st.just(0),
        timestamp=st.integers(-1, 2**62),
        key=OPTIONAL,
        value=OPTIONAL,
        headers=st.lists(st.tuples(TEXT, OPTIONAL), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=6,
).map(lambda found: [dataclasses.replace(each, offset=100 + 2 * index) for index, each in enumerate(found)])

ONE = write_batch([WireRecord(offset=0, timestamp=5, key=b"k", value=b"v", headers=(("h", b"x"),))])


def only(data: bytes) -> Batch:
    [batch] = batches(data)
    return batch


@settings(deadline=None)
@given(records=RECORDS, compression=st.sampled_from(Compression), transactional=st.booleans(), control=st.booleans())
def test_a_written_batch_reads_back_equal(
    records: list[WireRecord], compression: Compression, transactional: bool, control: bool
) -> None:
    data = write_batch(
        records,
        compression=compression,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        partition_leader_epoch=3,
        transactional=transactional,
        control=control,
    )
    batch = only(data)
    batch.check_crc()
    assert list(batch.records(max_bytes=LIMIT)) == records
    assert (batch.compression, batch.is_transactional, batch.is_control) == (compression, transactional, control)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.partition_leader_epoch) == (7, 2, 40, 3)
    assert (batch.base_offset, batch.last_offset) == (100, records[-1].offset)
    assert batch.max_timestamp == max(each.timestamp for each in records)
    assert bytes(batch.raw) == data


def test_a_record_set_is_walked_by_headers_and_a_cut_batch_is_left_out() -> None:
    second = write_batch([WireRecord(offset=9, timestamp=1, value=b"w")])
    data = ONE + second
    assert [each.base_offset for each in batches(data)] == [0, 9]
    assert [each.base_offset for each in batches(memoryview(data)[:-1])] == [0]
    assert not list(batches(b""))
    assert not list(batches(ONE[: HEADER_SIZE - 1]))


def test_a_batch_with_append_time_gives_that_time_to_all_records() -> None:
    patched = bytearray(ONE)
    struct.pack_into(">h", patched, 21, 0x08)
    struct.pack_into(">q", patched, 35, 1234)
    assert [each.timestamp for each in only(bytes(patched)).records(max_bytes=LIMIT)] == [1234]


def test_a_flipped_bit_is_found_when_asked_for() -> None:
    patched = ONE[:-1] + bytes((ONE[-1] ^ 1,))
    batch = only(patched)
    with pytest.raises(WireError, match="checksum"):
        batch.check_crc()


@pytest.mark.parametrize(
    ("layout", "position", "value", "text"),
    [
        (">b", 16, 1, "magic 1"),
        (">i", 8, 5, "17 bytes, shorter than its header"),
        (">i", 8, -1, "11 bytes, shorter than its header"),
        (">i", 57, 2**31 - 1, "2147483647 records in"),
        (">i", 57, -1, "-1 records"),
        (">i", 57, 0, "bytes behind its records"),
        (">h", 21, 5, "compression 5"),
        (">b", HEADER_SIZE, 0x7F, "record of -64 bytes"),
        (">b", HEADER_SIZE, 0x70, "record of 56 bytes"),
        (">b", HEADER_SIZE + 4, 0x7E, "63 bytes announced"),
    ],
)
def test_a_lying_batch_is_refused(layout: str, position: int, value: int, text: str) -> None:
    patched = bytearray(ONE)
    struct.pack_into(layout, patched, position, value)
    with pytest.raises(WireError, match=text):
        list(only(bytes(patched)).records(max_bytes=LIMIT))


@settings(max_examples=300, deadline=None)
@given(
    records=RECORDS,
    compression=st.sampled_from(Compression),
    start=st.integers(0, 200),
    gone=st.integers(0, 3),
    put=st.binary(max_size=3),
)
def test_mutated_batches_are_read_or_refused(
    records: list[WireRecord], compression: Compression, start: int, gone: int, put: bytes
) -> None:
    data = write_batch(records, compression=compression)
    hostile = data[:start] + put + data[start + gone :]
    try:
        for batch in batches(hostile):
            list(batch.records(max_bytes=LIMIT))
    except WireError:
        pass


@settings(deadline=None)
@given(
    records=RECORDS,
    compression=st.sampled_from(Compression),
    step=st.sampled_from([1, 2]),
    large=st.sampled_from([0, 100, 20_000]),
)
def test_one_record_of_a_batch_is_read_and_the_others_are_jumped_over(
    records: list[WireRecord], compression: Compression, step: int, large: int
) -> None:
    """`step` 2: every other record was removed by compaction; a `large` one has a longer length."""
    records = [dataclasses.replace(one, offset=100 + step * number) for number, one in enumerate(records)]
    records[0] = dataclasses.replace(records[0], value=bytes(large))
    data = write_batch(records, compression=compression)
    unpacked = only(data).unpack(max_bytes=LIMIT)
    found = {offset: unpacked.read(offset) for offset in range(98, 130)}
    assert {offset: one for offset, one in found.items() if one is not None} == {
        one.offset: (one.key, one.value) for one in records
    }
    assert last_offset(data) == records[-1].offset


@settings(max_examples=300, deadline=None)
@given(
    records=RECORDS,
    step=st.sampled_from([1, 2]),
    at=st.integers(0, 200),
    gone=st.integers(0, 3),
    put=st.binary(max_size=3),
)
def test_a_record_of_a_mutated_batch_is_read_or_refused(
    records: list[WireRecord], step: int, at: int, gone: int, put: bytes
) -> None:
    records = [dataclasses.replace(one, offset=100 + step * number) for number, one in enumerate(records)]
    data = write_batch(records)
    hostile = data[:at] + put + data[at + gone :]
    try:
        for batch in batches(hostile):
            unpacked = batch.unpack(max_bytes=LIMIT)
            for offset in range(98, 130):
                with suppress(WireError):
                    unpacked.read(offset)
    except WireError:
        pass


def test_a_record_that_is_not_in_its_place_is_refused() -> None:
    data = write_batch([WireRecord(offset=7, timestamp=0), WireRecord(offset=9, timestamp=0)])
    patched = bytearray(data)
    struct.pack_into(">i", patched, 23, 1)  # as if no offset were missing
    with pytest.raises(WireError, match="record at offset 9 in the place of 8"):
        only(bytes(patched)).unpack(max_bytes=LIMIT).read(8)


def test_records_beyond_the_limit_are_refused_before_they_are_unpacked() -> None:
    data = write_batch([WireRecord(offset=0, timestamp=0, value=bytes(100_000))], compression=Compression.ZSTD)
    assert len(data) < 1000
    with pytest.raises(WireError, match="50000"):
        next(only(data).records(max_bytes=50_000))


def test_a_record_without_its_end_is_refused() -> None:
    endless = write_batch([WireRecord(offset=0, timestamp=0)])[:HEADER_SIZE] + b"\xff" * 12
    patched = bytearray(endless)
    struct.pack_into(">i", patched, 8, len(endless) - 12)
    with pytest.raises(WireError, match="ten bytes"):
        list(only(bytes(patched)).records(max_bytes=LIMIT))
