"""Connect's records of active topics: read, written, folded."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.activity.model.connect_records import (
    MAX_CONNECTOR,
    ActiveTopics,
    ConnectorConfigs,
    ConnectorConfigured,
    Skipped,
    TopicReset,
    TopicStatus,
    TopicUsed,
    is_writable,
    read_config,
    read_status,
    status_key,
    status_value,
)

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)
# A connector's name may hold colons, and the very separator.
CONNECTORS = st.text('abc:-é/ "\\', min_size=1, max_size=20) | st.sampled_from(["x:connector-y", ":connector-", "a:b"])
USED = st.builds(
    TopicUsed,
    topic=TOPICS,
    connector=CONNECTORS,
    task=st.integers(0, 2**31 - 1),
    discover_timestamp_ms=st.integers(0, 2**63 - 1),
)
REAL_KEY = b"status-topic-ct-b:connector-src-b"
REAL_VALUE = b'{"topic":{"name":"ct-b","connector":"src-b","task":0,"discoverTimestamp":1794731901727}}'
REAL = TopicUsed(topic="ct-b", connector="src-b", task=0, discover_timestamp_ms=1794731901727)


def used(topic: str, connector: str) -> TopicUsed:
    return TopicUsed(topic=topic, connector=connector, task=0, discover_timestamp_ms=1)


def reset(topic: str, connector: str) -> TopicReset:
    return TopicReset(topic=topic, connector=connector)


def folded(records: Sequence[TopicStatus]) -> dict[str, tuple[str, ...]]:
    topics = ActiveTopics()
    for record in records:
        topics.apply(record)
    return {connector: topics.of(connector) for connector in topics.connectors()}


def test_a_record_of_a_real_worker_is_read_and_written_byte_for_byte() -> None:
    assert read_status(REAL_KEY, REAL_VALUE) == REAL
    assert (status_key("ct-b", "src-b"), status_value(REAL)) == (REAL_KEY, REAL_VALUE)


def test_names_that_are_not_ascii_are_written_as_a_worker_writes_them() -> None:
    """Connect's JSON converter escapes no letters."""
    value = status_value(TopicUsed(topic="t", connector="größe", task=0, discover_timestamp_ms=1))
    assert value == '{"topic":{"name":"t","connector":"größe","task":0,"discoverTimestamp":1}}'.encode()


@given(USED)
def test_encoded_records_decode_to_the_same(one: TopicUsed) -> None:
    key = status_key(one.topic, one.connector)
    assert read_status(key, status_value(one)) == one
    assert read_status(key, None) == reset(one.topic, one.connector)


def test_the_first_colon_ends_the_topic() -> None:
    assert read_status(b"status-topic-t:connector-a:connector-b", None) == reset("t", "a:connector-b")
    found = read_status(b"status-topic-t:u:connector-a", None)
    assert found == Skipped("the key does not name a topic and a connector")


@pytest.mark.parametrize("key", [b"status-connector-src-b", b"status-task-src-b-0"])
def test_other_records_of_connect_are_skipped_without_a_warning(key: bytes) -> None:
    assert read_status(key, b"{}") == Skipped(None)


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"nonsense",
        b"status-topic-",
        b"status-topic-t",
        b"status-topic-t:",
        b"status-topic-t:connector-",
        b"status-topic-:connector-c",
        b"status-topic-t:task-c",
        b"status-topic-\xff:connector-c",
        b"status-topic-" + b"t" * 9000 + b":connector-c",
    ],
)
@pytest.mark.parametrize("value", [None, REAL_VALUE])
def test_an_unknown_key_is_skipped_with_a_reason(key: bytes | None, value: bytes | None) -> None:
    found = read_status(key, value)
    assert isinstance(found, Skipped)
    assert found.reason


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'{"topic":null}',
        b'{"topic":{}}',
        b'{"name":"t","connector":"c","task":0,"discoverTimestamp":1}',
        b'{"schema":{},"payload":{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":1}}}',
        b'{"topic":{"name":1,"connector":"c","task":0,"discoverTimestamp":1}}',
        b'{"topic":{"name":"t","connector":null,"task":0,"discoverTimestamp":1}}',
        b'{"topic":{"name":"t","connector":"c","task":"0","discoverTimestamp":1}}',
        b'{"topic":{"name":"t","connector":"c","task":true,"discoverTimestamp":1}}',
        b'{"topic":{"name":"t","connector":"c","task":0.0,"discoverTimestamp":1}}',
        b'{"topic":{"name":"t","connector":"c","task":4294967296,"discoverTimestamp":1}}',
        b'{"topic":{"name":"t","connector":"c","task":0}}',
        b'{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":NaN}}',
        b'{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":9223372036854775808}}',
        b"[" * 60_000,
        REAL_VALUE + b" " * 65_536,
    ],
)
def test_a_value_that_connect_would_not_accept_is_skipped_with_a_reason(value: bytes) -> None:
    found = read_status(REAL_KEY, value)
    assert isinstance(found, Skipped)
    assert found.reason


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_any_bytes_are_decoded_without_an_exception(tail: bytes, value: bytes | None) -> None:
    for key in (tail, b"status-topic-" + tail, b"status-topic-t:connector-" + tail):
        assert isinstance(read_status(key, value), TopicUsed | TopicReset | Skipped)


def test_the_key_decides_and_unknown_fields_are_ignored() -> None:
    value = json.dumps(
        {"topic": {"name": "x", "connector": "y", "task": 3, "discoverTimestamp": 5, "more": []}, "also": 1}
    ).encode()
    found = read_status(REAL_KEY, value)
    assert found == TopicUsed(topic="ct-b", connector="src-b", task=3, discover_timestamp_ms=5)


RECORDS = st.lists(
    st.builds(used, st.sampled_from("tuv"), st.sampled_from("ab"))
    | st.builds(reset, st.sampled_from("tuv"), st.sampled_from("ab")),
    max_size=30,
)


@given(RECORDS)
def test_the_last_record_of_each_key_counts(records: list[TopicStatus]) -> None:
    last = {(one.connector, one.topic): isinstance(one, TopicUsed) for one in records}
    expected: dict[str, tuple[str, ...]] = {}
    for connector, topic in sorted(key for key, is_used in last.items() if is_used):
        expected[connector] = (*expected.get(connector, ()), topic)
    assert folded(records) == expected


@given(RECORDS, st.data())
def test_copies_and_compaction_change_nothing(records: list[TopicStatus], data: st.DataObject) -> None:
    twice = [one for one in records for _ in range(data.draw(st.integers(1, 2)))]
    compacted = {(one.connector, one.topic): one for one in records}
    # Compaction keeps the last of each key, and keys of other partitions come in any order.
    survivors = data.draw(st.permutations(list(compacted.values())))
    assert folded(twice) == folded(records) == folded(survivors)


@pytest.mark.parametrize("at", range(4))
def test_a_reset_interleaved_with_recording_has_two_legal_outcomes(at: int) -> None:
    """A reset sends one tombstone for each topic it knew; a task records at any moment between (no happens-before)."""
    known = ["t", "u", "v"]
    log: list[TopicStatus] = [used(topic, "c") for topic in known]
    resets: list[TopicStatus] = [reset(topic, "c") for topic in known]
    log += [*resets[:at], used("t", "c"), *resets[at:]]
    # Recorded behind its own tombstone it stays; recorded before it, it is gone until the task says it again.
    assert folded(log) == ({"c": ("t",)} if at >= 1 else {})
    assert folded([*log, used("t", "c")]) == {"c": ("t",)}


def test_an_unknown_connector_has_no_topics() -> None:
    topics = ActiveTopics()
    topics.apply(reset("t", "c"))
    assert topics.of("c") == ()
    assert len(topics) == 0
    topics.apply(used("t", "c"))
    assert topics.has("t", "c")
    assert not topics.has("t", "d")
    assert len(topics) == 1


@pytest.mark.parametrize(
    ("topic", "connector"),
    [
        ("", "c"),
        ("t", ""),
        ("t:u", "c"),
        ("t" * 250, "c"),
        ("t", "c" * (MAX_CONNECTOR + 1)),
        ("t", "a\nb"),
        ("t", "\ud800"),
    ],
)
def test_names_that_are_not_writable(topic: str, connector: str) -> None:
    assert not is_writable(topic, connector)


@given(TOPICS, CONNECTORS)
def test_writable_names_are_read_back(topic: str, connector: str) -> None:
    assert is_writable(topic, connector)
    assert read_status(status_key(topic, connector), None) == reset(topic, connector)


def test_a_null_in_the_config_topic_is_a_deletion() -> None:
    assert read_config(b"connector-src-b", is_null=True) == ConnectorConfigured("src-b", is_deleted=True)
    assert read_config(b"connector-src-b", is_null=False) == ConnectorConfigured("src-b", is_deleted=False)


@pytest.mark.parametrize(
    "key", [None, b"task-src-b-0", b"commit-src-b", b"target-state-src-b", b"connector-", b"connector-\xff"]
)
def test_other_records_of_the_config_topic_say_nothing(key: bytes | None) -> None:
    assert read_config(key, is_null=True) is None


def test_a_connector_is_deleted_if_its_last_config_record_is_a_tombstone() -> None:
    configs, topics = ConnectorConfigs(), ActiveTopics()
    topics.apply(used("t", "a"))
    topics.apply(used("t", "b"))
    configs.apply(
        [
            ConnectorConfigured("a", is_deleted=False),
            ConnectorConfigured("a", is_deleted=True),
            ConnectorConfigured("b", is_deleted=True),
            ConnectorConfigured("b", is_deleted=False),
        ]
    )
    assert (configs.is_deleted("a"), configs.is_configured("a")) == (True, False)
    assert (configs.is_deleted("b"), configs.is_configured("b")) == (False, True)
    assert (configs.is_deleted("c"), configs.is_configured("c")) == (False, False)
    assert configs.still_active(topics) == ("a",)
    configs.clear()
    assert not configs.is_deleted("a")
    assert not configs.is_configured("b")


def test_deletions_and_connectors_are_bounded() -> None:
    configs = ConnectorConfigs()
    configs.apply(ConnectorConfigured(str(number), is_deleted=True) for number in range(10_005))
    assert not configs.is_deleted("4")
    assert configs.is_deleted("5")
    configs.apply(ConnectorConfigured(str(number), is_deleted=False) for number in range(100_005))
    assert not configs.is_configured("4")
    assert configs.is_configured("5")
