"""Clients live through what happens to a gateway: entered by a side door, restarted, killed, left and come back to."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from headgate.kafka.topics import quiet
from tests.integration.equivalence.bench import GATEWAY_HOST, Bench
from tests.support.clients.jvm import JavaClients

DEADLINE_S = 60.0


def values(count: int) -> list[str]:
    return [f"v{number}" for number in range(count)]


@pytest.fixture
def load_topic(bench: Bench, java_43: JavaClients, name: str) -> Iterator[str]:
    """A topic of one partition; it is made and deleted without the gateway."""
    java_43.run("create", bench.broker, name)
    yield f"{name}.load"
    java_43.run("clean", bench.broker, name)


def log_of(bench: Bench, topic: str) -> list[str]:
    """Every record of the topic's one partition, read from the broker itself."""
    reader = Consumer(quiet({"bootstrap.servers": bench.broker, "group.id": "log", "enable.auto.commit": False}))
    try:
        _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S)
        reader.assign([TopicPartition(topic, 0, 0)])
        found: list[str] = []
        until = time.monotonic() + DEADLINE_S
        while reader.position([TopicPartition(topic, 0)])[0].offset < end:
            assert time.monotonic() < until, f"{len(found)} records read"
            message = reader.poll(0.1)
            if message is not None:
                found.append(text(message))
        return found
    finally:
        reader.close()


def text(message: Message) -> str:
    assert message.error() is None, message.error()
    value = message.value()
    assert value is not None
    return value.decode()


@contextmanager
def interrupted(bench: Bench, *, kill: bool) -> Iterator[None]:
    """The gateway goes away while clients work and comes back after a second."""
    time.sleep(1.0)
    if kill:
        bench.gateway.kill()
    else:
        assert bench.gateway.stop() == 0
    time.sleep(1.0)
    bench.gateway.start()
    yield


@pytest.mark.parametrize("scenario", ["produce", "consumer", "share-implicit"])
def test_a_client_that_knows_only_a_node_port_sees_no_difference(
    bench: Bench, java_44: JavaClients, name: str, scenario: str
) -> None:
    node_port = f"{GATEWAY_HOST}:{bench.gateway.setup.port + 1}"
    bench.check_inside(bench.through(lambda _: java_44.run(scenario, node_port, name)))


@pytest.mark.parametrize(("protocol", "kill"), [("classic", False), ("consumer", True)])
def test_java_clients_lose_and_double_nothing_when_the_gateway_restarts(
    bench: Bench, java_43: JavaClients, java_44: JavaClients, load_topic: str, name: str, protocol: str, kill: bool
) -> None:
    java = java_44 if kill else java_43
    count = 300
    # It knows only the port of the node, and must find it again there.
    node_port = f"{GATEWAY_HOST}:{bench.gateway.setup.port + 1}"
    java.begin("load", node_port, name, count=count, pace_ms=10, protocol=protocol)
    with interrupted(bench, kill=kill):
        read = java.end(deadline=DEADLINE_S).split(",")
    assert log_of(bench, load_topic) == values(count)
    assert read == values(count)


def test_librdkafka_clients_lose_and_double_nothing_when_the_gateway_restarts(
    bench: Bench, load_topic: str, name: str
) -> None:
    count = 300
    settings = quiet({"bootstrap.servers": bench.gateway.bootstrap, "reconnect.backoff.max.ms": 500})
    producer = Producer({**settings, "enable.idempotence": True})
    consumer = Consumer({**settings, "group.id": f"{name}-group", "auto.offset.reset": "earliest"})
    consumer.subscribe([load_topic])
    # A group that lost its member reads again from the last commit: once is enough, but in order.
    read: dict[str, None] = {}

    def consume() -> None:
        until = time.monotonic() + DEADLINE_S
        while len(read) < count and time.monotonic() < until:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                read.setdefault(text(message))

    def produce() -> None:
        for value in values(count):
            producer.produce(load_topic, value, partition=0)
            producer.poll(0.01)

    threads = [threading.Thread(target=work) for work in (consume, produce)]
    for thread in threads:
        thread.start()
    with interrupted(bench, kill=False):
        for thread in threads:
            thread.join(DEADLINE_S)
    assert producer.flush(DEADLINE_S) == 0
    producer.close()
    consumer.close()
    assert log_of(bench, load_topic) == values(count)
    assert list(read) == values(count)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_when_its_4_4_member_moves_from_gateway_to_broker_and_back(
    bench: Bench, java_44: JavaClients, load_topic: str, name: str, protocol: str
) -> None:
    send(bench, load_topic, values(30))
    places = [bench.gateway.bootstrap, bench.broker, bench.gateway.bootstrap]
    read = [java_44.run("some", place, name, count=10, protocol=protocol).split(",") for place in places]
    assert read == [values(30)[:10], values(30)[10:20], values(30)[20:]]


def test_a_share_group_goes_on_when_its_4_4_member_moves_from_gateway_to_broker_and_back(
    bench: Bench, java_44: JavaClients, load_topic: str, name: str
) -> None:
    send(bench, load_topic, values(30))
    places = [bench.gateway.bootstrap, bench.broker, bench.gateway.bootstrap]
    read = [value for place in places for value in java_44.run("share-some", place, name, count=10).split(",")]
    assert read == values(30)


def test_a_transactional_4_4_producer_goes_on_from_gateway_to_broker_and_back(
    bench: Bench, java_44: JavaClients, load_topic: str, name: str
) -> None:
    places = [bench.gateway.bootstrap, bench.broker, bench.gateway.bootstrap]
    for place, part in zip(places, ("a,b", "c,d", "e,f"), strict=True):
        java_44.run("send", place, name, values=part)
    assert log_of(bench, load_topic) == ["a", "b", "c", "d", "e", "f"]


def send(bench: Bench, topic: str, texts: list[str]) -> None:
    """One batch a record, so that any number of them can be fetched."""
    producer = Producer(quiet({"bootstrap.servers": bench.broker, "batch.num.messages": 1}))
    for value in texts:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    producer.close()
