"""Three brokers that die, move and come back: clients go on, and never learn where a broker really is."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headgate.base.ids import NodeId
from headgate.wire.messages.cluster import (
    FindCoordinatorRequest,
    MetadataRequest,
)
from tests.integration.gateway.exercise import assert_whole, new_topic, round_trip, until
from tests.support.clients.jvm import JavaClients
from tests.support.cluster import Cluster, start_test_cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.raw_client import RawClient, is_served
from tests.support.sockets import Watch, listening_ports, watching
from tests.support.traffic import Traffic, contents

Start = Callable[..., GatewayProcess]

FIND_COORDINATOR = 10
_names = count()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_test_cluster(tmp_path_factory, brokers=3) as running:
        yield running


@pytest.fixture
def three(brokers: Cluster) -> Cluster:
    """All three brokers, whatever the test before has done to them."""
    for node in brokers.kafka.nodes:
        node.start()
    brokers.kafka.wait_ready()
    return brokers


@pytest.fixture(scope="module")
def gateway(brokers: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("three")
    with running_gateway(folder, brokers.bootstrap, gateway__workers=2, gateway__nodes="0-2") as running:
        yield running


def topic_on(cluster: Cluster, *nodes: int, name: str | None = None) -> str:
    """A topic of one partition on these nodes, the first of them its leader."""
    topic = name or f"on-{nodes[0]}-{next(_names)}"
    admin_of(cluster).create_topics([NewTopic(topic, 1, replica_assignment=[list(nodes)])])[topic].result(60)
    until(lambda: leader_of(cluster, topic) == nodes[0])
    return topic


def leader_of(cluster: Cluster, topic: str) -> int:
    """Its node id, or -1 while there is none."""
    try:
        partitions = admin_of(cluster).list_topics(topic, timeout=20).topics[topic].partitions
    except KafkaException:
        return -1  # the broker that was asked has just gone
    return partitions[0].leader if partitions else -1


def coordinator_of(gateway: GatewayProcess, group: str) -> int:
    """Its node id, or -1 while there is none."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))
    try:
        with RawClient(gateway.bootstrap) as client:
            [found] = client.call(request, 4).coordinators
    except (EOFError, OSError):
        return -1  # the broker that the gateway took for any is the one that has just gone
    assert found.port in {0, gateway.setup.port + 1 + found.node_id, -1}
    return found.node_id


@cache
def admin_of(cluster: Cluster) -> AdminClient:
    """A client that does not come through the gateway, and is quiet when brokers are away."""
    return AdminClient({**cluster.client_config(), "log_level": 0})


def assert_all_through(cluster: Cluster, gateway: GatewayProcess, watch: Watch) -> None:
    """Every connection went to the gateway, and none to a broker's own port."""
    brokers = {f"127.0.0.1:{port}" for _, port in cluster.kafka.spec.ports()}
    assert not watch.dialled & brokers
    assert watch.dialled & {gateway.address(node) for node in range(3)}


@contextmanager
def java_load(java: JavaClients, cluster: Cluster, gateway: GatewayProcess, *nodes: int) -> Iterator[None]:
    """A Java producer and a Java group at work while the block runs; all of it must arrive, once and in order."""
    name, total = f"java-{next(_names)}", 4000
    topic = topic_on(cluster, *nodes, name=f"{name}.load")
    java.begin("load", gateway.bootstrap, name, count=total, pace_ms=2, protocol="consumer")
    yield
    read = java.end().split(",")
    expected = [f"v{number}" for number in range(total)]
    [written] = contents(cluster.client_config(), topic)
    assert [value.decode() for value in written] == expected
    assert set(read) == set(expected)


def test_the_watch_sees_who_dials_a_broker(three: Cluster, gateway: GatewayProcess) -> None:
    broker = three.bootstrap.split(",", maxsplit=1)[0]
    with watching(gateway.pid, *gateway.workers()) as watch, RawClient(gateway.bootstrap) as client:
        client.api_versions()
        until(lambda: bool(watch._looks) and bool(watch.dialled & set(three.bootstrap.split(","))))
    assert broker.startswith("127.0.0.1:")


def test_a_leader_that_is_killed_under_load_costs_no_record_and_nobody_dials_a_broker(
    three: Cluster, gateway: GatewayProcess, java: JavaClients
) -> None:
    topic = topic_on(three, 1, 0, 2)
    with (
        java_load(java, three, gateway, 1, 2, 0),
        Traffic(three.client_config(bootstrap=gateway.bootstrap), topic) as traffic,
        watching(traffic.pid, java.pid) as watch,
    ):
        time.sleep(0.5)
        three.wait_until_in_sync()
        three.kafka.nodes[1].kill()
        until(lambda: leader_of(three, topic) in {0, 2})
        time.sleep(1)
        assert gateway.problems() == {}
        report = traffic.finish()
    assert_whole(three, topic, report)
    assert_all_through(three, gateway, watch)


def test_a_group_follows_its_coordinator_when_that_is_killed(three: Cluster, gateway: GatewayProcess) -> None:
    topic = topic_on(three, 2, 0, 1)
    group = f"{topic}-readers"
    with (
        Traffic(three.client_config(bootstrap=gateway.bootstrap), topic, protocol="consumer") as traffic,
        watching(traffic.pid) as watch,
    ):
        three.wait_until_in_sync()
        old = -1
        while old < 0:
            old = coordinator_of(gateway, group)
        three.kafka.nodes[old].kill()
        until(lambda: leader_of(three, topic) not in {old, -1})
        until(lambda: coordinator_of(gateway, group) not in {old, -1})
        time.sleep(1)
        report = traffic.finish()
    assert_whole(three, topic, report)
    assert_all_through(three, gateway, watch)


def test_a_rolling_restart_of_the_brokers_costs_no_record_and_nobody_dials_a_broker(
    three: Cluster, gateway: GatewayProcess, java: JavaClients
) -> None:
    topic = topic_on(three, 0, 1, 2)
    before = gateway.metric("headgate_calls_spliced_total")
    with (
        Traffic(three.client_config(bootstrap=gateway.bootstrap), topic) as traffic,
        watching(traffic.pid, java.pid) as watch,
    ):
        with java_load(java, three, gateway, 0, 1, 2):
            restart(three, gateway, 0)
        restart(three, gateway, 1)
        restart(three, gateway, 2)
        report = traffic.finish()
    assert_whole(three, topic, report)
    assert_all_through(three, gateway, watch)
    assert gateway.metric("headgate_calls_spliced_total") > before


def restart(cluster: Cluster, gateway: GatewayProcess, node: int) -> None:
    """As an operator does it: its partitions have new leaders before it goes, and it names their addresses."""
    cluster.kafka.nodes[node].stop()
    assert gateway.problems() == {}
    cluster.kafka.nodes[node].start()
    cluster.kafka.wait_ready()
    until(lambda: is_served(gateway.address(node)))


# Nodes that gateway.nodes does not name.


def port_of_node_2(gateway: GatewayProcess) -> int:
    return gateway.setup.port + 3


def test_a_broker_that_is_added_gets_a_port_and_keeps_it_when_workers_are_replaced(
    three: Cluster, start: Start
) -> None:
    three.kafka.nodes[2].stop()
    gateway = start(three.bootstrap, gateway__nodes="0-1")
    [worker] = gateway.workers()
    assert port_of_node_2(gateway) not in listening_ports(worker)
    three.kafka.nodes[2].start()
    three.kafka.wait_ready()
    until(lambda: is_served(gateway.address(2)))
    assert gateway.problems() == {}
    topic = topic_on(three, 2, 0, 1)
    round_trip(three.client_config(bootstrap=gateway.bootstrap), topic)
    gateway.replace_workers()
    until(lambda: gateway.workers() != [worker] and len(gateway.workers()) == 1, 60)
    until(lambda: is_served(gateway.address(2)))
    assert gateway.problems() == {}
    round_trip(three.client_config(bootstrap=gateway.bootstrap), new_topic(three))


def test_a_node_whose_port_is_taken_is_a_problem_and_its_real_address_never_leaks(
    three: Cluster, tmp_path: Path
) -> None:
    with running_gateway(tmp_path, three.bootstrap, wait=False, gateway__nodes="0-1") as gateway:
        with socket.create_server(("127.0.0.1", port_of_node_2(gateway))):
            until(lambda: "node 2" in gateway.problems())
            said = gateway.problems()["node 2"]
            assert f"cannot listen on {gateway.address(2)} for node 2: Address already in use" in said
            told = addresses_told(gateway)
            assert {told[NodeId(0)], told[NodeId(1)]} == {gateway.address(0), gateway.address(1)}
            assert told[NodeId(2)] not in {*three.bootstrap.split(","), gateway.address(2)}
        until(lambda: gateway.problems() == {})
        assert addresses_told(gateway)[NodeId(2)] == gateway.address(2)
        assert is_served(gateway.address(2))


def addresses_told(gateway: GatewayProcess) -> dict[NodeId, str]:
    """What a client learns of the brokers."""
    with RawClient(gateway.bootstrap) as client:
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        answer = client.call(request, 12)
    return {NodeId(one.node_id): f"{one.host}:{one.port}" for one in answer.brokers}
