"""Pipes are bounded, come back empty or not at all, and where there are none nothing is lost but speed."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headgate.base.pipe_limits import PIPE_BYTES, pipe_limit
from headgate.proxy.pipes import Pipe, PipePool, make_pool, splice_problem
from tests.support.clock import FakeClock
from tests.unit.proxy.pipe_leaks import no_pipe_left


@contextmanager
def pool(limit: int, clock: FakeClock | None = None) -> Iterator[PipePool]:
    """A pool that has left no descriptor open at the end."""
    with no_pipe_left():
        one = PipePool(limit, (clock or FakeClock()).monotonic)
        yield one
        one.close()
        assert one.open == 0


def fill(pipe: Pipe, content: bytes) -> None:
    near, far = socket.socketpair()
    with near, far:
        far.send(content)
        assert pipe.receive(near.fileno(), len(content)) == len(content)


def taken(one: PipePool) -> Pipe:
    pipe = one.take()
    assert pipe is not None
    return pipe


def test_bytes_go_through_a_pipe_from_socket_to_socket() -> None:
    near, far = socket.socketpair()
    with pool(1) as one, near, far:
        pipe = taken(one)
        fill(pipe, b"some records")
        assert pipe.send(near.fileno()) == 12
        assert far.recv(100) == b"some records"
        assert pipe.size == 0
        one.give_back(pipe)


def test_a_pipe_is_as_large_as_it_was_asked_for_and_is_used_again() -> None:
    with pool(2) as one:
        pipe = taken(one)
        assert pipe.capacity == PIPE_BYTES
        assert (one.open, one.used) == (1, 1)
        one.give_back(pipe)
        assert (one.open, one.used) == (1, 0)
        assert one.take() is pipe
        one.give_back(pipe)


def test_a_pipe_with_bytes_in_it_is_closed_and_never_used_again() -> None:
    with pool(1) as one:
        pipe = taken(one)
        fill(pipe, b"of a connection that has ended")
        with pytest.raises(AssertionError):
            one.give_back(pipe)
        one.discard(pipe)
        assert one.open == 0
        other = taken(one)
        assert other is not pipe
        one.give_back(other)


def test_there_are_no_more_pipes_than_the_limit_and_what_is_copied_instead_is_counted() -> None:
    with pool(2) as one:
        both = [taken(one), taken(one)]
        assert one.take() is None
        assert one.fallbacks == 1
        for pipe in both:
            one.give_back(pipe)
        assert one.take() is both[1]
        one.give_back(both[1])


def test_where_splicing_is_off_nothing_is_a_fallback() -> None:
    with pool(0) as one:
        assert one.take() is None
        assert one.fallbacks == 0


def test_a_stalled_client_gives_its_pipe_back_after_a_second_when_another_needs_it() -> None:
    clock = FakeClock()
    kept: list[bytearray] = []
    with pool(1, clock) as one:
        pipe = taken(one)
        fill(pipe, b"not taken")

        def read_out(stalled: Pipe) -> None:
            kept.append(stalled.read_out())
            one.give_back(stalled)

        one.stall(pipe, read_out)
        clock.now += 0.9
        assert one.take() is None
        assert kept == []
        clock.now += 0.2
        assert one.take() is pipe
        assert kept == [bytearray(b"not taken")]
        assert pipe.size == 0
        one.give_back(pipe)


def test_a_kernel_that_gives_no_pipe_is_asked_again_after_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    refused = 0

    def refuse(*_: Any) -> int:
        nonlocal refused
        refused += 1
        raise PermissionError(1, "Operation not permitted")

    with pool(4, clock) as one, monkeypatch.context() as patch:
        patch.setattr(fcntl, "fcntl", refuse)  # as over fs.pipe-user-pages-soft
        for _ in range(3):
            assert one.take() is None
        assert (refused, one.fallbacks, one.open) == (1, 3, 0)
        clock.now += 10.1
        assert one.take() is None
        assert refused == 2
        patch.undo()
        clock.now += 10.1
        one.give_back(taken(one))


@pytest.mark.parametrize(
    ("pages", "largest", "workers", "limit"),
    [
        (16384, 1 << 20, 1, 64),  # the kernel's defaults
        (16384, 1 << 20, 2, 32),
        (16384, 1 << 20, 16, 4),
        (1024, 1 << 20, 1, 4),
        (1024, 1 << 20, 8, 0),
        (0, 1 << 20, 8, 64),  # no limit
        (16384, 4096, 1, 0),
    ],
)
def test_the_workers_share_half_of_what_the_user_may_have(
    tmp_path: Path, pages: int, largest: int, workers: int, limit: int
) -> None:
    (tmp_path / "pipe-user-pages-soft").write_text(f"{pages * 4096 // os.sysconf('SC_PAGE_SIZE')}\n")
    (tmp_path / "pipe-max-size").write_text(f"{largest}\n")
    assert pipe_limit(workers, tmp_path) == limit


def test_without_the_kernels_limits_nothing_is_spliced(tmp_path: Path) -> None:
    assert pipe_limit(1, tmp_path) == 0


def test_this_system_can_splice() -> None:
    with no_pipe_left() as created:
        assert splice_problem() is None
    assert len(created) == 1


@pytest.mark.parametrize("how", ["refused", "no such function"])
def test_a_system_that_does_not_splice_copies(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError(1, "Operation not permitted")

    if how == "refused":
        monkeypatch.setattr(os, "splice", refuse)
    else:
        monkeypatch.delattr(os, "splice")
    with no_pipe_left():
        one = make_pool(1, FakeClock().monotonic)
        assert one.limit == 0
        assert one.take() is None
