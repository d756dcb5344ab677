"""One Spark session and one Kafka for all tests of the pipeline; each test has topics and folders of its own."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.pipeline.session import all_jars, end_session, start_session
from headgate.pipeline.spark_storage import LOG_STORE
from tests.pipeline.estate import Estate
from tests.support.cluster import Cluster, start_test_cluster
from tests.support.file_order import put_first

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    # No test runs long enough for the other compiler, and verifying Spark's classes takes a tenth of its start.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    ),
}

LONG_FILES = (
    "test_facts_query.py",
    "test_incidents.py",
    "test_lineage.py",
    "test_append_query.py",
    "test_command.py",
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
    # The jars for an object store, which one test has: a session gets them when it starts, the store's address later.
    jars = ",".join(map(str, all_jars(os.environ, on_store=True)))
    session = start_session({**SETTINGS, "spark.jars": jars, "spark.delta.logStore.s3a.impl": LOG_STORE})
    yield session
    end_session(session)


@pytest.fixture
def estate(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> Estate:
    made = Estate(dict(cluster.client_config()), spark, tmp_path, f"headgate-{uuid.uuid4().hex[:8]}.")
    made.make_topics()
    return made
