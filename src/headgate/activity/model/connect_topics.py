"""Connect's records of active topics (KIP-558), read and written, and what they say together.

One rule: what a connector uses is what the last record of each of its keys says, a value or a null, whoever wrote it;
copies change nothing. A record that is not understood is passed over with a reason, as Connect passes over it. The key
decides: a value is only asked whether Connect would take it. Never a word here about what used to be.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_PREFIX: Final = "status-topic-"
_SEPARATOR: Final = ":connector-"
_OTHERS: Final = ("status-connector-", "status-task-")  # what else Connect keeps in the topic
_CONFIG_PREFIX: Final = "connector-"
_INT32, _INT64 = 2**31, 2**63
# Kafka's longest topic name, and far more than anybody calls a connector.
MAX_TOPIC, MAX_CONNECTOR = 249, 1024
_MOST_KEY_BYTES: Final = 8192
_MOST_VALUE_BYTES: Final = 65_536
_MOST_DELETED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUsed:
    """A task of the connector was the last to say that it uses the topic."""

    topic: str
    connector: str
    task: int
    discover_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReset:
    """The connector does not use the topic any more."""

    topic: str
    connector: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Nothing that is ours; `reason` None: Connect's own status of connectors and tasks, nothing to wonder about."""

    reason: str | None = None


_NOT_OURS: Final = Skipped()
Status = TopicUsed | TopicReset


def read_status(key: bytes | None, value: bytes | None) -> Status | Skipped:
    """What a record of the status topic says; the first colon ends the topic's name, which can have none."""
    if key is None:
        return Skipped("the record has no key")
    if len(key) > _MOST_KEY_BYTES or (value is not None and len(value) > _MOST_VALUE_BYTES):
        return Skipped("the record is larger than any that Connect writes")
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return Skipped("the key is not UTF-8 text")
    if not text.startswith(_PREFIX):
        return _NOT_OURS if text.startswith(_OTHERS) else Skipped("the key is none of Connect's")
    topic, colon, connector = text[len(_PREFIX) :].partition(_SEPARATOR)
    if not topic or not connector or ":" in topic or not colon:
        return Skipped("the key does not name a topic and a connector")
    if value is None:
        return TopicReset(topic=topic, connector=connector)
    return _used(topic, connector, value)


def _used(topic: str, connector: str, value: bytes) -> TopicUsed | Skipped:
    try:
        outer = _JSON.decode(value.decode())
    except (ValueError, RecursionError):
        return Skipped("the value is not JSON")
    inner = outer.get("topic") if type(outer) is dict else None
    if type(inner) is not dict:
        return Skipped("the value has no object 'topic'")
    if type(inner.get("name")) is not str or type(inner.get("connector")) is not str:
        return Skipped("the value does not name a topic and a connector")
    task, at = inner.get("task"), inner.get("discoverTimestamp")
    if type(task) is not int or not -_INT32 <= task < _INT32:
        return Skipped("the value's task is not a whole number")
    if type(at) is not int or not -_INT64 <= at < _INT64:
        return Skipped("the value's discoverTimestamp is not a whole number")
    return TopicUsed(topic=topic, connector=connector, task=task, discover_timestamp_ms=at)


def _no_constant(_: str) -> None:
    raise ValueError("NaN and Infinity are not JSON")


_JSON: Final = json.JSONDecoder(parse_constant=_no_constant)  # json.loads would make one for each record


def can_be_written(topic: str, connector: str) -> bool:
    """Whether a record may name these: a connector's name comes from a client's id, and clients choose those."""
    return (
        0 < len(topic) <= MAX_TOPIC
        and ":" not in topic
        and 0 < len(connector) <= MAX_CONNECTOR
        and topic.isprintable()
        and connector.isprintable()  # Connect itself refuses control characters; lone surrogates are none of ours
    )


def status_key(topic: str, connector: str) -> bytes:
    return f"{_PREFIX}{topic}{_SEPARATOR}{connector}".encode()


def status_value(used: TopicUsed) -> bytes:
    """The bytes that Connect's own worker would write: no envelope, no blanks, this order."""
    inner = {
        "name": used.topic,
        "connector": used.connector,
        "task": used.task,
        "discoverTimestamp": used.discover_timestamp_ms,
    }
    return json.dumps({"topic": inner}, separators=(",", ":"), ensure_ascii=False).encode()


class ActiveTopics:
    """The map from connectors to the topics that they use: a fold over the records, in each partition's order."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, set[str]] = {}

    def take(self, status: Status) -> None:
        match status:
            case TopicUsed(topic=topic, connector=connector):
                self._topics.setdefault(connector, set()).add(topic)
            case TopicReset(topic=topic, connector=connector):
                left = self._topics.get(connector)
                if left is not None:
                    left.discard(topic)
                    if not left:
                        del self._topics[connector]

    def of(self, connector: str) -> tuple[str, ...]:
        """Sorted; empty for a connector of which nothing is known, as Connect has it."""
        return tuple(sorted(self._topics.get(connector, ())))

    def has(self, topic: str, connector: str) -> bool:
        return topic in self._topics.get(connector, ())

    def connectors(self) -> Iterator[str]:
        return iter(self._topics)

    def clear(self) -> None:
        self._topics.clear()

    def __len__(self) -> int:
        """How many pairs there are."""
        return sum(map(len, self._topics.values()))


@dataclass(frozen=True, slots=True)
class ConnectorWord:
    """What the config topic said last of a connector: that it is there, or that it was deleted."""

    connector: str
    deleted: bool


def read_config(key: bytes | None, *, is_null: bool) -> ConnectorWord | None:
    """A record of the config topic; its value may hold secrets, so nobody looks at more than whether it is null."""
    if key is None or len(key) > _MOST_KEY_BYTES or not key.startswith(_CONFIG_PREFIX.encode()):
        return None
    try:
        connector = key.decode().removeprefix(_CONFIG_PREFIX)
    except UnicodeDecodeError:
        return None
    return ConnectorWord(connector, is_null) if connector else None


class DeletedConnectors:
    """The connectors whose last word in the config topic is a null, the latest ten thousand."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def take(self, words: Iterable[ConnectorWord]) -> None:
        for word in words:
            self._names.pop(word.connector, None)
            if word.deleted:
                self._names[word.connector] = None
                if len(self._names) > _MOST_DELETED:
                    del self._names[next(iter(self._names))]

    def __contains__(self, connector: str) -> bool:
        return connector in self._names

    def clear(self) -> None:
        self._names.clear()

    def still_active(self, topics: ActiveTopics) -> tuple[str, ...]:
        """Those of which topics are still recorded."""
        return tuple(name for name in self._names if topics.of(name))
