"""A gateway inside the test's own process, on a thread: for interceptors that a test brings along.

One rule: everything that touches the gateway runs on its loop; `call` is the way there.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from headgate.config.model import Config
from headgate.proxy.interceptor import Interceptor
from headgate.proxy.server import Gateway

T = TypeVar("T")

_START_S, _STOP_S = 30.0, 20.0


class GatewayThread:
    """Started and ended by `with`; it is ready inside the block."""

    def __init__(self, config: Config, interceptors: Sequence[Interceptor[Any]] = ()) -> None:
        self.config = config
        self._interceptors = interceptors
        self._loop = uvloop.new_event_loop()
        self._started = threading.Event()
        self._stopped: asyncio.Event | None = None
        self._gateway: Gateway | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    @property
    def bootstrap(self) -> str:
        return str(self.config.gateway.listen)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(_START_S)
        deadline = time.monotonic() + _START_S
        while problems := self.call(lambda gateway: dict(gateway.problems())):
            assert time.monotonic() < deadline, problems
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stopped is not None
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(_STOP_S)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def call(self, question: Callable[[Gateway], T]) -> T:
        """Ask on the gateway's own loop."""

        async def asked() -> T:
            assert self._gateway is not None
            return question(self._gateway)

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result(_START_S)

    def metric(self, name: str, *labels: str) -> float:
        """The sum of a family's samples whose first labels are these; no `_total` behind the name here."""
        samples = self.call(lambda gateway: gateway.snapshot())
        return sum(
            value for (family, found), value in samples.items() if family == name and found[: len(labels)] == labels
        )

    def _run(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._serve())
        except BaseException as failure:  # noqa: BLE001 - it is raised again where the test can see it
            self._failure = failure
        finally:
            self._started.set()
            self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        self._gateway = Gateway(self.config, self._interceptors)
        async with self._gateway.running():
            self._started.set()
            await self._stopped.wait()
