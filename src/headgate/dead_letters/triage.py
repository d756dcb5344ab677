"""Triage as a document: the clusters of dead letters with their verdicts, and the dead letters that expire soon.

Read from the tables, without Spark. Withdrawn dead letters do not count.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from headgate.base.errors import UsageError
from headgate.base.locations import Location
from headgate.tables.definitions import table_named
from headgate.tables.reader import Condition, TableReader

Document = dict[str, Any]

EXPIRES_SOON_MS: Final = 24 * 3_600_000
MAX_CLUSTERS: Final = 1_000
_LETTER_COLUMNS: Final = (
    *("group", "cluster", "withdrawn", "copied", "source_state", "dead_lettered_at"),
    *("letter_expires_at", "source_expires_at", "problem"),
)


class TriageTables:
    """The tables of dead letters in the folder `root`."""

    def __init__(self, root: Location) -> None:
        self._reader = TableReader(root)

    def close(self) -> None:
        self._reader.close()

    def triage(
        self, *, now_ms: int, group: str | None = None, since_ms: int | None = None, cluster_id: str | None = None
    ) -> Document:
        """The clusters, newest first, each with counts of its dead letters; `UsageError` before there are tables."""
        where = [Condition("group", "=", group)] if group is not None else []
        where += [Condition("cluster_id", "=", cluster_id)] if cluster_id is not None else []
        recent = [Condition("last_at", ">=", since_ms)] if since_ms is not None else []
        found = self._reader.rows(table_named("dead_letter_clusters"), where=[*where, *recent], limit=MAX_CLUSTERS)
        if not found.present:
            raise UsageError(
                "there are no tables of dead letters yet: `headgate pipeline run` makes them, within a minute or two "
                "of the first dead letter"
            )
        counts = self._letter_counts(where, since_ms, now_ms)
        rows = sorted(found.rows, key=lambda row: (row["first_at"], row["cluster"]), reverse=True)
        return {
            "clusters": [_cluster(row, counts.get((row["group"], row["cluster"]), no_letters())) for row in rows],
            "unassigned": {group: one for (group, cluster), one in sorted(counts.items()) if not cluster},
            "truncated": found.more,
        }

    def _letter_counts(
        self, where: Sequence[Condition], since_ms: int | None, now_ms: int
    ) -> dict[tuple[str, str], Document]:
        """The counts of each cluster's dead letters; the cluster is empty for those that have none."""
        recent = [Condition("dead_lettered_at", ">=", since_ms)] if since_ms is not None else []
        counts: dict[tuple[str, str], Document] = {}
        letters = self._reader.stream(
            table_named("dead_letters"), where=[*where, *recent], columns=_LETTER_COLUMNS, limit=None
        )
        for row in letters or ():
            if row["withdrawn"]:
                continue
            one = counts.setdefault((row["group"], row["cluster"] or ""), no_letters())
            count_letter(one, row, now_ms)
        return counts


def no_letters() -> Document:
    """The counts of no dead letters."""
    return {"letters": 0, "readable": 0, "gone": 0, "expire_soon": 0, "next_expiry": None, "problems": 0}


def count_letter(counts: Document, row: Document, now_ms: int) -> None:
    """Add a dead letter. Its record can be read from a copy in the dead letter, or while it is found at its source."""
    ends = [row["letter_expires_at"]] if row["copied"] else []
    ends += [row["source_expires_at"]] if row["source_state"] == "found" else []
    counts["letters"] += 1
    counts["problems"] += row["problem"] is not None
    until = None if not ends or None in ends else max(ends)
    if not ends or (until is not None and until <= now_ms):
        counts["gone"] += 1
        return
    counts["readable"] += 1
    if until is not None:
        counts["expire_soon"] += until <= now_ms + EXPIRES_SOON_MS
        counts["next_expiry"] = until if counts["next_expiry"] is None else min(counts["next_expiry"], until)


def _cluster(row: Document, counts: Document) -> Document:
    return {
        "id": row["cluster"],
        "cluster_id": row["cluster_id"],
        "group": row["group"],
        "verdict": row["verdict"],
        "count": row["count"],
        "action": row["action"],
        "first_at": row["first_at"],
        "last_at": row["last_at"],
        "ended_at": row["ended_at"],
        "topics": json.loads(row["topics"]),
        "member": row["member"],
        "feature": row["feature"],
        "records": counts,
        "evidence": json.loads(row["evidence"]),
    }
