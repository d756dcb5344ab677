"""The build of `members_tasks`, and the rows of earlier batches that a batch ends.

A record of `tasks` has all tasks of one member, so a member's rows are valid from its record to its next one, in offset
order. A record that differs from the one before it only in lags, or is a copy, changes nothing: two gateways may see
the same group, and a gateway that starts writes what it sees. Lags are those of the record with which a row begins.
"""

import json
from collections.abc import Collection, Iterable
from typing import Any, Final

from duckdb import DuckDBPyConnection
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from headgate.base.errors import HeadgateError
from headgate.base.locations import Location
from headgate.facts import MemberTasksEnded, MemberTasksObserved
from headgate.facts.codec import spark_schema
from headgate.tables.definitions import table_named
from headgate.tables.storage import FILES, StoredTable, file_paths

OBSERVED, ENDED = MemberTasksObserved.__name__, MemberTasksEnded.__name__
TASK_KINDS: Final = (OBSERVED, ENDED)
_TABLE = "members_tasks"
_OF_MEMBER = ("process", "client_id", "host", "tasks_left_out")
_CURRENT_ROWS = f"""
SELECT * FROM {FILES} AS t
WHERE (t."group", t.member) IN (SELECT unnest(?), unnest(?))
  AND t.valid_from < ? AND (t.valid_to IS NULL OR t.valid_to >= ?)
ORDER BY t.valid_from, t.role, t.subtopology, t.partition
"""  # noqa: S608 - nothing in it comes from outside


def build_members_tasks(facts: DataFrame) -> DataFrame:
    """A row for each task of each member, and one without a task for a member that has none."""
    of_member = Window.partitionBy("topic", "name", "member").orderBy("offset")
    fact = sf.from_json("fields", spark_schema(MemberTasksObserved))
    tasks = sf.array_sort(sf.transform("fact.tasks", lambda one: sf.struct(*map(one.getField, _TASK))))
    content = sf.to_json(sf.struct(*(f"fact.{name}" for name in _OF_MEMBER), tasks.alias("tasks")))
    with_before = (
        facts.where(sf.col("kind").isin(*TASK_KINDS))
        .withColumn("fact", fact)
        .withColumn("content", sf.when(sf.col("kind") == OBSERVED, content))
        .withColumn("before", sf.lag("content").over(of_member))
    )
    changed = with_before.where(~sf.col("content").eqNullSafe(sf.col("before")))
    valid = changed.withColumns(
        {"valid_to": sf.lead("offset").over(of_member), "ended_at": sf.lead("at").over(of_member)}
    ).where(sf.col("kind") == OBSERVED)
    rows = valid.withColumn("held", sf.explode_outer("fact.tasks"))
    task = sf.concat_ws("_", "held.subtopology", sf.col("held.partition").cast("string"))
    return rows.select(
        "cluster_id",
        sf.col("name").alias("group"),
        "member",
        *(sf.col(f"fact.{name}").alias(name) for name in _OF_MEMBER),
        sf.when(sf.col("held").isNull(), "").otherwise(task).alias("task"),
        *(sf.col(f"held.{name}").alias(name) for name in ("subtopology", "partition", "role", "lag")),
        sf.coalesce(sf.to_json("held.stores"), sf.lit("[]")).alias("stores"),
        sf.col("offset").alias("valid_from"),
        *("valid_to", "at", "ended_at"),
        sf.lit(False).alias("is_historic"),
    )


_TASK: Final = ("subtopology", "partition", "role", "stores")


class EarlierTasks:
    """Reads the rows that were valid before a batch, as the facts that they were made of.

    Invariant: the result depends on the batch's first offset, not on how often the batch was tried.
    """

    def __init__(self, root: Location, duckdb: DuckDBPyConnection) -> None:
        self._stored = StoredTable(root, table_named(_TABLE))
        self._duckdb = duckdb

    def rows(self, members: Collection[tuple[str, str]], *, before: int, topic: str) -> list[dict[str, Any]]:
        """Rows of `fact_rows.SCHEMA` for these (group, member); none when the table cannot be read."""
        try:
            files = [] if self._stored.checked() is None else file_paths(self._stored.files())
        except HeadgateError:
            return []
        if not files or not members:
            return []
        groups, names = zip(*sorted(members), strict=True)
        with self._duckdb.cursor() as cursor:
            found = cursor.sql(
                _CURRENT_ROWS, params=[files, list(groups), list(names), before, before]
            ).to_arrow_table()
        facts: dict[tuple[object, ...], list[dict[str, Any]]] = {}
        for row in found.to_pylist():
            facts.setdefault((row["cluster_id"], row["group"], row["member"], row["valid_from"]), []).append(row)
        return [_fact_row(rows, topic) for rows in facts.values()]


def _fact_row(rows: list[dict[str, Any]], topic: str) -> dict[str, Any]:
    first = rows[0]
    fields = {
        **{name: first[name] for name in ("group", "member", *_OF_MEMBER)},
        "at": first["at"],
        "tasks": list(_tasks(rows)),
    }
    return {
        "topic": topic,
        "partition": 0,
        "offset": first["valid_from"],
        "at": first["at"],
        "kind": OBSERVED,
        "cluster_id": first["cluster_id"],
        "name": first["group"],
        "member": first["member"],
        "fields": json.dumps(fields, ensure_ascii=False),
        "earlier": True,
    }


def _tasks(rows: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for row in rows:
        if row["task"]:
            of_task = {name: row[name] for name in ("subtopology", "partition", "role", "lag")}
            yield {**of_task, "stores": json.loads(row["stores"])}
