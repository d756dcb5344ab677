"""Acknowledgement batches of ShareFetch and ShareAcknowledge: which offsets they name, and putting our own among them.

One rule: what is broken stays the broker's to refuse. It is never repaired here, and it never means anything.
"""

from collections.abc import Sequence
from enum import IntEnum
from itertools import groupby

Batch = tuple[int, int, tuple[int, ...]]
"""First offset, last offset, AcknowledgeTypes: one for all offsets, or one for each."""


class AckType(IntEnum):
    """As on the wire (KIP-932; RENEW is KIP-1222's, from version 2)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_TYPES = tuple(AckType)


def runs(first: int, last: int, types: Sequence[int]) -> list[tuple[int, int, AckType]]:
    """The batch as ranges of one type, neighbours of the same type joined; nothing when the batch is broken."""
    if last < first or not types:
        return []
    if min(types) < 0 or max(types) >= len(_TYPES):
        return []
    if len(types) == 1:
        return [(first, last, _TYPES[types[0]])]
    if len(types) != last - first + 1:
        return []
    found, start = [], first
    for code, equal in groupby(types):
        end = start + sum(1 for _ in equal)
        found.append((start, end - 1, _TYPES[code]))
        start = end
    return found


def merged(batches: Sequence[Batch], owed: Sequence[tuple[int, int]]) -> list[Batch]:
    """The client's batches with a REJECT for all of `owed` that it does not itself name, in the order of offsets.

    When the client's own do not ascend, they alone come back: the broker refuses them all, and what is owed stays so.
    """
    client = list(batches)
    if not owed or not _ascend(client):
        return client
    ours: list[Batch] = []
    at, next_offset = 0, -1
    for first, last in sorted(owed):
        start = max(first, next_offset)
        next_offset = max(next_offset, last + 1)
        while at < len(client) and client[at][1] < start:
            at += 1
        behind = at
        while behind < len(client) and client[behind][0] <= last:
            if client[behind][0] > start:
                ours.append(_reject(start, client[behind][0] - 1))
            start = client[behind][1] + 1
            behind += 1
        if start <= last:
            ours.append(_reject(start, last))
    return sorted([*client, *ours])


def _reject(first: int, last: int) -> Batch:
    return (first, last, (int(AckType.REJECT),))


def _ascend(batches: Sequence[Batch]) -> bool:
    end = -1
    for first, last, _ in batches:
        if first <= end or last < first:
            return False
        end = last
    return True
