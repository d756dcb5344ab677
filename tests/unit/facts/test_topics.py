"""The topics as the contract has them."""

import json

import pytest

from headgate.facts import TopologyDescribed, encode
from headgate.facts.codec import FORMS
from headgate.facts.topics import DAY_MS, TOPICS, message_limit, replication_of, suffix_of, topic_specs
from headgate.facts.topology import Description, GlobalStore, ProcessorNode, SourceNode, Subtopology


def test_partitions_cleanup_and_retention_of_every_topic() -> None:
    assert {topic.suffix: (topic.partitions, topic.cleanup, topic.retention_ms) for topic in TOPICS} == {
        "state": (1, "compact", None),
        "trips": (1, "compact", None),
        "topologies": (1, "compact", None),
        "tasks": (1, "compact", None),
        "leader": (1, "delete", None),
        "activity": (8, "delete", 90 * DAY_MS),
        "dispositions": (8, "delete", 30 * DAY_MS),
        "events": (8, "delete", 90 * DAY_MS),
        "lags": (8, "delete", 2 * DAY_MS),
        "spool": (8, "compact", None),
    }


def test_every_fact_goes_to_a_topic_of_the_table() -> None:
    assert {form.topic for form in FORMS} == {topic.suffix for topic in TOPICS} - {"leader", "spool"}


def test_a_tombstone_is_written_only_where_the_topic_is_compacted() -> None:
    compacted = {topic.suffix for topic in TOPICS if topic.cleanup == "compact"}
    assert {form.topic for form in FORMS if form.value is None} <= compacted


def test_specs_carry_prefix_policy_retention_and_size() -> None:
    specs = {spec.name: spec for spec in topic_specs(prefix="hg-", brokers=2, max_bytes=1000)}
    assert dict(specs["hg-state"].configs) == {"cleanup.policy": "compact"}
    assert dict(specs["hg-events"].configs) == {"cleanup.policy": "delete", "retention.ms": "7776000000"}
    assert dict(specs["hg-topologies"].configs) == {
        "cleanup.policy": "compact",
        "max.message.bytes": str(message_limit(1000)),
    }
    assert dict(specs["hg-spool"].configs) == {
        "cleanup.policy": "compact",
        "max.message.bytes": str(17 * 1024 * 1024),
        "segment.bytes": str(64 * 1024 * 1024),
        "segment.ms": "3600000",
    }
    assert dict(specs["hg-leader"].configs) == {"cleanup.policy": "delete"}
    assert specs["hg-activity"].partitions == 8
    assert {spec.replication for spec in specs.values()} == {2}


@pytest.mark.parametrize(
    ("brokers", "configured", "expected"),
    [(1, None, None), (2, None, None), (3, None, "2"), (9, None, "2"), (9, 2, None), (9, 5, "2")],
)
def test_from_three_replicas_on_two_must_have_a_record_before_it_is_confirmed(
    brokers: int, configured: int | None, expected: str | None
) -> None:
    for spec in topic_specs(prefix="hg-", brokers=brokers, max_bytes=1000, replication=configured):
        assert dict(spec.configs).get("min.insync.replicas") == expected


@pytest.mark.parametrize(
    ("brokers", "configured", "expected"), [(1, None, 1), (2, None, 2), (9, None, 3), (9, 2, 2), (0, None, 1)]
)
def test_replication_is_three_at_most_unless_configured(brokers: int, configured: int | None, expected: int) -> None:
    assert replication_of(brokers, configured) == expected


def test_a_suffix_is_found_only_behind_our_prefix() -> None:
    assert suffix_of("headgate.", "headgate.state") == "state"
    assert suffix_of("headgate.", "state") is None
    assert suffix_of("headgate.", "headgate.other") is None
    assert suffix_of("headgate.", "headgate.headgate.state") is None


# The smallest node on the wire: name, type, source topics, sink topic, stores, successors, tags, a byte each.
WIRE_NODE = 7


def described(description: Description) -> int:
    group = "\0" * 32_767
    fact = TopologyDescribed(
        at=2**63 - 1,
        cluster="c" * 22,
        writer="w" * 200,
        boot="b" * 32,
        seq=2**63 - 1,
        group=group,
        incarnation="i" * 32,
        epoch=2**31 - 1,
        hash="sha256:" + "0" * 64,
        provenance="assignment",
        member="m" * 200,
        process="p" * 200,
        description=description,
    )
    _, key, value = encode(fact)
    return len(key) + len(value or b"")


def test_whatever_fits_a_push_fits_the_topic() -> None:
    count = 3_000
    empty_sources = Description(subtopologies=(Subtopology(id="", nodes=(SourceNode(name=""),) * count),))
    assert described(empty_sources) <= message_limit(count * WIRE_NODE)
    store = GlobalStore(source=SourceNode(name=""), processor=ProcessorNode(name=""))
    assert described(Description(global_stores=(store,) * count)) <= message_limit(count * (2 * WIRE_NODE + 1))
    control = Description(subtopologies=(Subtopology(id="\1" * 100_000, nodes=()),))
    assert described(control) <= message_limit(100_000)
    empty_lists = ProcessorNode(name="", stores=("",) * count)
    assert described(Description(subtopologies=(Subtopology(id="", nodes=(empty_lists,)),))) <= message_limit(count)
    assert len(json.dumps([""] * count, separators=(",", ":"))) <= 11 * count
