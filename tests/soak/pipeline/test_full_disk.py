"""A disk that is really full: the pipeline says so, the process lives on, and goes on by itself when there is room.

One rule: the disk is a real file system, a small tmpfs that is mounted for the test and unmounted after it. Where none
can be mounted the test fails and says so: it needs root.
"""

import asyncio
import errno
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.facts import ActivityObserved, Ended, Fact
from headgate.facts.topics import message_limit
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.topics import Origin, ensure_topics
from headgate.tables.definitions import table_named
from headgate.tables.reader import TableReader
from tests.pipeline.histories import POOL, described
from tests.soak.page import write_section
from tests.support.activity_facts import USE
from tests.support.cluster import Cluster
from tests.support.ports import port_block

MAX_BYTES = 4 * 1024 * 1024
_DISK = "12m"
_WITHIN_S = 240.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"no tmpfs can be mounted here, so a full disk cannot be tried: {done.stderr.strip()}. Run as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def activity(number: int) -> ActivityObserved:
    return replace(USE, at=number)


async def _write(settings: dict[str, Any], prefix: str, boot: int, *facts: Fact | Ended) -> None:
    origin = Origin(cluster="c", writer="gw/0", boot=str(boot))
    writer = FactWriter(settings, prefix=prefix, origin=origin, largest=message_limit(MAX_BYTES))
    try:
        for fact in facts:
            await writer.write(fact)
    finally:
        await writer.close()


def fill(disk: Path) -> None:
    """To its last page."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError as full:
            if full.errno != errno.ENOSPC:
                raise


def problems(port: int) -> dict[str, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            found: dict[str, str] = json.load(answer)["problems"]
    except urllib.error.HTTPError as not_ready:
        found = json.load(not_ready)["problems"]
    except OSError:
        return {"status": "does not answer yet"}
    return found


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    reader = TableReader(folder)
    try:
        return list(reader.stream(table_named(name)) or ())
    finally:
        reader.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("small", ["tables", "checkpoints"])
def test_a_full_disk_is_told_and_the_pipeline_goes_on_when_there_is_room(
    cluster: Cluster, tmp_path: Path, disk: Path, small: str
) -> None:
    settings = dict(cluster.client_config())
    prefix = f"headgate-{uuid.uuid4().hex[:8]}."
    places = {name: (disk if name == small else tmp_path) / name for name in ("tables", "checkpoints")}
    asyncio.run(ensure_topics(settings, prefix=prefix, max_bytes=MAX_BYTES))
    asyncio.run(_write(settings, prefix, 1, described("g", POOL[1], at=1), activity(1)))
    file, log, port = tmp_path / "headgate.toml", tmp_path / "stderr", port_block()
    keys = {
        "upstream.bootstrap": [settings["bootstrap.servers"]],
        "upstream.service_mechanism": "none",
        "facts.prefix": prefix,
        "tables.path": str(places["tables"]),
        "pipeline.checkpoint": str(places["checkpoints"]),
        "pipeline.trigger_ms": 500,
        "pipeline.spark": {"spark.driver.memory": "700m"},
    }
    file.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in keys.items()), encoding="utf-8")
    command: list[str | Path] = [sys.executable, "-m", "headgate.cli.main", "pipeline", "run", "--config", file]
    with log.open("wb") as stderr:
        process = subprocess.Popen([*command, "--status", f"127.0.0.1:{port}"], stderr=stderr)
    try:

        def until(what: str, is_so: Callable[[], bool]) -> float:
            began = time.monotonic()
            while not is_so():
                assert process.poll() is None, log.read_text("utf-8")
                assert time.monotonic() - began < _WITHIN_S, (
                    f"{what}: {problems(port)} {log.read_text('utf-8')[-4000:]}"
                )
                time.sleep(0.2)
            return time.monotonic() - began

        until("the first rows", lambda: len(rows(places["tables"], "activity_intervals")) == 1)
        until("ready", lambda: not problems(port))
        fill(disk)
        asyncio.run(_write(settings, prefix, 2, described("g", POOL[2], at=2), activity(2)))
        both = {"facts", "append"}
        until("both are told", lambda: {k for k, why in problems(port).items() if "the disk is full" in why} == both)
        (disk / "filler").unlink()
        healed = until("ready again", lambda: not problems(port))
        until("the rows", lambda: len(rows(places["tables"], "activity_intervals")) == 2)
        until(
            "the rows",
            lambda: len([row for row in rows(places["tables"], "applications") if row["app_id"] == "g"]) == 2,
        )
        told = [
            row["query"] for row in rows(places["tables"], "pipeline_runs") if "disk is full" in (row["problem"] or "")
        ]
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert set(told) == both
    said = log.read_text("utf-8")
    assert "Traceback" not in said
    line = f"- {small} on the full disk: both queries told it, and were ready {healed:.0f} s after there was room"
    write_section(
        f"Full disk: {small}", [f"A tmpfs of {_DISK} filled to its last page while the pipeline ran.", "", line]
    )


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {json.dumps(one)}" for name, one in value.items()) + " }"
    return json.dumps(value)
