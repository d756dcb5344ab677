"""The pipeline by spark-submit on a real standalone master with two workers: the same tables as on one machine.

One rule: both runs read the same facts, each with tables and a checkpoint of its own, and whatever the tables say of
the facts must be equal, row by row. The cluster has its tables in a folder that all its processes share, and then on an
object store, 20 ms away in each direction, with no shared folder.
"""

import asyncio
import os
import random
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.base.locations import Location
from headgate.facts import Ended, Fact
from headgate.facts.topics import message_limit, topic_specs
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.topics import Origin, quiet
from headgate.pipeline.builds import BUILDS
from headgate.pipeline.queries import QUERIES
from headgate.pipeline.session import all_jars
from headgate.tables.definitions import table_named
from headgate.tables.reader import TableReader
from tests.pipeline.histories import history
from tests.pipeline.test_append_query import activity, dispositions, lags
from tests.pipeline.test_members_tasks import held, task
from tests.soak.page import write_section
from tests.support.cluster import Cluster
from tests.support.object_stores import ObjectStoreServer, versitygw_server
from tests.support.ports import port_block
from tests.support.slow_link import slow_link

ROOT = Path(__file__).resolve().parents[3]
SPARK_HOME = Path(pyspark.__file__).parent
FACTS = 6000  # more than one batch
LARGE = 500  # of each kind
MAX_BYTES = 4 * 1024 * 1024
_STARTED_WITHIN_S = 240.0
_RUN_WITHIN_S = 600.0
_DAEMON = {
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_NO_DAEMONIZE": "1",
}
ROUND_TRIP_S = 0.04
Place = Callable[[Path], AbstractContextManager[tuple[Location, Mapping[str, str]]]]
Rows = list[tuple[tuple[str, Any], ...]]


@contextmanager
def _shared_folder(folder: Path) -> Iterator[tuple[Location, Mapping[str, str]]]:
    yield folder, {}


@contextmanager
def _distant_store(folder: Path) -> Iterator[tuple[Location, Mapping[str, str]]]:
    """A real S3 server behind a slow link: a prefix there, and its options."""
    with (
        versitygw_server(folder) as near,
        slow_link(near.port, round_trip_s=ROUND_TRIP_S) as port,
    ):
        far = ObjectStoreServer(endpoint=f"http://127.0.0.1:{port}")
        yield far.new_location(), far.storage


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("place", [_shared_folder, _distant_store], ids=["folder", "store"])
def test_a_cluster_makes_the_same_tables_as_one_machine(cluster: Cluster, tmp_path: Path, place: Place) -> None:
    settings = cluster.client_config()
    prefix = f"headgate-{uuid.uuid4().hex[:8]}."
    _make_topics(settings, prefix)
    large = [fact for number in range(LARGE) for fact in (activity(number), dispositions(number))]
    # Lags are kept for two days.
    now_ms = time.time_ns() // 1_000_000
    recent = [replace(lags(number), at=now_ms + number) for number in range(LARGE)]
    tasks = [held(f"m-{number % 7}", task(number % 3), task(3, "standby"), at=number) for number in range(LARGE // 10)]
    asyncio.run(_write(settings, prefix, [*history(random.Random(6), FACTS), *large, *recent, *tasks]))
    _write_no_fact(settings, prefix)

    local = {"spark.master": "local[2]", "spark.driver.memory": "700m"}
    alone = _config(tmp_path / "alone", settings, prefix, local, tmp_path / "alone", {})
    began = time.monotonic()
    _run(
        [sys.executable, "-m", "headgate.cli.main", "pipeline", "run", "--once", "--config", alone], tmp_path / "alone"
    )
    alone_s = time.monotonic() - began

    with place(tmp_path / "together") as (root, storage), _standalone(tmp_path) as (master, logs):
        jars = ",".join(map(str, all_jars(os.environ, on_store=bool(storage))))
        together = _config(tmp_path / "together", settings, prefix, {}, root, storage)
        subprocess.run([sys.executable, ROOT / "scripts" / "pipeline-zip", tmp_path / "dist"], check=True)
        flags = {"--master": master, "--jars": jars, "--py-files": str(tmp_path / "dist" / "headgate-pipeline.zip")}
        confs = {
            "spark.driver.memory": "700m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
        }
        command: list[str | Path] = [SPARK_HOME / "bin" / "spark-submit"]
        command += [part for flag, value in flags.items() for part in (flag, value)]
        command += [part for name, value in confs.items() for part in ("--conf", f"{name}={value}")]
        command += [tmp_path / "dist" / "headgate-pipeline.py", "pipeline", "run", "--once", "--config", together]
        began = time.monotonic()
        _run(command, tmp_path / "together", python=_python_without_headgate(tmp_path / "venv"))
        together_s = time.monotonic() - began
        ran = [log for log in logs if _executors(log)]
        rows = {name: (_rows(tmp_path / "alone", name), _rows(root, name)) for name in BUILDS}
        is_local = (tmp_path / "together" / "tables").exists()

    assert len(ran) == len(logs), "both workers have run an executor"
    assert is_local != bool(storage), "tables are in the folder or on the store, and nothing of them elsewhere"
    counts = {name: len(one) for name, (one, _) in rows.items()}
    what = (
        f"{FACTS + 3 * LARGE + LARGE // 10} facts by `pipeline run --once` on one machine and by `spark-submit` "
        "on a standalone master with two workers of one core; seconds with the start of Spark."
    )
    differ = [name for name, (one, other) in rows.items() if one != other]
    lines = [
        what,
        "",
        f"- one machine: {alone_s:.0f} s; cluster: {together_s:.0f} s",
        f"- rows: {', '.join(f'{name} {count:,}' for name, count in counts.items())}",
        f"- tables that differ: {', '.join(differ) or 'none'}",
    ]
    write_section("Spark cluster on an object store" if storage else "Spark cluster", lines)
    assert all(counts.values()), counts
    for name, (one, other) in rows.items():
        assert one == other, name


@contextmanager
def _standalone(folder: Path) -> Iterator[tuple[str, Sequence[Path]]]:
    """A master and two workers; its address, and the workers' logs."""
    port = port_block()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        start = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        log = folder / "master.log"
        stack.enter_context(_daemon([*start, "--webui-port", str(port + 1)], log, "I have been elected leader"))
        logs = []
        for number in (1, 2):
            start = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--port", str(port + 2 * number)]
            start += ["--webui-port", str(port + 2 * number + 1), "--cores", "1", "--memory", "1g"]
            start += ["--work-dir", str(folder / f"work-{number}"), address]
            log = folder / f"worker-{number}.log"
            stack.enter_context(_daemon(start, log, "Successfully registered with master"))
            logs.append(log)
        yield address, logs


@contextmanager
def _daemon(start: Sequence[str], log: Path, ready: str) -> Iterator[None]:
    """A process of Spark's own from the line that says it is ready to the end of the block."""
    with log.open("wb") as output:
        command: list[str | Path] = [SPARK_HOME / "bin" / "spark-class", *start]
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**_environment(), **_DAEMON})
    try:
        until = time.monotonic() + _STARTED_WITHIN_S
        while ready not in log.read_text("utf-8"):
            assert process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < until, log.read_text("utf-8")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _executors(log: Path) -> list[str]:
    """The executors that this worker was asked to run."""
    return re.findall(r"Asked to launch executor (\S+)", log.read_text("utf-8"))


def _python_without_headgate(folder: Path) -> Path:
    """One that has all libraries and must take Headgate from the zip, in the driver and in the executors."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(f"{SPARK_HOME.parent}\n", encoding="utf-8")
    python = folder / "bin" / "python"
    found = subprocess.run([python, "-c", "import headgate"], env=_environment(), capture_output=True, check=False)
    assert b"No module named 'headgate'" in found.stderr
    return python


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _run(command: Sequence[str | Path], folder: Path, *, python: Path = Path(sys.executable)) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_RUN_WITHIN_S,
        check=False,
        env={**_environment(), "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": str(python)},
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert "Traceback" not in done.stderr, done.stderr[-8000:]


def _config(
    folder: Path,
    settings: Mapping[str, Any],
    prefix: str,
    spark: Mapping[str, str],
    root: Location,
    storage: Mapping[str, str],
) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "headgate.toml"
    named = ", ".join(f'"{name}" = "{value}"' for name, value in spark.items())
    file.write_text(
        f"""
[upstream]
bootstrap = ["{settings["bootstrap.servers"]}"]
service_mechanism = "none"
[facts]
prefix = "{prefix}"
[tables]
path = "{root / "tables"}"
storage = {{ {", ".join(f'{name} = "{value}"' for name, value in storage.items())} }}
[pipeline]
checkpoint = "{root / "checkpoints"}"
spark = {{ {named} }}
""",
        encoding="utf-8",
    )
    return file


def _make_topics(settings: Mapping[str, Any], prefix: str) -> None:
    specs = topic_specs(prefix=prefix, brokers=1, max_bytes=MAX_BYTES)
    wanted = [
        NewTopic(spec.name, num_partitions=spec.partitions, replication_factor=1, config=dict(spec.configs))
        for spec in specs
    ]
    admin = AdminClient(quiet(settings))
    for created in admin.create_topics(wanted).values():
        created.result(30)


async def _write(settings: Mapping[str, Any], prefix: str, facts: Sequence[Fact | Ended]) -> None:
    origin = Origin(cluster="c", writer="gw/0", boot="b1")
    writer = FactWriter(settings, prefix=prefix, origin=origin, largest=message_limit(MAX_BYTES))
    try:
        for fact in facts:
            await writer.write(fact)
    finally:
        await writer.close()


def _write_no_fact(settings: Mapping[str, Any], prefix: str) -> None:
    producer = Producer(quiet(settings))
    producer.produce(f"{prefix}state", key=b"no JSON", value=b"{")
    assert producer.flush(30) == 0


def _rows(root: Location, name: str) -> Rows:
    """All rows of a table in the order of its key, without those about the pipeline itself: it describes each run."""
    table = table_named(name)
    reader = TableReader(root / "tables")
    try:
        found = list(reader.stream(table) or ())
    finally:
        reader.close()
    ours = {query.name for query in QUERIES}
    others = [row for row in found if row.get("app_id") not in ours and row.get("subject") not in ours]
    return sorted((tuple(row.items()) for row in others), key=repr)
