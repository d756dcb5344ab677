"""The pipeline of `headgate dev`: `headgate pipeline run` as a process of its own, for the folder's tables.

It gets its configuration from a file. If it ends or cannot start, the gateway goes on; its log is `logs/pipeline.log`,
and problems are repeated on standard error.
"""

import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.config import Config
from headgate.embedded.spawn import start_tethered, stop_all

_END_S: Final = 8.0  # for the running batch; one that is cut off is applied again at the next start, once
_LOOK_S: Final = 1.0
_MOST_BYTES: Final = 16 * 1024  # that are looked at in one go
# Its batches are small, so code that is compiled with all effort does not pay for that.
_SMALL_SPARK: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
_PROGRESS: Final = re.compile(r"headgate: (\w+: batch \d+: |derived: \w+: \d+ rows changed, )")


def problems_in(words: str) -> list[str]:
    """The lines of the pipeline about problems: no progress, and no output of Java."""
    return [line for line in words.splitlines() if line.startswith("headgate: ") and not _PROGRESS.match(line)]


def _whole_lines(log: Path, read_from: int) -> bytes:
    """The output since then, up to the end of the last complete line, or a part of a line that is too long."""
    try:
        with log.open("rb") as words:
            words.seek(read_from)
            lines_read = words.read(_MOST_BYTES)
    except OSError:
        return b""  # the log was moved away
    return lines_read[: lines_read.rfind(b"\n") + 1] or (lines_read if len(lines_read) == _MOST_BYTES else b"")


def is_installed() -> bool:
    """Whether the extra `pipeline` is installed: without it the rest of Headgate works."""
    return all(importlib.util.find_spec(name) is not None for name in ("pyspark", "deltalake"))


def _lines(config: Config) -> Iterator[str]:
    """The configuration of the pipeline; JSON's texts, numbers and lists are valid TOML."""
    keys: dict[str, object] = {
        "upstream.bootstrap": [str(address) for address in config.upstream.bootstrap],
        "upstream.service_mechanism": "none",
        "facts.prefix": config.facts.prefix,
        "tables.path": str(config.tables.path.absolute()),
        "pipeline.checkpoint": str(config.pipeline.checkpoint.absolute()),
        "pipeline.trigger_ms": config.pipeline.trigger_ms,
        "activity.quiet_after_ms": config.activity.quiet_after_ms,
        "share_groups.dlq_prefix": config.share_groups.dlq_prefix,
        "replay.topics": list(config.replay.topics),
        "replay.max_replays": config.replay.max_replays,
    }
    if config.replay.parking_topic is not None:
        keys["replay.parking_topic"] = config.replay.parking_topic
    if config.pipeline.openlineage is not None:
        keys["pipeline.openlineage"] = str(config.pipeline.openlineage.absolute())
    if config.pipeline.openlineage_namespace is not None:
        keys["pipeline.openlineage_namespace"] = config.pipeline.openlineage_namespace
    yield from (f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    yield from (
        f"pipeline.spark.{json.dumps(key)} = {json.dumps(value)}\n"
        for key, value in {**_SMALL_SPARK, **config.pipeline.spark}.items()
    )


class DevPipeline:
    """A process that is started when Kafka is ready, and stopped before it."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self._watching: threading.Thread | None = None

    def start(self) -> None:
        file = self._folder / "pipeline.toml"
        file.write_text("".join(_lines(self._config)), encoding="utf-8")
        logs = self._folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [sys.executable, "-m", "headgate.cli.main", "pipeline", "run", "--config", file]
        log = logs / "pipeline.log"
        read_from = log.stat().st_size if log.exists() else 0
        self._process = start_tethered(command, output=log)
        self._watching = threading.Thread(target=self._watch, args=(self._process, log, read_from), daemon=True)
        self._watching.start()

    def _watch(self, process: "subprocess.Popen[bytes]", log: Path, read_from: int) -> None:
        """Repeat problems, and report an unexpected end of the pipeline."""
        ended = None
        while ended is None and not self._stop.wait(_LOOK_S):
            ended = process.poll()
            lines_read = _whole_lines(log, read_from)
            read_from += len(lines_read)
            for line in problems_in(lines_read.decode("utf-8", "replace")):
                print(f"headgate: pipeline: {line.removeprefix('headgate: ')}", file=sys.stderr, flush=True)
        if ended is not None:
            text = f"headgate: the pipeline ended with code {ended}; everything else goes on. Its log is {log}"
            print(text, file=sys.stderr, flush=True)

    def stop(self) -> None:
        self._stop.set()
        if self._process is not None:
            stop_all([self._process], _END_S)
        if self._watching is not None:
            self._watching.join(_END_S)
