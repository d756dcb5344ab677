"""What may differ between two runs of one script against one broker, and why: the kinds of values, then the tables.

One rule: every row says why. A value is replaced by a word for its kind, and only if it looks like one: a mark such as
-1, an empty text or the zero id stays, so that something that should be there and is not still shows. What is left
out, in the last tables, is left out only for clients that run by themselves where timing decides whether it is there.
"""

import json
import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_HEX_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_KAFKA_UUID = re.compile(r"[A-Za-z0-9_-]{22}")
_RESERVED_UUIDS = 100  # Kafka keeps the first hundred for itself: zero, the metadata topic, log directories
_STREAM_TIME = re.compile(r"Ag[A-Za-z0-9+/]{10}")
_OLD_PRODUCER = ("v3AndBelowProducerId", "v3AndBelowProducerEpoch")
_EARLIEST_MS = 1_600_000_000_000


@dataclass(slots=True)
class Known:
    """What a run itself says of its volatile values, so that they can be called by name."""

    topics: dict[str, str] = field(default_factory=dict)  # topic id to name
    first_epochs: dict[int, int] = field(default_factory=dict)  # producer id to the lowest epoch seen


# The value, the struct that it stands in, and what is known of the run.
Kind = Callable[[Any, Mapping[str, Any], Known], Any]


def number(word: str, *, least: int) -> Kind:
    """A whole number from `least` on."""

    def kind(value: Any, of: Mapping[str, Any], known: Known) -> Any:  # noqa: ARG001
        return f"<{word}>" if isinstance(value, int) and value >= least else value

    return kind


offset = number("offset", least=0)
epoch = number("epoch", least=0)
count = number("count", least=1)
producer = number("producer id", least=0)
session = number("session", least=0)
timestamp = number("timestamp", least=_EARLIEST_MS)  # milliseconds since the epoch


def opaque(value: Any, of: Mapping[str, Any], known: Known) -> Any:  # noqa: ARG001
    """Bytes that mean something only to the clients who exchange them."""
    return "<bytes>" if isinstance(value, str) else value


def uuid(value: Any, of: Mapping[str, Any], known: Known) -> Any:  # noqa: ARG001
    """An id of 16 bytes in Kafka's base64; a topic's is called by the topic's name."""
    if not isinstance(value, str) or not _KAFKA_UUID.fullmatch(value):
        return value
    if int.from_bytes(urlsafe_b64decode(value + "==")) < _RESERVED_UUIDS:
        return value
    return f"<id of topic {known.topics[value]}>" if value in known.topics else "<uuid>"


def member(value: Any, of: Mapping[str, Any], known: Known) -> Any:
    """A text with a member id in it: what the client or the broker put around the random part is kept."""
    if not isinstance(value, str):
        return value
    # librdkafka writes its own in the common base64, with + and /.
    return _HEX_UUID.sub("<uuid>", uuid(value.replace("+", "-").replace("/", "_"), of, known))


def producer_of(struct: Mapping[str, Any]) -> tuple[int, int]:
    """The id and the epoch of the producer that a struct names; -1 where it names none."""
    for id_field, epoch_field in (("producerId", "producerEpoch"), ("producer_id", "producer_epoch"), _OLD_PRODUCER):
        if id_field in struct and epoch_field in struct:
            return struct[id_field], struct[epoch_field]
    return -1, -1


def producer_epoch(value: Any, of: Mapping[str, Any], known: Known) -> Any:
    """A transactional id keeps its epoch from run to run: what counts is how far it moved in this one."""
    first = known.first_epochs.get(producer_of(of)[0])
    return value if first is None or value < 0 else f"<first epoch + {value - first}>"


def partition_time(value: Any, of: Mapping[str, Any], known: Known) -> Any:  # noqa: ARG001
    """What Streams commits with an offset: version 2, eight bytes of stream time, and what else it knows."""
    if not isinstance(value, str) or not _STREAM_TIME.match(value):
        return value
    noted = b64decode(value)
    return f"<partition time>{noted[9:].hex()}" if int.from_bytes(noted[1:9]) > _EARLIEST_MS else value


def connect_document(value: Any, of: Mapping[str, Any], known: Known) -> Any:  # noqa: ARG001
    """A record of a Connect worker's own topics, read as JSON: times, generations and the session key are replaced."""
    if not isinstance(value, str):
        return value
    try:
        document = json.loads(b64decode(value))
    except ValueError:
        return value
    return _without_noise(document) if isinstance(document, dict) else value


def _without_noise(document: Any, name: str = "") -> Any:
    if isinstance(document, dict):
        drawn = {"key"} if "algorithm" in document else set()
        return {key: "<bytes>" if key in drawn else _without_noise(value, key) for key, value in document.items()}
    if isinstance(document, int) and (name == "generation" or document > _EARLIEST_MS):
        return f"<{name}>"
    return document


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
