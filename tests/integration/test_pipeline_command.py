"""`headgate pipeline` as a process: progress, signals and exit codes."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.pipeline.queries import QUERIES
from tests.pipeline.estate import Estate, new_estate
from tests.pipeline.histories import POOL, described
from tests.pipeline.test_append_query import activity, assert_appended_are_right
from tests.pipeline.test_facts_query import assert_tables_are_right, cluster_of
from tests.support.cluster import Cluster
from tests.support.ports import port_block
from tests.support.spark import SETTINGS, spark_session

HEADGATE = (sys.executable, "-m", "headgate.cli.main", "pipeline")
STATUS = port_block()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture
def estate(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> Estate:
    return new_estate(cluster, spark, tmp_path)


@pytest.fixture
def file(estate: Estate) -> Path:
    config = estate.config
    path = estate.folder / "headgate.toml"
    settings = ", ".join(f'"{name}" = "{value}"' for name, value in SETTINGS.items())
    path.write_text(
        f"""
[upstream]
bootstrap = ["{estate.settings["bootstrap.servers"]}"]
service_mechanism = "none"
[facts]
prefix = "{config.facts.prefix}"
[tables]
path = "{config.tables.path}"
[pipeline]
checkpoint = "{config.pipeline.checkpoint}"
trigger_ms = 200
spark = {{ {settings} }}
""",
        encoding="utf-8",
    )
    return path


def test_it_runs_until_a_signal_and_lets_the_batches_end(estate: Estate, file: Path) -> None:
    estate.write(described("g", POOL[1], at=1), activity(1))
    with started(estate, file, "facts", "append") as (process, log):
        wait_until_ready(process, log)
        estate.write(described("g", POOL[2], at=2), activity(2))
        time.sleep(0.5)  # in the middle of the batch, or before it, or after
        os.killpg(process.pid, signal.SIGTERM)  # as a terminal or a supervisor does it, to all of them
        assert process.wait(120) == 0  # ten seconds for a batch, ten for Spark to interrupt it, and the JVM's end
    lines = log.read_text("utf-8").splitlines()
    known = ("headgate: facts: batch ", "headgate: append: batch ", "headgate: derived: ", "WARNING: Using incubator")
    assert all(line.startswith(known) for line in lines), lines
    runs = {(row["query"], row["state"]) for row in estate.rows("pipeline_runs").values()}
    # The derivations begin some seconds later, so a fast machine may not have come so far.
    assert runs - {("derived", "stopped")} == {("facts", "stopped"), ("append", "stopped")}
    assert estate.run(*QUERIES)
    assert_tables_are_right(estate, cluster_of(estate))
    assert_appended_are_right(estate)


def test_the_next_process_finishes_the_batch_of_a_killed_one(estate: Estate, file: Path) -> None:
    estate.write(described("g", POOL[1], at=1))
    with started(estate, file, "facts") as (process, _):
        estate.write(described("g", POOL[2], at=2), described("h", POOL[3], at=3))
        before = estate.versions(["app_io"])
        until = time.monotonic() + 60
        while estate.versions(["app_io"]) == before and time.monotonic() < until:
            time.sleep(0.02)
        process.kill()  # the first table is written, the others are not
    assert estate.run()
    assert_tables_are_right(estate, cluster_of(estate))


@contextmanager
def started(estate: Estate, file: Path, *queries: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """`headgate pipeline run` with the first batch of each of these queries written; and its standard error."""
    log = estate.folder / "stderr"
    command: list[str | Path] = [*HEADGATE, "run", "--config", file, "--status", f"127.0.0.1:{STATUS}"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, start_new_session=True)
    try:
        for query in queries:
            wait_for(log, f"{query}: batch 0: ", process)
        yield process, log
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("rebuild", "pipeline_runs"), 2, "is not made of facts"),
        (("rebuild", "nothing"), 2, "these can: activity_intervals, app_io"),
    ],
)
def test_a_wrong_command_ends_before_spark_starts(file: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = subprocess.run([*HEADGATE, *arguments, "--config", file], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def wait_until_ready(process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{STATUS}/readyz", timeout=30):
                return
        except urllib.error.HTTPError:
            assert process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < until, log.read_text("utf-8")
            time.sleep(0.1)


def wait_for(log: Path, text: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 120
    while text not in log.read_text("utf-8"):
        assert process.poll() is None, log.read_text("utf-8")
        assert time.monotonic() < until, log.read_text("utf-8")
        time.sleep(0.1)
