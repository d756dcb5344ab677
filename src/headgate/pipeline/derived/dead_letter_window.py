"""Which dead letters a run triages: at most so many at once, because all of them pass through this process.

Beyond that the newest of the groups with the most are taken, so that a group with few is never left out. Older ones
keep the episode that they have.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

# As rows of Python 600 MB, 2,000 bytes each.
MOST_TRIAGED: Final = 300_000
_SECOND_MS: Final = 1000
# The key tells those of one moment apart, so that each run takes the same.
_ORDER: Final = ("dead_lettered_at", "topic_id", "partition", "offset")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterWindow:
    """The dead letters that are triaged, and of groups that have too many, what is left out.

    `begins` has a time of such a group before which all are that are left out. `times` are the seconds of these, and
    `assigned` the numbers of those that have an episode, by its id.
    """

    letters: list[Row]
    begins: Mapping[str, int] = field(default_factory=dict)
    times: Sequence[tuple[str, int]] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    assigned: Mapping[str, int] = field(default_factory=dict)


def letters_since(
    session: SparkSession, stored: DataFrame, groups: Collection[str], since: int, most: int
) -> LetterWindow:
    """The dead letters of these groups since then, at most so many."""
    at = sf.col("dead_lettered_at")
    in_window = stored.where((at >= since) & sf.col("group").isin(sorted(groups)))
    counted = in_window.groupBy("group").count().toArrow().to_pylist()
    totals = {one["group"]: one["count"] for one in counted}
    if sum(totals.values()) <= most:
        return LetterWindow(letters=in_window.toArrow().to_pylist())
    taken = allowances(totals, most)
    number = pa.table({"group": list(taken), "most": pa.array(taken.values(), pa.int64())})
    newest = Window.partitionBy("group").orderBy(*(sf.col(name).desc() for name in _ORDER))
    ranked = in_window.join(sf.broadcast(session.createDataFrame(number)), ["group"]).withColumn(
        "rank", sf.row_number().over(newest)
    )
    older = ranked.where(sf.col("rank") > sf.col("most"))
    second = (at - sf.pmod(at, sf.lit(_SECOND_MS))).alias("second")
    seconds = older.groupBy("group", second).agg(sf.max(at).alias("last")).toArrow().to_pylist()
    begins: dict[str, int] = {}
    for one in seconds:
        begins[one["group"]] = max(one["last"] + 1, begins.get(one["group"], 0))
    has_episode = ~sf.col("withdrawn") & sf.col("cluster").isNotNull()
    assigned = older.where(has_episode).groupBy("cluster").count().toArrow().to_pylist()
    return LetterWindow(
        letters=ranked.where(sf.col("rank") <= sf.col("most")).select(*stored.columns).toArrow().to_pylist(),
        begins=begins,
        times=[(one["group"], one["second"]) for one in seconds],
        left_out={group: totals[group] - taken[group] for group in totals if taken[group] < totals[group]},
        assigned={one["cluster"]: one["count"] for one in assigned},
    )


def allowances(totals: Mapping[str, int], most: int) -> dict[str, int]:
    """How many dead letters of each group are taken, of so many that it has: in all, at most `most`.

    The room of groups with few is for those with more.
    """
    found: dict[str, int] = {}
    left = most
    for index, group in enumerate(sorted(totals, key=lambda one: (totals[one], one))):
        found[group] = min(totals[group], left // (len(totals) - index))
        left -= found[group]
    return found
