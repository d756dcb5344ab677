"""`GET /api/v1/changes`: what happened, the newest first."""

import json
from heapq import nlargest
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from headgate.lineage.questions import DAY_MS
from headgate.tables.reader import Condition
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import ChangesModel, errors
from headgate.web.api.parameters import MAX_NAME, Cluster, Limit, parse_api_time
from headgate.web.visible_names import VisibleNames

_COLUMNS: Final = ("event_id", "event", "subject_kind", "subject", "by", "at", "detail")
_DAYS: Final = 7


def changes_router(tables: EstateTables, answers: Answers, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["changes"])

    @router.get("/changes", response_class=Response, responses={200: {"model": ChangesModel}, 304: {}, **errors()})
    async def changes(
        request: Request,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        since: Annotated[str | None, Query(max_length=64, description="then or later; by default 7 days ago")] = None,
        until: Annotated[str | None, Query(max_length=64, description="before this time; by default now")] = None,
        subject: Annotated[str | None, Query(max_length=MAX_NAME, description="only of this subject")] = None,
        event: Annotated[str | None, Query(max_length=100, description="only of this kind")] = None,
        limit: Limit = 100,
        cluster: Cluster = None,
    ) -> Response:
        """Topologies that were added, changed and removed, trips, pauses, resumes, configs and all other events."""
        now_ms = tables.now_ms() + 60_000  # the end of this minute
        end = now_ms if until is None else parse_api_time("until", until)
        begin = end - _DAYS * DAY_MS if since is None else parse_api_time("since", since)
        where = [
            Condition("at", ">=", begin),
            Condition("at", "<", end),
            *([] if subject is None else [Condition("subject", "=", subject)]),
            *([] if event is None else [Condition("event", "=", event)]),
        ]

        def make() -> Rendered:
            estate = tables.open_estate(cluster=cluster, as_of_ms=None)
            rows = estate.of_one_cluster(estate.rows("changes", *where, columns=("cluster_id", *_COLUMNS)))
            visible = (row for row in rows if names.has(row["subject"]))
            found = nlargest(limit + 1, visible, key=lambda row: (row["at"], row["event_id"]))
            listed = [_document(row, names) for row in found[:limit]]
            return json_answer({"changes": listed, "since": begin, "until": end, "truncated": len(found) > limit})

        stamps = await tables.stamps(("changes",))
        return await answers.of_versions(request, names, (*stamps, begin, end), make)

    return router


def _document(row: dict[str, Any], names: VisibleNames) -> dict[str, Any]:
    """The detail of an event may have any names, so a limited caller does not get it."""
    found = {name: row[name] for name in _COLUMNS if name != "detail"}
    return found | {"detail": None if names.are_limited else parsed_detail(row["detail"])}


def parsed_detail(text: str) -> Any:
    """The JSON object of a detail; the text itself where it is none."""
    try:
        found = json.loads(text)
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return found
