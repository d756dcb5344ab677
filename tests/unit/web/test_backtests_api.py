"""`/api/v1/share-groups/NAME/backtest`: the sums of the days that the pipeline has tested."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.share_group_models import BacktestModel
from headgate.web.tokens import TokenScope, add_token
from tests.support.clock import FakeClock
from tests.unit.lineage.shop import DAY, NOON, TWO, Row, write
from tests.unit.web.api_stage import ApiStage


def day_row(percent: int, day: int, trips: int, *, live: bool = False, false_trips: int = 0) -> Row:
    setting: Row = {"threshold_percent": percent, "window_ms": 60_000, "min_messages": 100, "is_live": live}
    key: Row = {"group": "billing", "config_hash": f"{percent}/60000/100", "day": NOON - day * DAY}
    counts: Row = {"trips": trips, "paused_s": 300 * trips, "avoided": 10 * trips, "false_trips": false_trips}
    return key | setting | counts | {"left_out_s": 60 if day == 1 else 0}


ROWS = [
    *(day_row(20, 1, 1, live=True), day_row(20, 2, 0, live=True)),
    *(day_row(5, 1, 4, false_trips=2), day_row(5, 2, 3)),
    *(day_row(10, 1, 1), day_row(10, 2, 1)),
]


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[EstateTables]:
    write(tmp_path, "breaker_backtest", ROWS)
    made = EstateTables(tmp_path, FakeClock(TWO))
    yield made
    asyncio.run(made.close())


async def test_the_days_of_each_setting_are_added_up_and_one_is_recommended(tables: EstateTables) -> None:
    stage = ApiStage(tables, FakeClock(TWO))
    found = BacktestModel.model_validate(await stage.json("share-groups/billing/backtest"))
    assert [(one.threshold_percent, one.trips, one.avoided, one.false_trips) for one in found.configs] == [
        (20, 1, 10, 0),
        (5, 7, 70, 2),
        (10, 2, 20, 0),
    ]
    assert (found.live, found.recommended, found.days) == (0, 2, 2)
    assert (found.from_, found.left_out_s) == (NOON - 2 * DAY, 60)


async def test_a_group_that_was_not_tested_is_absent_with_the_command(tables: EstateTables) -> None:
    response = await ApiStage(tables, FakeClock(TWO)).get("share-groups/refunds/backtest")
    assert response.status == 404
    assert "headgate share-groups --backtest" in response.json["message"]


async def test_a_group_that_a_token_does_not_see_is_absent(tables: EstateTables, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    later = datetime.fromtimestamp(TWO / 1000 + 3600, UTC)
    token = add_token(file, name="team", scope=TokenScope.READ, expires=later, names=["refunds"])
    stage = ApiStage(tables, FakeClock(TWO), tokens_file=file, is_read_open=False)
    assert (await stage.get("share-groups/billing/backtest", token=token)).status == 404


async def test_there_may_be_no_table_yet(shop: ApiStage) -> None:
    assert (await shop.get("share-groups/billing/backtest")).status == 503
