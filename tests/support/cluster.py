"""Real clusters for tests: every listener side by side, users, ACLs, and Kafka's waits cut short.

`start_test_cluster` gives the cluster that a run shares: use names that nobody else has, and leave its settings alone.
Plaintext clients are super users there; `alice` and `bob` may do nothing until an ACL lets them.
"""

import fcntl
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from headgate.embedded import ClusterAccess, ClusterSpec, EmbeddedKafka, Listener, SecurityProtocol, TlsFiles
from headgate.embedded.spec import QUICK_SETTINGS
from tests.support.certificates import Certificates, make_certificates
from tests.support.ports import port_block

USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
SUPER_USERS = ("ANONYMOUS", "admin")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM_MODULE = "scram.ScramLoginModule"
_TURN_S = 120.0
# With the four seconds of the embedded cluster, a lone broker that waits so long for a core or a disk loses all its
# leaderships for a moment, and acknowledgements that are under way fail with NOT_LEADER_OR_FOLLOWER.
_LONE_SESSION_MS = "20000"

ClientConfig = dict[str, Any]  # librdkafka's: texts, numbers and call-backs


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster, and how its clients are configured."""

    kafka: EmbeddedKafka
    certificates: Certificates

    @property
    def bootstrap(self) -> str:
        """The plaintext addresses."""
        return self.kafka.bootstrap

    def wait_until_in_sync(self, seconds: float = 120.0) -> None:
        """Wait until every replica of every partition is in sync, so that any one broker can go.

        A broker that was started again answers before its replicas are in sync. If the only one that is goes away, its
        partitions, and the groups of those of the offsets topic, have no leader until it comes back.
        """
        admin = AdminClient(self.client_config())
        until = time.monotonic() + seconds
        while behind := _out_of_sync(admin):
            assert time.monotonic() < until, f"replicas are not in sync: {behind}"
            time.sleep(0.1)

    def client_config(
        self,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        *,
        user: str = "admin",
        password: str | None = None,
        mechanism: str = "SCRAM-SHA-256",
        bootstrap: str | None = None,
    ) -> ClientConfig:
        """For librdkafka; `bootstrap` replaces the cluster's own addresses, `password` the right one."""
        config: ClientConfig = {
            "bootstrap.servers": bootstrap or self.kafka.bootstrap_of(protocol),
            "security.protocol": str(protocol),
            "log_level": 0,  # a broker that is down would flood the output of a test
        }
        if _is_sasl(protocol):
            config |= {
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": USERS[user] if password is None else password,
            }
        if _is_tls(protocol):
            config |= {"ssl.ca.location": str(self.certificates.ca)}
        return config

    def java_config(
        self,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        *,
        user: str = "admin",
        mechanism: str = "SCRAM-SHA-256",
        bootstrap: str | None = None,
    ) -> dict[str, str]:
        """The same for Java clients."""
        config = {
            "bootstrap.servers": bootstrap or self.kafka.bootstrap_of(protocol),
            "security.protocol": str(protocol),
        }
        if _is_sasl(protocol):
            module = f"org.apache.kafka.common.security.{_MODULES.get(mechanism, _SCRAM_MODULE)}"
            login = f'{module} required username="{user}" password="{USERS[user]}";'
            config |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
        if _is_tls(protocol):
            config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.certificates.ca)}
        return config


def full_spec(
    data_dir: Path,
    certificates: Certificates,
    *,
    brokers: int = 1,
    super_users: tuple[str, ...] = SUPER_USERS,
    advertised_host: str = "127.0.0.1",
    settings: Mapping[str, str] | None = None,
) -> ClusterSpec:
    """All four listeners, the authorizer and the quick settings, on blocks of ports of its own.

    `advertised_host` is what every listener announces, with the port that it listens on at 127.0.0.1: a recorder at
    that address stands between the clients and the broker.
    """
    port = port_block()
    lone = {"broker.session.timeout.ms": _LONE_SESSION_MS} if brokers == 1 else {}
    protocols = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
    return ClusterSpec(
        data_dir=data_dir,
        port=port,
        brokers=brokers,
        advertised_host=advertised_host,
        listeners=tuple(
            Listener(protocol=protocol, port=port + place * brokers, advertised_host=advertised_host)
            for place, protocol in enumerate(protocols, 1)
        ),
        # Four listeners of three nodes leave too little room in one block for the cluster's own ports.
        private_port=port_block(),
        tls=TlsFiles(keystore=certificates.server_keystore, truststore=certificates.ca),
        access=ClusterAccess(users=USERS, authorizer=True, super_users=super_users),
        settings={**QUICK_SETTINGS, **lone, **(settings or {})},
    )


@contextmanager
def start_test_cluster(
    tmp_path_factory: pytest.TempPathFactory, *, brokers: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A running cluster of `brokers` nodes until the block ends; for fixtures of a run or a module."""
    folder = tmp_path_factory.mktemp(f"kafka-{brokers}")
    certificates = make_certificates(folder / "certificates")
    spec = full_spec(folder / "data", certificates, brokers=brokers, settings=settings)
    with _one_large_at_a_time(brokers), EmbeddedKafka(spec) as kafka:
        yield Cluster(kafka=kafka, certificates=certificates)


@contextmanager
def _one_large_at_a_time(brokers: int) -> Iterator[None]:
    """Wait until no other test process has several brokers, but no longer than a test may take.

    Six brokers on two cores lose their sessions, and leaders move that no test has moved.
    """
    if brokers == 1:
        yield
        return
    with (Path(tempfile.gettempdir()) / "headgate-test-brokers.lock").open("w") as lock:
        until = time.monotonic() + _TURN_S
        while time.monotonic() < until:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.2)
        yield


def _out_of_sync(admin: AdminClient) -> list[str]:
    """Partitions that have a replica that is not in sync."""
    topics = admin.list_topics(timeout=30).topics
    return [
        f"{name}-{number}"
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
        if len(partition.isrs) < len(partition.replicas)
    ]


def _is_sasl(protocol: SecurityProtocol) -> bool:
    return protocol in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


def _is_tls(protocol: SecurityProtocol) -> bool:
    return protocol in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}
