"""Gateways of one test, of one module, and the service account's password."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headgate.embedded import SecurityProtocol
from tests.support.clients.jvm import JavaClients
from tests.support.cluster import USERS, Cluster
from tests.support.gateway import GatewayProcess, running_gateway

Start = Callable[..., GatewayProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts gateways that end with the test."""
    with ExitStack() as stack:
        yield lambda upstream, **more: stack.enter_context(running_gateway(tmp_path, upstream, **more))


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClients]:
    """kafka-clients 4.4.0, which follow the addresses of NodeEndpoints (KIP-951)."""
    with JavaClients("clients", tmp_path_factory.mktemp("java") / "clients.log") as clients:
        yield clients


@pytest.fixture(scope="session")
def password_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("secrets") / "password"
    file.write_text(USERS["admin"] + "\n")
    return file


@pytest.fixture(scope="module")
def plain(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """In front of the plaintext listener, where every client is a super user."""
    with running_gateway(tmp_path_factory.mktemp("plain"), cluster.bootstrap) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def sasl(cluster: Cluster, password_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """In front of the SASL_PLAINTEXT listener."""
    with running_gateway(
        tmp_path_factory.mktemp("sasl"),
        cluster.kafka.bootstrap_of(SecurityProtocol.SASL_PLAINTEXT),
        upstream__service_user="admin",
        upstream__service_mechanism="SCRAM-SHA-512",
        upstream__service_password_file=str(password_file),
    ) as gateway:
        yield gateway
