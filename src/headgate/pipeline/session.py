"""The one factory of Spark sessions: a small local one unless `[pipeline] spark` says otherwise.

One rule: whatever the operator set wins over what stands here, and nothing else makes a session. Two things are ours
alone: the Python of the workers is the one that runs this, and the jars are those that `make setup` fetched, unless the
operator names others.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headgate.base.errors import PlatformError

JARS = Path(__file__).resolve().parents[3] / "java" / "lib" / "spark"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# One machine: few and small tasks, so one core's compiler and collector do.
_LOCAL: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # A batch is over before its code would be compiled: 2,000 topologies took 17 s this way, and 29 s with compiling.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_ALWAYS: Mapping[str, str] = {
    "spark.app.name": "headgate",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    # What goes to Python at a time: descriptions are large, other facts are small and many.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * 1024 * 1024),
    # A backfill of one query does not keep the other waiting.
    "spark.scheduler.mode": "FAIR",
    # A batch of facts is small: planning it anew while it runs costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
    # What the service account logs in with stands in the source's options.
    "spark.sql.redaction.options.regex": "(?i)url|jaas|password|secret",
    "spark.sql.streaming.stopTimeout": "10s",
}
_JVM_ENDS_WITHIN_S = 20.0
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # how spark-submit tells Python where its JVM is
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def settings_of(configured: Mapping[str, str], *, jars: Path = JARS, submitted: bool = False) -> dict[str, str]:
    """All `spark.*` settings; `PlatformError` when the jars are needed and are not there.

    `submitted`: spark-submit started the JVM, and what it was told about machines and jars holds.
    """
    if submitted:
        return {**_ALWAYS, **configured}
    settings = {**_LOCAL, **_ALWAYS} if _is_local(configured) else dict(_ALWAYS)
    settings |= configured
    if "spark.jars" not in configured:
        found = sorted(jars.glob("*.jar"))
        if not found:
            raise PlatformError(f"Spark's jars are not there ({jars}): run `make setup` in {jars.parents[2]}")
        settings["spark.jars"] = ",".join(map(str, found))
    if _is_local(settings):
        own = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
        settings[_JAVA_OPTIONS] = f"{own} {configured.get(_JAVA_OPTIONS, '')}".rstrip()
    return settings


def _is_local(settings: Mapping[str, str]) -> bool:
    return settings.get("spark.master", "local").startswith("local")


def start_session(configured: Mapping[str, str]) -> SparkSession:
    """The session of this process; a second call gives the same one."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    submitted = _SUBMITTED in os.environ
    settings = settings_of(configured, submitted=submitted)
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - there is no public way to ask
        conf = SparkConf().setAll(list(settings.items()))
        # A signal to the whole group of processes is for us: the JVM stays until the batch under way has ended.
        gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
    session = SparkSession.builder.getOrCreate()
    if submitted or not _is_local(settings):
        session.sparkContext.setLogLevel("ERROR")
    return session


def end_session(session: SparkSession) -> None:
    """Stop it, its JVM, and the threads that talk to it, so that the process ends as if it had never had them."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - Spark has no public way to end its JVM
    session.stop()
    gateway.shutdown()
    if gateway.proc is not None:  # None when spark-submit started the JVM
        gateway.proc.stdin.close()
        gateway.proc.wait(_JVM_ENDS_WITHIN_S)
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - or the next session would talk to the ended JVM
