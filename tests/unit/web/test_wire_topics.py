"""What headgate.activity says of connectors: names alone, and only so many."""

from dataclasses import replace

from structlog.testing import capture_logs

from headgate.facts import ActivityObserved, Actor, encode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.web.wire_topics import WireTopics, connector_pairs
from tests.support.use_fact import USE

SEEN = replace(
    USE,
    cluster="c",
    writer="gw/0",
    boot="b",
    seq=0,
    actor=Actor(kind="connector", name="src", rule="connector-client-id", confidence="certain"),
    direction="write",
    client_id="connector-producer-src-0",
)


def record(fact: ActivityObserved) -> ConsumedRecord:
    _, key, value = encode(fact)
    return ConsumedRecord(0, key, value)


def test_only_facts_about_connectors_count() -> None:
    streams = replace(SEEN, actor=replace(SEEN.actor, kind="streams"), client_id='"connector"')
    unknown = replace(SEEN, topic=None)
    long = replace(SEEN, actor=replace(SEEN.actor, name="n" * 2000))
    other = replace(SEEN, actor=replace(SEEN.actor, name="sink"), direction="read")
    bad = ConsumedRecord(0, b"nonsense", b'"connector"')
    records = [record(SEEN), record(SEEN), record(streams), record(unknown), record(long), bad, record(other)]
    assert connector_pairs([*records, ConsumedRecord(0, b"k", None)]) == [("src", "orders"), ("sink", "orders")]


def test_memory_is_bounded_and_it_says_so_once() -> None:
    topics = WireTopics(most=3)
    with capture_logs() as logs:
        topics.take([("src", f"t{number}") for number in range(5)])
        topics.take([("src", "t0"), ("other", "t9")])
    assert topics.of("src") == ("t0", "t1", "t2")
    assert list(topics.connectors()) == ["src"]
    assert topics.is_full
    assert len(logs) == 1
