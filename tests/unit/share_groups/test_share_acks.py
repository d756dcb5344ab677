"""Acknowledgement batches: both forms on the wire, and ours among the client's."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.share_groups.deferred_acks import Batch, merge_rejects
from headgate.share_groups.model.delivery_ledger import AckType, runs

GAP, ACCEPT, RELEASE, REJECT, RENEW = AckType


FORMS: list[tuple[int, int, Sequence[int], list[tuple[int, int, AckType]]]] = [
    (0, 9, (1,), [(0, 9, ACCEPT)]),
    (7, 7, (3,), [(7, 7, REJECT)]),
    (0, 3, (1, 1, 1, 1), [(0, 3, ACCEPT)]),
    (10, 14, (1, 3, 3, 1, 0), [(10, 10, ACCEPT), (11, 12, REJECT), (13, 13, ACCEPT), (14, 14, GAP)]),
    (0, 2, (2, 4, 2), [(0, 0, RELEASE), (1, 1, RENEW), (2, 2, RELEASE)]),
    (0, 2**62, (1,), [(0, 2**62, ACCEPT)]),
    (0, 3, (1, 1), []),
    (0, 1, (1, 1, 1), []),
    (0, 3, (), []),
    (5, 4, (1,), []),
    (0, 0, (5,), []),
    (0, 1, (1, -1), []),
]


@pytest.mark.parametrize(("first", "last", "types", "expected"), FORMS)
def test_a_batch_is_ranges_of_one_type(
    first: int, last: int, types: Sequence[int], expected: list[tuple[int, int, AckType]]
) -> None:
    assert runs(first, last, types) == expected
    assert runs(first, last, list(types)) == expected


@given(first=st.integers(0, 10**9), types=st.lists(st.integers(0, 4), min_size=2, max_size=60))
def test_every_offset_has_the_type_that_it_came_with(first: int, types: list[int]) -> None:
    found = runs(first, first + len(types) - 1, types)
    assert [code for start, end, code in found for _ in range(start, end + 1)] == types
    assert all(one[2] != behind[2] for one, behind in pairwise(found)), "neighbours are joined"


MERGES: list[tuple[str, list[Batch], list[tuple[int, int]], list[Batch]]] = [
    ("nothing owed", [(0, 9, (1,))], [], [(0, 9, (1,))]),
    ("nothing of the client's", [], [(5, 6), (0, 1)], [(0, 1, (3,)), (5, 6, (3,))]),
    ("before and behind", [(10, 19, (1,))], [(0, 4), (20, 21)], [(0, 4, (3,)), (10, 19, (1,)), (20, 21, (3,))]),
    ("in between", [(0, 4, (1,)), (10, 14, (2,))], [(5, 9)], [(0, 4, (1,)), (5, 9, (3,)), (10, 14, (2,))]),
    ("what the client names is the client's", [(0, 4, (1,))], [(3, 6)], [(0, 4, (1,)), (5, 6, (3,))]),
    ("all of it", [(0, 9, (1,))], [(3, 6)], [(0, 9, (1,))]),
    ("a hole on each side", [(3, 4, (1, 0))], [(0, 9)], [(0, 2, (3,)), (3, 4, (1, 0)), (5, 9, (3,))]),
    ("owed twice", [], [(0, 5), (3, 8)], [(0, 5, (3,)), (6, 8, (3,))]),
    ("owed within what is owed", [], [(0, 9), (3, 4)], [(0, 9, (3,))]),
    ("the client's do not ascend", [(5, 9, (1,)), (0, 4, (1,))], [(20, 21)], [(5, 9, (1,)), (0, 4, (1,))]),
    ("the client's overlap", [(0, 9, (1,)), (9, 12, (1,))], [(20, 21)], [(0, 9, (1,)), (9, 12, (1,))]),
    ("the client's end before they begin", [(9, 0, (1,))], [(20, 21)], [(9, 0, (1,))]),
]


@pytest.mark.parametrize(("batches", "owed", "expected"), [m[1:] for m in MERGES], ids=[m[0] for m in MERGES])
def test_rejects_are_merged_into_the_clients_own_batches(
    batches: list[Batch], owed: list[tuple[int, int]], expected: list[Batch]
) -> None:
    assert merge_rejects(batches, owed) == expected


@st.composite
def ascending(draw: st.DrawFn) -> list[Batch]:
    offsets = sorted(draw(st.sets(st.integers(0, 60), max_size=16)))
    ends = offsets[: len(offsets) // 2 * 2]
    return [(first, last, (1,)) for first, last in zip(ends[::2], ends[1::2], strict=True)]


@given(
    batches=ascending(),
    owed=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda one: (one[0], sum(one))), max_size=6),
)
def test_every_offset_is_acknowledged_once_and_the_client_wins(
    batches: list[Batch], owed: list[tuple[int, int]]
) -> None:
    by_client = {offset: 1 for first, last, _ in batches for offset in range(first, last + 1)}
    expected = {offset: 3 for first, last in owed for offset in range(first, last + 1)} | by_client
    found = merge_rejects(batches, owed)
    assert set(batches) <= set(found), "the client's own pass as they are"
    assert all(one[1] < behind[0] for one, behind in pairwise(found)), "ascending, no overlap"
    assert {offset: types[0] for first, last, types in found for offset in range(first, last + 1)} == expected
