"""One Spark session and one Kafka for all tests of the pipeline; each test has topics and folders of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.estate import Estate, new_estate
from tests.support.cluster import Cluster, start_test_cluster
from tests.support.file_order import put_first
from tests.support.spark import spark_session

LONG_FILES = (
    "test_facts_query.py",
    "test_lineage.py",
    "test_append_query.py",
    "test_problems.py",
    "test_dead_letters.py",
    "test_breaker_tables.py",
    "test_parts.py",
    "test_lost_records.py",
    "test_spark_describe.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    put_first(items, Path(__file__).parent, LONG_FILES)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_test_cluster(tmp_path_factory) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture
def estate(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> Estate:
    return new_estate(cluster, spark, tmp_path)
