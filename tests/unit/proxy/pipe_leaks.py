"""Asserts that pipes are closed. Other pipes of the process come and go: librdkafka has some for each connection."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest


@contextmanager
def no_pipe_left() -> Iterator[list[tuple[int, int]]]:
    """Assert that every pipe which Python code creates meanwhile is closed at the end; yields their descriptors."""
    created: list[tuple[int, int]] = []
    inodes: set[int] = set()
    create = os.pipe2

    def recorded(flags: int) -> tuple[int, int]:
        ends = create(flags)
        created.append(ends)
        inodes.add(os.fstat(ends[0]).st_ino)
        return ends

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pipe2", recorded)
        yield created
    assert not inodes & _open_inodes(created)


def _open_inodes(pipes: list[tuple[int, int]]) -> set[int]:
    """What is open now under these descriptors, which may have been used again."""
    found = set()
    for ends in pipes:
        for descriptor in ends:
            with suppress(OSError):
                found.add(os.fstat(descriptor).st_ino)
    return found
