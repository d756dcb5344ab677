"""The id of the Kafka cluster that this server is connected to, asked again for as long as the server runs.

The id changes when a cluster is created again at the same address.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import structlog

from headgate.base.errors import HeadgateError
from headgate.kafka.shared_clients import SharedClients
from headgate.kafka.topics import cluster_id

log = structlog.get_logger()

_UNKNOWN_S: Final = 2.0
_KNOWN_S: Final = 30.0
_CALL_S: Final = 5.0


class UpstreamCluster:
    """Used on the event loop, with an `ask` that raises `HeadgateError` where there is no answer."""

    def __init__(self, ask: Callable[[], Awaitable[str]]) -> None:
        self._ask = ask
        self._cluster: str | None = None

    @classmethod
    def of(cls, clients: SharedClients) -> "UpstreamCluster":
        return cls(lambda: cluster_id(clients.admin, timeout_s=_CALL_S))

    @property
    def cluster(self) -> str | None:
        """None before the cluster has answered; later the last answer, also while the cluster is away."""
        return self._cluster

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(_UNKNOWN_S if self._cluster is None else _KNOWN_S)

    async def refresh(self) -> None:
        """Ask once; a cluster that does not answer is asked again."""
        with contextlib.suppress(HeadgateError):
            found = await self._ask()
            if self._cluster not in (None, found):
                log.warning("the upstream is another cluster now", cluster=found, before=self._cluster)
            self._cluster = found
