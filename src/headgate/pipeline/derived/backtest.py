"""`breaker_backtest`: what the breakers of all groups would have done with other settings, from `dispositions`.

Once a day, over the seven whole days before it, in one Spark job: a task has the counts, events and dead letters of one
group, and simulates all configurations over them (`share_groups/model/backtest.py`). Groups without a dead letter in
this time are left out, because no configuration would have tripped. A fact counts in the second in which it was
written, because that is when the leader counted it. Of a dead letter only its time and a number for its key are used.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.pipeline.derived.derivation import DAY_HOURS, HOUR_MS, Derivation, DerivedRun
from headgate.share_groups.model.backtest import (
    DAY_S,
    LETTER_DELAY_S,
    NO_KEY,
    CountColumns,
    GroupHistory,
    LetterColumns,
    Numbers,
    SimulatedTrip,
    configurations,
    summarize,
)
from headgate.share_groups.model.recorded_history import paused_periods, recorded_event, recorded_settings, rules_of
from headgate.tables.definitions import ORIGIN_KEY, table_named

_DISPOSITIONS, _EVENTS, _LETTERS, _RESULT = "dispositions", "breaker_events", "dead_letters", "breaker_backtest"
_LETTER = "dead_letter"  # the event of a row that is a dead letter
DAYS: Final = 7
_COLUMNS: Final = pa.schema([column.remove_metadata() for column in table_named(_RESULT).columns])


def backtest_rows(
    dispositions: DataFrame, events: DataFrame, letters: DataFrame, *, end_day: int, days: int = DAYS
) -> DataFrame:
    """The rows of `breaker_backtest` for the `days` before `end_day`, which is counted from the epoch."""
    begin, end = (end_day - days) * DAY_S, end_day * DAY_S
    once = dispositions.where(sf.col("at").between(begin * 1000, end * 1000 - 1)).dropDuplicates(list(ORIGIN_KEY))
    counted = once.groupBy("cluster_id", "group", "member", sf.floor(sf.col("at") / 1000).alias("second")).agg(
        sf.sum("accepted").alias("delivered"), sf.sum("dead_lettered").alias("dlq_written")
    )
    failing = counted.where(sf.col("dlq_written") > 0).select("cluster_id", "group").distinct()
    of_failing = counted.join(failing, ["cluster_id", "group"], "left_semi")
    happened = events.where(sf.col("event").isin("tripped", "paused", "resumed", "config_changed")).select(
        "cluster_id", "group", "at", "event", "by", "detail", sf.lit(None).cast("long").alias("key")
    )
    made = letters.where(sf.col("dead_lettered_at").between((begin - LETTER_DELAY_S) * 1000, end * 1000 - 1))
    of_keys = made.where((sf.col("format") == "kafka") & ~sf.col("withdrawn")).select(
        "cluster_id",
        "group",
        sf.col("dead_lettered_at").alias("at"),
        sf.lit(_LETTER).alias("event"),
        sf.lit(None).cast("string").alias("by"),
        sf.lit(None).cast("string").alias("detail"),
        # A number of 8 bytes instead of a text of 64: two of a group's keys are not expected to have the same.
        sf.when(sf.col("key_hash").isNotNull(), sf.xxhash64("key_hash")).alias("key"),
    )
    # Two frames can be grouped together, not three.
    beside = happened.unionByName(of_keys).groupBy("cluster_id", "group")
    grouped = of_failing.groupBy("cluster_id", "group").cogroup(beside)

    def simulate(counts: pa.Table, of_group: pa.Table) -> pa.Table:
        return _group_rows(counts, of_group, begin, end)

    return grouped.applyInArrow(simulate, from_arrow_schema(_COLUMNS))


def _group_rows(counts: pa.Table, beside: pa.Table, begin: int, end: int) -> pa.Table:
    """All rows of one group; none for a group without counts. `beside` has its events and its dead letters."""
    if not counts.num_rows:
        return _COLUMNS.empty_table()
    is_letter = pc.equal(beside["event"], _LETTER)
    events = beside.filter(pc.invert(is_letter)).select(["at", "event", "by", "detail"]).to_pylist()
    recorded = [recorded_event(one["at"], one["event"], one["by"], one["detail"]) for one in events]
    history = GroupHistory(
        _columns(counts),
        begin=begin,
        end=end,
        paused=paused_periods(recorded, end=end),
        letters=_letters(beside.filter(is_letter)),
    )
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


def _letters(letters: pa.Table) -> LetterColumns:
    keys = letters["key"].combine_chunks().dictionary_encode().indices.fill_null(NO_KEY)
    return LetterColumns(at=_numbers(letters["at"]), key=_numbers(keys))


def _numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    return np.asarray(column, dtype=np.int64)


# --- the derivation ---------------------------------------------------------------------------------------------------


def _derive(run: DerivedRun) -> None:
    end_day = run.now_ms // HOUR_MS // DAY_HOURS
    rows = backtest_rows(run.rows(_DISPOSITIONS), run.rows(_EVENTS), run.rows(_LETTERS), end_day=end_day).toArrow()
    run.replace(_RESULT, rows)


BACKTEST = Derivation(
    name="backtest",
    sources=(_DISPOSITIONS, _EVENTS, _LETTERS),
    results=(_RESULT,),
    derive=_derive,
    daily=True,
    minutes=60,
)
