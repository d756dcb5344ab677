"""A Spark session as tests use it: it starts soon and takes little memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from headgate.pipeline.session import all_jars, end_session, start_session
from headgate.pipeline.spark_storage import LOG_STORE

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    # No test runs long enough for the other compiler, and verifying Spark's classes takes a tenth of its start.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    ),
}


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    # The jars for an object store, which one test has: a session gets them when it starts, the store's address later.
    jars = ",".join(map(str, all_jars(os.environ, on_store=True)))
    session = start_session({**SETTINGS, "spark.jars": jars, "spark.delta.logStore.s3a.impl": LOG_STORE})
    try:
        yield session
    finally:
        end_session(session)
