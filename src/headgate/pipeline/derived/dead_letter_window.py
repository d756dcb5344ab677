"""Which dead letters a run triages: at most so many at once, because all of them pass through this process.

Beyond that the newest of the groups with the most are taken, so that a group with few is never left out. Older ones
keep the episode that they have.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

# As rows of Python 600 MB, 2,000 bytes each.
MOST_TRIAGED: Final = 300_000
_SECOND_MS: Final = 1000

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterWindow:
    """The dead letters that are triaged, and of groups that have too many, what is left out.

    `begins` has the time from which on those of such a group are taken. `times` are the seconds of those before, and
    `assigned` the numbers of these that have an episode, by its id.
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
    if in_window.count() <= most:
        return LetterWindow(letters=in_window.toArrow().to_pylist())
    second = (at - sf.pmod(at, sf.lit(_SECOND_MS))).alias("second")
    counted = in_window.groupBy("group", second).count().toArrow()
    counts = list(zip(*(counted[name].to_pylist() for name in ("group", "second", "count")), strict=True))
    begins = beginnings(counts, most)
    older = [(group, time, number) for group, time, number in counts if time < begins.get(group, 0)]
    left_out: dict[str, int] = {}
    for group, _, number in older:
        left_out[group] = left_out.get(group, 0) + number
    begin = pa.table({"group": list(begins), "begin": pa.array(begins.values(), pa.int64())})
    placed = in_window.join(sf.broadcast(session.createDataFrame(begin)), ["group"], "left")
    is_newer = sf.col("begin").isNull() | (at >= sf.col("begin"))
    has_episode = ~sf.col("withdrawn") & sf.col("cluster").isNotNull()
    assigned = placed.where(~is_newer & has_episode).groupBy("cluster").count().toArrow().to_pylist()
    return LetterWindow(
        letters=placed.where(is_newer).select(*stored.columns).limit(most).toArrow().to_pylist(),
        begins=begins,
        times=[(group, time) for group, time, _ in older],
        left_out=left_out,
        assigned={one["cluster"]: one["count"] for one in assigned},
    )


def beginnings(counts: Iterable[tuple[str, int, int]], most: int) -> dict[str, int]:
    """From when on dead letters of a group are taken, for the groups that have too many; `counts` by group and time.

    The room of groups with few is for those with more.
    """
    by_group: dict[str, list[tuple[int, int]]] = {}
    for group, time, number in counts:
        by_group.setdefault(group, []).append((time, number))
    totals = {group: sum(number for _, number in some) for group, some in by_group.items()}
    found: dict[str, int] = {}
    left = most
    for index, group in enumerate(sorted(totals, key=lambda one: (totals[one], one))):
        share = left // (len(totals) - index)
        taken = 0
        if totals[group] <= share:
            taken = totals[group]
        else:
            for time, number in sorted(by_group[group], reverse=True):
                if taken and taken + number > share:
                    break
                taken += number
                found[group] = time
        left = max(left - taken, 0)
    return found
