"""Brokers that answer our own calls as a test says, and keep what they were asked.

Greeting, login, Metadata and FindCoordinator are answered by themselves: node 0 coordinates every group that the test
does not give to another node.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Self, cast

from headgate.config.addresses import Address
from headgate.kafka.connections import Dialler
from headgate.wire import frames
from headgate.wire.apis import has_flexible_request
from headgate.wire.codec import decode
from headgate.wire.messages.cluster import (
    ApiVersionRange,
    ApiVersionsResponse,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataBroker,
    MetadataResponse,
    SaslHandshakeResponse,
)
from headgate.wire.schema import Message
from tests.support.fake_upstream import BROKER_VERSIONS, answer
from tests.support.messages import REQUESTS

HOST = "127.0.0.1"
NEWEST = {**BROKER_VERSIONS, 42: (0, 3), 89: (0, 1)}  # what Kafka 4.4 has of the calls that matter here

Answer = Callable[[int, Message], Message | None]  # node and request to an answer; None hangs up


class Asked(NamedTuple):
    node: int
    key: int
    version: int
    request: Message


@dataclass
class ScriptedCluster:
    """An async context manager; `answers` are by api key."""

    answers: Mapping[int, Answer] = field(default_factory=dict)
    brokers: int = 1
    versions: Mapping[int, tuple[int, int]] = field(default_factory=lambda: BROKER_VERSIONS)
    coordinators: dict[str, int] = field(default_factory=dict)
    away: set[int] = field(default_factory=set)  # nodes that are announced and do not listen
    asked: list[Asked] = field(default_factory=list)
    gates: dict[tuple[int, int], asyncio.Event] = field(
        default_factory=dict
    )  # by node and key: answered when it is set

    async def __aenter__(self) -> Self:
        self._servers = [await asyncio.start_server(self._serving(node), HOST, 0) for node in range(self.brokers)]
        self._ports = [server.sockets[0].getsockname()[1] for server in self._servers]
        self._tasks: set[asyncio.Task[None]] = set()
        for node in self.away:
            self._servers[node].close()
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def address(self, node: int = 0) -> Address:
        return Address(HOST, self._ports[node])

    def dialler(self, *, timeout_s: float = 20.0) -> Dialler:
        return Dialler(bootstrap=(self.address(),), timeout_s=timeout_s, call_timeout_s=20.0)

    def requests(self, key: int) -> list[Asked]:
        return [one for one in self.asked if one.key == key]

    def _serving(self, node: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        return lambda reader, writer: self._tasks.add(asyncio.create_task(self._serve(node, reader, writer)))

    async def _serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while (said := await self._gated_answer(node, await _frame(reader))) is not None:
                    writer.write(said)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _gated_answer(self, node: int, frame: bytes) -> bytes | None:
        _, key, *_ = frames.REQUEST_START.unpack_from(frame, 0)
        if (node, key) in self.gates:
            await self.gates[node, key].wait()
        return self._answer(node, frame)

    def _answer(self, node: int, frame: bytes) -> bytes | None:
        _, key, version, correlation_id, _ = frames.REQUEST_START.unpack_from(frame, 0)
        low, high = self.versions.get(key, (0, -1))
        if not low <= version <= high:
            return None  # as a real broker does
        _, body_at = frames.request_header(frame, flexible=has_flexible_request(key, version))
        request: Message = decode(REQUESTS[key], version, frame, body_at)
        self.asked.append(Asked(node, key, version, request))
        said = self.answers.get(key, self._by_itself)(node, request)
        return None if said is None else answer(key, version, correlation_id, said)

    def _by_itself(self, _node: int, request: Message) -> Message | None:
        name = type(request).__name__
        if name == "ApiVersionsRequest":
            ranges = (
                ApiVersionRange(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.versions.items()
            )
            return ApiVersionsResponse(api_keys=tuple(ranges))
        if name == "SaslHandshakeRequest":
            return SaslHandshakeResponse(error_code=34)
        if name == "MetadataRequest":
            return self.metadata()
        return self._find(cast(FindCoordinatorRequest, request))

    def metadata(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=tuple(MetadataBroker(node_id=node, host=HOST, port=port) for node, port in enumerate(self._ports))
        )

    def _find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        nodes = {group: self.coordinators.get(group, 0) for group in request.coordinator_keys}
        return FindCoordinatorResponse(
            coordinators=tuple(
                Coordinator(key=group, node_id=node, host=HOST, port=self._ports[node]) for group, node in nodes.items()
            )
        )


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))
