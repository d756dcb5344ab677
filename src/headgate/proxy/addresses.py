"""The address map, and the interceptor that keeps the brokers' real addresses from the clients.

Node *i* is advertised on port P+1+i of the advertised host, whatever its real address is. A node that no port can be
opened for is given an address that nobody listens on: its clients retry, and the real address stays unknown.
NodeEndpoints of Produce, Fetch and the share calls are replaced by the response stream, with the same map.
"""

from collections.abc import Callable

from headgate.base.ids import ApiKey, NodeId
from headgate.config.model import GatewayConfig
from headgate.proxy.interceptor import (
    Forward,
    Interceptor,
    OnRequest,
    OnResponse,
    RequestFrame,
    ResponseFrame,
    Rewritten,
    Session,
)
from headgate.wire import splice

_HIGHEST_PORT = 65535
_NOBODY = 1  # tcpmux: no gateway and no broker listens there
_MOST_UNCONFIGURED = 256  # nodes: a broken broker could make them up, and each costs a port and a line in the log


class AddressMap:
    """What clients are told of each node; `open_node` is asked for one that has no port yet, and says if it has now."""

    def __init__(self, config: GatewayConfig, open_node: Callable[[NodeId], bool]) -> None:
        self._config = config
        self._open_node = open_node
        self._nobody = splice.Address.of(config.advertised_host, _NOBODY)
        self._addresses: dict[NodeId, splice.Address] = {node: self._address(node) for node in config.nodes}
        self._most = len(self._addresses) + _MOST_UNCONFIGURED

    def lookup(self, node: NodeId) -> splice.Address:
        address = self._addresses.get(node)
        if address is None:
            if len(self._addresses) >= self._most:
                return self._nobody
            address = self._addresses[node] = self._address(node) if self._open_node(node) else self._nobody
        return address

    def forget_unopened(self) -> None:
        """Nodes without a port are asked for again when they are looked up."""
        for node in [node for node, address in self._addresses.items() if address is self._nobody]:
            del self._addresses[node]

    def _address(self, node: NodeId) -> splice.Address:
        port = self._config.listen.port + 1 + node
        return self._nobody if port > _HIGHEST_PORT else splice.Address.of(self._config.advertised_host, port)


_SPLICES = {
    ApiKey.METADATA: splice.metadata,
    ApiKey.FIND_COORDINATOR: splice.find_coordinator,
    ApiKey.DESCRIBE_CLUSTER: splice.describe_cluster,
}


class AddressInterceptor(Interceptor[bool]):
    """Replaces the brokers' addresses in the answers that are about nothing else."""

    api_keys = frozenset(_SPLICES)
    fail_closed = True

    def __init__(self, addresses: AddressMap) -> None:
        self._addresses = addresses

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[bool]:  # noqa: ARG002
        return Forward(context=True)

    def on_response(self, response: ResponseFrame, context: bool, session: Session) -> OnResponse:  # noqa: ARG002
        rewrite = _SPLICES[response.api_key]
        return Rewritten(rewrite(response.body, response.api_version, self._addresses.lookup))
