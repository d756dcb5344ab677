"""Every api that a Kafka 4.4.0 client or broker knows: its key, name, versions and first flexible version.

Invariant: this table equals the message definitions of `kafka-clients` 4.4.0; a contract test compares each row. It
does not say what a certain broker supports: the broker's own ApiVersions response does (a 4.3.1 broker announces
Produce from version 0, for old librdkafka, and has neither 93 nor 94).
"""

from dataclasses import dataclass

from headgate.base.errors import WireError
from headgate.base.ids import ApiKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One api; `name` is also its metric label, `first_flexible` is None when no version is flexible."""

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    first_flexible: int | None

    def is_flexible(self, version: int) -> bool:
        return self.first_flexible is not None and version >= self.first_flexible

    def has_version(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


# Lowest version, highest version, first flexible version.
_VERSIONS: dict[ApiKey, tuple[int, int, int | None]] = {
    ApiKey.PRODUCE: (3, 13, 9),
    ApiKey.FETCH: (4, 18, 12),
    ApiKey.LIST_OFFSETS: (1, 11, 6),
    ApiKey.METADATA: (0, 13, 9),
    ApiKey.OFFSET_COMMIT: (2, 10, 8),
    ApiKey.OFFSET_FETCH: (1, 10, 6),
    ApiKey.FIND_COORDINATOR: (0, 6, 3),
    ApiKey.JOIN_GROUP: (0, 9, 6),
    ApiKey.HEARTBEAT: (0, 4, 4),
    ApiKey.LEAVE_GROUP: (0, 5, 4),
    ApiKey.SYNC_GROUP: (0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: (0, 6, 5),
    ApiKey.LIST_GROUPS: (0, 5, 3),
    ApiKey.SASL_HANDSHAKE: (0, 1, None),
    ApiKey.API_VERSIONS: (0, 5, 3),
    ApiKey.CREATE_TOPICS: (2, 7, 5),
    ApiKey.DELETE_TOPICS: (1, 6, 4),
    ApiKey.DELETE_RECORDS: (0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 6, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4, 3),
    ApiKey.END_TXN: (0, 5, 3),
    ApiKey.WRITE_TXN_MARKERS: (1, 2, 1),
    ApiKey.TXN_OFFSET_COMMIT: (0, 6, 3),
    ApiKey.DESCRIBE_ACLS: (1, 3, 2),
    ApiKey.CREATE_ACLS: (1, 3, 2),
    ApiKey.DELETE_ACLS: (1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: (1, 4, 4),
    ApiKey.ALTER_CONFIGS: (0, 2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5, 2),
    ApiKey.SASL_AUTHENTICATE: (0, 2, 2),
    ApiKey.CREATE_PARTITIONS: (0, 3, 2),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3, 2),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3, 2),
    ApiKey.DELETE_GROUPS: (0, 3, 2),
    ApiKey.ELECT_LEADERS: (0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0, 0),
    ApiKey.OFFSET_DELETE: (0, 0, None),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0, 0),
    ApiKey.VOTE: (0, 2, 0),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1, 1),
    ApiKey.END_QUORUM_EPOCH: (0, 1, 1),
    ApiKey.DESCRIBE_QUORUM: (0, 2, 0),
    ApiKey.ALTER_PARTITION: (2, 3, 0),
    ApiKey.UPDATE_FEATURES: (0, 2, 0),
    ApiKey.ENVELOPE: (0, 0, 0),
    ApiKey.FETCH_SNAPSHOT: (0, 1, 0),
    ApiKey.DESCRIBE_CLUSTER: (0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0, 0),
    ApiKey.BROKER_REGISTRATION: (0, 4, 0),
    ApiKey.BROKER_HEARTBEAT: (0, 2, 0),
    ApiKey.UNREGISTER_BROKER: (0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1, 0),
    ApiKey.CONTROLLER_REGISTRATION: (0, 0, 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0, 0),
    ApiKey.PUSH_TELEMETRY: (0, 0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1, 0),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1, 0),
    ApiKey.SHARE_FETCH: (1, 2, 0),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2, 0),
    ApiKey.ADD_RAFT_VOTER: (0, 1, 0),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0, 0),
    ApiKey.UPDATE_RAFT_VOTER: (0, 0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: (0, 0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1, 0),
    ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1, 0),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1, 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1, 0),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0, 0),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (0, 0, 0),
    ApiKey.UNREGISTER_CONTROLLER: (0, 0, 0),
}

APIS: dict[int, Api] = {
    key: Api(
        key=key,
        name=key.name.title().replace("_", ""),
        min_version=lowest,
        max_version=highest,
        first_flexible=first_flexible,
    )
    for key, (lowest, highest, first_flexible) in _VERSIONS.items()
}

# LeaderAndIsr, StopReplica, UpdateMetadata and ControlledShutdown: keys that Kafka 4 keeps reserved with no version.
RETIRED_KEYS = frozenset(ApiKey) - APIS.keys()


def api_of(key: int) -> Api:
    """The api of a key; a `WireError` for a key that Kafka 4.4 does not have."""
    api = APIS.get(key)
    if api is None:
        raise WireError(f"unknown api key {key}")
    return api


def api_name(key: int) -> str:
    """The metric label of a key: Kafka's name, or `unknown` so that a peer cannot make up labels."""
    api = APIS.get(key)
    return "unknown" if api is None else api.name


def has_flexible_request(key: int, version: int) -> bool:
    """True for request header version 2; a version above the highest known one is as flexible as that one."""
    return api_of(key).is_flexible(version)


def has_flexible_response(key: int, version: int) -> bool:
    """True for response header version 1; never of ApiVersions (KIP-511): its reader cannot know the version yet."""
    return key != ApiKey.API_VERSIONS and api_of(key).is_flexible(version)
