"""The cluster that the integration tests of one run share, and the order of their files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, start_test_cluster
from tests.support.file_order import put_first

# Those with three brokers are not next to each other, because two of them at a time are too much for two cores.
LONG_FILES = (
    "test_dev.py",
    "gateway/test_failover.py",
    "test_hostile.py",
    "dead_letters/test_incidents.py",
    "test_pipeline_command.py",
    "topologies/test_older_clients.py",
    "breaker/test_three_brokers.py",
    "equivalence/test_streams_and_connect.py",
    "topologies/test_real_members.py",
    "breaker/test_outages.py",
    "topologies/test_coordinator_moves.py",
    "topologies/test_cleanup.py",
    "breaker/test_failover.py",
    "test_embedded_kafka.py",
    "topologies/test_retention.py",
    "gateway/test_unproved.py",
    "activity/test_connect_life.py",
    "equivalence/test_three_brokers.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    put_first(items, Path(__file__).parent, LONG_FILES)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker with plaintext, SASL and TLS listeners and an authorizer."""
    with start_test_cluster(tmp_path_factory) as running:
        yield running
