"""What the gateway knows of the real cluster: its id, where its nodes are, which versions each of them has.

A task asks the cluster for it again and again, from any broker that answers. The first cluster id is kept for the
life of the process: a bootstrap address that suddenly leads to another cluster makes the gateway not ready, and
clients are not sent there.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from headgate.base.errors import ClusterError
from headgate.base.ids import ClusterId, NodeId
from headgate.config.addresses import Address
from headgate.config.model import Config
from headgate.kafka.connections import BrokerConnection, authenticate, credentials_of
from headgate.proxy.interceptor import Versions
from headgate.proxy.tls import Certificates
from headgate.wire.messages.cluster import ApiVersionsRequest, MetadataRequest

log = structlog.get_logger()

_API_VERSIONS_VERSION = 3  # brokers answer it since 2.4
_METADATA_VERSION = 12
_QUIET_SECONDS = 5.0
_RETRY_SECONDS = 0.5
_MOST_NODES = 10_000
_MOST_ASKED = 64  # at a time, for their versions; the others come next
_WANTS_MORE = ". A listener with SASL or TLS does so: set upstream.service_user for the one, upstream.tls for the other"


class Cluster:
    """The cluster as it was last seen; `problem` is None while it answers."""

    def __init__(self, config: Config, *, tls: Certificates | None, on_seen: Callable[[], None]) -> None:
        self._bootstrap = config.upstream.bootstrap
        self._timeout = config.gateway.connect_timeout_ms / 1000
        self._tls = tls
        self._credentials = credentials_of(config.upstream)
        self._on_seen = on_seen
        self._wanted = asyncio.Event()
        self._changed = asyncio.Event()
        self.seen = asyncio.Event()  # set at the first answer, and never cleared
        self._turn = 0
        self.cluster_id: ClusterId | None = None
        self.nodes: Mapping[NodeId, Address] = {}
        self.is_wrong = False  # another cluster answers now
        self.problem: str | None = "upstream has not been asked yet"
        self._versions: dict[tuple[NodeId, Address], Versions] = {}
        self._shared_versions: Versions = {}  # what all nodes have

    @property
    def is_refresh_due(self) -> bool:
        """It has not been looked at since `refresh_soon`."""
        return self._wanted.is_set()

    def refresh_soon(self) -> None:
        """Look at the cluster again soon: a connection has seen a change."""
        self._wanted.set()

    def versions(self, node_id: NodeId | None) -> Versions:
        """What a node has; for the bootstrap port, where any node may answer, what all of them have."""
        if node_id is not None:
            address = self.nodes.get(node_id)
            known = None if address is None else self._versions.get((node_id, address))
            if known is not None:
                return known
        return self._shared_versions

    async def addresses(self, node_id: NodeId | None) -> tuple[Address, ...]:
        """Where a client that dialled this node's port, or the bootstrap port, is to be connected; best first.

        Waits for the first sight of the cluster, as long as a connection may take; empty when there is nowhere. A
        node that the cluster does not name is away, and its client is better let go at once, as if it had dialled it.
        """
        try:
            async with asyncio.timeout(self._timeout):
                while not self.nodes:
                    await self._next_sight()
                for _ in range(2):  # the first look may have begun before the node came
                    if node_id is not None and node_id not in self.nodes:
                        await self._next_sight()
        except TimeoutError:
            return ()
        return self.known_addresses(node_id)

    def known_addresses(self, node_id: NodeId | None) -> tuple[Address, ...]:
        """The same as `addresses`, but without waiting: empty when the node has not been seen."""
        if node_id is not None:
            return (self.nodes[node_id],) if node_id in self.nodes else ()
        known = tuple(self.nodes.values())
        if not known:
            return ()
        configured = tuple(address for address in self._bootstrap if address not in known)
        self._turn += 1
        turn = self._turn % len(known)
        return known[turn:] + known[:turn] + configured

    async def _next_sight(self) -> None:
        self._changed.clear()
        self.refresh_soon()
        await self._changed.wait()

    async def watch(self) -> None:
        """Ask again and again, for ever."""
        while True:
            self._wanted.clear()
            seen = await self._look()
            try:
                async with asyncio.timeout(_QUIET_SECONDS if seen else _RETRY_SECONDS):
                    await self._wanted.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(_RETRY_SECONDS / 5)  # many may want it at once

    async def _look(self) -> bool:
        """Ask the brokers one after the other until one answers."""
        problems = []
        for address in dict.fromkeys((*self._bootstrap, *self.nodes.values())):
            try:
                await self._ask(address)
            except ClusterError as problem:
                problems.append(str(problem))
            except Exception as failure:  # the watch must outlive whatever a broker answers
                log.exception("asking the cluster failed", address=str(address))
                problems.append(f"{address}: {failure!r}")
            else:
                return True
        reason = "; ".join(problems)
        if reason != self.problem:
            log.warning("cluster did not respond, still trying", problem=reason)
        self.problem = reason
        return False

    async def _ask(self, address: Address) -> None:
        caller = await self._call_on(address)
        try:
            if self._credentials is not None:
                await authenticate(caller, self._credentials)
            request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
            answer = await caller.call(request, _METADATA_VERSION)
        except ClusterError as problem:
            hint = _WANTS_MORE if self._credentials is None else ""
            raise ClusterError(f"{address}: {problem}{hint}") from None
        finally:
            caller.close()
        self._check_id(address, answer.cluster_id)
        nodes = {NodeId(one.node_id): Address(one.host, one.port) for one in answer.brokers if one.node_id >= 0}
        if not nodes or len(nodes) > _MOST_NODES:
            raise ClusterError(f"{address} names {len(nodes) or 'no'} brokers")
        versions = await self._versions_of(nodes)
        if versions != self._versions:
            self._versions = versions
            self._shared_versions = common_versions(list(versions.values()))
        if nodes != self.nodes:
            log.info("cluster seen", cluster=self.cluster_id, nodes=sorted(nodes))
        self.nodes = nodes
        self.problem = None
        self._changed.set()
        self.seen.set()
        self._on_seen()

    async def _versions_of(self, nodes: Mapping[NodeId, Address]) -> dict[tuple[NodeId, Address], Versions]:
        """What each node has, asked once; those that are listed but do not answer must not hide the others."""
        versions = {node: self._versions[node] for node in nodes.items() if node in self._versions}
        problems: list[str] = []

        async def ask(node: tuple[NodeId, Address]) -> None:
            try:
                versions[node] = await self._ask_versions(node[1])
            except ClusterError as problem:
                problems.append(f"node {node[0]}: {problem}")

        unknown = [node for node in nodes.items() if node not in versions]
        try:
            async with asyncio.timeout(self._timeout), asyncio.TaskGroup() as group:
                for node in unknown[:_MOST_ASKED]:
                    group.create_task(ask(node))
        except TimeoutError:
            problems.append(f"some have not answered within {self._timeout:g} s")
        if not versions:
            raise ClusterError("; ".join(problems))
        if problems and nodes != self.nodes:
            log.warning("some brokers did not respond", problems="; ".join(problems))
        return versions

    async def _call_on(self, address: Address) -> BrokerConnection:
        context = None if self._tls is None else self._tls.context
        return await BrokerConnection.connect(*address, timeout=self._timeout, tls=context)

    def _check_id(self, address: Address, cluster_id: str | None) -> None:
        if self.cluster_id is None:
            self.cluster_id = ClusterId(cluster_id or "")
        self.is_wrong = self.cluster_id != (cluster_id or "")
        if self.is_wrong:
            raise ClusterError(
                f"{address} is cluster {cluster_id!r}, but this gateway stands before {self.cluster_id!r}: "
                "correct upstream.bootstrap, or restart the gateway if the cluster was replaced on purpose"
            )

    async def _ask_versions(self, address: Address) -> Versions:
        caller = await self._call_on(address)
        try:
            request = ApiVersionsRequest(client_software_name="headgate", client_software_version="1")
            answer = await caller.call(request, _API_VERSIONS_VERSION)
        finally:
            caller.close()
        return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def common_versions(all_versions: list[Versions]) -> Versions:
    """The versions that every one of the brokers has."""
    if not all_versions:
        return {}
    shared: dict[int, tuple[int, int]] = dict(all_versions[0])
    for versions in all_versions[1:]:
        for key in list(shared):
            low, high = versions.get(key, (0, -1))
            low, high = max(low, shared[key][0]), min(high, shared[key][1])
            if low <= high:
                shared[key] = (low, high)
            else:
                del shared[key]
    return shared
