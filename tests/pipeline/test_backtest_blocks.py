"""A back-test reads only the counts near dead letters, and has the trips that all counts have."""

import json
import random

import numpy as np
from pyspark.sql import SparkSession

from headgate.pipeline.derived.backtest import backtest_rows, near_dead_letters
from headgate.share_groups.model.backtest import DAY_S, CountColumns, DeadLetterColumns, GroupHistory, configurations
from headgate.share_groups.model.breaker import BreakerRules
from headgate.share_groups.model.group_configs import MIN_MESSAGES, THRESHOLD_PERCENT, WINDOW_MS

END_DAY = 20_772
BEGIN = (END_DAY - 1) * DAY_S
WIDE_MS = 7_200_000
COUNTS = (
    "cluster_id string, writer string, boot string, seq long, group string, member string, at long, "
    "accepted long, dead_lettered long"
)
EVENTS = "cluster_id string, group string, at long, event string, by string, detail string"
LETTERS = "cluster_id string, group string, dead_lettered_at long, format string, withdrawn boolean, key_hash string"
Count = tuple[int, int, int, int]
NONE = np.array([], dtype=np.int64)


def history(seed: int) -> list[Count]:
    """A day of a group: records every half minute, and now and then some minutes in which some fail."""
    chance = random.Random(seed)
    failing = [chance.randrange(DAY_S) for _ in range(4)]
    counts = []
    for second in range(0, DAY_S, 29):
        written = chance.choice((0, 0, 5, 40)) if any(0 <= second - one < 900 for one in failing) else 0
        counts.append((BEGIN + second, chance.randrange(2), 60 - written, written))
    return counts


def trips_of_all(counts: list[Count], live: BreakerRules) -> dict[str, tuple[int, int, int, int]]:
    second, member, delivered, written = np.array(counts, dtype=np.int64).T
    columns = CountColumns(second=second, member=member, delivered=delivered, dlq_written=written)
    letters = DeadLetterColumns(at=NONE, key=NONE)
    whole = GroupHistory(columns, begin=BEGIN, end=END_DAY * DAY_S, dead_letters=letters)
    found = {}
    for rules in configurations(live):
        trips = whole.simulate(rules, 300)
        sums = (len(trips), sum(one.paused_s for one in trips), sum(one.avoided for one in trips))
        found[f"{rules.threshold_percent}/{rules.window_ms}/{rules.min_messages}"] = (
            *sums,
            sum(one.is_false for one in trips),
        )
    return found


def test_counts_that_are_far_from_dead_letters_change_no_trip(spark: SparkSession) -> None:
    histories = {"sg": history(1), "wide": history(2), "calm": [(BEGIN + at, 0, 60, 0) for at in range(0, DAY_S, 29)]}
    rows = [
        ("c", "w", "b", number * 100_000 + at, group, f"m{member}", second * 1000, delivered, written)
        for number, (group, counts) in enumerate(histories.items())
        for at, (second, member, delivered, written) in enumerate(counts)
    ]
    changes = {"changes": {WINDOW_MS: str(WIDE_MS), THRESHOLD_PERCENT: "3", MIN_MESSAGES: "900"}}
    dispositions = spark.createDataFrame(rows, COUNTS)
    changed = [("c", "wide", 1, "config_changed", "User:ops", json.dumps(changes))]
    events = spark.createDataFrame(changed, EVENTS)
    letters = spark.createDataFrame([], LETTERS)
    live = {
        "sg": BreakerRules(threshold_percent=20, window_ms=60_000, min_messages=100),
        "wide": BreakerRules(threshold_percent=3, window_ms=WIDE_MS, min_messages=900),
    }

    found: dict[str, dict[str, tuple[int, int, int, int]]] = {}
    for one in backtest_rows(dispositions, events, letters, end_day=END_DAY, days=1).collect():
        sums = (one["trips"], one["paused_s"], one["avoided"], one["false_trips"])
        found.setdefault(one["group"], {})[one["config_hash"]] = sums
    assert found == {group: trips_of_all(histories[group], live[group]) for group in live}
    assert found["wide"][f"3/{WIDE_MS}/900"][0] > 0
    assert found["sg"]["20/60000/100"][0] > 0

    kept = {
        row["group"]: row["count"] for row in near_dead_letters(dispositions, events).groupBy("group").count().collect()
    }
    assert set(kept) == {"sg", "wide"}
    assert kept["sg"] < 0.3 * len(histories["sg"])
