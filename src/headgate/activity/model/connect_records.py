"""Connect's records of active topics (KIP-558): decoded, encoded, and reduced to a map from connectors to topics.

The last record of each key decides, a value or a tombstone, and duplicates change nothing. A record that cannot be
decoded is skipped with a reason, as a Connect worker skips it. The topic and the connector are those of the key.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_PREFIX: Final = "status-topic-"
_SEPARATOR: Final = ":connector-"
_OTHERS: Final = ("status-connector-", "status-task-")  # the other records of the topic
_CONFIG_PREFIX: Final = "connector-"
_INT32, _INT64 = 2**31, 2**63
_MAX_TOPIC, MAX_CONNECTOR = 249, 1024  # the first is Kafka's limit
_MOST_KEY_BYTES: Final = 8192
_MOST_VALUE_BYTES: Final = 65_536
_MOST_CONFIGURED: Final = 100_000
_MOST_DELETED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUsed:
    """A task of the connector used the topic."""

    topic: str
    connector: str
    task: int
    discover_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReset:
    """The topic was removed from the active topics of the connector."""

    topic: str
    connector: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that is not about an active topic; `reason` is None for the status of connectors and tasks."""

    reason: str | None = None


_OTHER_STATUS: Final = Skipped()
TopicStatus = TopicUsed | TopicReset


def read_status(key: bytes | None, value: bytes | None) -> TopicStatus | Skipped:
    """Decode a record of the status topic; the first colon ends the name of the topic, which cannot contain one."""
    if key is None:
        return Skipped("the record has no key")
    if len(key) > _MOST_KEY_BYTES or (value is not None and len(value) > _MOST_VALUE_BYTES):
        return Skipped("the record is larger than any that Connect writes")
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return Skipped("the key is not UTF-8 text")
    if not text.startswith(_PREFIX):
        return _OTHER_STATUS if text.startswith(_OTHERS) else Skipped("the key is not one of Connect's")
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


def is_writable(topic: str, connector: str) -> bool:
    """Whether a record may contain these names: that of the connector comes from a client id, which is untrusted."""
    return (
        0 < len(topic) <= _MAX_TOPIC
        and ":" not in topic
        and 0 < len(connector) <= MAX_CONNECTOR
        and topic.isprintable()
        and connector.isprintable()  # Connect refuses control characters too
    )


def status_key(topic: str, connector: str) -> bytes:
    return f"{_PREFIX}{topic}{_SEPARATOR}{connector}".encode()


def status_value(used: TopicUsed) -> bytes:
    """The bytes that a Connect worker writes: no schema envelope, no spaces, this order."""
    inner = {
        "name": used.topic,
        "connector": used.connector,
        "task": used.task,
        "discoverTimestamp": used.discover_timestamp_ms,
    }
    return json.dumps({"topic": inner}, separators=(",", ":"), ensure_ascii=False).encode()


class ActiveTopics:
    """The map from connectors to the topics that they use."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, set[str]] = {}

    def apply(self, status: TopicStatus) -> None:
        """Apply the records of a partition in their order."""
        if isinstance(status, TopicUsed):
            self.add(status.topic, status.connector)
            return
        topics = self._topics.get(status.connector, set())
        topics.discard(status.topic)
        if not topics:
            self._topics.pop(status.connector, None)

    def add(self, topic: str, connector: str) -> None:
        self._topics.setdefault(connector, set()).add(topic)

    def of(self, connector: str) -> tuple[str, ...]:
        """The topics of a connector, sorted; empty for an unknown connector, as in Connect."""
        return tuple(sorted(self._topics.get(connector, ())))

    def has(self, topic: str, connector: str) -> bool:
        return topic in self._topics.get(connector, ())

    def connectors(self) -> Iterator[str]:
        return iter(self._topics)

    def clear(self) -> None:
        self._topics.clear()

    def __len__(self) -> int:
        """The number of pairs of connector and topic."""
        return sum(map(len, self._topics.values()))


@dataclass(frozen=True, slots=True)
class ConnectorConfigured:
    """A connector was configured, or deleted, in the config topic."""

    connector: str
    is_deleted: bool


def read_config(key: bytes | None, *, is_null: bool) -> ConnectorConfigured | None:
    """Decode the key of a record of the config topic; its value may contain secrets and is not passed in."""
    if key is None or len(key) > _MOST_KEY_BYTES or not key.startswith(_CONFIG_PREFIX.encode()):
        return None
    try:
        connector = key.decode().removeprefix(_CONFIG_PREFIX)
    except UnicodeDecodeError:
        return None
    return ConnectorConfigured(connector, is_null) if connector else None


class ConnectorConfigs:
    """The connectors that the config topic names, and those whose last record there is a tombstone.

    The latest 100,000 and 10,000 are kept.
    """

    __slots__ = ("_configured", "_deleted")

    def __init__(self) -> None:
        self._configured: dict[str, None] = {}
        self._deleted: dict[str, None] = {}

    def apply(self, records: Iterable[ConnectorConfigured]) -> None:
        for record in records:
            if record.is_deleted:
                into, other, most = self._deleted, self._configured, _MOST_DELETED
            else:
                into, other, most = self._configured, self._deleted, _MOST_CONFIGURED
            other.pop(record.connector, None)
            into.pop(record.connector, None)
            into[record.connector] = None
            if len(into) > most:
                del into[next(iter(into))]

    def is_configured(self, connector: str) -> bool:
        """Whether its last record has a value: the connector is one of this Connect cluster."""
        return connector in self._configured

    def is_deleted(self, connector: str) -> bool:
        return connector in self._deleted

    def clear(self) -> None:
        self._configured.clear()
        self._deleted.clear()

    def still_active(self, topics: ActiveTopics) -> tuple[str, ...]:
        """The deleted connectors that still have active topics."""
        return tuple(name for name in self._deleted if topics.of(name))
