"""Real clients through a gateway: the actors and topics in `headgate.activity`."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from headgate.embedded import SecurityProtocol
from tests.support.activity_facts import ActivityFacts, total
from tests.support.clients.jvm import JavaClients
from tests.support.cluster import USERS, Cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.streams_apps import COUNTS_OUT, WORDS_IN, word_count_demo
from tests.support.topics import create_topics

_DEADLINE_S = 60.0
SASL = SecurityProtocol.SASL_PLAINTEXT
QUICK = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}


@pytest.fixture(scope="module")
def prefix() -> str:
    """Of the facts of this module: the cluster is shared."""
    return f"act{uuid.uuid4().hex[:6]}."


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """In front of the plaintext listener."""
    folder = tmp_path_factory.mktemp("activity")
    with running_gateway(folder, cluster.bootstrap, activity__enable=True, facts__prefix=prefix) as running:
        yield running


@pytest.fixture(scope="module")
def facts(cluster: Cluster, prefix: str, gateway: GatewayProcess) -> Iterator[ActivityFacts]:  # noqa: ARG001
    reader = ActivityFacts(cluster.client_config(), prefix)
    yield reader
    reader.close()


def new_topic(cluster: Cluster, name: str | None = None) -> str:
    topic = name or f"use-{uuid.uuid4().hex[:8]}"
    create_topics(cluster, [topic])
    return topic


def produce(config: dict[str, Any], topic: str, values: int = 10) -> None:
    producer = Producer(config)
    for number in range(values):
        producer.produce(topic, f"value {number}".encode())
    assert producer.flush(_DEADLINE_S) == 0


def consume(config: dict[str, Any], topic: str, values: int) -> None:
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got = 0
    while got < values:
        messages = consumer.consume(values, _DEADLINE_S)
        assert messages
        got += sum(message.error() is None for message in messages)
    consumer.close()


def test_java_clients_of_every_kind(
    gateway: GatewayProcess, facts: ActivityFacts, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = f"java{uuid.uuid4().hex[:6]}"
    with JavaClients("broker", tmp_path_factory.mktemp("java") / "clients.log") as java:
        for scenario in ("classic-consumer", "consumer", "share-implicit", "transactions"):
            java.run(scenario, gateway.bootstrap, f"{name}-{scenario}")
    for scenario in ("classic-consumer", "consumer"):
        read = facts.of(f"{name}-{scenario}.read", "read")
        assert (read.actor.kind, read.actor.name) == ("consumer_group", f"{name}-{scenario}-group")
        assert (read.actor.rule, read.actor.confidence) == ("group-member", "likely")
        assert read.software is not None
        assert read.software.name == "apache-kafka-java"
        assert read.principal == "User:ANONYMOUS"
        assert read.topic_id
    share = facts.until(lambda one: one.actor.kind == "share_group")[0]
    assert (share.actor.rule, share.actor.confidence, share.direction) == ("share-fetch", "certain", "read")
    assert share.actor.name.startswith(f"{name}-share-implicit")
    transactional = facts.until(lambda one: one.actor.rule == "transactional-id")[0]
    assert transactional.direction == "write"
    assert (transactional.transactional_id or "").startswith(name)


def test_librdkafka_by_principal_and_by_group(
    cluster: Cluster, prefix: str, facts: ActivityFacts, tmp_path: Path
) -> None:
    topic = new_topic(cluster)
    secret = tmp_path / "password"
    secret.write_text(USERS["admin"])
    with running_gateway(
        tmp_path,
        cluster.kafka.bootstrap_of(SASL),
        activity__enable=True,
        facts__prefix=prefix,
        upstream__service_user="admin",
        upstream__service_mechanism="SCRAM-SHA-512",
        upstream__service_password_file=str(secret),
    ) as gateway:
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            config = cluster.client_config(SASL, mechanism=mechanism, bootstrap=gateway.bootstrap)
            produce({**config, "client.id": f"by-{mechanism}"}, topic)
        consume({**config, "group.id": topic}, topic, 20)
        wrote = facts.until(lambda one: one.topic == topic and one.direction == "write", 2)
        read = facts.of(topic, "read")
    assert {one.principal for one in wrote} == {"User:admin"}
    assert {one.client_id for one in wrote} == {"by-PLAIN", "by-SCRAM-SHA-256"}
    assert wrote[0].actor.kind == "client"
    assert wrote[0].actor.name.startswith("User:admin")
    assert (read.actor.kind, read.actor.name) == ("consumer_group", topic)


def test_aiokafka(cluster: Cluster, gateway: GatewayProcess, facts: ActivityFacts) -> None:
    topic = new_topic(cluster)
    asyncio.run(_write_and_read(gateway.bootstrap, topic))
    wrote = facts.of(topic, "write")
    assert (wrote.actor.kind, wrote.actor.name) == ("client", "orders-api")
    assert (wrote.actor.rule, wrote.actor.confidence) == ("client-id-and-principal", "guess")
    read = facts.of(topic, "read")
    assert (read.actor.kind, read.actor.name) == ("consumer_group", f"g-{topic}")


async def _write_and_read(bootstrap: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, client_id="orders-api-7d9f8b6c5-x2x4z")
    await producer.start()
    for number in range(10):
        await producer.send_and_wait(topic, f"value {number}".encode())
    await producer.stop()
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=f"g-{topic}", auto_offset_reset="earliest")
    await consumer.start()
    async with asyncio.timeout(_DEADLINE_S):
        for _ in range(10):
            await consumer.getone()
    await consumer.stop()


def test_streams_with_a_client_id_of_its_own(
    cluster: Cluster, gateway: GatewayProcess, facts: ActivityFacts, tmp_path: Path
) -> None:
    for topic in (WORDS_IN, COUNTS_OUT):
        new_topic(cluster, topic)
    application = f"words-{uuid.uuid4().hex[:6]}"
    with word_count_demo(gateway.bootstrap, application, tmp_path):
        produce(cluster.client_config(), WORDS_IN)  # past the gateway
        read = facts.of(WORDS_IN, "read")
        wrote = facts.of(COUNTS_OUT, "write")
        changelog = facts.until(lambda one: (one.topic or "").endswith("-changelog") and one.direction == "write")[0]
    with word_count_demo(gateway.bootstrap, application, tmp_path / "without its stores"):
        restored = facts.of(changelog.topic or "", "read")
    assert (read.actor.kind, read.actor.name, read.actor.rule) == ("streams", application, "streams-group")
    for one in (wrote, changelog, restored):
        assert (one.actor.kind, one.actor.name, one.actor.rule) == ("streams", application, "streams-thread-group")
        assert (one.client_id or "").startswith("demo-")


def test_all_bytes_of_a_producer_are_reported_and_about_as_many_records(
    cluster: Cluster, gateway: GatewayProcess, facts: ActivityFacts
) -> None:
    topic = new_topic(cluster)
    config = cluster.client_config(bootstrap=gateway.bootstrap)
    produce({**config, "linger.ms": 5, "batch.num.messages": 50, "client.id": "much"}, topic, 2000)
    size = sum(len(f"value {number}") for number in range(2000))
    # The first use is reported at once, the rest when the producer closes; on a slow machine both are one.
    by = time.monotonic() + _DEADLINE_S
    while total(reported := [one for one in facts.all if one.topic == topic]) < size:
        assert time.monotonic() < by
        facts.poll()
    records = sum(one.records or 0 for one in reported)
    assert total(reported) < 4 * size
    assert 1500 < records < 2500


def test_a_gateway_that_is_restarted_in_the_middle(
    cluster: Cluster, gateway: GatewayProcess, facts: ActivityFacts
) -> None:
    topic = new_topic(cluster)
    producer = Producer({**cluster.client_config(bootstrap=gateway.bootstrap), "client.id": "patient", **QUICK})
    producer.produce(topic, b"before")
    assert producer.flush(_DEADLINE_S) == 0
    before = facts.of(topic, "write")
    producer.produce(topic, b"not reported yet")
    assert producer.flush(_DEADLINE_S) == 0
    assert gateway.stop() == 0
    gateway.start()
    producer.produce(topic, b"after")
    assert producer.flush(_DEADLINE_S) == 0
    reported = facts.until(lambda one: one.topic == topic, 3)
    assert {one.actor for one in reported} == {before.actor}
    assert len({one.boot for one in reported}) == 2  # two lives of the gateway
    assert {one.client_id for one in reported} == {"patient"}


def test_nothing_was_lost_and_everything_could_be_read(gateway: GatewayProcess, facts: ActivityFacts) -> None:
    assert gateway.metric("headgate_activity_facts_total", outcome="lost") == 0
    assert gateway.metric("headgate_activity_unreadable_total") == 0
    assert gateway.metric("headgate_activity_overflows_total") == 0
    assert gateway.metric("headgate_interceptor_failures_total") == 0
    assert gateway.problems() == {}
    assert all(one.topic and one.topic_id for one in facts.all)
