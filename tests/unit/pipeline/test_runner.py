"""The threads of the pipeline go on, whatever fails."""

from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from headgate.base.errors import ClusterError
from headgate.config import load
from headgate.kafka.topics import TopicAdmin, client_settings
from headgate.pipeline import runner
from headgate.pipeline.batches import TableWriters, ignore_moment
from headgate.pipeline.queries import FACTS
from headgate.pipeline.run_log import PipelineHealth, RunLog
from headgate.pipeline.runner import RunContext, SupervisedQuery, keep_deriving
from tests.support.clock import FakeClock


def test_whatever_ends_the_derived_tables_is_a_problem_of_readyz_and_is_tried_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    health, ended = PipelineHealth(), Event()
    failures = [PermissionError(13, "Permission denied", "password"), ClusterError("the cluster does not answer"), None]
    seen: list[object] = []

    def cluster() -> str:
        seen.append(health.problems().get("derived"))
        if (failure := failures.pop(0)) is not None:
            raise failure
        return "c"

    def derive(found: str, _: Event) -> None:
        seen.append((found, health.problems()))
        if len(seen) > 4:
            ended.set()
        else:
            failures.append(None)
            raise RuntimeError("a defect")

    keep_deriving(derive, cluster, health, ended, 0.0)
    denied = "PermissionError: [Errno 13] Permission denied: 'password'"
    assert seen == [None, denied, "the cluster does not answer", ("c", {}), "RuntimeError: a defect", ("c", {})]
    assert f"derived: {denied}; the next attempt" in capsys.readouterr().err


def test_a_stop_that_cancels_a_derivation_is_no_problem(capsys: pytest.CaptureFixture[str]) -> None:
    health, ended = PipelineHealth(), Event()

    def derive(_: str, stop: Event) -> None:
        stop.set()
        raise RuntimeError("cancelled")

    keep_deriving(derive, lambda: "c", health, ended, 0.0)
    assert (health.problems(), capsys.readouterr().err) == ({}, "")


def test_a_query_that_ends_by_a_defect_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"tables.path": str(tmp_path / "tables"), "pipeline.checkpoint": str(tmp_path / "checkpoints")}
    config = load(None, {}, {"upstream.bootstrap": ["localhost:1"], **overrides})
    writers, health, stop, attempts = TableWriters(config.tables.path), PipelineHealth(), Event(), []

    def fails(*_: Any) -> None:
        attempts.append(health.problems())
        if len(attempts) == 2:
            stop.set()
        raise OSError("stale file handle")

    monkeypatch.setattr(runner, "list_topics", fails)
    monkeypatch.setattr(runner, "_MIN_PAUSE_S", 0.0)
    context = RunContext(
        config=config,
        session=cast(SparkSession, None),
        clock=FakeClock(),
        stop=stop,
        writers=writers,
        log=RunLog(writers, FakeClock(), health),
        ids=TopicAdmin(client_settings(config.upstream)),
        on_moment=ignore_moment,
    )
    with pytest.raises(OSError, match="stale"):
        SupervisedQuery(FACTS, context).run(once=False)
    assert attempts == [{}, {"facts": "OSError: stale file handle"}]
