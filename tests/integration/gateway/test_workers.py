"""Several processes behind one address: a dead one comes back, all can be replaced, and nobody outlives the other."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.gateway.exercise import assert_whole, new_topic, until
from tests.support.clients.jvm import JavaClients
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.ports import port_block
from tests.support.raw_client import RawClient, is_served
from tests.support.sockets import listening_ports
from tests.support.traffic import Report, Traffic, contents

Start = Callable[..., GatewayProcess]

FETCH, FETCH_VERSION = 1, 4
UNDER_WAY_MS = 120_000  # a call that a test ends itself, with the record that it waits for


TWO: dict[str, Any] = {"gateway__workers": 2, "gateway__nodes": "0-3"}


@pytest.fixture(scope="module")
def two(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Two workers; the cluster's only node belongs to the first."""
    with running_gateway(tmp_path_factory.mktemp("two"), cluster.bootstrap, **TWO) as gateway:
        yield gateway


@pytest.fixture
def own(cluster: Cluster, start: Start) -> GatewayProcess:
    """The same for one test alone, which may end it."""
    return start(cluster.bootstrap, **TWO)


def owner_of(gateway: GatewayProcess, node: int) -> int:
    """The process id of the worker that listens for this node."""
    port = gateway.setup.port + 1 + node
    [owner] = [pid for pid in gateway.workers() if port in listening_ports(pid)]
    return owner


def until_replaced(gateway: GatewayProcess, before: set[int]) -> None:
    """Until the last of these workers has ended: the next test may count the workers."""
    until(lambda: before.isdisjoint(gateway.workers()) and len(gateway.workers()) == len(before), 60)


def counters(gateway: GatewayProcess) -> dict[tuple[str, str], float]:
    """Every sample that may only grow."""
    return {
        (sample.name, str(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(gateway.page("/metrics")[1])
        for sample in family.samples
        if family.type in {"counter", "histogram"}
    }


# Who has which port.


def test_a_nodes_port_belongs_to_the_worker_of_its_id_modulo_workers_and_bootstrap_to_all(two: GatewayProcess) -> None:
    port = two.setup.port
    ports = [listening_ports(pid) for pid in two.workers()]
    even, odd = {port, port + 1, port + 3}, {port, port + 2, port + 4}
    assert sorted(ports, key=sorted) == sorted((even, odd), key=sorted)


def test_all_workers_accept_on_the_bootstrap_port(two: GatewayProcess) -> None:
    for pid in two.workers():
        os.kill(pid, signal.SIGSTOP)
        try:
            assert is_served(two.bootstrap)
        finally:
            os.kill(pid, signal.SIGCONT)


# A worker that dies.


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """What was seen when a worker was killed under load."""

    back_after_s: float
    report: Report
    topic: str
    workers: int
    restarts: float
    backwards: list[tuple[str, str]]  # counters that fell


@pytest.fixture(scope="module")
def death(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Death:
    topic = new_topic(cluster)
    with (
        running_gateway(tmp_path_factory.mktemp("death"), cluster.bootstrap, **TWO) as gateway,
        Traffic(cluster.client_config(bootstrap=gateway.bootstrap), topic) as traffic,
        never_backwards(gateway) as backwards,
    ):
        os.kill(owner_of(gateway, 0), signal.SIGKILL)
        back_after_s = until(lambda: is_served(gateway.address(0)))
        time.sleep(1)  # for traffic through the new worker
        return Death(
            back_after_s=back_after_s,
            report=traffic.finish(),
            topic=topic,
            workers=len(gateway.workers()),
            restarts=gateway.metric("headgate_worker_restarts_total"),
            backwards=backwards,
        )


@contextmanager
def never_backwards(gateway: GatewayProcess) -> Iterator[list[tuple[str, str]]]:
    """Reads the counters again and again; those that fell."""
    fallen: list[tuple[str, str]] = []
    seen = counters(gateway)

    def look() -> None:
        nonlocal seen
        now = counters(gateway)
        fallen.extend(name for name, value in seen.items() if now.get(name, 0) < value)
        seen = now

    with repeating(look):
        yield fallen


@contextmanager
def repeating(action: Callable[[], None]) -> Iterator[None]:
    """Do it again and again while the block runs."""
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            action()
            time.sleep(0.02)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(10)


def test_a_killed_worker_is_back(death: Death) -> None:
    """That the supervisor does not wait before it starts another is tested without a broker."""
    print(f"a killed worker was back in {death.back_after_s:.2f} s")
    assert death.workers == 2
    assert death.restarts == 1


def test_the_clients_of_a_killed_worker_go_on_and_lose_nothing(cluster: Cluster, death: Death) -> None:
    assert_whole(cluster, death.topic, death.report)


def test_no_counter_goes_backwards_when_a_worker_dies(death: Death) -> None:
    assert death.backwards == []


def test_the_metrics_are_of_all_workers(own: GatewayProcess) -> None:
    first, second = owner_of(own, 0), owner_of(own, 1)
    with ExitStack() as stack:
        for asleep, address in ((first, own.bootstrap), (second, own.address(0))):
            os.kill(asleep, signal.SIGSTOP)
            try:
                stack.enter_context(RawClient(address)).api_versions()
            finally:
                os.kill(asleep, signal.SIGCONT)
        for name in ("headgate_connections", "headgate_connections_accepted_total", "headgate_calls_total"):
            until(lambda name=name: own.metric(name) == 2)  # type: ignore[misc]


# All of them replaced.


@contextmanager
def always_ready(gateway: GatewayProcess) -> Iterator[list[dict[str, str]]]:
    """Asks `/readyz` again and again; what it complained of. That a worker waits for a core is not counted."""
    complaints: list[dict[str, str]] = []

    def look() -> None:
        found = gateway.problems()
        complaints.extend([found] if any("has not reported for" not in text for text in found.values()) else [])

    with repeating(look):
        yield complaints


def test_all_workers_are_replaced_under_load_and_nothing_is_lost_or_doubled(
    cluster: Cluster, two: GatewayProcess, java: JavaClients
) -> None:
    topic, name = new_topic(cluster), f"replaced-{time.monotonic_ns()}"
    before = set(two.workers())
    java.run("create", cluster.bootstrap, name)
    java.begin("load", two.bootstrap, name, count=3000, pace_ms=2, protocol="consumer")
    with (
        Traffic(cluster.client_config(bootstrap=two.bootstrap), topic) as traffic,
        always_ready(two) as complaints,
    ):
        two.replace_workers()
        until_replaced(two, before)
        time.sleep(0.5)
        report = traffic.finish()
    read = java.end().split(",")
    assert_whole(cluster, topic, report)
    expected = [f"v{number}" for number in range(3000)]
    [written] = contents(cluster.client_config(), f"{name}.load")
    assert [value.decode() for value in written] == expected
    assert set(read) == set(expected)
    assert complaints == []
    assert two.metric("headgate_worker_restarts_total") == 0
    assert any("all workers replaced" in line for line in two.log_lines())


def test_a_call_under_way_is_answered_before_its_worker_ends(cluster: Cluster, two: GatewayProcess) -> None:
    topic, before = new_topic(cluster), set(two.workers())
    with RawClient(two.address(0)) as client:
        client.api_versions()
        client.send(FETCH, FETCH_VERSION, long_poll(topic, wait_ms=1500))
        two.replace_workers()
        answer = client.receive(FETCH, FETCH_VERSION)
        assert topic.encode() in answer
        assert client.has_ended()
    until_replaced(two, before)


def produce(cluster: Cluster, topic: str) -> None:
    """Write the record that a long poll waits for."""
    producer = Producer(cluster.client_config())
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(60) == 0


def long_poll(topic: str, wait_ms: int = UNDER_WAY_MS) -> bytes:
    """A Fetch of version 4 that waits for a record."""
    name = topic.encode()
    head = (-1).to_bytes(4, signed=True) + wait_ms.to_bytes(4) + (1).to_bytes(4) + (1 << 20).to_bytes(4) + b"\x00"
    partition = (0).to_bytes(4) + (0).to_bytes(8) + (1 << 20).to_bytes(4)
    return head + (1).to_bytes(4) + len(name).to_bytes(2) + name + (1).to_bytes(4) + partition


# The end.


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
    return True


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_supervisor_frees_the_ports_at_once_and_its_workers_end(cluster: Cluster, start: Start) -> None:
    own = start(cluster.bootstrap, gateway__drain_ms=UNDER_WAY_MS, **TWO)
    workers, busy, port, topic = own.workers(), owner_of(own, 0), own.setup.port, new_topic(cluster)
    with RawClient(own.address(0)) as client:
        client.api_versions()
        # A call under way keeps its worker, and must not keep the ports.
        client.send(FETCH, FETCH_VERSION, long_poll(topic))
        until(lambda: own.metric("headgate_calls_total", api="Fetch") > 0)
        own.kill()
        until(lambda: all(map(is_free, range(port, port + 5))))
        assert is_alive(busy)
        own.start()
        assert is_served(own.address(0))
        produce(cluster, topic)
        client.receive(FETCH, FETCH_VERSION)
    until(lambda: not any(map(is_alive, workers)))


def test_a_stop_in_the_middle_of_a_replacement_leaves_no_process(own: GatewayProcess) -> None:
    before = set(own.workers())
    own.replace_workers()
    until(lambda: bool(set(own.workers()) - before))
    workers = before | set(own.workers())
    assert own.stop() == 0
    assert not any(map(is_alive, workers))
    assert all(map(is_free, range(own.setup.port, own.setup.port + 5)))


def test_a_gateway_that_drains_is_not_ready_and_says_so(cluster: Cluster, start: Start) -> None:
    own = start(cluster.bootstrap, gateway__drain_ms=UNDER_WAY_MS, **TWO)
    topic = new_topic(cluster)
    with RawClient(own.address(0)) as client:
        client.api_versions()
        client.send(FETCH, FETCH_VERSION, long_poll(topic))
        until(lambda: own.metric("headgate_calls_total", api="Fetch") > 0)
        own.send_signal(signal.SIGTERM)
        until(lambda: own.problems() == {"gateway": "is draining"})
        produce(cluster, topic)
        client.receive(FETCH, FETCH_VERSION)
    assert own.wait() == 0


def test_a_port_that_is_taken_is_said_in_one_line(cluster: Cluster, start: Start) -> None:
    port = port_block()
    with socket.create_server(("127.0.0.1", port + 1)):
        gateway = start(cluster.bootstrap, wait=False, gateway__listen=f"127.0.0.1:{port}")
        assert gateway.wait() == 1
    [said] = gateway.log_lines()
    assert said.startswith(f"headgate: cannot listen on 127.0.0.1:{port + 1} for node 0: ")
