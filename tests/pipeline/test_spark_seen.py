"""A real Spark query through a gateway that watches: it is known as Spark's, and as the same one after a restart."""

import uuid
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from tests.support.activity_facts import ActivityFacts
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess, running_gateway


def run_query(spark: SparkSession, gateway: GatewayProcess, topic: str, folder: Path) -> None:
    """All that is there and was not read yet, into files."""
    options = {"kafka.bootstrap.servers": gateway.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options).load().select("value")
    writing = records.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writing.trigger(availableNow=True).start(str(folder / "out"))
    assert query.awaitTermination(60)


def send(cluster: Cluster, topic: str) -> None:
    producer = Producer(dict(cluster.client_config()))
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
            send(cluster, topic)
            run_query(spark, gateway, topic, tmp_path)
    facts = ActivityFacts(cluster.client_config(), prefix)
    try:
        read = facts.until(lambda fact: fact.topic == topic and fact.direction == "read", count=2)
    finally:
        facts.close()
    assert {fact.actor.kind for fact in read} == {"spark"}
    assert len({fact.actor.name for fact in read}) == 1, "the checkpoint is the same"
    assert len({fact.client_id for fact in read}) == 2, "and the consumers are not"
