"""`breaker_backtest`: what the breakers of all groups would have done with other settings, from `dispositions`.

Once a day, over the seven whole days before it, in one Spark job: a task has the counts, events and dead letters of one
group, and simulates all configurations over them (`share_groups/model/backtest.py`). Groups without a dead letter in
this time are left out, because no configuration would have tripped. So are, before anything is sorted or added up, the
counts that are in no window with a dead letter: no trip depends on them, and they are nearly all of a healthy week. A
fact counts in the second in which it was written, because that is when the leader counted it. Of a dead letter only its
time and a number for its key are used.
"""

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.pipeline.derived.derivation import DAY_HOURS, HOUR_MS, Derivation, DerivedRun
from headgate.share_groups.model.backtest import (
    DAY_S,
    DEAD_LETTER_DELAY_S,
    LONGEST_WINDOW_MS,
    NO_KEY,
    CountColumns,
    DeadLetterColumns,
    GroupHistory,
    Numbers,
    SimulatedTrip,
    configurations,
    summarize,
)
from headgate.share_groups.model.group_configs import WINDOW_MS
from headgate.share_groups.model.recorded_history import paused_periods, recorded_event, recorded_settings, rules_of
from headgate.tables.definitions import ORIGIN_KEY, table_named

_DISPOSITIONS, _EVENTS, _LETTERS, _RESULT = "dispositions", "breaker_events", "dead_letters", "breaker_backtest"
_LETTER = "dead_letter"  # the event of a row that is a dead letter
DAYS: Final = 7
_BLOCK_MS: Final = LONGEST_WINDOW_MS
_RECORDED_WINDOW: Final = rf'"{re.escape(WINDOW_MS)}":\s*"?\s*\+?(\d+)'  # in the details of an event
_COLUMNS: Final = pa.schema([column.remove_metadata() for column in table_named(_RESULT).columns])


def backtest_rows(
    dispositions: DataFrame, events: DataFrame, letters: DataFrame, *, end_day: int, days: int = DAYS
) -> DataFrame:
    """The rows of `breaker_backtest` for the `days` before `end_day`, which is counted from the epoch."""
    begin, end = (end_day - days) * DAY_S, end_day * DAY_S
    within = dispositions.where(sf.col("at").between(begin * 1000, end * 1000 - 1))
    once = near_dead_letters(within, events).dropDuplicates(list(ORIGIN_KEY))
    counted = once.groupBy("cluster_id", "group", "member", sf.floor(sf.col("at") / 1000).alias("second")).agg(
        sf.sum("accepted").alias("delivered"), sf.sum("dead_lettered").alias("dlq_written")
    )
    happened = events.where(sf.col("event").isin("tripped", "paused", "resumed", "config_changed")).select(
        "cluster_id", "group", "at", "event", "by", "detail", sf.lit(None).cast("long").alias("key")
    )
    made = letters.where(sf.col("dead_lettered_at").between((begin - DEAD_LETTER_DELAY_S) * 1000, end * 1000 - 1))
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
    grouped = counted.groupBy("cluster_id", "group").cogroup(beside)

    def simulate(counts: pa.Table, of_group: pa.Table) -> pa.Table:
        return _group_rows(counts, of_group, begin, end)

    return grouped.applyInArrow(simulate, from_arrow_schema(_COLUMNS))


def near_dead_letters(dispositions: DataFrame, events: DataFrame) -> DataFrame:
    """Those that may be in a window with a dead letter, by blocks of time as long as the longest simulated window.

    A block is kept with those before and after it. Of a group whose live window was ever longer, all are kept. Blocks
    and groups are compared by a number of 8 bytes: where two have the same, too much is kept, which changes no trip.
    """
    group = sf.xxhash64("cluster_id", "group")
    failing = dispositions.where(sf.col("dead_lettered") > 0)
    block = sf.floor(sf.col("at") / _BLOCK_MS)
    around = sf.explode(sf.array(block - 1, block, block + 1)).alias("block")
    blocks = failing.select("cluster_id", "group", around).select(_block_number("block").alias("number")).distinct()
    near = dispositions.withColumn("block", block).withColumn("number", _block_number("block"))
    near = near.join(sf.broadcast(blocks), "number", "left_semi").drop("block", "number")
    windows = sf.transform(
        sf.regexp_extract_all("detail", sf.lit(_RECORDED_WINDOW), 1), lambda text: text.try_cast("long")
    )
    has_long = sf.exists(windows, lambda window: window > _BLOCK_MS)
    wide = events.where((sf.col("event") == "config_changed") & has_long).select(group.alias("number")).distinct()
    wide = wide.join(failing.select(group.alias("number")).distinct(), "number", "left_semi")
    all_of_wide = dispositions.withColumn("number", group).join(sf.broadcast(wide), "number", "left_semi")
    return near.unionByName(all_of_wide.drop("number"))


def _block_number(block: str) -> Column:
    return sf.xxhash64("cluster_id", "group", block)


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
        dead_letters=_letters(beside.filter(is_letter)),
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


def _letters(letters: pa.Table) -> DeadLetterColumns:
    keys = letters["key"].combine_chunks().dictionary_encode().indices.fill_null(NO_KEY)
    return DeadLetterColumns(at=_numbers(letters["at"]), key=_numbers(keys))


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
