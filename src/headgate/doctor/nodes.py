"""One cluster behind all addresses, and its nodes against `gateway.nodes` and the ports that follow from it."""

from collections.abc import Iterator, Mapping, Sequence

from headgate.base.ids import NodeId
from headgate.config.addresses import MAX_PORT, Address, may_collide
from headgate.config.model import Config
from headgate.doctor.broker import Broker
from headgate.doctor.findings import Check, Finding, ok, problem, warning


def same_cluster(brokers: Sequence[Broker]) -> Iterator[Finding]:
    """Every address must lead to the same cluster; the first one that answered sets the measure."""
    ids = {broker.address: broker.cluster_id for broker in brokers}
    first_address, first = next(iter(ids.items()))
    strangers = {address: found for address, found in ids.items() if found != first}
    for address, found in strangers.items():
        text = f"is cluster {found}, but {first_address} is {first}: a gateway stands before one cluster"
        mend = f"take {address} out of upstream.bootstrap, or run a second gateway for it"
        yield problem(Check.CLUSTER, str(address), text, mend=mend)
    if not strangers:
        yield ok(Check.CLUSTER, first, f"the same cluster at every address that answers ({len(ids)})")


def ports_of(nodes: Mapping[NodeId, Address], config: Config) -> Iterator[Finding]:
    """Nodes that have no port of their own, and ports that lead nowhere."""
    gateway = config.gateway
    outside = sorted(set(nodes) - set(gateway.nodes))
    absent = sorted(set(gateway.nodes) - set(nodes))
    for node in outside:
        yield _outside(node, config, _ranges([*gateway.nodes, *outside]))
    if absent:
        text = "in gateway.nodes, and not in the cluster now: clients find their ports open and nobody behind them"
        mend = f'start the broker, or name only those that exist: gateway.nodes = "{_ranges(list(nodes))}"'
        yield warning(Check.CLUSTER, f"node {', '.join(map(str, absent))}", text, mend=mend)
    if not outside and not absent:
        first, last = gateway.node_address(gateway.nodes[0]).port, gateway.node_address(gateway.nodes[-1]).port
        span = f"port {first}" if first == last else f"ports {first} to {last}"
        yield ok(Check.CLUSTER, "gateway.nodes", f"names every node of the cluster ({_ranges(list(nodes))}: {span})")


def _outside(node: NodeId, config: Config, wanted: str) -> Finding:
    port = config.gateway.listen.port + 1 + node
    subject = f"node {node}"
    if port > MAX_PORT:
        text = f"not in gateway.nodes, and would need port {port}: its clients are not served"
        return problem(Check.CLUSTER, subject, text, mend=f"lower the port of gateway.listen below {MAX_PORT - node}")
    address = Address(config.gateway.listen.host, port)
    for key, taken in (("metrics.listen", config.metrics.listen), ("web.listen", config.web.listen)):
        if may_collide(address, taken):
            text = f"not in gateway.nodes, and its port {port} is that of {key}: its clients are not served"
            return problem(
                Check.CLUSTER, subject, text, mend=f'move {key} to another port, and gateway.nodes = "{wanted}"'
            )
    text = f"not in gateway.nodes: its port {port} is opened only once a gateway has seen it"
    return warning(Check.CLUSTER, subject, text, mend=f'gateway.nodes = "{wanted}"')


def _ranges(nodes: Sequence[int]) -> str:
    """Node ids as the configuration writes them: 0-2,7."""
    parts: list[list[int]] = []
    for node in sorted(nodes):
        if parts and node == parts[-1][1] + 1:
            parts[-1][1] = node
        else:
            parts.append([node, node])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
