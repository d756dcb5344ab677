"""Calls that a broker guards, as data: what each asks for, with names that belong to one user of one run.

None of them changes what another call sees, so that they can be made in any order and by anybody: topics that are made
or deleted are not there, and changes of configuration are only validated.
"""

import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headgate.wire.records import WireRecord
from tests.support.record_batches import write_batch

Tree = dict[str, Any]

_BATCH = b64encode(write_batch([WireRecord(offset=0, timestamp=time.time_ns() // 1_000_000, value=b"x")])).decode()
_READ, _ALLOW, _LITERAL, _TOPIC, _ANY = 3, 3, 3, 2, 1  # numbers of DescribeAcls
_NO_PRODUCER = 1 << 40
_TOPIC_CONFIG, _BROKER_CONFIG, _GROUP_CONFIG = 2, 4, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What one user's calls are about; all begin with the prefix that ACLs are about."""

    topic: str
    group: str
    transaction: str
    new_topic: str  # made by a call
    no_topic: str  # made by nobody


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A call, and the tree of its request as Kafka's own classes read it."""

    label: str
    key: int
    version: int
    request: Callable[[Names], Tree]


def _partition(names: Names, **more: object) -> list[Tree]:
    return [{"name": names.topic, "partitions": [more]}]


def _fetch(names: Names) -> Tree:
    partition = {
        "partition": 0,
        "currentLeaderEpoch": -1,
        "fetchOffset": 0,
        "lastFetchedEpoch": -1,
        "logStartOffset": -1,
        "partitionMaxBytes": 1000,
    }
    return {
        "replicaId": -1,
        "maxWaitMs": 0,
        "minBytes": 0,
        "maxBytes": 1000,
        "isolationLevel": 0,
        "sessionId": 0,
        "sessionEpoch": -1,
        "topics": [{"topic": names.topic, "partitions": [partition]}],
        "forgottenTopicsData": [],
        "rackId": "",
    }


def _metadata(topic: str, *, create: bool) -> Tree:
    topics = [{"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "name": topic}]
    return {"topics": topics, "allowAutoTopicCreation": create, "includeTopicAuthorizedOperations": True}


def _produce(names: Names, transaction: str | None = None) -> Tree:
    data = [{"name": names.topic, "partitionData": [{"index": 0, "records": _BATCH}]}]
    return {"transactionalId": transaction, "acks": -1, "timeoutMs": 5000, "topicData": data}


def _join(names: Names) -> Tree:
    return {
        "groupId": names.group,
        "sessionTimeoutMs": 6000,
        "rebalanceTimeoutMs": 6000,
        "memberId": "",
        "groupInstanceId": None,
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": ""}],
    }


def _offsets(**more: object) -> list[Tree]:
    return [{"partitionIndex": 0, "committedOffset": 1, "committedLeaderEpoch": -1, "committedMetadata": None, **more}]


def _commit(names: Names) -> Tree:
    return {
        "groupId": names.group,
        "generationIdOrMemberEpoch": -1,
        "memberId": "",
        "groupInstanceId": None,
        "topics": [{"name": names.topic, "partitions": _offsets()}],
    }


def _commit_in_transaction(names: Names) -> Tree:
    return {
        "transactionalId": names.transaction,
        "groupId": names.group,
        "producerId": _NO_PRODUCER,
        "producerEpoch": 0,
        "generationId": -1,
        "generationIdOrMemberEpoch": -1,
        "memberId": "",
        "groupInstanceId": None,
        "topics": [{"name": names.topic, "partitions": _offsets()}],
    }


def _producer(names: Names, **more: object) -> Tree:
    return {"transactionalId": names.transaction, "producerId": _NO_PRODUCER, "producerEpoch": 0, **more}


def _acl(names: Names, suffix: str = "") -> Tree:
    return {
        f"resourceType{suffix}": _TOPIC,
        f"resourceName{suffix}": names.no_topic,
        f"principal{suffix}": "User:nobody",
        f"host{suffix}": "*",
        "operation": _READ,
        "permissionType": _ALLOW,
    }


def _describe_configs(kind: int, name: str) -> Tree:
    resource = {"resourceType": kind, "resourceName": name, "configurationKeys": ["retention.ms"]}
    return {"resources": [resource], "includeSynonyms": False, "includeDocumentation": False}


def _alter_configs(kind: int, name: str, key: str, value: str, **more: object) -> Tree:
    resource = {"resourceType": kind, "resourceName": name, "configs": [{"name": key, "value": value, **more}]}
    return {"resources": [resource], "validateOnly": True}


def _create_topics(names: Names) -> Tree:
    topic = {"name": names.no_topic, "numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeoutMs": 5000, "validateOnly": True}


def _create_partitions(names: Names) -> Tree:
    topics = [{"name": names.topic, "count": 2, "assignments": None}]
    return {"topics": topics, "timeoutMs": 5000, "validateOnly": True}


def _member(names: Names, **more: object) -> Tree:
    """A heartbeat of a member that is not there."""
    return {"groupId": names.group, "memberId": "nobody", "memberEpoch": 5, "rackId": None, **more}


CALLS = (
    GuardedCall("Produce", 0, 11, _produce),
    GuardedCall("Produce in a transaction", 0, 11, lambda names: _produce(names, names.transaction)),
    GuardedCall("Fetch", 1, 12, _fetch),
    GuardedCall(
        "ListOffsets",
        2,
        7,
        lambda names: {
            "replicaId": -1,
            "isolationLevel": 0,
            "topics": _partition(names, partitionIndex=0, currentLeaderEpoch=-1, timestamp=-1),
        },
    ),
    GuardedCall("Metadata", 3, 12, lambda names: _metadata(names.topic, create=False)),
    GuardedCall("Metadata of a topic to be made", 3, 12, lambda names: _metadata(names.new_topic, create=True)),
    GuardedCall("OffsetCommit", 8, 9, _commit),
    GuardedCall(
        "OffsetFetch",
        9,
        8,
        lambda names: {"groups": [{"groupId": names.group, "topics": None}], "requireStable": False},
    ),
    GuardedCall("FindCoordinator", 10, 4, lambda names: {"keyType": 0, "coordinatorKeys": [names.group]}),
    GuardedCall(
        "FindCoordinator of a transaction", 10, 4, lambda names: {"keyType": 1, "coordinatorKeys": [names.transaction]}
    ),
    GuardedCall("JoinGroup", 11, 7, _join),
    GuardedCall(
        "Heartbeat",
        12,
        4,
        lambda names: {"groupId": names.group, "generationId": 1, "memberId": "nobody", "groupInstanceId": None},
    ),
    GuardedCall(
        "LeaveGroup",
        13,
        4,
        lambda names: {"groupId": names.group, "members": [{"memberId": "nobody", "groupInstanceId": None}]},
    ),
    GuardedCall(
        "SyncGroup",
        14,
        5,
        lambda names: {
            "groupId": names.group,
            "generationId": 1,
            "memberId": "nobody",
            "groupInstanceId": None,
            "protocolType": None,
            "protocolName": None,
            "assignments": [],
        },
    ),
    GuardedCall("DescribeGroups", 15, 5, lambda names: {"groups": [names.group], "includeAuthorizedOperations": True}),
    GuardedCall("CreateTopics", 19, 7, _create_topics),
    GuardedCall("DeleteTopics", 20, 5, lambda names: {"topicNames": [names.no_topic], "timeoutMs": 5000}),
    GuardedCall(
        "DeleteRecords",
        21,
        2,
        lambda names: {"topics": _partition(names, partitionIndex=0, offset=0), "timeoutMs": 5000},
    ),
    GuardedCall(
        "InitProducerId",
        22,
        4,
        lambda _: {"transactionalId": None, "transactionTimeoutMs": 1000, "producerId": -1, "producerEpoch": -1},
    ),
    GuardedCall(
        "InitProducerId of a transaction",
        22,
        4,
        lambda names: {
            "transactionalId": names.transaction,
            "transactionTimeoutMs": 1000,
            "producerId": -1,
            "producerEpoch": -1,
        },
    ),
    GuardedCall(
        "OffsetForLeaderEpoch",
        23,
        4,
        lambda names: {
            "replicaId": -1,
            "topics": [
                {"topic": names.topic, "partitions": [{"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": 0}]}
            ],
        },
    ),
    GuardedCall(
        "AddPartitionsToTxn",
        24,
        3,
        lambda names: {
            "v3AndBelowTransactionalId": names.transaction,
            "v3AndBelowProducerId": _NO_PRODUCER,
            "v3AndBelowProducerEpoch": 0,
            "v3AndBelowTopics": [{"name": names.topic, "partitions": [0]}],
        },
    ),
    GuardedCall("AddOffsetsToTxn", 25, 3, lambda names: _producer(names, groupId=names.group)),
    GuardedCall("EndTxn", 26, 3, lambda names: _producer(names, committed=True)),
    GuardedCall(
        "WriteTxnMarkers",
        27,
        1,
        lambda names: {
            "markers": [
                {
                    "producerId": _NO_PRODUCER,
                    "producerEpoch": 0,
                    "transactionResult": True,
                    "topics": [{"name": names.no_topic, "partitionIndexes": [0]}],
                    "coordinatorEpoch": 0,
                }
            ]
        },
    ),
    GuardedCall("TxnOffsetCommit", 28, 3, _commit_in_transaction),
    GuardedCall("DescribeAcls", 29, 3, lambda names: {**_acl(names, "Filter"), "patternTypeFilter": _LITERAL}),
    GuardedCall("CreateAcls", 30, 3, lambda names: {"creations": [{**_acl(names), "resourcePatternType": _LITERAL}]}),
    GuardedCall(
        "DeleteAcls", 31, 3, lambda names: {"filters": [{**_acl(names, "Filter"), "patternTypeFilter": _LITERAL}]}
    ),
    GuardedCall("DescribeConfigs of a topic", 32, 4, lambda names: _describe_configs(_TOPIC_CONFIG, names.topic)),
    GuardedCall("DescribeConfigs of a broker", 32, 4, lambda _: _describe_configs(_BROKER_CONFIG, "0")),
    GuardedCall("DescribeConfigs of a group", 32, 4, lambda names: _describe_configs(_GROUP_CONFIG, names.group)),
    GuardedCall("AlterConfigs", 33, 2, lambda names: _alter_configs(_TOPIC_CONFIG, names.topic, "retention.ms", "1")),
    GuardedCall(
        "IncrementalAlterConfigs of a topic",
        44,
        1,
        lambda names: _alter_configs(_TOPIC_CONFIG, names.topic, "retention.ms", "1", configOperation=0),
    ),
    GuardedCall(
        "IncrementalAlterConfigs of a broker",
        44,
        1,
        lambda _: _alter_configs(_BROKER_CONFIG, "0", "log.cleaner.threads", "2", configOperation=0),
    ),
    GuardedCall(
        "IncrementalAlterConfigs of a group",
        44,
        1,
        lambda names: _alter_configs(
            _GROUP_CONFIG, names.group, "share.auto.offset.reset", "earliest", configOperation=0
        ),
    ),
    GuardedCall("DescribeLogDirs", 35, 4, lambda names: {"topics": [{"topic": names.topic, "partitions": [0]}]}),
    GuardedCall("CreatePartitions", 37, 3, _create_partitions),
    GuardedCall("DeleteGroups", 42, 2, lambda names: {"groupsNames": [names.group + "-gone"]}),
    GuardedCall(
        "ElectLeaders",
        43,
        2,
        lambda names: {
            "electionType": 0,
            "topicPartitions": [{"topic": names.topic, "partitions": [0]}],
            "timeoutMs": 5000,
        },
    ),
    GuardedCall(
        "AlterPartitionReassignments",
        45,
        0,
        lambda names: {"timeoutMs": 5000, "topics": _partition(names, partitionIndex=0, replicas=None)},
    ),
    GuardedCall("ListPartitionReassignments", 46, 0, lambda _: {"timeoutMs": 5000, "topics": []}),
    GuardedCall(
        "OffsetDelete",
        47,
        0,
        lambda names: {"groupId": names.group + "-gone", "topics": _partition(names, partitionIndex=0)},
    ),
    GuardedCall("DescribeClientQuotas", 48, 1, lambda _: {"components": [], "strict": False}),
    GuardedCall(
        "AlterClientQuotas",
        49,
        1,
        lambda _: {
            "entries": [
                {
                    "entity": [{"entityType": "user", "entityName": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
            ],
            "validateOnly": True,
        },
    ),
    GuardedCall("DescribeUserScramCredentials", 50, 0, lambda _: {"users": [{"name": "nobody"}]}),
    GuardedCall(
        "DescribeQuorum",
        55,
        1,
        lambda _: {"topics": [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]},
    ),
    GuardedCall(
        "UpdateFeatures",
        57,
        1,
        lambda _: {
            "timeoutMs": 5000,
            "featureUpdates": [{"feature": "metadata.version", "maxVersionLevel": 999, "upgradeType": 1}],
            "validateOnly": True,
        },
    ),
    GuardedCall("DescribeCluster", 60, 1, lambda _: {"includeClusterAuthorizedOperations": True, "endpointType": 1}),
    GuardedCall("DescribeProducers", 61, 0, lambda names: {"topics": [{"name": names.topic, "partitionIndexes": [0]}]}),
    GuardedCall("UnregisterBroker", 64, 0, lambda _: {"brokerId": 99}),
    GuardedCall("DescribeTransactions", 65, 0, lambda names: {"transactionalIds": [names.transaction + "-gone"]}),
    GuardedCall(
        "ConsumerGroupHeartbeat",
        68,
        0,
        lambda names: _member(
            names,
            instanceId=None,
            rebalanceTimeoutMs=-1,
            subscribedTopicNames=None,
            serverAssignor=None,
            topicPartitions=None,
        ),
    ),
    GuardedCall(
        "ConsumerGroupDescribe",
        69,
        0,
        lambda names: {"groupIds": [names.group + "-gone"], "includeAuthorizedOperations": False},
    ),
    GuardedCall("ShareGroupHeartbeat", 76, 1, lambda names: _member(names, subscribedTopicNames=None)),
    GuardedCall(
        "ShareGroupDescribe",
        77,
        1,
        lambda names: {"groupIds": [names.group + "-gone"], "includeAuthorizedOperations": False},
    ),
    GuardedCall(
        "StreamsGroupDescribe",
        89,
        0,
        lambda names: {"groupIds": [names.group + "-gone"], "includeAuthorizedOperations": False},
    ),
)
