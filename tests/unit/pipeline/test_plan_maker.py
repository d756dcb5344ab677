"""What a plan takes of the pipeline that makes it: a bounded number of dead letters, written in parts."""

from pathlib import Path

import pyarrow as pa
import pytest

from headgate.base.errors import UsageError
from headgate.dead_letters.model.plans import ReplayPlan
from headgate.dead_letters.plan_store import load_plan, plan_records
from headgate.pipeline import plan_maker
from headgate.pipeline.plan_maker import check_number, write_plan
from headgate.tables.definitions import TABLES
from headgate.tables.reader import TableReader
from headgate.tables.storage import StoredTable
from tests.unit.lineage.shop import whole

PLAN = ReplayPlan(
    cluster_id="c",
    plan="p",
    at=1,
    by="ops",
    group="billing",
    to="original",
    targets={"orders": "id"},
    records=5,
    parked=0,
    expired=0,
    superseded=0,
    already_replayed=0,
    over_max_replays=0,
    reasons={},
    readers=(),
    oldest_at=None,
)


def test_a_plan_is_of_a_bounded_number_of_dead_letters() -> None:
    check_number(plan_maker.MOST_LETTERS)
    with pytest.raises(UsageError, match="1000001 dead letters are selected, and a plan has at most 1000000"):
        check_number(plan_maker.MOST_LETTERS + 1)


def test_the_records_of_a_plan_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_maker, "PART_ROWS", 2)
    table = TABLES["replay_plan_records"]
    rows = [
        {"cluster_id": "c", "plan": "p", "position": position, "action": "replay", "target_topic": "orders"}
        for position in range(5)
    ]
    write_plan(tmp_path, PLAN, {}, pa.Table.from_pylist(whole(table.name, rows), schema=table.columns))
    reader = TableReader(tmp_path)
    plan = load_plan(reader, "p")
    assert [record.position for record in plan_records(reader, plan)] == [0, 1, 2, 3, 4]
    reader.close()
    stored = StoredTable(tmp_path, table)
    stored.newest()
    assert len(stored.files()) == 3
