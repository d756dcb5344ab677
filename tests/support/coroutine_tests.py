"""Tests that are coroutines, each run on an event loop of its own, as the gateway runs: on uvloop.

`tests/conftest.py` imports `pytest_pyfunc_call` from here. A test fails if anything reaches the loop's exception
handler, and if it leaves a task or, in a unit test, a socket behind.
"""

import asyncio
import gc
import inspect
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import uvloop

_CLOSING_S = 20.0  # librdkafka closes and opens its own on threads, also those of a client that an earlier test had


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.function).parameters}
    escaped: list[dict[str, Any]] = []
    if "deltalake" in sys.modules:
        _start_runtime_of_deltalake()
    before = _open_sockets()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_exception_handler(lambda _loop, context: escaped.append(context))
        runner.run(_without_leftovers(pyfuncitem.function(**arguments)))
        gc.collect(1)  # what was never awaited or retrieved says so now
    assert escaped == []
    if "integration" in pyfuncitem.path.parts:
        return True  # Kafka clients of other fixtures connect again whenever they like
    until = time.monotonic() + _CLOSING_S
    while left := _open_sockets() - before:
        assert time.monotonic() < until, left
        time.sleep(0.01)
    return True


async def _without_leftovers(test: Coroutine[Any, Any, None]) -> None:
    await test
    for _ in range(3):  # what was cancelled ends
        await asyncio.sleep(0)
    leftovers = asyncio.all_tasks() - {asyncio.current_task()}
    assert not leftovers, leftovers


@cache
def _start_runtime_of_deltalake() -> None:
    """The first table that a process makes opens a pair of sockets, which stays: whichever test is the first."""
    from deltalake import DeltaTable, Field, Schema  # noqa: PLC0415 - most tests need none
    from deltalake.schema import PrimitiveType  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        DeltaTable.create(folder, schema=Schema([Field("a", PrimitiveType("integer"))]))


def _open_sockets() -> set[str]:
    found: set[str] = set()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(file.readlink()))
    return {name for name in found if name.startswith("socket:")}
