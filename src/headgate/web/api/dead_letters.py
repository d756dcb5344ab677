"""`GET /api/v1/clusters` and `GET /api/v1/dead-letters`: why records became dead letters, and which.

The rows have no payload. A limited caller sees groups of its names, and of these only topics of its names; evidence may
name members and values of records, so such a caller does not get it.
"""

import json
from heapq import nlargest
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from headgate.dead_letters.triage import COUNTED_COLUMNS, count_letter, no_letters
from headgate.tables.reader import Condition
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.dead_letter_models import DeadLetterClustersModel, DeadLetterModel, DeadLettersModel
from headgate.web.api.episode_points import add_points
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import errors
from headgate.web.api.parameters import MAX_NAME, Cluster, Limit, parse_api_time
from headgate.web.visible_names import VisibleNames

_DEAD_LETTER_COLUMNS: Final = tuple(DeadLetterModel.model_fields)
_READ_COLUMNS: Final = tuple(dict.fromkeys((*_DEAD_LETTER_COLUMNS, *COUNTED_COLUMNS)))
_CLUSTER_COLUMNS: Final = (
    *("group", "verdict", "action", "count", "first_at", "last_at", "ended_at", "topics", "member", "feature"),
    *("evidence", "cluster"),
)

_HOUR_MS: Final = 3_600_000

Row = dict[str, Any]


def dead_letters_router(tables: EstateTables, answers: Answers, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["dead letters"])

    @router.get(
        "/clusters", response_class=Response, responses={200: {"model": DeadLetterClustersModel}, 304: {}, **errors()}
    )
    async def clusters(
        request: Request,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        group: Annotated[str | None, Query(max_length=MAX_NAME, description="only of this group")] = None,
        since: Annotated[str | None, Query(max_length=64, description="that lasted then or later")] = None,
        limit: Limit = 100,
        cluster: Cluster = None,
    ) -> Response:
        """Episodes in which records became dead letters, the newest first, with verdict, numbers and action."""
        where = [
            *([] if group is None else [Condition("group", "=", group)]),
            *([] if since is None else [Condition("last_at", ">=", parse_api_time("since", since))]),
        ]

        def make() -> Rendered:
            estate = tables.open_estate(cluster=cluster, as_of_ms=None)
            rows = estate.rows("dead_letter_clusters", *where, columns=("cluster_id", *_CLUSTER_COLUMNS))
            visible = (row for row in estate.of_one_cluster(rows) if names.has(row["group"]))
            found = nlargest(limit + 1, visible, key=lambda row: (row["first_at"], row["group"]))
            shown = [_cluster(row, names) for row in found[:limit]]
            listed = add_points(tables.reader, estate.cluster, found[:limit], shown)
            return json_answer({"clusters": listed, "truncated": len(found) > limit})

        stamps = await tables.stamps(("dead_letter_clusters", "dlq_rates"))
        return await answers.of_versions(request, names, stamps, make)

    @router.get(
        "/dead-letters", response_class=Response, responses={200: {"model": DeadLettersModel}, 304: {}, **errors()}
    )
    async def dead_letters(
        request: Request,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        group: Annotated[str, Query(max_length=MAX_NAME, description="the group; empty: dead letters without one")],
        episode: Annotated[str | None, Query(max_length=100, description="only of this id of `clusters`")] = None,
        topic: Annotated[str | None, Query(max_length=MAX_NAME, description="only of this source topic")] = None,
        limit: Limit = 100,
        cluster: Cluster = None,
    ) -> Response:
        """The dead letters of a group, the newest first, without payload; withdrawn ones are left out."""
        where = [
            Condition("group", "=", group),
            Condition("withdrawn", "=", False),
            *([] if episode is None else [Condition("cluster", "=", episode)]),
            *([] if topic is None else [Condition("topic", "=", topic)]),
        ]

        def make() -> Rendered:
            estate = tables.open_estate(cluster=cluster, as_of_ms=None)
            rows = estate.rows("dead_letters", *where, columns=("cluster_id", *_READ_COLUMNS))
            counts, newest = no_letters(), []
            for row in estate.of_one_cluster(rows):
                if names.has(group) and (row["topic"] is None or names.has(row["topic"])):
                    count_letter(counts, row, now_ms)
                    newest.append(row)
                    if len(newest) > 2 * limit:
                        newest = nlargest(limit, newest, key=_age)
            listed = [_dead_letter(row, names) for row in nlargest(limit, newest, key=_age)]
            count = counts["letters"]
            known = {"group": group, "letters": listed, "count": count, "truncated": count > limit}
            return json_answer(known | {"records": counts})

        # Whole hours: the rows are not counted anew each minute.
        now_ms = tables.now_ms() // _HOUR_MS * _HOUR_MS
        stamps = await tables.stamps(("dead_letters",))
        return await answers.of_versions(request, names, stamps, make, variant=str(now_ms))

    return router


def _age(row: Row) -> tuple[int, str, int, int]:
    return (row["dead_lettered_at"], row["topic_id"], row["partition"], row["offset"])


def _dead_letter(row: Row, names: VisibleNames) -> Row:
    shown = {name: row[name] for name in _DEAD_LETTER_COLUMNS}
    return shown if names.has(row["dlq_topic"]) else shown | {"dlq_topic": None}


def _cluster(row: Row, names: VisibleNames) -> Row:
    topics = [one for one in json.loads(row["topics"]) if names.has(one)]
    hidden: Row = {"member": None, "feature": None, "evidence": None}
    shown: Row = {"member": row["member"], "feature": row["feature"]}
    kept = ("group", "verdict", "action", "count", "first_at", "last_at", "ended_at")
    found = {"id": row["cluster"]} | {name: row[name] for name in kept} | {"topics": topics}
    return found | (hidden if names.are_limited else shown | {"evidence": json.loads(row["evidence"])})
