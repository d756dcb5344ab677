"""The connectors in `headgate.activity`: only names are kept, and a bounded number of them."""

from dataclasses import replace

from structlog.testing import capture_logs

from headgate.activity.observed_connectors import ObservedConnectors, connector_pairs
from headgate.facts import ActivityObserved, Actor, encode
from headgate.kafka.consumer_thread import ConsumedRecord
from tests.support.activity_facts import USE

CONNECTOR = Actor(kind="connector", name="src", rule="connector-client-id", confidence="certain")
SEEN = replace(USE, cluster="c", writer="gw/0", boot="b", seq=0, actor=CONNECTOR)


def record(fact: ActivityObserved) -> ConsumedRecord:
    _, key, value = encode(fact)
    return ConsumedRecord(0, key, value)


def test_only_records_about_connectors_count() -> None:
    streams = replace(SEEN, actor=replace(CONNECTOR, kind="streams"), client_id='"connector"')
    unknown = replace(SEEN, topic=None)
    long = replace(SEEN, actor=replace(CONNECTOR, name="n" * 2000))
    other = replace(SEEN, actor=replace(CONNECTOR, name="sink"), direction="read")
    malformed = ConsumedRecord(0, b"nonsense", b'"connector"')
    records = [record(one) for one in (SEEN, SEEN, streams, unknown, long, other)]
    assert connector_pairs([*records, malformed, ConsumedRecord(0, b"k", None)]) == [
        ("src", "orders"),
        ("sink", "orders"),
    ]


async def test_the_number_of_connectors_and_topics_is_bounded_and_logged_once() -> None:
    observed = ObservedConnectors({}, prefix="headgate.", most=3)
    with capture_logs() as logs:
        observed.add([("src", f"t{number}") for number in range(5)])
        observed.add([("src", "t0"), ("other", "t9")])
    assert observed.topics.of("src") == ("t0", "t1", "t2")
    assert list(observed.topics.connectors()) == ["src"]
    assert len(logs) == 1
