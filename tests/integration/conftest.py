"""The cluster that the integration tests of one run share."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, start_test_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker with plaintext, SASL and TLS listeners and an authorizer."""
    with start_test_cluster(tmp_path_factory) as running:
        yield running
