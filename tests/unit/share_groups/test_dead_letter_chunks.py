"""The offsets of rejected ranges in chunks, which are looked up and become dead letters together."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.share_groups.model.dead_letter_chunks import BatchOffsets, RecordCopy, chunks
from headgate.share_groups.model.dead_letter_ranges import DeadLetterRange
from headgate.share_groups.model.dead_letter_records import Cause
from headgate.share_groups.model.delivery_ledger import PartitionKey

TOPIC = bytes(16)


def rejected(first: int, last: int, *, partition: int = 0, count: int | None = 1) -> DeadLetterRange:
    return DeadLetterRange(("g", "m", TOPIC, partition), first, last, count, 0, Cause.REJECTED)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 9), st.sampled_from([None, 1, 2]), st.booleans()), max_size=20
    ),
    st.integers(1, 7),
    st.booleans(),
)
def test_every_offset_becomes_one_dead_letter_in_order(
    given_ranges: list[tuple[int, int, int | None, bool]], most: int, copies: bool
) -> None:
    ranges: list[DeadLetterRange] = []
    begin = 0
    for partition, length, count, gap in given_ranges:
        begin += gap
        ranges.append(rejected(begin, begin + length - 1, partition=partition, count=count))
        begin += length
    found = list(chunks(ranges, most, (lambda _, offset: (offset - 2, offset + 2)) if copies else None))
    letters = [
        (index, letter.source.partition, letter.source.delivery_count, letter.offset)
        for chunk in found
        for index, letter in chunk.dead_letters({}, cluster="c", topic="t", at=1)
    ]
    assert letters == [
        (index, one.key[3], one.delivery_count, offset)
        for index, one in enumerate(ranges)
        for offset in range(one.first, one.last + 1)
    ]
    assert all(0 < len(chunk.offsets) <= most for chunk in found)
    assert all(len({some.key for _, some, _ in chunk.parts}) == 1 for chunk in found)


def test_ranges_of_one_partition_are_looked_up_together() -> None:
    ranges = [rejected(1, 1), rejected(3, 3), rejected(5, 6, partition=1), rejected(7, 7, count=None)]
    assert [chunk.offsets for chunk in chunks(ranges, 10)] == [[1, 3], [5, 6], [7]]


def test_records_that_may_have_to_be_fetched_do_not_delay_those_that_are_kept() -> None:
    asked: list[int] = []

    def kept_batch(_: PartitionKey, offset: int) -> BatchOffsets | None:
        asked.append(offset)
        return (offset // 10 * 10, offset // 10 * 10 + 9) if offset < 20 else None

    ranges = [rejected(1, 1), rejected(3, 3), rejected(8, 12), rejected(19, 21), rejected(30, 30), rejected(32, 32)]
    found = [(chunk.offsets, chunk.is_joined) for chunk in chunks(ranges, 100, kept_batch)]
    assert found == [
        ([1, 3, 8, 9, 10, 11, 12], True),
        ([19, 20, 21], False),
        ([30], False),
        ([32], False),
    ]
    assert asked == [1, 12, 19, 21, 30, 32], "a batch is looked for once for all ranges within it"


def test_a_dead_letter_has_the_copy_of_its_offset() -> None:
    [chunk] = chunks([rejected(1, 2)], 10)
    copies = {1: RecordCopy(b"k", b"v"), 2: RecordCopy(problem="gone")}
    found = [letter for _, letter in chunk.dead_letters(copies, cluster="c", topic="t", at=1)]
    assert [(one.key, one.value, one.copy_problem) for one in found] == [(b"k", b"v", None), (None, None, "gone")]
