"""The embedded Kafka: it starts, keeps its data, and ends cleanly; others test its listeners by using them."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
)

from headgate.base.errors import PlatformError, UsageError
from headgate.embedded import (
    ClusterSpec,
    EmbeddedKafka,
    NodeDeath,
    SecurityProtocol,
    StartGivenUpError,
    StartOptions,
)
from headgate.embedded.spec import QUICK_SETTINGS
from headgate.kafka.connections import BrokerConnection
from headgate.wire.messages.cluster import MetadataRequest, MetadataResponse
from tests.support.certificates import make_certificates
from tests.support.cluster import ClientConfig, Cluster, full_spec, start_test_cluster
from tests.support.ports import port_block

WAIT_S = 60.0


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    began = time.monotonic()
    with start_test_cluster(tmp_path_factory, brokers=3) as cluster:
        took = time.monotonic() - began
        print(f"three brokers, certificates and first format included: ready in {took:.1f} s")
        yield cluster


def new_topic(config: ClientConfig, *, replication: int = 1) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(config)  # its calls end when it does
    admin.create_topics([NewTopic(name, 1, replication)])[name].result(WAIT_S)
    return name


def produce(config: ClientConfig, topic: str, *values: bytes) -> None:
    outcomes: list[object] = []
    producer = Producer({**config, "message.timeout.ms": int(WAIT_S * 1000)})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(2 * WAIT_S)
    for error in outcomes:
        if error is not None:
            raise KafkaException(error)
    assert len(outcomes) == len(values)


def read(config: ClientConfig, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**config, "group.id": f"g-{uuid.uuid4().hex[:8]}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        return [message.value() or b"" for message in consumer.consume(count, timeout=WAIT_S)]
    finally:
        consumer.close()


def metadata(address: str) -> MetadataResponse:
    """What one broker answers, all topics asked for: a whole client would go on to the addresses that it names."""

    async def ask() -> MetadataResponse:
        host, _, port = address.partition(":")
        caller = await BrokerConnection.connect(host, int(port), timeout=WAIT_S)
        try:
            return await caller.call(MetadataRequest(topics=None), 12)
        finally:
            caller.close()

    return asyncio.run(ask())


def broker_addresses(address: str) -> dict[int, str]:
    return {broker.node_id: f"{broker.host}:{broker.port}" for broker in metadata(address).brokers}


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped by somebody does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], within: float) -> bool:
    deadline = time.monotonic() + within
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def test_one_broker_keeps_its_data_over_a_restart_on_other_ports(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "données #1"
    began = time.monotonic()
    with EmbeddedKafka(ClusterSpec(data_dir=folder, port=port_block())) as kafka:
        took = time.monotonic() - began
        print(f"one broker, first format included: ready in {took:.1f} s")
        config = {"bootstrap.servers": kafka.bootstrap}
        topic, cluster_id = new_topic(config), kafka.cluster_id
        produce(config, topic, b"one", b"two")
        (pid,) = [node.pid for node in kafka.nodes]
        assert pid is not None
    assert not alive(pid)
    with EmbeddedKafka(ClusterSpec(data_dir=folder, port=port_block())) as kafka:
        assert kafka.cluster_id == cluster_id
        assert broker_addresses(kafka.bootstrap) == {0: kafka.bootstrap}
        assert read({"bootstrap.servers": kafka.bootstrap}, topic, 2) == [b"one", b"two"]
    assert "started" in (folder / "logs" / "node-0.log").read_text()
    before = children(os.getpid())
    spec = ClusterSpec(data_dir=folder, port=port_block(), settings={"compression.type": "zip"})
    with pytest.raises(
        UsageError, match=r"rejected a setting: .*Invalid value zip for configuration compression\.type"
    ):
        EmbeddedKafka(spec).start()  # of a folder that is formatted, so it is the broker that rejects it
    assert children(os.getpid()) == before


def test_a_broker_that_was_killed_is_noticed_and_comes_back_with_its_data(tmp_path: Path) -> None:
    noticed = threading.Event()
    deaths: list[NodeDeath] = []

    def on_death(death: NodeDeath) -> None:
        deaths.append(death)
        noticed.set()

    spec = ClusterSpec(data_dir=tmp_path, port=port_block(), settings=QUICK_SETTINGS)
    with EmbeddedKafka(spec, on_death=on_death) as kafka:
        config = {"bootstrap.servers": kafka.bootstrap}
        topic = new_topic(config)
        produce(config, topic, b"kept")
        (node,) = kafka.nodes
        assert node.pid is not None
        os.kill(node.pid, signal.SIGKILL)
        assert noticed.wait(WAIT_S)
        assert (deaths[0].node, deaths[0].exit_code) == (0, -signal.SIGKILL)
        assert str(tmp_path / "logs" / "node-0.log") in str(deaths[0])
        node.start()
        kafka.deaths.clear()
        kafka.wait_ready()
        assert read(config, topic, 1) == [b"kept"]
    assert len(deaths) == 1, "an end that was asked for is no death"


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    port, before = port_block(), children(os.getpid())
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # of an earlier test something may linger there
        other.bind(("127.0.0.1", port + 1))
        other.listen()
        with pytest.raises(PlatformError, match=f"port {port + 1}, which Kafka node 0 needs, is in use"):
            EmbeddedKafka(ClusterSpec(data_dir=tmp_path / "data", port=port)).start()
    assert not list(tmp_path.rglob("meta.properties"))
    assert children(os.getpid()) == before


def test_a_setting_that_no_kafka_accepts_stops_the_first_format(tmp_path: Path) -> None:
    before = children(os.getpid())
    spec = ClusterSpec(data_dir=tmp_path, port=port_block(), settings={"num.partitions": "many"})
    with pytest.raises(UsageError, match=r"rejected a setting: .*Invalid value many for configuration num\.partitions"):
        EmbeddedKafka(spec).start()
    assert not (tmp_path / "node-0").exists()
    assert children(os.getpid()) == before


def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    before = children(os.getpid())
    asked: list[None] = []
    kafka = EmbeddedKafka(ClusterSpec(data_dir=tmp_path, port=port_block()))

    def give_up() -> bool:
        asked.append(None)
        return len(asked) > 10

    with pytest.raises(StartGivenUpError):
        kafka.start(StartOptions(give_up=give_up))
    assert children(os.getpid()) == before


def test_without_anonymous_among_the_super_users_plaintext_may_do_nothing(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path / "certificates")
    spec = full_spec(tmp_path / "data", certificates, super_users=("admin",), advertised_host="127.0.0.2")
    with EmbeddedKafka(spec) as kafka:
        assert broker_addresses(kafka.bootstrap) == {0: f"127.0.0.2:{spec.port}"}
        assert metadata(kafka.bootstrap).topics == ()


def test_three_brokers_go_on_without_one_and_take_it_back(three: Cluster) -> None:
    kafka, config = three.kafka, three.client_config()
    topic = new_topic(config, replication=3)
    produce(config, topic, b"all three")
    kafka.nodes[1].kill()
    kafka.wait_ready()
    produce(config, topic, b"two of three")
    assert read(config, topic, 2) == [b"all three", b"two of three"]
    kafka.nodes[1].start()
    kafka.wait_ready()
    everyone, by = dict(enumerate(kafka.bootstrap.split(","))), time.monotonic() + WAIT_S
    while broker_addresses(everyone[1]) != everyone:  # its metadata follows
        assert time.monotonic() < by
    assert kafka.deaths == []


def test_tls_clients_produce_and_read_and_the_brokers_know_all_quick_settings(three: Cluster) -> None:
    for config in (three.client_config(SecurityProtocol.SSL), three.client_config(SecurityProtocol.SASL_SSL)):
        topic = new_topic(config, replication=3)
        produce(config, topic, b"encrypted")
        assert read(config, topic, 1) == [b"encrypted"]
    broker = ConfigResource(ConfigResource.Type.BROKER, "0")
    admin = AdminClient(three.client_config())
    values = admin.describe_configs([broker])[broker].result(WAIT_S)
    assert {key: values[key].value for key in QUICK_SETTINGS} == QUICK_SETTINGS


class Command:
    """`headgate kafka` as an operator runs it."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headgate.cli.main", "kafka", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_child(self) -> list[int]:
        """The brokers, or the storage tools, that it has started."""
        deadline = time.monotonic() + WAIT_S
        while not (found := children(self.process.pid)):
            assert time.monotonic() < deadline
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.02)
        return found

    def ready(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready kafka="), self.process.communicate()
        return line

    def end(self, signum: signal.Signals) -> tuple[int, str, str]:
        self.process.send_signal(signum)
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err


@pytest.fixture
def command(tmp_path: Path) -> Iterator[tuple[Command, int]]:
    port = port_block()
    command = Command("--data-dir", str(tmp_path / "data"), "--port", str(port), "--set", "num.partitions=3")
    yield command, port
    if command.process.poll() is None:
        command.process.kill()
    command.process.communicate(timeout=WAIT_S)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_and_every_process(
    command: tuple[Command, int], signum: signal.Signals, code: int
) -> None:
    headgate, port = command
    assert headgate.ready() == f"ready kafka=127.0.0.1:{port}\n"
    brokers = children(headgate.process.pid)
    assert len(brokers) == 1
    assert broker_addresses(f"127.0.0.1:{port}").keys() == {0}
    ended, out, _ = headgate.end(signum)
    assert (ended, out) == (code, "")
    assert gone(brokers, within=0)


def test_a_signal_in_the_middle_of_a_start_leaves_no_process(command: tuple[Command, int]) -> None:
    headgate, _ = command
    started = headgate.wait_for_child()
    assert headgate.end(signal.SIGTERM)[:2] == (0, "")
    assert gone(started, within=0)


def test_brokers_do_not_outlive_a_command_that_is_killed(command: tuple[Command, int]) -> None:
    headgate, _ = command
    headgate.ready()
    brokers = children(headgate.process.pid)
    assert len(brokers) == 1
    headgate.end(signal.SIGKILL)
    assert gone(brokers, within=WAIT_S)


def test_the_death_of_a_broker_ends_the_command_and_names_its_log(command: tuple[Command, int], tmp_path: Path) -> None:
    headgate, _ = command
    headgate.ready()
    (broker,) = children(headgate.process.pid)
    os.kill(broker, signal.SIGKILL)
    _, err = headgate.process.communicate(timeout=WAIT_S)
    assert headgate.process.returncode == 1
    assert "headgate: Kafka node 0 was ended by SIGKILL" in err
    assert str(tmp_path / "data" / "logs" / "node-0.log") in err
