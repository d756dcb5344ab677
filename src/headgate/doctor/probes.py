"""Probes: asks a broker, as the service account, for each right. No probe has an effect.

Metadata and DescribeCluster return authorized operations for some rights. For the others a request is sent that the
broker must reject for another reason, or only validates: what matters is whether it rejects it for lack of a right (29,
30, 31, 53), which it checks first. FindCoordinator is no probe, because it creates Kafka's internal topics.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.base.errors import ClusterError
from headgate.doctor.brokers import Broker
from headgate.doctor.findings import Resource
from headgate.doctor.rights import (
    CLUSTER,
    LEADER_GROUP,
    LEADER_TRANSACTIONAL_ID,
    AclNames,
    AclRight,
    Denied,
    Granted,
    RightStatus,
    Scope,
    Unknown,
)
from headgate.share_groups.broker_configs import BROKER, GROUP, NO_SUCH_GROUP
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.admin import (
    CreateTopicsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    NewTopic,
)
from headgate.wire.messages.cluster import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataTopic,
)
from headgate.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from headgate.wire.messages.groups import DescribeGroupsRequest, HeartbeatRequest
from headgate.wire.schema import NOT_ASKED

TOPIC_RESOURCE: Final = 2

# Bits of a field of authorized operations (org.apache.kafka.common.acl.AclOperation), by kafka-acls.sh's words.
_BITS = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10, "IdempotentWrite": 12}

_UNUSED_PRODUCER_ID: Final = 2**63 - 1  # brokers never assign it, so the probe ends no transaction
_MEMBER: Final = "headgate-probe"
_NO_SUCH_TOPIC: Final = "headgate-probe-no-such-topic"
_TIMEOUT_MS: Final = 5_000
_ALL_BROKERS: Final = ""  # the default of all brokers: any of them returns it
_UNKNOWN_KEY: Final = ("x",)  # a config that does not exist, so the response is small


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterUses:
    """Which groups have which dead-letter topic; what exceeds the bounds is only counted."""

    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    topics_left_out: int = 0
    groups_left_out: int = 0


async def describe_topics(broker: Broker, topics: Sequence[str]) -> Mapping[str, MetadataTopic]:
    """The topics' metadata with the authorized operations of the account; none is created by asking."""
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    answer = await broker.call(request, 12)
    return {topic.name: topic for topic in answer.topics if topic.name is not None}


async def cluster_operations(broker: Broker) -> int:
    """The authorized operations of the account on the cluster; 0 without Describe on it."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await broker.call(request, 0)
    return max(0, answer.cluster_authorized_operations)


@dataclass(frozen=True, slots=True, kw_only=True)
class RightProbes:
    """`topics` are the metadata of the topics that the rights are for: Headgate's own, or dead-letter topics."""

    broker: Broker
    names: AclNames
    topics: Mapping[str, MetadataTopic] | ClusterError
    cluster: int = 0  # authorized operations
    uses: DeadLetterUses = DeadLetterUses()

    async def probe_all(self, rights: Iterable[AclRight]) -> dict[AclRight, RightStatus]:
        statuses: dict[AclRight, RightStatus] = {}
        for right in rights:
            try:
                statuses[right] = await self._probe(right)
            except ClusterError as failure:
                statuses[right] = Unknown(str(failure))
        return _with_implied(statuses)

    async def _probe(self, right: AclRight) -> RightStatus:
        match right.scope:
            case Scope.ALWAYS:
                return await self._probe_own(right)
            case Scope.LAGS if right.resource is Resource.TOPIC:
                return await self._describe_any_topic()
            case Scope.TOPOLOGIES | Scope.LAGS:
                return await self._describe_group(NO_SUCH_GROUP)
            case _:
                return await self._probe_dead_letters(right)

    async def _probe_own(self, right: AclRight) -> RightStatus:
        prefix = self.names.facts_prefix
        match right.resource, right.operation:
            case Resource.TOPIC, operation:
                return await self._probe_topics(operation, self._known_topics())
            case Resource.GROUP, _:
                return await self._read_group(prefix + LEADER_GROUP)
            case Resource.TRANSACTIONAL_ID, "Describe":
                return await self._describe_transactional_id(prefix + LEADER_TRANSACTIONAL_ID)
            case Resource.TRANSACTIONAL_ID, _:
                return await self._write_transactional_id(prefix + LEADER_TRANSACTIONAL_ID)
            case _, operation:
                return Granted() if self.cluster & (1 << _BITS[operation]) else Denied((CLUSTER,))

    async def _probe_dead_letters(self, right: AclRight) -> RightStatus:
        """`Denied` names the topics or groups that are affected now."""
        if right.resource is Resource.TOPIC:
            topics = self._known_topics()
            if right.operation == "Create":
                # Existing topics need not be created; but the next group may choose one that does not exist.
                absent = {
                    name: topic
                    for name, topic in topics.items()
                    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                }
                topics = absent or {unused_topic(self.names.dlq_prefix): MetadataTopic()}
            status = await self._probe_topics(right.operation, topics)
            if isinstance(status, Denied):
                return Denied(tuple(name for name in status.names or topics if name in self.uses.topics))
            return status
        needed_by_all: str | None = None
        if right.resource is Resource.CLUSTER:
            codes = await self._describe_configs(BROKER, (_ALL_BROKERS,))
            denial, needed_by_all = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _ALL_BROKERS
        elif right.operation == "AlterConfigs":
            codes = await self._alter_nothing((NO_SUCH_GROUP, *self.uses.groups))
            denial = ErrorCode.GROUP_AUTHORIZATION_FAILED
        else:
            codes = await self._describe_configs(GROUP, (NO_SUCH_GROUP, *self.uses.groups))
            denial, needed_by_all = ErrorCode.GROUP_AUTHORIZATION_FAILED, NO_SUCH_GROUP
        denied = {name for name, code in codes.items() if code == denial}
        if denied:
            # Without the defaults and the brokers' maximum no group's limit is known.
            return Denied(tuple(group for group in self.uses.groups if needed_by_all in denied or group in denied))
        others = sorted(set(codes.values()) - {0})
        if others or not codes:
            return Unknown(f"error {others[0]}" if others else "an empty response")
        return Granted()

    def _known_topics(self) -> Mapping[str, MetadataTopic]:
        if isinstance(self.topics, ClusterError):
            raise self.topics
        return self.topics

    async def _probe_topics(self, operation: str, topics: Mapping[str, MetadataTopic]) -> RightStatus:
        match operation:
            case "Create":
                denied = await self._create_nothing(topics)
            case "DescribeConfigs":
                codes = await self._describe_configs(TOPIC_RESOURCE, topics)
                denied = [name for name, code in codes.items() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            case _:
                # A topic that may not be described may not be read or written: both imply Describe.
                denied = []
                for name, topic in topics.items():
                    if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                        denied.append(name)
                    elif topic.topic_authorized_operations == NOT_ASKED:
                        return Unknown(f"the broker returns no operations for {name}")
                    elif not topic.topic_authorized_operations & (1 << _BITS[operation]):
                        denied.append(name)
        if not denied:
            return Granted()
        return Denied(() if len(denied) == len(topics) else tuple(denied))

    async def _create_nothing(self, topics: Iterable[str]) -> list[str]:
        """CreateTopics that is only validated; an existing topic is rejected for that reason after the right."""
        request = CreateTopicsRequest(
            topics=tuple(NewTopic(name=name, num_partitions=1, replication_factor=-1) for name in topics),
            timeout_ms=_TIMEOUT_MS,
            validate_only=True,
        )
        answer = await self.broker.call(request, 5)
        return [topic.name for topic in answer.topics if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    async def _alter_nothing(self, groups: Iterable[str]) -> dict[str, int]:
        """IncrementalAlterConfigs without configs that is only validated: only the right can be missing."""
        resources = tuple(IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=group) for group in groups)
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
        answer = await self.broker.call(request, 1)
        return {one.resource_name: one.error_code for one in answer.responses}

    async def _describe_configs(self, kind: int, names: Iterable[str]) -> dict[str, int]:
        resources = tuple(
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=_UNKNOWN_KEY)
            for name in names
        )
        request = DescribeConfigsRequest(resources=resources)
        answer = await self.broker.call(request, 4)
        return {one.resource_name: one.error_code for one in answer.results}

    async def _read_group(self, group: str) -> RightStatus:
        """A heartbeat of a member that does not exist."""
        request = HeartbeatRequest(group_id=group, generation_id=-1, member_id=_MEMBER)
        answer = await self.broker.call(request, 4)
        return Denied((group,)) if answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED else Granted()

    async def _describe_group(self, group: str) -> RightStatus:
        answer = await self.broker.call(DescribeGroupsRequest(groups=(group,)), 5)
        codes = {one.error_code for one in answer.groups}
        return Denied(()) if ErrorCode.GROUP_AUTHORIZATION_FAILED in codes else Granted()

    async def _describe_any_topic(self) -> RightStatus:
        """A topic that does not exist is unknown to an account with the right, and forbidden to any other."""
        described = await describe_topics(self.broker, [_NO_SUCH_TOPIC])
        codes = {topic.error_code for topic in described.values()}
        return Denied(()) if ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes else Granted()

    async def _describe_transactional_id(self, name: str) -> RightStatus:
        request = DescribeTransactionsRequest(transactional_ids=(name,))
        answer = await self.broker.call(request, 0)
        codes = {state.error_code for state in answer.transaction_states}
        return Denied((name,)) if ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED in codes else Granted()

    async def _write_transactional_id(self, name: str) -> RightStatus:
        """EndTxn of a producer that cannot exist."""
        request = EndTxnRequest(transactional_id=name, producer_id=_UNUSED_PRODUCER_ID, producer_epoch=0)
        answer = await self.broker.call(request, 3)
        return Denied((name,)) if answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED else Granted()


def unused_topic(dlq_prefix: str) -> str:
    """A topic with the prefix that no group has; a prefix leaves room for one more letter."""
    return f"{dlq_prefix}x"


def _with_implied(statuses: dict[AclRight, RightStatus]) -> dict[AclRight, RightStatus]:
    """Since Kafka 2.8 (KIP-679) an idempotent producer may start when it may write to any topic at all."""
    for right in statuses:
        if right.need == "implied":
            write = next(status for one, status in statuses.items() if one.operation == "Write")
            if isinstance(write, Granted) or (isinstance(write, Denied) and write.names):
                statuses[right] = Granted()
    return statuses
