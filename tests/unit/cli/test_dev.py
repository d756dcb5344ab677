"""`headgate dev`: the commands that it prints work in another terminal, and its parts end in order."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.cli import dev, dev_pipeline
from headgate.cli.dev import program
from headgate.cli.main import main
from headgate.config import Config, load
from headgate.embedded import ClusterSpec


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in a folder, which is the working directory."""
    file = tmp_path / ".venv" / "bin" / "headgate"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    return file


def test_a_command_is_printed_as_it_was_started(installed: Path) -> None:
    on_path = {"PATH": str(installed.parent)}
    assert program(".venv/bin/headgate", {}) == ".venv/bin/headgate"
    assert program(str(installed), {}) == ".venv/bin/headgate"
    assert program(str(installed), on_path) == "headgate"
    # Another terminal has no activated environment.
    assert program(str(installed), {**on_path, "VIRTUAL_ENV": "x"}) == ".venv/bin/headgate"
    assert program("/else where/headgate", {}) == "'/else where/headgate'"
    assert program("/src/headgate/cli/main.py", {}) == f"{sys.executable} -m headgate.cli.main"


def test_the_gateway_drains_while_kafka_still_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Kafka its features wait for timeouts one after the other, and their last facts are lost."""
    order: list[str] = []

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        yield
        order.append("gateway")

    kafka = SimpleNamespace(start=lambda _: None, stop=lambda: order.append("kafka"), bootstrap="127.0.0.1:1")
    monkeypatch.setattr(dev, "EmbeddedKafka", lambda *_, **__: kafka)
    monkeypatch.setattr(dev, "Gateway", lambda *_, **__: SimpleNamespace(running=running, problems=dict))
    part: Any = SimpleNamespace(
        start=lambda: os.kill(os.getpid(), signal.SIGINT), stop=lambda: order.append("application")
    )
    spec = ClusterSpec(data_dir=tmp_path, port=19092)
    assert asyncio.run(dev._run(Config(), spec, [part], has_web=False)) == 130
    assert order == ["application", "gateway", "kafka"]


@pytest.mark.parametrize("text", ["-1", "86401", "1.5", "²", "often"])
def test_the_time_between_outages_is_a_whole_number_of_seconds_up_to_a_day(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["dev", "--outage-every", text])
    assert "must be a whole number of seconds from 0 to 86400" in capsys.readouterr().err


def test_the_pipeline_gets_the_settings_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "openlineage.yml").touch()
    given = {
        "upstream.bootstrap": ["127.0.0.1:19092"],
        "pipeline.trigger_ms": 7000,
        "pipeline.spark": {"spark.driver.memory": "2g"},
        "pipeline.openlineage": str(tmp_path / "openlineage.yml"),
        "activity.quiet_after_ms": 86_400_000,
    }
    file = tmp_path / "pipeline.toml"
    file.write_text("".join(dev_pipeline._lines(load(None, {}, given))))
    config = load(file, {})
    assert (config.pipeline.trigger_ms, config.activity.quiet_after_ms) == (7000, 86_400_000)
    assert config.pipeline.openlineage == tmp_path / "openlineage.yml"
    small = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}  # unless it is configured
    assert dict(config.pipeline.spark) == {"spark.driver.memory": "2g", **small}
