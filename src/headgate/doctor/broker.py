"""A broker that has answered: what it said of itself, and the connection on which it can be asked more."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from cryptography import x509

from headgate.base.errors import ClusterError
from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.kafka.connections import BrokerConnection
from headgate.wire.apis import api_name
from headgate.wire.schema import Message, Request

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """Seen at `address`; `nodes` and `cluster_id` are what it says of the whole cluster."""

    address: Address
    cluster_id: str
    nodes: Mapping[NodeId, Address]
    versions: Mapping[int, tuple[int, int]]
    levels: Mapping[str, int]  # finalized features, such as share.version
    certificate: x509.Certificate | None
    caller: BrokerConnection
    writer: asyncio.StreamWriter

    async def call(self, request: Request[M], version: int) -> M:
        """Ask it, as the service account; a call that it does not have would make it close the connection."""
        low, high = self.versions.get(request.api_key, (0, -1))
        if not low <= version <= high:
            raise ClusterError(f"the broker has no {api_name(request.api_key)} v{version}")
        return await self.caller.call(request, version)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection and see it closed, within a second."""
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()
