"""A peer that has left is reported from the next sweep on; a socket that is closed before it is not registered."""

import asyncio
import errno
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any
from unittest.mock import DEFAULT, Mock

from headgate.proxy.hangups import HangupWatcher
from tests.unit.proxy.stage import until


@contextmanager
def watching(**options: Any) -> Iterator[HangupWatcher]:
    watcher = HangupWatcher(asyncio.get_running_loop(), **options)
    try:
        yield watcher
    finally:
        watcher.close()


async def test_a_peer_that_left_before_the_socket_was_registered_is_reported_once() -> None:
    left: list[str] = []
    near, far = socket.socketpair()
    with near, watching() as watcher:
        watcher.watch(near.fileno(), lambda: left.append("it"))
        far.close()
        watcher.register()
        await until(lambda: bool(left))
        watcher.register()
        watcher.forget(near.fileno())
    assert left == ["it"]


async def test_a_socket_that_was_closed_before_the_sweep_is_not_registered() -> None:
    near, far = socket.socketpair()
    with far, watching() as watcher:
        watcher.watch(near.fileno(), lambda: None)
        watcher.forget(near.fileno())
        near.close()
        watcher.register()  # the kernel refuses a number that is closed


async def test_many_new_sockets_are_registered_in_several_sweeps() -> None:
    left: list[int] = []
    pairs = [socket.socketpair() for _ in range(5)]
    with watching(most_at_once=2) as watcher:
        for number, (near, _) in enumerate(pairs):
            watcher.watch(near.fileno(), partial(left.append, number))
        for _, far in pairs:
            far.close()
        sizes = []
        for _ in range(3):
            watcher.register()
            watcher.report()
            sizes.append(len(left))
        for near, _ in pairs:
            watcher.forget(near.fileno())
            near.close()
    assert sizes == [2, 4, 5]
    assert all(one < other for one, other in pairwise(left))


async def test_a_socket_that_the_kernel_refuses_is_registered_later_and_keeps_no_other_out() -> None:
    left: list[str] = []
    pairs = {name: socket.socketpair() for name in ("one", "two")}
    epoll = Mock(wraps=select.epoll())
    epoll.register.side_effect = [OSError(errno.ENOSPC, "no room"), DEFAULT, DEFAULT]
    with watching(epoll=lambda: epoll) as watcher:
        for name, (near, far) in pairs.items():
            watcher.watch(near.fileno(), partial(left.append, name))
            far.close()
        watcher.register()
        assert [call.args[0] for call in epoll.register.call_args_list] == [near.fileno() for near, _ in pairs.values()]
        watcher.report()
        assert left == ["two"]
        watcher.register()
        watcher.report()
        for near, _ in pairs.values():
            watcher.forget(near.fileno())
            near.close()
    assert left == ["two", "one"]
