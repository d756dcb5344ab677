"""Compaction on a schedule: also of a table that somebody else has written to, as Spark does."""

from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.pipeline import tidying
from headgate.tables.writer import TableWriter
from tests.unit.tables.things import THINGS, batch, thing


def files(root: Path) -> int:
    return len(DeltaTable(str(root / THINGS.name)).file_uris())


def test_every_so_many_commits_a_table_is_one_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "EVERY", 3)
    writer = TableWriter(tmp_path, THINGS)
    tidying.tidy(writer)  # there is no table yet
    writer.create()
    tidying.tidy(writer)
    seen = []
    for number in range(3):
        rows = batch([thing(str(number))]).cast(THINGS.stored_schema)
        write_deltalake(str(writer.folder), rows, mode="append")
        tidying.tidy(writer)
        seen.append(files(tmp_path))
    assert seen == [1, 2, 1]
    writer.close()
