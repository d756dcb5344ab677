"""A real Spark query through a gateway: it is known as Spark's, as the same one after a restart, and in lineage."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from headgate.pipeline.derived.lineage import LINEAGE
from headgate.pipeline.queries import QUERIES
from headgate.spark import TopologyFacts, listen
from tests.pipeline.estate import Estate
from tests.support.activity_facts import ActivityFacts
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess, running_gateway


def run_query(spark: SparkSession, gateway: GatewayProcess, topic: str, folder: Path, name: str | None = None) -> None:
    """All that is there and was not read yet, into files; the name is also the prefix of the group."""
    options = {"kafka.bootstrap.servers": gateway.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    options |= {} if name is None else {"groupIdPrefix": name}
    records = spark.readStream.format("kafka").options(**options).load().select("value")
    writing = records.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    writing = writing if name is None else writing.queryName(name)
    query = writing.trigger(availableNow=True).start(str(folder / "out"))
    assert query.awaitTermination(60)


def send(settings: Mapping[str, Any], topic: str) -> None:
    producer = Producer(dict(settings))
    for number in range(10):
        producer.produce(topic, f"value {number}".encode())
    assert producer.flush(30) == 0


def test_a_streaming_query_is_seen_as_one_actor_whatever_its_consumers_are_called(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    prefix, topic = f"act{uuid.uuid4().hex[:6]}.", f"seen-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(dict(cluster.client_config()))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    with running_gateway(tmp_path / "gw", cluster.bootstrap, activity__enable=True, facts__prefix=prefix) as gateway:
        for _ in range(2):
            send(cluster.client_config(), topic)
            run_query(spark, gateway, topic, tmp_path)
    facts = ActivityFacts(cluster.client_config(), prefix)
    try:
        read = facts.until(lambda fact: fact.topic == topic and fact.direction == "read", count=2)
    finally:
        facts.close()
    assert {fact.actor.kind for fact in read} == {"spark"}
    assert len({fact.actor.name for fact in read}) == 1, "the checkpoint is the same"
    assert len({fact.client_id for fact in read}) == 2, "and the consumers are not"


def test_a_described_query_of_a_user_is_one_edge_from_the_wire_to_lineage(estate: Estate, tmp_path: Path) -> None:
    """A producer and a user's Spark query through a gateway; its facts become tables, and these the edges."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(dict(estate.settings))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    session = estate.spark.newSession()
    listener = listen(session, TopologyFacts(estate.settings, prefix=estate.prefix))
    bootstrap = estate.settings["bootstrap.servers"]
    try:
        with running_gateway(tmp_path / "gw", bootstrap, activity__enable=True, facts__prefix=estate.prefix) as gateway:
            send({"bootstrap.servers": gateway.bootstrap, "client.id": "shop"}, topic)
            run_query(session, gateway, topic, tmp_path, name="totals")
    finally:
        listener.close(60)
    assert estate.run(*QUERIES, derivations=(LINEAGE,))
    edges = [row for row in estate.rows("lineage_edges").values() if row["topic"] == topic and row["valid_to"] is None]
    names = ("actor_kind", "app_id", "direction", "declared", "observed", "records_day")
    assert sorted(tuple(row[name] for name in names) for row in edges) == [
        ("client", "shop", "write", False, True, 10),
        ("spark", "totals", "read", True, True, None),
    ]
