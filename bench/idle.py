"""`python -m bench.idle --minutes 10`: what the pipeline costs while little happens, as a markdown page.

`headgate dev` runs with its sample, which writes about two records a second, and nothing else. After a warm-up the CPU
time of each kind of process is taken from /proc. Targets: the pipeline (Spark's JVM, its Python workers and the driver)
takes at most 15 % of a core together, and the newest disposition that can be read is never older than 30 s. Beside the
shares: how many versions each table got, because each is files and work for readers.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from bench.processes import BenchError, Child, times
from headgate.tables.definitions import TABLES, table_named
from headgate.tables.reader import TableReader
from headgate.tables.storage import FILES, StoredTable, connect_duckdb, file_paths
from tests.support.ports import port_block

TARGET, FRESH_S = 0.15, 30.0
PIPELINE = ("Spark's JVM", "Spark's Python workers", "driver of the pipeline")
_START_S = 600.0
_LOOK_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """What was found in so many seconds: CPU seconds by kind of process, commits by table, and ages of dispositions."""

    seconds: float
    cpu_s: dict[str, float]
    commits: dict[str, int]
    ages_s: list[float]

    @property
    def pipeline_cores(self) -> float:
        return sum(self.cpu_s.get(kind, 0.0) for kind in PIPELINE) / self.seconds


def kind_of(command: Sequence[str]) -> str:
    """The kind of a process of `headgate dev`, by its command."""
    text = " ".join(command)
    if "pyspark.daemon" in text:
        return PIPELINE[1]
    if "headgate.cli.main pipeline" in text:
        return PIPELINE[2]
    if "java" in command[0]:
        if "SparkSubmit" in text:
            return PIPELINE[0]
        return "Kafka" if "kafka.Kafka" in text else "sample, Java"
    if "headgate.sample" in text:
        return "sample, Python"
    return "gateway and web"


def cpu_by_kind(pids: Sequence[int]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for pid in pids:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
        except OSError:
            continue  # it has ended
        found[kind_of(command)] += sum(times(pid))
    return found


def table_versions(root: Path) -> dict[str, int]:
    found = {name: StoredTable(root, table).newest() for name, table in TABLES.items()}
    return {name: delta.version() for name, delta in found.items() if delta is not None}


def age_of_dispositions(root: Path) -> float | None:
    """Seconds since the newest disposition in the table."""
    stored = StoredTable(root, table_named("dispositions"))
    if stored.newest() is None or not stored.files():
        return None
    with connect_duckdb() as duckdb:
        sql = f'SELECT max("at") FROM {FILES}'
        ((newest,),) = duckdb.sql(sql, params=[file_paths(stored.files())]).fetchall()
    return None if newest is None else time.time() - newest / 1000


def watch(dev: Child, root: Path, seconds: float) -> Idle:
    """Wait for so long, and look at the newest disposition now and then."""
    began, before, versions = time.monotonic(), cpu_by_kind(dev.pids()), table_versions(root)
    ages: list[float] = []
    while time.monotonic() - began < seconds:
        if not dev.running:
            raise BenchError(f"ended: {dev.last_words()}")
        time.sleep(_LOOK_S)
        age = age_of_dispositions(root)
        ages += [] if age is None else [age]
    after, now = cpu_by_kind(dev.pids()), time.monotonic()
    return Idle(
        seconds=now - began,
        cpu_s={kind: used - before.get(kind, 0.0) for kind, used in after.items()},
        commits={name: version - versions.get(name, 0) for name, version in table_versions(root).items()},
        ages_s=ages,
    )


def run(folder: Path, warm_up_s: float, seconds: float, config: Path | None) -> Idle:
    gateway, kafka, web = port_block(), port_block(), port_block()
    command: list[str | Path] = [sys.executable, "-m", "headgate.cli.main", "dev", "--data-dir", folder]
    command += ["--gateway-port", str(gateway), "--kafka-port", str(kafka), "--web-port", str(web)]
    command += [] if config is None else ["--config", config]
    dev = Child(command, log=folder / "dev.log")
    try:
        reader = TableReader(folder / "tables")
        dev.wait_until(lambda: "ready gateway=" in dev.output(), seconds=_START_S)
        dev.wait_until(lambda: reader.summary(table_named("dispositions")) is not None, seconds=_START_S)
        reader.close()
        time.sleep(warm_up_s)
        return watch(dev, folder / "tables", seconds)
    finally:
        dev.stop()


def page(found: Idle) -> Iterator[str]:
    yield "| processes | CPU seconds | share of a core |"
    yield "|---|---:|---:|"
    for kind, used in sorted(found.cpu_s.items(), key=lambda one: (one[0] not in PIPELINE, one[0])):
        yield f"| {kind} | {used:.1f} | {100 * used / found.seconds:.1f} % |"
    verdict = "met" if found.pipeline_cores <= TARGET else "**missed**"
    yield f"\nThe pipeline: {100 * found.pipeline_cores:.1f} % of a core (target {100 * TARGET:.0f} %: {verdict})."
    if found.ages_s:
        verdict = "met" if max(found.ages_s) <= FRESH_S else "**missed**"
        yield f"The newest disposition was at most {max(found.ages_s):.0f} s old (target {FRESH_S:.0f} s: {verdict})."
    commits = ", ".join(f"{name} {count}" for name, count in found.commits.items() if count)
    yield f"Versions in {found.seconds:.0f} s: {commits or 'none'}."


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.idle", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=5.0, metavar="MINUTES")
    parser.add_argument("--config", type=Path, help="a configuration for `headgate dev`")
    args = parser.parse_args(given)
    facts = ", ".join(f"{key} {value}" for key, value in machine.facts().items())
    print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, `python -m bench.idle`. {facts}.\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="headgate-idle-") as name:
        print("\n".join(page(run(Path(name), args.warm_up * 60, args.minutes * 60, args.config))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
