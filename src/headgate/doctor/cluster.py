"""Checks the cluster: one id at all addresses, its nodes against `gateway.nodes`, the APIs of brokers, the clock.

Brokers name their APIs in ApiVersions and the levels of their features beside them. A missing API switches a feature
off and nothing else; only without the APIs of the gateway itself does nothing work.

The clock is read without writing a record. No API returns a broker's time as such, but DescribeQuorum (KIP-836)
contains it: the active controller enters its own time as the last fetch time of its own replica. The clocks of other
nodes could only be read by producing to a topic with LogAppendTime, which the doctor does not do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.ids import ApiKey, NodeId
from headgate.config.addresses import MAX_PORT, Address, may_collide
from headgate.config.model import Config
from headgate.doctor.brokers import Broker
from headgate.doctor.findings import Check, DoctorFinding, KafkaTools, Resource, ok, problem, warning
from headgate.wire.apis import api_name
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.admin import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartition,
    QuorumTopic,
)

SUBJECT = "the active controller"
TOLERATED_MS = 1_000
# message.timestamp.after.max.ms: brokers reject a record that is further ahead (KIP-937).
REJECTED_MS = 3_600_000
_METADATA_TOPIC = "__cluster_metadata"
_BY_HAND = "compare by hand: run `date -u +%T.%3N` on a broker and here at the same time"
Versions = Mapping[int, tuple[int, int]]  # api key to lowest and highest version


# Nodes.


def same_cluster(brokers: Sequence[Broker]) -> Iterator[DoctorFinding]:
    """Every address must lead to the same cluster as the first one that responded."""
    ids = {broker.address: broker.cluster_id for broker in brokers}
    first_address, first = next(iter(ids.items()))
    strangers = {address: found for address, found in ids.items() if found != first}
    for address, found in strangers.items():
        text = f"is cluster {found}, but {first_address} is {first}: a gateway serves one cluster"
        mend = f"take {address} out of upstream.bootstrap, or run a second gateway for it"
        yield problem(Check.CLUSTER, str(address), text, mend=mend)
    if not strangers:
        yield ok(Check.CLUSTER, first, f"the same cluster at every address that responds ({len(ids)})")


def ports_of(nodes: Mapping[NodeId, Address], config: Config) -> Iterator[DoctorFinding]:
    """Find nodes without a port of the gateway, and ports without a node."""
    gateway = config.gateway
    outside = sorted(set(nodes) - set(gateway.nodes))
    absent = sorted(set(gateway.nodes) - set(nodes))
    for node in outside:
        yield _outside(node, config, _ranges([*gateway.nodes, *outside]))
    if absent:
        text = "in gateway.nodes, and not in the cluster now: connections to its port fail"
        mend = f'start the broker, or name only those that exist: gateway.nodes = "{_ranges(list(nodes))}"'
        yield warning(Check.CLUSTER, f"node {', '.join(map(str, absent))}", text, mend=mend)
    if not outside and not absent:
        first, last = gateway.node_address(gateway.nodes[0]).port, gateway.node_address(gateway.nodes[-1]).port
        span = f"port {first}" if first == last else f"ports {first} to {last}"
        yield ok(Check.CLUSTER, "gateway.nodes", f"names every node of the cluster ({_ranges(list(nodes))}: {span})")


def _outside(node: NodeId, config: Config, wanted: str) -> DoctorFinding:
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


# APIs.


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureApis:
    """The APIs that a feature of Headgate uses, with their version, and the Kafka features with their lowest level."""

    name: str
    calls: Mapping[ApiKey, int]
    levels: Mapping[str, int] = field(default_factory=dict)
    is_wanted: Callable[[Config], bool]
    switch: str  # the setting that switches it off, if there is one
    since: str  # the oldest Kafka that supports it


FEATURES: tuple[FeatureApis, ...] = (
    FeatureApis(
        name="the gateway itself",
        calls={
            ApiKey.METADATA: 12,
            ApiKey.API_VERSIONS: 3,
        },
        is_wanted=lambda _: True,
        switch="",
        since="3.1",
    ),
    FeatureApis(
        name="the service account",
        calls={
            ApiKey.SASL_HANDSHAKE: 1,
            ApiKey.SASL_AUTHENTICATE: 2,
        },
        is_wanted=lambda config: config.upstream.service_user is not None,
        switch="",
        since="2.5",
    ),
    FeatureApis(
        name="topology descriptions",
        calls={
            ApiKey.HEARTBEAT: 4,
            ApiKey.DELETE_GROUPS: 2,
            ApiKey.STREAMS_GROUP_HEARTBEAT: 0,
            ApiKey.STREAMS_GROUP_DESCRIBE: 0,
        },
        levels={"streams.version": 1},
        is_wanted=lambda config: config.topologies.owner == "gateway",
        switch='topologies.owner = "off"',
        since="4.2",
    ),
    FeatureApis(
        name="dead letters and the circuit breaker",
        calls={
            ApiKey.HEARTBEAT: 4,
            ApiKey.DESCRIBE_CONFIGS: 4,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
            ApiKey.SHARE_GROUP_HEARTBEAT: 1,
            ApiKey.SHARE_GROUP_DESCRIBE: 1,
            ApiKey.SHARE_FETCH: 1,
            ApiKey.SHARE_ACKNOWLEDGE: 1,
        },
        levels={"share.version": 1},
        is_wanted=lambda config: config.share_groups.enable,
        switch="share_groups.enable = false",
        since="4.2",
    ),
)


def examine_apis(
    broker: str, versions: Versions, levels: Mapping[str, int], config: Config, tools: KafkaTools
) -> Iterator[DoctorFinding]:
    """Find features that do not work with this broker."""
    in_order = True
    for feature in FEATURES:
        if not feature.is_wanted(config):
            continue
        missing = [
            f"{api_name(key)} v{version}" for key, version in feature.calls.items() if not _has(versions, key, version)
        ]
        low = {name: level for name, level in feature.levels.items() if levels.get(name, 0) < level}
        if not missing and not low:
            continue
        in_order = False
        if missing:
            lack = f"does not support {', '.join(missing)}"
            mend = f"upgrade the broker to Kafka {feature.since} or newer"
        else:
            lack = f"has {', '.join(f'{name} at level {levels.get(name, 0)}' for name in low)}"
            mend = " && ".join(tools.upgrade_feature(name, level) for name, level in low.items())
        if feature.switch:
            text = f"{lack}, so {feature.name} is off at this broker"
            yield warning(Check.VERSIONS, broker, text, mend=f"{mend}; or switch it off: {feature.switch}")
        else:
            yield problem(Check.VERSIONS, broker, f"{lack}, and {feature.name} does not work without it", mend=mend)
    if in_order:
        level = levels.get("metadata.version")
        level_text = "" if level is None else f" (metadata.version is at level {level})"
        yield ok(Check.VERSIONS, broker, f"supports all APIs that the enabled features need{level_text}")


def _has(versions: Versions, key: int, version: int) -> bool:
    low, high = versions.get(key, (0, -1))
    return low <= version <= high


# The clock.


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far the controller's clock is ahead: between `least` and `most`, negative when it is behind."""

    least_ms: int
    most_ms: int

    @property
    def surely_ms(self) -> int:
        """The part that the time of the request cannot explain."""
        if self.least_ms <= 0 <= self.most_ms:
            return 0
        return self.least_ms if self.least_ms > 0 else self.most_ms


def offset(*, asked_ms: int, theirs_ms: int, answered_ms: int) -> ClockOffset:
    """The controller's clock was `theirs_ms` at some moment between the other two."""
    return ClockOffset(theirs_ms - answered_ms, theirs_ms - asked_ms)


async def examine_clock(broker: Broker, clock: Clock, tools: KafkaTools) -> DoctorFinding:
    partition = QuorumTopic(topic_name=_METADATA_TOPIC, partitions=(QuorumPartition(),))
    asked_ms = clock.epoch_ms()
    try:
        answer = await broker.call(DescribeQuorumRequest(topics=(partition,)), 1)
    except ClusterError as failure:
        return warning(Check.CLOCK, SUBJECT, f"its clock cannot be read: {failure}", mend=_BY_HAND)
    answered_ms = clock.epoch_ms()
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        text = f"its clock cannot be read: {tools.principal} is not authorized to describe the cluster"
        return warning(Check.CLOCK, SUBJECT, text, mend=tools.allow(Resource.CLUSTER, ["Describe"], ""))
    theirs_ms = controller_time(answer)
    if theirs_ms is None:
        text = f"its clock cannot be read: the DescribeQuorum response does not contain it (error {answer.error_code})"
        return warning(Check.CLOCK, SUBJECT, text, mend=_BY_HAND)
    return judge_clock(offset(asked_ms=asked_ms, theirs_ms=theirs_ms, answered_ms=answered_ms))


def controller_time(answer: DescribeQuorumResponse) -> int | None:
    """The controller's time in epoch milliseconds; None when the response does not contain it."""
    for topic in answer.topics:
        for partition in topic.partitions:
            for voter in partition.current_voters:
                if voter.replica_id == partition.leader_id and voter.last_fetch_timestamp > 0:
                    return voter.last_fetch_timestamp
    return None


def judge_clock(seen: ClockOffset) -> DoctorFinding:
    surely = seen.surely_ms
    if abs(surely) <= TOLERATED_MS:
        exact = max(abs(seen.least_ms), abs(seen.most_ms))
        return ok(
            Check.CLOCK, SUBJECT, f"agrees with this machine within {exact} ms; other brokers' clocks cannot be read"
        )
    text = f"its clock is {abs(surely) / 1000:.1f} s {'ahead of' if surely > 0 else 'behind'} this machine's"
    mend = "chronyc makestep   (or: timedatectl set-ntp true; on the machine whose clock is wrong)"
    if -surely >= REJECTED_MS:
        text += ": brokers reject records that are an hour ahead of them, and so all of Headgate's records"
        return problem(Check.CLOCK, SUBJECT, text, mend=mend)
    return warning(Check.CLOCK, SUBJECT, f"{text}: times in facts and in the brokers' logs do not match", mend=mend)
