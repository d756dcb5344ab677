"""How long a campaign lasts, and the cluster that each module has for itself: an attack leaves traces in a broker."""

import os
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, start_test_cluster

_MINUTES = "HEADGATE_TEST_MINUTES"  # set by `make soak MINUTES=10`


@pytest.fixture(scope="session")
def minutes() -> float:
    return float(os.environ.get(_MINUTES) or 10)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_test_cluster(tmp_path_factory) as running:
        yield running
