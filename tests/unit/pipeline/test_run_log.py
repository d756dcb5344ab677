"""What cannot be written is written later: rows of `pipeline_runs` outlive a full disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.base.clock import SystemClock
from headgate.base.errors import PlatformError
from headgate.pipeline.health import Health
from headgate.pipeline.run_log import RunLog
from headgate.pipeline.writers import Writers
from headgate.tables.reader import TableReader
from headgate.tables.registry import table_named
from headgate.tables.writer import TableWriter


class FullDisk(Writers):
    full = True

    @contextmanager
    def of(self, name: str) -> Iterator[TableWriter]:
        if self.full:
            raise PlatformError("the disk is full")
        with super().of(name) as writer:
            yield writer


def test_a_row_is_written_when_there_is_room_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writers = FullDisk(tmp_path)
    health = Health()
    log = RunLog(writers, SystemClock(), health)
    for _ in range(150):
        run = log.begin("c", "facts")
        log.end(run, "failed", "the disk is full")
    log.problem(run, "table changes", "it is gone", table="changes")
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
