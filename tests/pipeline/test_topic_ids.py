"""Topics have their ids in the tables: those that they had when the rows were written."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.facts.topology import Description, SinkNode, SourceNode, Subtopology
from headgate.kafka.topics import TopicAdmin, quiet
from tests.pipeline.estate import Estate
from tests.pipeline.histories import described


@pytest.fixture
def admin(estate: Estate) -> Iterator[AdminClient]:
    client = AdminClient(quiet(estate.settings))
    yield client
    for deleted in client.delete_topics([f"{estate.prefix}in"]).values():
        deleted.result(30)


def make(admin: AdminClient, estate: Estate, name: str) -> str:
    """Make the topic, anew when it is there; its id."""
    reader = TopicAdmin(estate.settings)
    if reader.ids([name]):
        admin.delete_topics([name])[name].result(30)
        until(lambda: not reader.ids([name]))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    until(lambda: bool(reader.ids([name])))
    return reader.ids([name])[name]


def until(is_so: Callable[[], bool]) -> None:
    by = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < by
        time.sleep(0.05)


def test_a_row_has_the_ids_of_its_topics(estate: Estate, admin: AdminClient) -> None:
    topic, odd = f"{estate.prefix}in", "no topic \u2028"
    first = make(admin, estate, topic)
    nodes = (SourceNode(name="S", topics=(topic, odd), successors=("K",)), SinkNode(name="K", topic="nowhere"))
    flow = Description(subtopologies=(Subtopology(id="0", nodes=nodes),))
    other = Description(subtopologies=(Subtopology(id="1", nodes=nodes),))
    estate.about = estate.cluster_id()
    estate.write(described("g", flow, at=1))
    estate.write_raw("events", b"[]", b"{}")
    assert estate.run()
    ids = {row["node"]: row["topic_id"] for row in estate.rows("topology_nodes").values()}
    assert ids == {"S": None, "K": None, topic: first, odd: None, "nowhere": None}
    edges = {(row["from_node"], row["to_node"]): row["topic_id"] for row in estate.rows("topology_edges").values()}
    assert edges[topic, "S"] == first
    assert edges["S", "K"] is None
    pairs = {row["in_topic"]: (row["in_topic_id"], row["out_topic_id"]) for row in estate.rows("app_io").values()}
    assert pairs == {topic: (first, None), odd: (None, None)}
    facts = {"topologies", "events"}
    own = {name.removeprefix(estate.prefix): id_ for name, id_ in estate.topic_ids().items()}
    seen = {row["topic"].removeprefix(estate.prefix): row["topic_id"] for row in estate.rows("changes").values()}
    (rejected,) = estate.rows("rejected_facts").values()
    assert {**seen, "events": rejected["topic_id"]} == {name: own[name] for name in facts}

    second = make(admin, estate, topic)
    estate.write(described("g", other, at=2))
    assert estate.run()
    rows = [row for row in estate.rows("topology_nodes").values() if row["node"] == topic]
    assert {row["ended_at"]: row["topic_id"] for row in rows} == {2: first, None: second}
    estate.rebuild("topology_nodes")
    rows = [row for row in estate.rows("topology_nodes").values() if row["node"] == topic]
    assert {row["ended_at"]: row["topic_id"] for row in rows} == {2: first, None: second}
