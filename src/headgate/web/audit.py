"""Writes operations to `headgate.events`: with a producer that is made when the first one is tried."""

import asyncio
import socket
import uuid

from headgate.config.model import Config
from headgate.facts import EventHappened
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.shared_clients import SharedClients
from headgate.kafka.topics import Origin, identify


class AuditWriter:
    """Used on the event loop. A process in which nothing is tried has no producer."""

    def __init__(self, config: Config, clients: SharedClients) -> None:
        self._config = config
        self._clients = clients
        self._opening = asyncio.Lock()
        self._writer: FactWriter | None = None

    async def write(self, fact: EventHappened) -> None:
        """`ClusterError` if the event could not be written."""
        async with self._opening:
            if self._writer is None:
                self._writer = await self._open()
        await self._writer.write(fact)

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer.close()

    async def _open(self) -> FactWriter:
        prefix = self._config.facts.prefix
        found = await identify(self._clients.admin, f"{prefix}events", timeout_s=5.0)
        name = f"{socket.gethostname()}:{self._config.web.listen.port}/web"
        origin = Origin(cluster=found.cluster, writer=name, boot=uuid.uuid4().hex[:12])
        return FactWriter(self._clients.producer, prefix=prefix, origin=origin)
