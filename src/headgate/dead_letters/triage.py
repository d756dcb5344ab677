"""Triage as a document: the clusters of dead letters with their verdicts, and the dead letters that expire soon.

Read from the tables, without Spark. Withdrawn dead letters do not count.
"""

import json
from collections.abc import Sequence
from heapq import nlargest
from typing import Any, Final

from headgate.base.errors import UsageError
from headgate.base.locations import Location
from headgate.dead_letters.model.plans import PLANNABLE
from headgate.dead_letters.model.topic_ids import is_topic_id
from headgate.dead_letters.model.where import is_selected
from headgate.share_groups.model.recorded_history import RecordedEvent, paused_periods
from headgate.tables.definitions import table_named
from headgate.tables.reader import Condition, TableReader

Document = dict[str, Any]

EXPIRES_SOON_MS: Final = 24 * 3_600_000
MOST_CLUSTERS: Final = 1_000
# What `count_letter` needs of a dead letter.
COUNTED_COLUMNS: Final = (
    *("withdrawn", "topic", "topic_id", "copied", "source_state", "letter_expires_at", "source_expires_at", "problem"),
)
_LETTER_COLUMNS: Final = ("group", "cluster", "dead_lettered_at", *COUNTED_COLUMNS)
_PAUSES: Final = ("tripped", "paused", "resumed")
# A dead letter of an episode is written at most some seconds before the bucket in which its attempt is counted.
_SLACK_MS: Final = 60_000
_NEVER_S: Final = 1 << 62


class TriageTables:
    """The tables of dead letters in the folder `root`."""

    def __init__(self, root: Location) -> None:
        self._reader = TableReader(root)

    def close(self) -> None:
        self._reader.close()

    def triage(
        self,
        *,
        now_ms: int,
        group: str | None = None,
        since_ms: int | None = None,
        cluster_id: str | None = None,
        most: int = MOST_CLUSTERS,
    ) -> Document:
        """The clusters, newest first, each with counts of its dead letters; `UsageError` before there are tables."""
        where = [Condition("group", "=", group)] if group is not None else []
        where += [Condition("cluster_id", "=", cluster_id)] if cluster_id is not None else []
        recent = [Condition("last_at", ">=", since_ms)] if since_ms is not None else []
        found = self._reader.stream(table_named("dead_letter_clusters"), where=[*where, *recent])
        if found is None:
            raise UsageError(
                "there are no tables of dead letters yet: `headgate pipeline run` makes them, within a minute or two "
                "of the first dead letter"
            )
        rows = nlargest(most + 1, found, key=lambda row: (row["first_at"], row["cluster"]))
        paused = self._paused_groups(where)
        counts = self._letter_counts(where, since_ms, min((row["first_at"] for row in rows), default=None), now_ms)
        return {
            "clusters": [
                _cluster(
                    row,
                    counts.get((row["group"], row["cluster"]), no_letters()),
                    is_paused=(row["cluster_id"], row["group"]) in paused,
                )
                for row in rows[:most]
            ],
            "unassigned": {group: one for (group, cluster), one in sorted(counts.items()) if not cluster},
            "truncated": len(rows) > most,
        }

    def _letter_counts(
        self, where: Sequence[Condition], since_ms: int | None, first_at: int | None, now_ms: int
    ) -> dict[tuple[str, str], Document]:
        """The counts of each cluster's dead letters; the cluster is empty for those that have none.

        `since_ms` leaves out only dead letters of no cluster: those of a cluster that began at `first_at` or later are
        counted whole.
        """
        oldest = None if since_ms is None else min(since_ms, since_ms if first_at is None else first_at - _SLACK_MS)
        recent = [] if oldest is None else [Condition("dead_lettered_at", ">=", oldest)]
        counts: dict[tuple[str, str], Document] = {}
        letters = self._reader.stream(
            table_named("dead_letters"), where=[*where, *recent], columns=_LETTER_COLUMNS, limit=None
        )
        for row in letters or ():
            if row["withdrawn"] or (not row["cluster"] and since_ms is not None and row["dead_lettered_at"] < since_ms):
                continue
            one = counts.setdefault((row["group"], row["cluster"] or ""), no_letters())
            count_letter(one, row, now_ms)
        return counts

    def _paused_groups(self, where: Sequence[Condition]) -> set[tuple[str, str]]:
        """The groups that are paused, with their Kafka clusters, by the events that the pipeline has read."""
        events: dict[tuple[str, str], list[RecordedEvent]] = {}
        for event in _PAUSES:
            found = self._reader.stream(
                table_named("breaker_events"),
                where=[*where, Condition("event", "=", event)],
                columns=("cluster_id", "group", "at", "by"),
            )
            for row in found or ():
                one = RecordedEvent(at=row["at"], event=event, by=row["by"])
                events.setdefault((row["cluster_id"], row["group"]), []).append(one)
        return {
            key
            for key, some in events.items()
            if any(one.end == _NEVER_S for one in paused_periods(some, end=_NEVER_S))
        }


def no_letters() -> Document:
    """The counts of no dead letters."""
    return {
        "letters": 0,
        "readable": 0,
        "gone": 0,
        "unknown": 0,
        "unplannable": 0,
        "expire_soon": 0,
        "next_expiry": None,
        "problems": 0,
    }


def count_letter(counts: Document, row: Document, now_ms: int) -> None:
    """Add a dead letter, with `COUNTED_COLUMNS`: as readable, gone, unknown, or one that no plan replays.

    Its record can be read from a copy in the dead letter, or while it is found at its source. It is unknown, and a
    replay may find it with the operator's rights, where the service account may not read the source or has not yet.
    """
    counts["letters"] += 1
    counts["problems"] += row["problem"] is not None
    if not is_selected(PLANNABLE, row):
        counts["unplannable"] += 1
        return
    ends = [row["letter_expires_at"]] if row["copied"] else []
    # Without a topic id only the copy is replayed: another topic may have that name now.
    ends += [row["source_expires_at"]] if row["source_state"] == "found" and is_topic_id(row["topic_id"]) else []
    until = None if not ends or None in ends else max(ends)
    if not ends or (until is not None and until <= now_ms):
        counts["unknown" if row["source_state"] in {"unknown", "unreadable"} else "gone"] += 1
        return
    counts["readable"] += 1
    if until is not None:
        counts["expire_soon"] += until <= now_ms + EXPIRES_SOON_MS
        counts["next_expiry"] = until if counts["next_expiry"] is None else min(counts["next_expiry"], until)


def _cluster(row: Document, counts: Document, *, is_paused: bool) -> Document:
    return {
        "id": row["cluster"],
        "cluster_id": row["cluster_id"],
        "group": row["group"],
        "verdict": row["verdict"],
        "count": row["count"],
        "action": row["action"],
        "paused": is_paused,
        "first_at": row["first_at"],
        "last_at": row["last_at"],
        "ended_at": row["ended_at"],
        "topics": json.loads(row["topics"]),
        "member": row["member"],
        "feature": row["feature"],
        "records": counts,
        "evidence": json.loads(row["evidence"]),
    }
