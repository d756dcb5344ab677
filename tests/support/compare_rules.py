"""What may differ between two runs of one script against one broker, and why: the tables of the comparison.

One rule: every row says why. A value is replaced by a word for its kind (`compare_kinds.py`); what is left out, in
the last tables, is left out only for clients that run by themselves, and only because timing decides whether it is
there at all.
"""

import re
from typing import NamedTuple

from tests.support.compare_kinds import (
    Kind,
    connect_document,
    count,
    epoch,
    member,
    offset,
    opaque,
    partition_time,
    producer,
    producer_epoch,
    session,
    timestamp,
    uuid,
)


class Rule(NamedTuple):
    """A field, in the calls that are named or in all, is of a kind; `why` it cannot be the same twice."""

    field: str
    kind: Kind
    why: str
    calls: frozenset[str] = frozenset()


def _in(*calls: str) -> frozenset[str]:
    return frozenset(calls)


RULES: tuple[Rule, ...] = (
    Rule("topicId", uuid, "the controller draws it"),
    Rule("memberId", member, "client or broker draw it"),
    Rule("leader", member, "a member's id", _in("JoinGroup")),
    Rule("reason", member, "names a member's id", _in("JoinGroup", "LeaveGroup")),
    Rule("timestamp", timestamp, "the clock"),
    Rule("max_timestamp", timestamp, "the clock"),
    Rule("lastTimestamp", timestamp, "the clock", _in("DescribeProducers")),
    Rule("transactionStartTimeMs", timestamp, "the clock", _in("DescribeTransactions")),
    Rule("lastCaughtUpTimestamp", timestamp, "the clock", _in("DescribeQuorum")),
    Rule("lastFetchTimestamp", timestamp, "the clock", _in("DescribeQuorum")),
    Rule("timeoutMs", count, "what is left of the client's own deadline"),
    Rule("producerId", producer, "the broker hands out a new one to each run"),
    Rule("producer_id", producer, "the same in a record batch"),
    Rule("v3AndBelowProducerId", producer, "the same in old versions", _in("AddPartitionsToTxn")),
    Rule("producerEpoch", producer_epoch, "a transactional id keeps its epoch from run to run"),
    Rule("producer_epoch", producer_epoch, "the same in a record batch"),
    Rule("v3AndBelowProducerEpoch", producer_epoch, "the same in old versions", _in("AddPartitionsToTxn")),
    Rule("finalizedFeaturesEpoch", count, "the offset of the metadata log", _in("ApiVersions")),
    Rule("logEndOffset", count, "the offset of the metadata log", _in("DescribeQuorum")),
    Rule("highWatermark", count, "the offset of the metadata log", _in("DescribeQuorum")),
    Rule("usableBytes", count, "the disk is shared", _in("DescribeLogDirs")),
    Rule("partitionSize", count, "internal topics grow", _in("DescribeLogDirs")),
    Rule("committedMetadata", partition_time, "Streams notes the clock", _in("OffsetCommit", "TxnOffsetCommit")),
    Rule("metadata", partition_time, "Streams notes the clock", _in("OffsetFetch")),
    Rule("salt", opaque, "the client draws it", _in("AlterUserScramCredentials")),
    Rule("saltedPassword", opaque, "follows from the salt", _in("AlterUserScramCredentials")),
)

# Arrays whose order follows hash tables of random ids, on either side: compared as sets.
UNORDERED: dict[tuple[str, str], str] = {
    ("DeleteTopics", "responses"): "the controller sorts them by topic id",
    ("ConsumerGroupHeartbeat", "topicPartitions"): "by topic id",
    ("OffsetFetch", "topics"): "in the coordinator's hash table, as commits came",
    ("Produce", "responses"): "by topic id",
    ("Produce", "topicData"): "by topic id",
}

# Calls that are repeated until something happens. How often, and what one answer holds, is a matter of timing: their
# answers are taken apart, and compared is the set of all structs that they are made of. What Fetch and ShareFetch
# brought is compared too, record by record.
POLLED: dict[str, str] = {
    "Fetch": "long poll",
    "ShareFetch": "long poll",
    "Heartbeat": "by the clock",
    "ConsumerGroupHeartbeat": "by the clock",
    "ShareGroupHeartbeat": "by the clock",
    "StreamsGroupHeartbeat": "by the clock",
    "Metadata": "refreshed by age and on errors",
    "ApiVersions": "once a connection, and connections are made as needed",
}

# In calls that are polled, and in all calls of clients that run by themselves, these move with the clock as well.
RULES_OF_POLLED: tuple[Rule, ...] = (
    Rule("highWatermark", offset, "the end of the log when the poll came"),
    Rule("lastStableOffset", offset, "the end of the log when the poll came"),
    Rule("endOffset", offset, "the end of the log when the client asked"),
    Rule("offset", offset, "the end of the log when the client asked", _in("ListOffsets")),
    Rule("baseOffset", offset, "how records fall into batches", _in("Produce")),
    Rule("base_offset", offset, "how records fall into batches"),
    Rule("last_offset", offset, "how records fall into batches"),
    Rule("base_sequence", offset, "how records fall into batches"),
    Rule("committedOffset", offset, "what had been read by then"),
    Rule("producerEpoch", epoch, "how many transactions it took"),
    Rule("producer_epoch", epoch, "how many transactions it took"),
    Rule("memberEpoch", count, "how often the group changed by then"),
    Rule("generationId", count, "how often the group changed by then"),
    Rule("metadata", opaque, "what a member had by then", _in("JoinGroup")),
    Rule("assignment", opaque, "what the leader knew by then", _in("SyncGroup")),
    Rule("value", connect_document, "Connect notes times, generations and a drawn key", _in("Fetch")),
    Rule("sessionId", session, "the broker draws it, and 0 ends it", _in("Fetch")),
)

# Calls that a client that runs by itself makes or not, or whose answer it does not wait for. When both runs have
# them, they are compared.
OPTIONAL: dict[str, str] = {
    "FindCoordinator": "a consumer that is closed at once does not wait for the answer",
    "Heartbeat": "a short stay in a group may pass without one",
}


class Sometimes(NamedTuple):
    """A struct in the answers of a client that runs by itself that may be there or not."""

    call: str
    struct: re.Pattern[str]
    why: str


SOMETIMES: tuple[Sometimes, ...] = (
    Sometimes("Heartbeat", re.compile(r'answer \{"errorCode": (0|27),'), "it falls before, in or after a rebalance"),
    Sometimes("LeaveGroup", re.compile(".*"), "a client that closes does not always wait for the answer"),
    Sometimes("Metadata", re.compile(r'/topics \{"errorCode": [35],'), "a new topic has no leader yet"),
    Sometimes(
        "AddPartitionsToTxn",
        re.compile(r'.*"partitionErrorCode": 51,'),
        "the markers of the last transaction are on their way",
    ),
    Sometimes("OffsetFetch", re.compile(r'/groups/topics \{"name":'), "asked by name until a topic's id is known"),
)
# The version that goes with the last one.
VERSIONS_SOMETIMES = {("OffsetFetch", 9)}

# Records of topics that are compared as sets, which may be read or not: a Connect worker that lets go of its
# connectors writes that too, and what it still reads of it is timing.
RECORDS_SOMETIMES = (re.compile(r'.*"value": null'), re.compile(r'.*"state": "UNASSIGNED"'))
