"""The health of the pipeline, and the rows of `pipeline_runs`, which survive a full disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.base.clock import SystemClock
from headgate.base.errors import PlatformError
from headgate.pipeline.batches import BatchProgress, BatchResult, TableWriters
from headgate.pipeline.run_log import PipelineHealth, RunLog
from headgate.tables.definitions import table_named
from headgate.tables.reader import TableReader
from headgate.tables.writer import TableWriter


class FullDisk(TableWriters):
    full = True

    @contextmanager
    def writer(self, name: str) -> Iterator[TableWriter]:
        if self.full:
            raise PlatformError("the disk is full")
        with super().writer(name) as writer:
            yield writer


def test_a_row_is_written_when_there_is_room_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writers = FullDisk(tmp_path)
    health = PipelineHealth()
    log = RunLog(writers, SystemClock(), health)
    for _ in range(150):
        run = log.begin("c", "facts")
        log.end(run, "failed", "the disk is full")
    log.add_problem(run, "table changes", "it is gone", table="changes")
    said = capsys.readouterr().err.splitlines()
    assert said == ["headgate: facts: pipeline_runs cannot be written: the disk is full", "headgate: facts: it is gone"]
    assert health.problems() == {"table changes": "it is gone"}
    writers.full = False
    log.begin("c", "facts")
    writers.close()
    rows = TableReader(tmp_path).rows(table_named("pipeline_runs")).rows
    assert len(rows) == 100, "not more than so many wait"
    problems = [row["problem"] for row in rows]
    assert problems.count("the disk is full") == 98
    assert problems.count("it is gone") == 1


def test_a_problem_lasts_until_it_is_cleared_and_a_query_is_not_ready_until_it_has_started() -> None:
    health = PipelineHealth(["facts", "append"])
    assert health.problems() == {"facts": "is starting", "append": "is starting"}
    health.clear_problem("facts")
    health.clear_problem("append")
    health.set_problem("table changes", "its schema version is 99")
    health.set_problem("table changes", "it is gone")
    assert health.problems() == {"table changes": "it is gone"}
    health.clear_problem("table changes")
    health.clear_problem("table changes")
    assert health.problems() == {}


def test_figures_add_up_and_an_unknown_lag_is_left_out() -> None:
    health = PipelineHealth(["facts"])
    health.add_batch("facts", BatchResult(0, rows=5, rejected=1), BatchProgress(batch=0, lag=3, batch_ms=1500))
    health.add_batch("facts", BatchResult(1, rows=2), BatchProgress(batch=1, lag=None, batch_ms=500))
    health.add_losses("facts", records=4)
    health.add_losses("facts", topics=1)
    samples = {
        (sample.name, sample.labels.get("query")): sample.value
        for family in text_string_to_metric_families(health.metrics_page().decode())
        for sample in family.samples
    }
    assert samples == {
        ("headgate_pipeline_ready", None): 0.0,
        ("headgate_pipeline_batches_total", "facts"): 2.0,
        ("headgate_pipeline_rows_total", "facts"): 7.0,
        ("headgate_pipeline_rejected_total", "facts"): 1.0,
        ("headgate_pipeline_lost_records_total", "facts"): 4.0,
        ("headgate_pipeline_topics_created_again_total", "facts"): 1.0,
        ("headgate_pipeline_batch_seconds", "facts"): 0.5,
    }
