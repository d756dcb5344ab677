"""One bench for all equivalence tests, and one JVM for each version of the Java clients."""

import secrets
from collections.abc import Iterator

import pytest

from tests.integration.equivalence.bench import Bench, running
from tests.support.clients.jvm import JavaClients


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with running(tmp_path_factory.mktemp("equivalence")) as running_bench:
        yield running_bench


@pytest.fixture(scope="session")
def java_43(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClients]:
    """kafka-clients 4.3.1, on a cluster that has made its internal topics."""
    with JavaClients("broker", tmp_path_factory.mktemp("java-4.3.1") / "clients.log") as clients:
        clients.run("warm", bench.broker, "warm-43")
        yield clients


@pytest.fixture(scope="session")
def java_44(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClients]:
    """kafka-clients 4.4.0, on a cluster that has made its internal topics."""
    with JavaClients("clients", tmp_path_factory.mktemp("java-4.4.0") / "clients.log") as clients:
        clients.run("warm", bench.broker, "warm-44")
        yield clients


@pytest.fixture
def name() -> str:
    """A name for everything that a test makes, the same in its direct run and in its run through the gateway."""
    return f"eq{secrets.token_hex(4)}"
