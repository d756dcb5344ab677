"""Rates of dead letters and causes of trips are those of the oracle, whatever came late, twice, or was killed."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from headgate.base.clock import SystemClock
from headgate.base.errors import PlatformError
from headgate.config import load
from headgate.pipeline.batches import Moment, TableWriters
from headgate.pipeline.derived.backtest import BACKTEST
from headgate.pipeline.derived.causes import CAUSES
from headgate.pipeline.derived.derivation import Derivation, DerivedContext
from headgate.pipeline.derived.derived_runner import DerivedTables
from headgate.pipeline.derived.rates import RATES
from headgate.pipeline.run_log import PipelineHealth, RunLog
from headgate.tables.definitions import table_named
from headgate.tables.reader import TableReader
from tests.pipeline import breaker_oracle
from tests.pipeline.breaker_histories import (
    BEGIN,
    MINUTE,
    RandomEstate,
    Row,
    Step,
    disposition,
    letter,
    trip,
    use,
    whole_row,
)

HOUR = 60 * MINUTE
DAY = 24 * HOUR
Rows = dict[tuple[Any, ...], Row]


class Estate:
    """Tables in a folder, as the queries of the pipeline leave them, and the derivations of the breaker."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root = root
        self.spark = spark.newSession()
        self.sources: dict[str, list[Row]] = {name: [] for name in (*CAUSES.sources, "group_lags", "dead_letters")}
        self.killed_at: tuple[Moment, str] | None = None
        self.batch = 0
        self.writers: TableWriters | None = None

    def close(self) -> None:
        if self.writers is not None:
            self.writers.close()

    def write(self, step: Step) -> None:
        self.batch += 1
        writers = TableWriters(self.root)
        for name, rows in step.items():
            table = table_named(name)
            made = pa.Table.from_pylist(rows, table.columns)
            with writers.writer(name) as writer:
                if table.appended:
                    writer.create()
                    write_deltalake(str(writer.folder), made.cast(table.stored_schema), mode="append")
                else:
                    writer.upsert(made, query="facts", batch=self.batch)
            self.sources[name] += rows
        writers.close()

    def run(self, *derivations: Derivation) -> bool:
        """As a new process, which is killed at a moment, if one is set."""
        self.close()
        self.writers = TableWriters(self.root)
        return self._tables(derivations).run_once("c", Event())

    def _tables(self, derivations: Iterable[Derivation]) -> DerivedTables:
        assert self.writers is not None
        config = load(None, {}, {"tables.path": str(self.root)})
        context = DerivedContext(
            config=config, session=self.spark, writers=self.writers, on_moment=self._kill_at_its_moment
        )
        log = RunLog(self.writers, SystemClock(), PipelineHealth())
        return DerivedTables(tuple(derivations), context, SystemClock(), log)

    def _kill_at_its_moment(self, moment: Moment, table: str) -> None:
        if (moment, table) == self.killed_at:
            raise PlatformError("killed")

    def rows(self, name: str) -> Rows:
        reader = TableReader(self.root)
        found = list(reader.stream(table_named(name)) or ())
        reader.close()
        for row in found:
            if name == "breaker_causes":
                row["detail"] = json.loads(row["detail"])
        return by_key(name, found)

    def wanted(self) -> dict[str, Rows]:
        now = {
            name: rows if table_named(name).appended else list(by_key(name, rows).values())
            for name, rows in self.sources.items()
        }
        return {
            "dlq_rates": by_key("dlq_rates", breaker_oracle.rates(now["dispositions"], MINUTE, "minute")),
            "dlq_rates_hourly": by_key("dlq_rates_hourly", breaker_oracle.rates(now["dispositions"], HOUR, "hour")),
            "breaker_causes": by_key("breaker_causes", breaker_oracle.causes(now)),
        }

    def put(self, name: str, row: Row, **values: object) -> None:
        """Store a wrong value in a row of a result: it stays until the row is made again."""
        self.batch += 1
        detail = {"detail": json.dumps(row["detail"])} if name == "breaker_causes" else {}
        table = table_named(name)
        made = pa.Table.from_pylist([{**row, **detail, **values}], table.columns)
        assert self.writers is not None
        with self.writers.writer(name) as writer:
            writer.upsert(made, query="test", batch=self.batch)


def by_key(name: str, rows: Iterable[Row]) -> Rows:
    return {tuple(row[column] for column in table_named(name).key): row for row in rows}


@pytest.fixture
def tables(tmp_path: Path, spark: SparkSession) -> Iterator[Estate]:
    made = Estate(tmp_path / "tables", spark)
    yield made
    made.close()


def assert_all_are_right(tables: Estate) -> None:
    for name, rows in tables.wanted().items():
        assert tables.rows(name) == rows, name


def test_rates_and_causes_of_random_histories_are_those_of_the_oracle(tables: Estate) -> None:
    """Late facts, copies and ends of rows come in the second step, which is killed between its tables at first."""
    first, second = RandomEstate(18, 2).steps
    tables.write(first)
    assert tables.run(RATES, CAUSES)
    assert_all_are_right(tables)
    tables.write(second)
    tables.killed_at = ("after", "dlq_rates")
    assert not tables.run(RATES)
    tables.killed_at = None
    assert tables.run(RATES, CAUSES)
    assert_all_are_right(tables)
    kinds = {row["cause_kind"] for row in tables.rows("breaker_causes").values()}
    assert kinds >= {"config", "connector", "member", "new_producer", "resumed", "topology", "lag"}
    behind = {row["subject_kind"] for row in tables.rows("breaker_causes").values() if row["cause_kind"] == "lag"}
    assert behind == {"share_group", "application"}


def test_only_minutes_and_trips_of_new_facts_are_made_again(tables: Estate) -> None:
    """A wrong value that was put into a row stays where nothing came, and is gone where something came."""
    second = BEGIN // 1000
    tripped = BEGIN + 10 * HOUR
    many = [use(number, tripped - 20 * MINUTE, actor=("client", f"new-{number:03}")) for number in range(103)]
    tables.write(
        {
            "dispositions": [
                disposition(1, second, accepted=1),
                disposition(2, second + 60, accepted=2),
                disposition(3, tripped // 1000 - 5, member="joined", accepted=3),
            ],
            "breaker_events": [trip("e", tripped), trip("quiet", tripped - HOUR, group="quiet")],
            "activity_intervals": [use(1000, BEGIN, actor=("client", "shop")), *many],
        }
    )
    assert tables.run(RATES, CAUSES)
    assert_all_are_right(tables)
    of_trip = [row for row in tables.rows("breaker_causes").values() if row["event_id"] == "e"]
    assert [row["left_out"] for row in of_trip] == [4] * 100, "103 clients and a member are more than a hundred"
    assert tables.rows("breaker_causes")["c", "quiet", 1]["cause_kind"] == "none"
    for row in tables.rows("dlq_rates").values():
        tables.put("dlq_rates", row, released=777)
    tables.put("breaker_causes", of_trip[0], what="wrong")

    # A disposition of the first minute, twice; and facts that were written more than an hour after the trip.
    late = disposition(4, second + 1, dead_lettered=3, at=tripped + HOUR + 1)
    too_late = use(2000, tripped - MINUTE, actor=("client", "late"), at=tripped + HOUR + 1)
    config = whole_row("breaker_events", event_id="x", group="sg", event="config_changed", detail="{}")
    config["at"] = tripped + HOUR + 1
    tables.write({"dispositions": [late, late], "activity_intervals": [too_late], "breaker_events": [config]})
    assert tables.run(RATES, CAUSES)
    minutes = {row["minute"]: row for row in tables.rows("dlq_rates").values()}
    assert minutes[BEGIN]["dead_lettered"] == 3, "a copy does not count"
    assert [minutes[BEGIN + at]["released"] for at in (0, MINUTE)] == [0, 777]
    assert tables.rows("breaker_causes")["c", "e", 1]["what"] == "wrong", "these facts came too late for this trip"

    # It becomes known that these clients wrote before: they are no causes any more, and their rows are deleted.
    tables.write(
        {"activity_intervals": [{**row, "seq": 3000 + row["seq"], "since": BEGIN, "until": BEGIN} for row in many]}
    )
    assert tables.run(CAUSES)
    assert tables.rows("breaker_causes") == tables.wanted()["breaker_causes"]
    assert [row["subject"] for row in tables.rows("breaker_causes").values()] == ["joined", "quiet"]


def test_a_back_test_has_the_trips_of_each_setting_by_day_and_once_a_day(tables: Estate) -> None:
    """One outage that tripped the breaker, and one key that stays below the live threshold; today does not count yet.

    There are no letters of the outage: those that are not in the table make no trip false.
    """
    today = SystemClock().epoch_ms() // DAY * DAY
    tripped, later = (today - 2 * DAY + 12 * HOUR) // 1000, (today - DAY + 6 * HOUR) // 1000
    failing = [
        disposition(number, tripped + number // 2, member=f"m{number % 2}", accepted=6, dead_lettered=4, at=None)
        for number in range(12)
    ]
    below = [
        disposition(100 + number, later + number, member="m0", accepted=9, dead_lettered=1, at=None)
        for number in range(60)
    ]
    not_yet = disposition(200, today // 1000 + 60, dead_lettered=500)
    quiet = disposition(201, tripped, group="quiet", accepted=500)
    for row in (*failing, *below):
        row["at"] = row["second"] * 1000
    of_one_key = [letter(number, (later + number) * 1000 - 700, key_hash="same") for number in range(60)]
    withdrawn = [letter(100 + number, (tripped + number // 2) * 1000, withdrawn=True) for number in range(12)]
    tables.write(
        {
            "dispositions": [*failing, failing[0], *below, not_yet, quiet],
            "dead_letters": [*of_one_key, *withdrawn, letter(200, tripped * 1000, group="quiet")],
            "breaker_events": [
                trip("e", (tripped + 6) * 1000),
                whole_row(
                    "breaker_events", event_id="r", group="sg", event="resumed", detail="{}", at=(tripped + 66) * 1000
                ),
            ],
        }
    )
    assert tables.run(BACKTEST)
    rows = tables.rows("breaker_backtest").values()
    assert {row["group"] for row in rows} == {"sg"}, "a group without dead letters is left out"
    assert len(rows) == 100 * 7
    found = {(row["config_hash"], (row["day"] - today) // DAY): row for row in rows if row["trips"]}
    live = found["20/60000/100", -2]
    assert live["is_live"]
    assert (live["trips"], live["left_out_s"], live["false_trips"]) == (1, 59, 0)
    assert (live["paused_s"], live["avoided"]) == (61, 8), "twenty records a second: the end of the fifth trips"
    assert ("20/60000/100", -1) not in found, "a tenth is below the live threshold"
    assert found["10/60000/100", -1]["trips"] == 1
    assert found["10/60000/100", -1]["avoided"] == 60 - 10
    assert {of: row["false_trips"] for of, row in found.items() if row["false_trips"]} == {
        of: row["trips"] for of, row in found.items() if of[1] == -1
    }, "one key caused all trips of the second day, and no other"

    tables.write({"dispositions": [disposition(300, later, dead_lettered=9_000)]})
    assert tables.run(BACKTEST)
    assert list(tables.rows("breaker_backtest").values()) == list(rows), "the same day is not simulated again"
