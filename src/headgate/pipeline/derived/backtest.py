"""`breaker_backtest`: what the breakers of all groups would have done with other settings, from `dispositions`.

Once a day, over the seven whole days before it, in one Spark job: a task has the counts and events of one group, and
simulates all configurations over them (`share_groups/model/backtest.py`). Groups without a dead letter in this time are
left out, because no configuration would have tripped. A fact counts in the second in which it was written, because
that is when the leader counted it.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.pipeline.derived.derivation import DAY_HOURS, HOUR_MS, Derivation, DerivedRun
from headgate.share_groups.model.backtest import (
    DAY_S,
    CountColumns,
    GroupHistory,
    Numbers,
    SimulatedTrip,
    configurations,
    summarize,
)
from headgate.share_groups.model.recorded_history import paused_periods, recorded_event, recorded_settings, rules_of
from headgate.tables.definitions import ORIGIN_KEY, table_named

_DISPOSITIONS, _EVENTS, _RESULT = "dispositions", "breaker_events", "breaker_backtest"
DAYS: Final = 7
_COLUMNS: Final = pa.schema([column.remove_metadata() for column in table_named(_RESULT).columns])


def backtest_rows(dispositions: DataFrame, events: DataFrame, *, end_day: int, days: int = DAYS) -> DataFrame:
    """The rows of `breaker_backtest` for the `days` before `end_day`, which is counted from the epoch."""
    begin, end = (end_day - days) * DAY_S, end_day * DAY_S
    once = dispositions.where(sf.col("at").between(begin * 1000, end * 1000 - 1)).dropDuplicates(list(ORIGIN_KEY))
    counted = once.groupBy("cluster_id", "group", "member", sf.floor(sf.col("at") / 1000).alias("second")).agg(
        sf.sum("accepted").alias("delivered"), sf.sum("dead_lettered").alias("dlq_written")
    )
    failing = counted.where(sf.col("dlq_written") > 0).select("cluster_id", "group").distinct()
    of_failing = counted.join(failing, ["cluster_id", "group"], "left_semi")
    happened = events.where(sf.col("event").isin("tripped", "paused", "resumed", "config_changed")).select(
        "cluster_id", "group", "at", "event", "by", "detail"
    )
    grouped = of_failing.groupBy("cluster_id", "group").cogroup(happened.groupBy("cluster_id", "group"))

    def simulate(counts: pa.Table, of_group: pa.Table) -> pa.Table:
        return _group_rows(counts, of_group, begin, end)

    return grouped.applyInArrow(simulate, from_arrow_schema(_COLUMNS))


def _group_rows(counts: pa.Table, events: pa.Table, begin: int, end: int) -> pa.Table:
    """All rows of one group; none for a group that has only events."""
    if not counts.num_rows:
        return _COLUMNS.empty_table()
    named = events.select(["at", "event", "by", "detail"]).to_pylist()
    recorded = [recorded_event(one["at"], one["event"], one["by"], one["detail"]) for one in named]
    history = GroupHistory(_columns(counts), begin=begin, end=end, paused=paused_periods(recorded, end=end))
    settings = recorded_settings(recorded)
    live = rules_of(settings)
    key = {"cluster_id": counts["cluster_id"][0].as_py(), "group": counts["group"][0].as_py()}
    rows: list[dict[str, Any]] = []
    for rules in configurations(live):
        by_day: dict[int, list[SimulatedTrip]] = {day: [] for day in range(begin, end, DAY_S)}
        for trip in history.simulate(rules, settings.auto_resume_ms // 1000):
            by_day[trip.second - trip.second % DAY_S].append(trip)
        for day, trips in by_day.items():
            found = summarize(rules, trips)
            rows.append(
                key
                | {
                    "config_hash": f"{rules.threshold_percent}/{rules.window_ms}/{rules.min_messages}",
                    "day": day * 1000,
                    "threshold_percent": rules.threshold_percent,
                    "window_ms": rules.window_ms,
                    "min_messages": rules.min_messages,
                    "is_live": rules == live,
                    "trips": found.trips,
                    "paused_s": found.paused_s,
                    "avoided": found.avoided,
                    "false_trips": found.false_trips,
                    "left_out_s": history.left_out_s(day, day + DAY_S),
                }
            )
    return pa.Table.from_pylist(rows, _COLUMNS)


def _columns(counts: pa.Table) -> CountColumns:
    members = counts["member"].combine_chunks().dictionary_encode().indices
    second, delivered, written = (_numbers(counts[name]) for name in ("second", "delivered", "dlq_written"))
    return CountColumns(second=second, member=_numbers(members), delivered=delivered, dlq_written=written)


def _numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    return np.asarray(column, dtype=np.int64)


# --- the derivation ---------------------------------------------------------------------------------------------------


def _derive(run: DerivedRun) -> None:
    end_day = run.now_ms // HOUR_MS // DAY_HOURS
    rows = backtest_rows(run.rows(_DISPOSITIONS), run.rows(_EVENTS), end_day=end_day).toArrow()
    run.replace(_RESULT, rows)


BACKTEST = Derivation(
    name="backtest", sources=(_DISPOSITIONS, _EVENTS), results=(_RESULT,), derive=_derive, daily=True, minutes=60
)
