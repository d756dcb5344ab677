"""The ids of the topics that rows name, as the cluster has them when the rows are written.

One rule: a build leaves a topic's name in each column whose name ends in `topic_id`, and here it becomes the topic's
id, or null when the cluster has no such topic. Only names of this batch are asked for, each once, and only of rows that
are about the cluster that is asked.
"""

from collections.abc import Callable, Collection, Mapping

import pyarrow as pa

from headgate.tables.definition import CLUSTER_ID, id_columns

Ask = Callable[[Collection[str]], Mapping[str, str]]


class TopicIds:
    """Knows ids for one batch; `ask` gives those of the topics that are there."""

    def __init__(self, cluster: str, ask: Ask) -> None:
        self._cluster = cluster
        self._ask = ask
        self._known: dict[str, str | None] = {}

    def forget(self) -> None:
        """Another batch begins: a topic may have been made anew."""
        self._known = {}

    def put_in(self, rows: pa.Table) -> pa.Table:
        """The rows with ids in the place of names."""
        columns = id_columns(rows.schema)
        if not columns or not rows.num_rows:
            return rows
        is_own = [cluster == self._cluster for cluster in rows[CLUSTER_ID].to_pylist()]
        named = {
            column: [name if own else None for name, own in zip(rows[column].to_pylist(), is_own, strict=True)]
            for column in columns
        }
        self._learn({name for names in named.values() for name in names if name})
        for column, names in named.items():
            ids = pa.array([self._known[name] if name else None for name in names], pa.string())
            rows = rows.set_column(rows.schema.get_field_index(column), rows.schema.field(column), ids)
        return rows

    def _learn(self, names: Collection[str]) -> None:
        unknown = [name for name in names if name not in self._known]
        if unknown:
            found = self._ask(unknown)
            self._known.update((name, found.get(name)) for name in unknown)
