"""Every call that a Kafka 4.4.0 client or broker knows: its key, name, versions and first flexible version.

One rule: this table follows the message definitions of `kafka-clients` 4.4.0, and a contract test compares each row
with them. What a certain broker carries is never written here: it says so itself, in its ApiVersions answer (a 4.3.1
broker announces Produce from version 0, for old librdkafka, and has neither 93 nor 94).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One call; `name` is also its metric label, `first_flexible` is None when no version is flexible."""

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible: int | None

    def is_flexible(self, version: int) -> bool:
        return self.first_flexible is not None and version >= self.first_flexible

    def carries(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


# key, name, lowest version, highest version, first flexible version
_ROWS: tuple[tuple[int, str, int, int, int | None], ...] = (
    (0, "Produce", 3, 13, 9),
    (1, "Fetch", 4, 18, 12),
    (2, "ListOffsets", 1, 11, 6),
    (3, "Metadata", 0, 13, 9),
    (8, "OffsetCommit", 2, 10, 8),
    (9, "OffsetFetch", 1, 10, 6),
    (10, "FindCoordinator", 0, 6, 3),
    (11, "JoinGroup", 0, 9, 6),
    (12, "Heartbeat", 0, 4, 4),
    (13, "LeaveGroup", 0, 5, 4),
    (14, "SyncGroup", 0, 5, 4),
    (15, "DescribeGroups", 0, 6, 5),
    (16, "ListGroups", 0, 5, 3),
    (17, "SaslHandshake", 0, 1, None),
    (18, "ApiVersions", 0, 5, 3),
    (19, "CreateTopics", 2, 7, 5),
    (20, "DeleteTopics", 1, 6, 4),
    (21, "DeleteRecords", 0, 2, 2),
    (22, "InitProducerId", 0, 6, 2),
    (23, "OffsetForLeaderEpoch", 2, 4, 4),
    (24, "AddPartitionsToTxn", 0, 5, 3),
    (25, "AddOffsetsToTxn", 0, 4, 3),
    (26, "EndTxn", 0, 5, 3),
    (27, "WriteTxnMarkers", 1, 2, 1),
    (28, "TxnOffsetCommit", 0, 6, 3),
    (29, "DescribeAcls", 1, 3, 2),
    (30, "CreateAcls", 1, 3, 2),
    (31, "DeleteAcls", 1, 3, 2),
    (32, "DescribeConfigs", 1, 4, 4),
    (33, "AlterConfigs", 0, 2, 2),
    (34, "AlterReplicaLogDirs", 1, 2, 2),
    (35, "DescribeLogDirs", 1, 5, 2),
    (36, "SaslAuthenticate", 0, 2, 2),
    (37, "CreatePartitions", 0, 3, 2),
    (38, "CreateDelegationToken", 1, 3, 2),
    (39, "RenewDelegationToken", 1, 2, 2),
    (40, "ExpireDelegationToken", 1, 2, 2),
    (41, "DescribeDelegationToken", 1, 3, 2),
    (42, "DeleteGroups", 0, 3, 2),
    (43, "ElectLeaders", 0, 2, 2),
    (44, "IncrementalAlterConfigs", 0, 1, 1),
    (45, "AlterPartitionReassignments", 0, 1, 0),
    (46, "ListPartitionReassignments", 0, 0, 0),
    (47, "OffsetDelete", 0, 0, None),
    (48, "DescribeClientQuotas", 0, 1, 1),
    (49, "AlterClientQuotas", 0, 1, 1),
    (50, "DescribeUserScramCredentials", 0, 0, 0),
    (51, "AlterUserScramCredentials", 0, 0, 0),
    (52, "Vote", 0, 2, 0),
    (53, "BeginQuorumEpoch", 0, 1, 1),
    (54, "EndQuorumEpoch", 0, 1, 1),
    (55, "DescribeQuorum", 0, 2, 0),
    (56, "AlterPartition", 2, 3, 0),
    (57, "UpdateFeatures", 0, 2, 0),
    (58, "Envelope", 0, 0, 0),
    (59, "FetchSnapshot", 0, 1, 0),
    (60, "DescribeCluster", 0, 2, 0),
    (61, "DescribeProducers", 0, 0, 0),
    (62, "BrokerRegistration", 0, 4, 0),
    (63, "BrokerHeartbeat", 0, 2, 0),
    (64, "UnregisterBroker", 0, 0, 0),
    (65, "DescribeTransactions", 0, 0, 0),
    (66, "ListTransactions", 0, 2, 0),
    (67, "AllocateProducerIds", 0, 0, 0),
    (68, "ConsumerGroupHeartbeat", 0, 1, 0),
    (69, "ConsumerGroupDescribe", 0, 1, 0),
    (70, "ControllerRegistration", 0, 0, 0),
    (71, "GetTelemetrySubscriptions", 0, 0, 0),
    (72, "PushTelemetry", 0, 0, 0),
    (73, "AssignReplicasToDirs", 0, 0, 0),
    (74, "ListConfigResources", 0, 1, 0),
    (75, "DescribeTopicPartitions", 0, 0, 0),
    (76, "ShareGroupHeartbeat", 1, 1, 0),
    (77, "ShareGroupDescribe", 1, 1, 0),
    (78, "ShareFetch", 1, 2, 0),
    (79, "ShareAcknowledge", 1, 2, 0),
    (80, "AddRaftVoter", 0, 1, 0),
    (81, "RemoveRaftVoter", 0, 0, 0),
    (82, "UpdateRaftVoter", 0, 0, 0),
    (83, "InitializeShareGroupState", 0, 0, 0),
    (84, "ReadShareGroupState", 0, 0, 0),
    (85, "WriteShareGroupState", 0, 1, 0),
    (86, "DeleteShareGroupState", 0, 0, 0),
    (87, "ReadShareGroupStateSummary", 0, 1, 0),
    (88, "StreamsGroupHeartbeat", 0, 1, 0),
    (89, "StreamsGroupDescribe", 0, 1, 0),
    (90, "DescribeShareGroupOffsets", 0, 1, 0),
    (91, "AlterShareGroupOffsets", 0, 0, 0),
    (92, "DeleteShareGroupOffsets", 0, 0, 0),
    (93, "StreamsGroupTopologyDescriptionUpdate", 0, 0, 0),
    (94, "UnregisterController", 0, 0, 0),
)

APIS: dict[int, Api] = {
    key: Api(key=key, name=name, min_version=low, max_version=high, first_flexible=flexible)
    for key, name, low, high, flexible in _ROWS
}

# LeaderAndIsr, StopReplica, UpdateMetadata and ControlledShutdown: keys that Kafka 4 keeps reserved with no version.
RETIRED_KEYS = frozenset({4, 5, 6, 7})
