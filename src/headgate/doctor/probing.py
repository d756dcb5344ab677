"""Asking a broker, as the service account, whether it may: one probe a right, none with an effect.

What Metadata and DescribeCluster say of authorized operations is taken where they say it. Where they do not, a call is
made that the broker must refuse for another reason, or may only validate: what matters is whether it refuses for want
of a right (29, 30, 31, 53), which it checks first. FindCoordinator is no probe: it creates Kafka's internal topics.
"""

from collections.abc import Mapping, Sequence

from headgate.base.errors import ClusterError
from headgate.doctor.broker import Broker
from headgate.doctor.commands import Resource
from headgate.doctor.messages import (
    CreateTopicsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    NewTopic,
)
from headgate.doctor.rights import (
    CLUSTER,
    LEADER_GROUP,
    LEADER_TRANSACTIONAL_ID,
    RIGHTS,
    Answer,
    Granted,
    Refused,
    Right,
    Unknown,
)
from headgate.wire.messages.cluster import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataTopic,
)
from headgate.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from headgate.wire.messages.groups import HeartbeatRequest
from headgate.wire.schema import NOT_ASKED

METADATA, HEARTBEAT, DESCRIBE_CONFIGS, DESCRIBE_CLUSTER = 3, 12, 32, 60
TOPIC_RESOURCE = 2
TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 29, 30, 53

# Bits of a field of authorized operations (org.apache.kafka.common.acl.AclOperation), by kafka-acls.sh's words.
BITS = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10, "IdempotentWrite": 12}

# No broker ever hands out this producer id, so that a transaction is never ended by the probe.
_NOBODYS_PRODUCER_ID = 2**63 - 1
_MEMBER = "headgate-probe"
_TIMEOUT_MS = 5_000


async def described(broker: Broker, topics: Sequence[str]) -> Mapping[str, MetadataTopic]:
    """The topics as Metadata shows them, with what the account may do with each; none is created by asking."""
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    answer = await broker.call(request, 12)
    return {topic.name: topic for topic in answer.topics if topic.name is not None}


async def cluster_operations(broker: Broker) -> int:
    """What the account may do with the cluster; 0 without Describe on it."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await broker.call(request, 0)
    return max(0, answer.cluster_authorized_operations)


async def ask_all(
    broker: Broker, topics: Mapping[str, MetadataTopic], cluster: int, prefix: str
) -> dict[Right, Answer]:
    """An answer for every right; `topics` and `cluster` are what the two calls above gave."""
    answers: dict[Right, Answer] = {}
    for right in RIGHTS:
        try:
            answers[right] = await _ask(right, broker, topics, cluster, prefix)
        except ClusterError as failure:
            answers[right] = Unknown(str(failure))
    return _with_implied(answers)


async def _ask(right: Right, broker: Broker, topics: Mapping[str, MetadataTopic], cluster: int, prefix: str) -> Answer:
    match right.resource, right.operation:
        case Resource.TOPIC, "Create":
            return await may_create(broker, topics)
        case Resource.TOPIC, "DescribeConfigs":
            return await may_describe_configs(broker, topics)
        case Resource.TOPIC, operation:
            return of_topics(topics, BITS[operation])
        case Resource.GROUP, _:
            return await _read_group(broker, prefix + LEADER_GROUP)
        case Resource.TRANSACTIONAL_ID, "Describe":
            return await _describe_transactional_id(broker, prefix + LEADER_TRANSACTIONAL_ID)
        case Resource.TRANSACTIONAL_ID, _:
            return await _write_transactional_id(broker, prefix + LEADER_TRANSACTIONAL_ID)
        case Resource.CLUSTER, operation:
            return Granted() if cluster & (1 << BITS[operation]) else Refused((CLUSTER,))
        case _:
            raise AssertionError(right)


def of_topics(topics: Mapping[str, MetadataTopic], bit: int) -> Answer:
    """From the operations that Metadata names.

    A topic that may not be described may not be read or written either: a broker takes each of the two for Describe.
    """
    refused = []
    for name, topic in topics.items():
        if topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            refused.append(name)
        elif topic.topic_authorized_operations == NOT_ASKED:
            return Unknown(f"the broker names no operations for {name}")
        elif not topic.topic_authorized_operations & (1 << bit):
            refused.append(name)
    return _refused(refused, topics)


async def may_create(broker: Broker, topics: Mapping[str, MetadataTopic]) -> Answer:
    """CreateTopics that is only validated; a topic that exists is refused for that reason, behind the right."""
    request = CreateTopicsRequest(
        topics=tuple(NewTopic(name=name, num_partitions=1, replication_factor=-1) for name in topics),
        timeout_ms=_TIMEOUT_MS,
        validate_only=True,
    )
    answer = await broker.call(request, 5)
    refused = [topic.name for topic in answer.topics if topic.error_code == TOPIC_AUTHORIZATION_FAILED]
    return _refused(refused, topics)


async def may_describe_configs(broker: Broker, topics: Mapping[str, MetadataTopic]) -> Answer:
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=("cleanup.policy",)
            )
            for name in topics
        )
    )
    answer = await broker.call(request, 4)
    refused = [one.resource_name for one in answer.results if one.error_code == TOPIC_AUTHORIZATION_FAILED]
    return _refused(refused, topics)


async def _read_group(broker: Broker, group: str) -> Answer:
    """A heartbeat of a member that nobody is."""
    request = HeartbeatRequest(group_id=group, generation_id=-1, member_id=_MEMBER)
    answer = await broker.call(request, 4)
    return Refused((group,)) if answer.error_code == GROUP_AUTHORIZATION_FAILED else Granted()


async def _describe_transactional_id(broker: Broker, name: str) -> Answer:
    request = DescribeTransactionsRequest(transactional_ids=(name,))
    answer = await broker.call(request, 0)
    codes = {state.error_code for state in answer.transaction_states}
    return Refused((name,)) if TRANSACTIONAL_ID_AUTHORIZATION_FAILED in codes else Granted()


async def _write_transactional_id(broker: Broker, name: str) -> Answer:
    """The end of a transaction of a producer that cannot be."""
    request = EndTxnRequest(transactional_id=name, producer_id=_NOBODYS_PRODUCER_ID, producer_epoch=0)
    answer = await broker.call(request, 3)
    return Refused((name,)) if answer.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED else Granted()


def _refused(names: Sequence[str], of: Mapping[str, object]) -> Answer:
    """`Refused` names the topics, unless it is all of them."""
    if not names:
        return Granted()
    return Refused(() if len(names) == len(of) else tuple(names))


def _with_implied(answers: dict[Right, Answer]) -> dict[Right, Answer]:
    """Since Kafka 2.8 (KIP-679) an idempotent producer may start when it may write to any topic at all."""
    by_name = {(right.resource, right.operation): right for right in RIGHTS}
    write = answers[by_name[Resource.TOPIC, "Write"]]
    if isinstance(write, Granted) or (isinstance(write, Refused) and write.names):
        answers[by_name[Resource.CLUSTER, "IdempotentWrite"]] = Granted()
    return answers
