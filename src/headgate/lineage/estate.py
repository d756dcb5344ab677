"""Reads the tables of an estate at one time, and makes its graph. No Spark.

The tables of lineage are valid by time, those of topologies by offset: the reader converts the time to the last offset
that was written by then. What a question returns is bounded; the graph is bounded by its number of edges.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Any, Final

from headgate.base.errors import HeadgateError, UsageError
from headgate.base.locations import Location
from headgate.lineage.estate_map import MapRow, MapUse
from headgate.lineage.graph import LineageFlow, LineageGraph, LineageUse
from headgate.tables.definitions import VERSION_KEY, table_named
from headgate.tables.reader import AtTime, Condition, Now, TableReader
from headgate.tables.table import WRITTEN_BY

Row = dict[str, Any]

SPARK, STREAMS = "spark", "streams"
_USE_COLUMNS: Final = ("cluster_id", "actor_kind", "app_id", "topic", "direction")
_LAST_DAY: Final = frozenset({"bytes_day", "records_day"})
_OWN_TOPICS: Final = "headgate-replay."
_SUGGESTIONS: Final = 3
_MAX_COMPARED: Final = 5000  # names: comparing one takes some 20 microseconds


class NotInEstateError(HeadgateError):
    """The tables have nothing of this name; the text suggests similar names."""


def is_own_topic(topic: str) -> bool:
    """Whether it holds what Headgate records of its own replays, and is no part of the estate."""
    return topic.startswith(_OWN_TOPICS)


class NoTableError(NotInEstateError):
    """A table does not exist yet."""

    def __init__(self, name: str, root: Location) -> None:
        super().__init__(f"no table {name} in {str(root)!r} yet; {WRITTEN_BY}")
        self.table = name


class SeveralClustersError(UsageError):
    """The tables have several clusters, whose topics have the same names, and none was specified."""

    def __init__(self, clusters: tuple[str, str]) -> None:
        one, other = clusters
        super().__init__(
            f"the tables have several clusters, {one!r} and {other!r} among them: specify one with --cluster-id"
        )
        self.clusters = clusters


class Estate:
    """The tables in the folder `root`, as of a time; None is now. `cluster` is needed where there are several.

    Without a `reader` that others share it has its own, which `close` closes.
    """

    def __init__(
        self,
        root: Location,
        *,
        as_of_ms: int | None = None,
        cluster: str | None = None,
        reader: TableReader | None = None,
    ) -> None:
        self._root = root
        self._reader = TableReader(root) if reader is None else reader
        self._is_shared = reader is not None
        self._as_of = Now() if as_of_ms is None else AtTime(as_of_ms)
        self._cluster = cluster

    def close(self) -> None:
        if not self._is_shared:
            self._reader.close()

    @property
    def cluster(self) -> str | None:
        """The cluster that was specified, or the one that rows were read of."""
        return self._cluster

    def rows(self, name: str, *where: Condition, columns: Sequence[str] = (), is_valid: bool = False) -> Iterator[Row]:
        """Rows of a table in the order of their keys, few of them in memory; with `is_valid`, those of the time.

        The sums of the last day are those of the day before now, so an edge of a past time has none.
        """
        table = table_named(name)
        of_cluster = [] if self._cluster is None else [Condition("cluster_id", "=", self._cluster)]
        found = self._reader.stream(
            table, where=[*of_cluster, *where], as_of=self._as_of if is_valid else None, columns=columns
        )
        if found is None:
            raise NoTableError(name, self._root)
        return found if isinstance(self._as_of, Now) or not is_valid else map(_without_last_day, found)

    def graph(self) -> LineageGraph:
        """The graph of the cluster; `UsageError` where there are several, and none was specified."""
        uses = (
            LineageUse(row["actor_kind"], row["app_id"], row["topic"], row["direction"], row["filled"])
            for row in self._uses("filled")
        )
        return LineageGraph(uses, self.flows())

    def flows(self) -> Iterator[LineageFlow]:
        """The pairs of topics between which data flows through an application."""
        return (
            LineageFlow(
                SPARK if row["provenance"] == "spark" else STREAMS,
                row["app_id"],
                row["component"],
                row["in_topic"],
                row["out_topic"],
            )
            for row in self.of_one_cluster(self._pairs())
        )

    def map_rows(self) -> Iterator[MapRow]:
        """The uses of topics, with what is known of each."""
        columns = ("declared", "observed", "filled", "is_internal", "bytes_day", "records_day", "last_seen")
        return (
            MapRow(
                row["actor_kind"],
                row["app_id"],
                row["topic"],
                row["direction"],
                MapUse(*(row[name] for name in columns)),
            )
            for row in self._uses(*columns)
        )

    def _uses(self, *columns: str) -> Iterator[Row]:
        """The uses of topics, without those that replays of Headgate make of its own."""
        rows = self.rows("lineage_edges", columns=(*_USE_COLUMNS, *columns), is_valid=True)
        return (row for row in self.of_one_cluster(rows) if not is_own_topic(row["topic"]))

    def _pairs(self) -> Iterator[Row]:
        """The rows of `app_io` of the versions that were current.

        It has only the last period of a version that returned; `applications` has all of them.
        """
        columns = (*VERSION_KEY, "component", "in_topic", "out_topic")
        if isinstance(self._as_of, Now):
            return self.rows("app_io", columns=columns, is_valid=True)
        version = itemgetter(*VERSION_KEY)
        current = set(map(version, self.rows("applications", columns=VERSION_KEY, is_valid=True)))
        return (row for row in self.rows("app_io", columns=columns) if version(row) in current)

    def of_one_cluster(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows; `UsageError` when they are of several clusters, whose topics have the same names."""
        for row in rows:
            if self._cluster is None:
                self._cluster = row["cluster_id"]
            elif row["cluster_id"] != self._cluster:
                raise SeveralClustersError((self._cluster, row["cluster_id"]))
            yield row


def _without_last_day(row: Row) -> Row:
    return row | dict.fromkeys(_LAST_DAY & row.keys())


def absent(kind: str, name: str, names: Iterable[str]) -> NotInEstateError:
    """The error for a name that the tables do not have at this time, with similar ones."""
    suggested = similar_names(name, names)
    hint = f"; similar names: {', '.join(map(repr, suggested))}" if suggested else ""
    return NotInEstateError(f"the tables have no {kind} {name!r} at this time{hint}")


def similar_names(wanted: str, names: Iterable[str]) -> list[str]:
    """At most three names that a typing error or a forgotten part separates from the wanted one."""
    low = wanted.lower()

    def distance(name: str) -> tuple[bool, int, str]:
        lower = name.lower()
        return low not in lower and lower not in low, abs(len(name) - len(wanted)), name

    compared = nsmallest(_MAX_COMPARED, {name for name in names if name}, key=distance)
    containing = [name for name in compared if not distance(name)[0] and low and name]
    close = difflib.get_close_matches(wanted, compared, _SUGGESTIONS)
    return list(dict.fromkeys([*close, *containing]))[:_SUGGESTIONS]
