"""The pipeline of `headgate dev`: `headgate pipeline run` as a process of its own, on the folder's own tables.

One rule: it is told its configuration by a file, as an operator would tell it. That it ends or cannot start changes
nothing for the gateway; its words are in `logs/pipeline.log`.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.config import Config
from headgate.kafka.embedded.spawn import start_tethered

_END_S: Final = 15.0  # a batch under way may end, and that takes ten at most


def is_installed() -> bool:
    """Whether the extra `pipeline` is there: without it the rest of Headgate works."""
    return all(importlib.util.find_spec(name) is not None for name in ("pyspark", "deltalake"))


def _lines(config: Config) -> Iterator[str]:
    """What the pipeline has to know; JSON's texts, numbers and lists are TOML's too."""
    keys = {
        "upstream.bootstrap": [str(address) for address in config.upstream.bootstrap],
        "upstream.service_mechanism": "none",
        "facts.prefix": config.facts.prefix,
        "tables.path": str(config.tables.path.absolute()),
        "pipeline.checkpoint": str(config.pipeline.checkpoint.absolute()),
        "pipeline.trigger_ms": config.pipeline.trigger_ms,
    }
    yield from (f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    yield from (
        f"pipeline.spark.{json.dumps(key)} = {json.dumps(value)}\n" for key, value in config.pipeline.spark.items()
    )


class DevPipeline:
    """Started once Kafka answers, ended before it."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        file = self._folder / "pipeline.toml"
        file.write_text("".join(_lines(self._config)), encoding="utf-8")
        logs = self._folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [sys.executable, "-m", "headgate.cli.main", "pipeline", "run", "--config", file]
        self._process = start_tethered(command, output=logs / "pipeline.log")

    def stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
