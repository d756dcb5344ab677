"""`python -m bench.backtest --groups 100 --days 7`: what a back-test of breakers costs, beside its floor.

The records of each group are counted in every second, with an outage of ten minutes each day in which 30 % become dead
letters, each with one of a thousand keys. Measured in one Spark session: the floor, which is reading all rows; removing
copies and adding up all of them, which a back-test does with a part of them only; the back-test of all groups with a
hundred settings; and one setting of one group in this process. `--out FILE` writes its section of the page.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from bench import machine
from bench.pipeline_versus import tree_cpu_s
from bench.sections import with_section
from headgate.pipeline.derived.backtest import backtest_rows
from headgate.pipeline.session import end_session, start_session
from headgate.share_groups.model.backtest import DAY_S, CountColumns, DeadLetterColumns, GroupHistory, configurations
from headgate.tables.definitions import ORIGIN_KEY

END_DAY = 20_772
_OUTAGE_S = 600
_FAILED = 3  # of ten records of a second of an outage
_KEYS = 1_000
_ROUNDS = 20


def dispositions(session: SparkSession, groups: int, days: int) -> DataFrame:
    """Ten records a second of each group, for a number of days before `END_DAY`."""
    seconds = days * DAY_S
    row = session.range(groups * seconds)
    second = sf.col("id") % seconds
    failed = sf.when(second % DAY_S < _OUTAGE_S, _FAILED).otherwise(0)
    return row.select(
        sf.lit("c").alias("cluster_id"),
        sf.lit("gw/0").alias("writer"),
        sf.lit("b").alias("boot"),
        sf.col("id").alias("seq"),
        sf.concat(sf.lit("group-"), sf.floor(sf.col("id") / seconds)).alias("group"),
        sf.lit("m").alias("member"),
        ((second + (END_DAY - days) * DAY_S) * 1000).alias("at"),
        (10 - failed).cast("long").alias("accepted"),
        failed.cast("long").alias("dead_lettered"),
    )


def letters(session: SparkSession, groups: int, days: int) -> DataFrame:
    """The dead letters of these counts, made half a second before they were counted."""
    of_day = _OUTAGE_S * _FAILED
    row = session.range(groups * days * of_day)
    second = sf.floor(sf.col("id") / of_day) % days * DAY_S + sf.floor(sf.col("id") % of_day / _FAILED)
    return row.select(
        sf.lit("c").alias("cluster_id"),
        sf.concat(sf.lit("group-"), sf.floor(sf.col("id") / (days * of_day))).alias("group"),
        ((second + (END_DAY - days) * DAY_S) * 1000 - 500).alias("dead_lettered_at"),
        sf.lit("kafka").alias("format"),
        sf.lit(False).alias("withdrawn"),
        sf.sha2((sf.col("id") % _KEYS).cast("string"), 256).alias("key_hash"),
    )


def floor(counted: DataFrame) -> int:
    """The same rows, all of their columns read."""
    counted.write.format("noop").mode("overwrite").save()
    return counted.count()


def added_up(counted: DataFrame) -> int:
    """The same rows without copies, added up by second."""
    once = counted.dropDuplicates(list(ORIGIN_KEY))
    summed = once.groupBy("cluster_id", "group", "member", sf.floor(sf.col("at") / 1000).alias("second")).agg(
        sf.sum("accepted"), sf.sum("dead_lettered")
    )
    return summed.count()


def measured(work: Callable[[], int]) -> tuple[float, float, int]:
    """Seconds, CPU seconds of all processes, and the number of rows."""
    started, cpu = time.perf_counter(), tree_cpu_s(os.getpid())
    rows = work()
    return time.perf_counter() - started, tree_cpu_s(os.getpid()) - cpu, rows


def one_setting_ms(days: int) -> float:
    """One setting over one group in this process: the median of some settings."""
    second = np.arange(days * DAY_S, dtype=np.int64)
    written = np.where(second % DAY_S < _OUTAGE_S, _FAILED, 0).astype(np.int64)
    counts = CountColumns(second=second, member=np.zeros_like(second), delivered=10 - written, dlq_written=written)
    made = np.repeat(second, written)
    of_keys = DeadLetterColumns(at=made * 1000 - 500, key=np.arange(made.size, dtype=np.int64) % _KEYS)
    history = GroupHistory(counts, begin=0, end=days * DAY_S, dead_letters=of_keys)
    took = []
    for rules in configurations(None)[:_ROUNDS]:
        started = time.perf_counter()
        history.simulate(rules, 300)
        took.append(1000 * (time.perf_counter() - started))
    return float(np.median(took))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.backtest", description=__doc__)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    about = machine.facts()
    session = start_session({"spark.master": "local[2]"})
    # An estate without events: every group has its default setting.
    events = session.createDataFrame(
        [], "cluster_id string, group string, at long, event string, by string, detail string"
    )
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-backtest-") as folder:
            made = {}
            for name, rows in (("counts", dispositions), ("letters", letters)):
                rows(session, args.groups, args.days).write.parquet(f"{folder}/{name}")
                made[name] = session.read.parquet(f"{folder}/{name}")
            counted = made["counts"]
            figures = {
                "floor: all rows read": measured(lambda: floor(counted)),
                "all rows without copies, added up by second": measured(lambda: added_up(counted)),
                "back-test": measured(
                    lambda: (
                        backtest_rows(counted, events, made["letters"], end_day=END_DAY, days=args.days)
                        .toArrow()
                        .num_rows
                    )
                ),
            }
    finally:
        end_session(session)
    of_letters = args.groups * args.days * _OUTAGE_S * _FAILED
    size = f"{args.groups} groups, {args.days} days, {args.groups * args.days * DAY_S:,} rows, {of_letters:,} letters"
    at = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    lines = [
        f"## {args.groups} groups over {args.days} days",
        "",
        f"{size}; {about['headgate']}, load before {about['load before']}, {at} UTC.",
        "",
        "| | s | CPU s | rows |",
        "|---|---:|---:|---:|",
        *(f"| {name} | {s:.1f} | {cpu:.1f} | {rows:,} |" for name, (s, cpu, rows) in figures.items()),
        "",
        f"One setting over one group in this process: {one_setting_ms(args.days):.1f} ms (median).",
        "",
    ]
    print("\n".join(lines))
    if args.out is not None:
        page = args.out.read_text("utf-8") if args.out.exists() else ""
        args.out.write_text(with_section(page, "\n".join(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
