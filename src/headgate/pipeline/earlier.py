"""What the tables say of applications before a batch: the versions that were current then.

One rule: the answer depends on the batch's first offset and not on how often the batch was tried. Rows that a first
attempt wrote or ended lie at or after that offset, so they are seen as they were before it.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from headgate.base.errors import HeadgateError
from headgate.pipeline.parsing import DESCRIBED
from headgate.pipeline.parts import description_weight
from headgate.tables import engine
from headgate.tables.registry import table_named
from headgate.tables.storage import StoredTable

_AT_ONCE = 64  # descriptions are large
_QUESTION = f"""
SELECT a.cluster_id, a.app_id AS name, a.incarnation, a.epoch, a.hash, a.provenance,
       a.valid_from AS "offset", a."at", v.member, v.process, v.description
FROM {engine.FILES} AS a
JOIN {engine.FILES} AS v USING (cluster_id, app_id, incarnation, epoch, hash, provenance)
WHERE (a.cluster_id, a.app_id) IN (SELECT unnest(?), unnest(?))
  AND a.valid_from < ? AND (a.valid_to IS NULL OR a.valid_to >= ?)
"""  # noqa: S608 - nothing in it comes from outside


class EarlierVersions:
    """Reads `applications` and `topology_versions` in the folder `root`; for the thread of one query."""

    def __init__(self, root: Path) -> None:
        self._applications = StoredTable(root, table_named("applications"))
        self._versions = StoredTable(root, table_named("topology_versions"))
        self._duckdb = engine.connect()

    def of(
        self, apps: Collection[tuple[str, str]], *, before: int, topic: str, most: int | None
    ) -> list[dict[str, Any]] | None:
        """Rows as `parsing.SCHEMA` has them, for these (cluster, application); none when a table cannot be read.

        None when they would take more than `most` bytes. A table that cannot be read is reported when it is written.
        """
        try:
            files = [self._files(self._applications), self._files(self._versions)]
        except HeadgateError:
            return []
        if not all(files) or not apps:
            return []
        clusters, names = zip(*sorted(apps), strict=True)
        parameters = [*files, list(clusters), list(names), before, before]
        found: list[dict[str, Any]] = []
        weight = 0
        with self._duckdb.cursor() as cursor:
            for batch in cursor.sql(_QUESTION, params=parameters).to_arrow_reader(_AT_ONCE):
                rows = batch.to_pylist()
                weight += sum(description_weight(row["description"], row["name"]) for row in rows)
                if most is not None and weight > most:
                    return None
                found += rows
        return [{**row, "topic": topic, "partition": 0, "kind": DESCRIBED, "earlier": True} for row in found]

    def close(self) -> None:
        self._duckdb.close()

    @staticmethod
    def _files(stored: StoredTable) -> list[str]:
        return [] if stored.checked() is None else engine.paths(stored.files())
