"""What the gateway advertises to clients instead of the broker's own addresses and versions.

Node *i* is advertised on port P+1+i of the advertised host, whatever its real address is. A node for which no port can
be opened gets an address on which nothing listens: its clients retry, and the real address stays unknown. NodeEndpoints
of Produce, Fetch and the share apis are replaced by the response stream, with the same map.

ApiVersions tells clients the versions that the broker has *and* the gateway carries. Version 5 (KIP-1242) names the
cluster and node that the client intends to reach; brokers up to 4.3 do not have it, so the gateway checks both itself
and asks the broker in a version that it has.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headgate.base.ids import ApiKey, ApiVersion, CorrelationId, NodeId
from headgate.config.model import GatewayConfig
from headgate.proxy.decoding import DECODE_SECONDS
from headgate.proxy.interceptor import (
    Answer,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    RequestFrame,
    ResponseFrame,
    ResponseOutcome,
    Rewritten,
    Session,
    Versions,
)
from headgate.proxy.routes import Routes
from headgate.wire import frames, splice
from headgate.wire.apis import APIS
from headgate.wire.codec import decode, encode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import ApiVersionRange, ApiVersionsRequest, ApiVersionsResponse
from headgate.wire.primitives import Buffer

_HIGHEST_PORT = 65535
_UNSERVED_PORT = 1  # tcpmux: no gateway and no broker listens there
_MOST_UNCONFIGURED = 256  # nodes: a broken broker could make them up, and each costs a port and a line in the log


class AddressMap:
    """What clients are told of each node; `open_node` is asked for one that has no port yet, and says if it has now."""

    def __init__(self, config: GatewayConfig, open_node: Callable[[NodeId], bool]) -> None:
        self._config = config
        self._open_node = open_node
        self._unserved = splice.EncodedAddress.of(config.advertised_host, _UNSERVED_PORT)
        self._addresses: dict[NodeId, splice.EncodedAddress] = {node: self._address(node) for node in config.nodes}
        self._most = len(self._addresses) + _MOST_UNCONFIGURED

    def __len__(self) -> int:
        return len(self._addresses)

    def lookup(self, node: NodeId) -> splice.EncodedAddress:
        address = self._addresses.get(node)
        if address is None:
            if len(self._addresses) >= self._most:
                return self._unserved
            address = self._addresses[node] = self._address(node) if self._open_node(node) else self._unserved
        return address

    def forget_unopened(self) -> None:
        """Nodes without a port are asked for again when they are looked up."""
        for node in [node for node, address in self._addresses.items() if address is self._unserved]:
            del self._addresses[node]

    def _address(self, node: NodeId) -> splice.EncodedAddress:
        port = self._config.listen.port + 1 + node
        return self._unserved if port > _HIGHEST_PORT else splice.EncodedAddress.of(self._config.advertised_host, port)


_SPLICES = {
    ApiKey.METADATA: splice.metadata,
    ApiKey.FIND_COORDINATOR: splice.find_coordinator,
    ApiKey.DESCRIBE_CLUSTER: splice.describe_cluster,
}


class AddressInterceptor(Interceptor[bool]):
    """Replaces the brokers' addresses in the responses that are about nothing else."""

    api_keys = frozenset(_SPLICES)
    fail_closed = True

    def __init__(self, addresses: AddressMap) -> None:
        self._addresses = addresses

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[bool]:  # noqa: ARG002
        return Forward(context=True)

    def on_response(self, response: ResponseFrame, context: bool, session: Session) -> OnResponse:  # noqa: ARG002
        steps = _SPLICES[response.api_key](response.body, response.api_version, self._addresses.lookup)
        try:
            next(steps)
        except StopIteration as done:
            return Rewritten(done.value)
        return Hold(_rewrite_rest(steps), DECODE_SECONDS)


async def _rewrite_rest(steps: splice.Steps) -> ResponseOutcome:
    """Rewrites a response with many nodes in steps: a client may look up the coordinators of thousands of groups."""
    while True:
        await asyncio.sleep(0)  # other connections are served
        try:
            next(steps)
        except StopIteration as done:
            return Rewritten(done.value)


_OURS: Final = APIS[ApiKey.API_VERSIONS]
_CHECKED_FROM: Final = 5
_MOST_ANSWERS: Final = 64
_MOST_REQUESTS: Final = 256
_LONGEST_KEPT: Final = 256  # bytes of a request
_LARGEST: Final = 64 * 1024  # Kafka's own requests have a hundred bytes, and answers a thousand


class ApiVersionsInterceptor(Interceptor[int]):
    """Answers ApiVersions as a broker would that has exactly the calls that this gateway carries to it."""

    api_keys = frozenset((ApiKey.API_VERSIONS,))
    fail_closed = True
    max_bytes = _LARGEST

    def __init__(self) -> None:
        self._routes: Routes | None = None
        self._answers: dict[tuple[bytes, int, int], tuple[Versions, bytes]] = {}
        # By version and body: decoded, and as what watches them sees requests that need no look.
        self._requests: dict[tuple[int, bytes], tuple[ApiVersionsRequest, RequestFrame | None]] = {}

    @property
    def kept_requests(self) -> int:
        """Requests that are known by their bytes."""
        return len(self._requests)

    def attach(self, routes: Routes) -> None:
        """The routes know all interceptors, this one too, so they come second."""
        self._routes = routes

    def added_versions(self, broker: Versions) -> Versions:
        return {ApiKey.API_VERSIONS: (_OURS.min_version, _OURS.max_version)} if ApiKey.API_VERSIONS in broker else {}

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[int]:
        version = request.api_version
        if not _OURS.has_version(version):
            return Answer(_refusal())
        asked = self._decoded(version, bytes(request.body))
        if version >= _CHECKED_FROM and not _dialled_right(asked, session):
            return Answer(encode(ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED), version))
        known = session.broker_versions().get(ApiKey.API_VERSIONS, (0, 0))[1]
        sent = ApiVersion(min(version, known))
        if sent == version:
            return Forward(context=version)
        return Rewritten(encode(asked, sent), context=version, api_version=sent)

    def known_request(self, frame: Buffer, session: Session) -> RequestFrame | None:
        _, _, version, _, client_id_size = frames.REQUEST_START.unpack_from(frame, 0)
        at = frames.REQUEST_START.size + max(0, client_id_size)
        if _OURS.is_flexible(version):
            if at >= len(frame) or frame[at]:
                return None  # its header has tags, or is malformed
            at += 1
        known = self._requests.get((version, bytes(frame[at:])))
        if known is None or client_id_size < -1 or at > len(frame):
            return None
        return known[1] if version <= session.broker_versions().get(ApiKey.API_VERSIONS, (0, 0))[1] else None

    def _decoded(self, version: ApiVersion, body: bytes) -> ApiVersionsRequest:
        """The clients of one library send the same bytes with each connection."""
        known = self._requests.get((version, body))
        if known is not None:
            return known[0]
        asked = decode(ApiVersionsRequest, version, body)
        if len(body) <= _LONGEST_KEPT:
            if len(self._requests) >= _MOST_REQUESTS:
                self._requests.clear()
            self._requests[version, body] = (asked, _as_known(version, body) if _names_no_node(asked) else None)
        return asked

    def on_response(self, response: ResponseFrame, context: int, session: Session) -> OnResponse:
        if int.from_bytes(response.body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION:
            return Forward()  # in the form of version 0 whatever was asked, and the client knows what to do
        key = (bytes(response.body), response.api_version, context)
        if key not in self._answers:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = self._announce(*key)
        return Rewritten(self._respond(self._answers[key], session))

    def known_response(self, body: bytes, api_version: ApiVersion, session: Session) -> bytes | None:
        # Every new connection brings this response, and the brokers of a cluster give few different ones.
        known = self._answers.get((body, api_version, api_version))
        return None if known is None else self._respond(known, session)

    @staticmethod
    def _respond(known: tuple[Versions, bytes], session: Session) -> bytes:
        broker, body = known
        if broker:
            session.set_broker_versions(broker)
        return body

    def _announce(self, body: bytes, version: int, asked: int) -> tuple[Versions, bytes]:
        """The versions of the broker, empty if it refused, and the response for its client."""
        assert self._routes is not None
        answer = decode(ApiVersionsResponse, version, body)
        broker = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        announced = tuple(
            ApiVersionRange(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(self._routes.announce(broker).items())
        )
        encoded = encode(replace(answer, api_keys=announced), asked)
        return ({} if answer.error_code else broker), encoded


def _dialled_right(asked: ApiVersionsRequest, session: Session) -> bool:
    """True when the client asks for no certain node, or for the one whose port it dialled."""
    if _names_no_node(asked):
        return True
    return asked.cluster_id == session.cluster_id and asked.node_id == session.node_id


def _names_no_node(asked: ApiVersionsRequest) -> bool:
    return asked.cluster_id is None and asked.node_id < 0


def _as_known(version: ApiVersion, body: bytes) -> RequestFrame:
    """One for all connections, so that it has nothing in it that differs."""
    return RequestFrame(
        api_key=ApiKey.API_VERSIONS,
        api_version=version,
        correlation_id=CorrelationId(0),
        client_id=None,
        body=body,
        size=len(body),
        is_opened=True,
    )


def _refusal() -> bytes:
    """The response to a version that we do not know: version 0's form with our own range (KIP-511)."""
    own = ApiVersionRange(api_key=ApiKey.API_VERSIONS, min_version=_OURS.min_version, max_version=_OURS.max_version)
    return encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(own,)), 0)
