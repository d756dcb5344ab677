"""Starts and ends the Spark session: a small local one unless `[pipeline] spark` configures another.

The operator's settings win over the defaults here. The Python of the workers is always the one that runs this, and the
jars are those of `HEADGATE_JARS` or of the source checkout unless `spark.jars` is set.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headgate.base.errors import PlatformError
from headgate.base.locations import Location
from headgate.pipeline.spark_storage import storage_settings, uses_object_store

JARS_VARIABLE = "HEADGATE_JARS"
_CHECKOUT = Path(__file__).resolve().parents[3]
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_COMPILING: Mapping[bool, Mapping[str, str]] = {
    False: {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
    True: {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"},
}

# One machine: tasks are few and small, so the simple collector is enough.
_LOCAL: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # A batch is over before its code would be compiled: 2,000 topologies took 17 s this way, and 29 s with compiling.
    **_COMPILING[False],
}
_ALWAYS: Mapping[str, str] = {
    "spark.app.name": "headgate",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Batches for Python: descriptions are large, other facts are small and many.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * 1024 * 1024),
    # A backfill of one query does not keep the other waiting.
    "spark.scheduler.mode": "FAIR",
    # A batch of facts is small: adaptive planning costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
    # The source's options contain the credentials of the service account.
    "spark.sql.redaction.options.regex": "(?i)url|jaas|password|secret",
    "spark.sql.streaming.stopTimeout": "10s",
}
_JVM_ENDS_WITHIN_S = 20.0
_LOG_STORE_JAR = "headgate-s3.jar"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit: the port of its JVM
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key|credential")


def jars_folder(environment: Mapping[str, str], *, checkout: Path = _CHECKOUT, part: str = "spark") -> Path:
    """The folder of Spark's jars: `spark/` in the folder `HEADGATE_JARS`, or in `java/lib` of a source checkout.

    The `part` for an object store is `s3/`.
    """
    named = environment.get(JARS_VARIABLE)
    return (Path(named) if named else checkout / "java" / "lib") / part


def all_jars(environment: Mapping[str, str], *, checkout: Path = _CHECKOUT, on_store: bool = False) -> list[Path]:
    """The jars of a session; `PlatformError` when they are missing. `on_store`: with those for an object store."""
    found: list[Path] = []
    for part in ("spark", "s3") if on_store else ("spark",):
        folder = jars_folder(environment, checkout=checkout, part=part)
        jars = sorted(folder.glob("*.jar"))
        if not jars:
            raise PlatformError(_missing_jars(folder, checkout))
        found += jars
    if on_store:
        own = jars_folder(environment, checkout=checkout, part=_LOG_STORE_JAR)
        if not own.exists():
            raise PlatformError(_missing_jars(own.parent, checkout))
        found.append(own)
    return found


def spark_settings(
    configured: Mapping[str, str],
    *,
    environment: Mapping[str, str] = os.environ,
    checkout: Path = _CHECKOUT,
    submitted: bool = False,
    locations: Sequence[Location] = (),
) -> dict[str, str]:
    """All `spark.*` settings; `PlatformError` when jars are needed and missing.

    `submitted`: spark-submit started the JVM, and its own settings of machines and jars apply. `locations` are those of
    tables and checkpoints.
    """
    storage = storage_settings(locations, configured)
    if submitted:
        return {**_ALWAYS, **storage, **configured}
    settings = {**_LOCAL, **_ALWAYS} if _is_local(configured) else dict(_ALWAYS)
    settings |= storage | dict(configured)
    if "spark.jars" not in configured:
        jars = all_jars(environment, checkout=checkout, on_store=uses_object_store(locations))
        settings["spark.jars"] = ",".join(map(str, jars))
    if _is_local(settings):
        own = f"-XX:+UseSerialGC -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
        settings[_JAVA_OPTIONS] = f"{own} {configured.get(_JAVA_OPTIONS, '')}".rstrip()
    return settings


def _missing_jars(jars: Path, checkout: Path) -> str:
    named = (
        f"set {JARS_VARIABLE} to a folder with the Kafka and Delta jars in spark/, or spark.jars in [pipeline] spark"
    )
    in_checkout = (checkout / "java" / "pom.xml").exists()
    return f"no jars for Spark in {jars}: {f'run `make setup` in {checkout}, or ' if in_checkout else ''}{named}"


def _is_local(settings: Mapping[str, str]) -> bool:
    return settings.get("spark.master", "local").startswith("local")


def start_session(configured: Mapping[str, str], locations: Sequence[Location] = ()) -> SparkSession:
    """The session of this process for tables at these locations; a second call returns the same one."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    submitted = _SUBMITTED in os.environ
    settings = spark_settings(configured, submitted=submitted, locations=locations)
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - there is no public way to ask
        conf = SparkConf().setAll(list(settings.items()))
        # The settings with which a JVM starts are its arguments, which all users of the machine can see.
        public = SparkConf().setAll([one for one in settings.items() if not _SECRET.search(one[0])])
        # The JVM ignores signals to the process group, so that it lives until the running batch has ended.
        gateway = launch_gateway(public, {"start_new_session": True})  # type: ignore[no-untyped-call]
        try:
            SparkContext(conf=conf, gateway=gateway)
        except BaseException:
            # A JVM that is asked to exit while its context starts may wait for itself for ever.
            if gateway.proc is not None:
                gateway.proc.kill()
                gateway.proc.wait()
            raise
    session = SparkSession.builder.getOrCreate()
    if submitted or not _is_local(settings):
        session.sparkContext.setLogLevel("ERROR")
    return session


def set_compiling(session: SparkSession, *, is_on: bool) -> None:
    """Whether plans are compiled, which pays from some ten thousand rows on."""
    for name, value in _COMPILING[is_on].items():
        session.conf.set(name, value)


def end_session(session: SparkSession) -> None:
    """Stop the session, its JVM, and the threads that talk to it, so that another session can start."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - Spark has no public way to end its JVM
    session.stop()
    gateway.shutdown()
    if gateway.proc is not None:  # None when spark-submit started the JVM
        gateway.proc.stdin.close()
        gateway.proc.wait(_JVM_ENDS_WITHIN_S)
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - or the next session would talk to the ended JVM
