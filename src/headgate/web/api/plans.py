"""`GET /api/v1/plans` and `/api/v1/plans/PLAN`: replay plans from the tables, with what their replays have done."""

import json
from heapq import nlargest
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from headgate.dead_letters.model.plans import ORDER_NOTES, ORIGINAL
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables, bounded
from headgate.web.api.models import errors
from headgate.web.api.parameters import MAX_NAME, Cluster, Limit
from headgate.web.api.plan_models import PlanDetailModel, PlansModel
from headgate.web.paths import NameInPath
from headgate.web.replay_runs.view import PlanHead, ReplayView
from headgate.web.visible_names import VisibleNames

_PLANS: Final = TABLES["replay_plans"]
_RECORDS: Final = TABLES["replay_plan_records"]
_COUNTS: Final = ("records", "expired", "superseded", "already_replayed", "over_max_replays")
_ROW_COLUMNS: Final = (
    *("position", "topic", "partition", "offset", "action", "why", "reason", "target_topic", "target_partition"),
)

Row = dict[str, Any]


def plans_router(tables: EstateTables, answers: Answers, access: AccessControl, view: ReplayView) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["plans"])

    @router.get("/plans", response_class=Response, responses={200: {"model": PlansModel}, 304: {}, **errors()})
    async def plans(
        request: Request,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        group: Annotated[str | None, Query(max_length=MAX_NAME, description="only of this group")] = None,
        limit: Limit = 100,
        cluster: Cluster = None,
    ) -> Response:
        """Plans to replay dead letters, the newest first, with the state of their replays."""
        where = [
            *([] if group is None else [Condition("group", "=", group)]),
            *([] if cluster is None else [Condition("cluster_id", "=", cluster)]),
        ]

        def find() -> list[Row]:
            rows = bounded(tables.reader.stream(_PLANS, where=where) or iter(()))
            return nlargest(
                limit + 1, (row for row in rows if names.has(row["group"])), key=lambda row: (row["at"], row["plan"])
            )

        versions = (*await tables.stamps((_PLANS.name,)), view.version)
        found = await tables.run(find)
        document = {
            "plans": [_plan(row, view, names) for row in found[:limit]],
            "truncated": len(found) > limit,
            "problem": view.problem,
        }
        return await answers.of_versions(
            request, names, versions, lambda: json_answer(document), variant=str(view.problem)
        )

    @router.get(
        "/plans/{name}", response_class=Response, responses={200: {"model": PlanDetailModel}, 304: {}, **errors(404)}
    )
    async def plan(
        request: Request,
        name: NameInPath,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        after: Annotated[int, Query(ge=-1, le=2**53, description="records after this position")] = -1,
        limit: Limit = 100,
    ) -> Response:
        """A plan with its records, in the order of the replay."""
        stamps = await tables.stamps((_PLANS.name, _RECORDS.name))
        head = await tables.run(lambda: plan_row(tables, name, names))
        # Together, and after the tables were asked: an answer is never kept for a later state than it shows.
        shown, versions = _plan(head, view, names), (*stamps, view.version)

        def make() -> Rendered:
            where = [
                Condition("cluster_id", "=", head["cluster_id"]),
                Condition("plan", "=", head["plan"]),
                Condition("position", ">", after),
            ]
            page = tables.reader.rows(_RECORDS, where=where, columns=_ROW_COLUMNS, limit=limit)
            more = {
                "selection": None if names.are_limited else json.loads(head["selection"]),
                "notes": list(ORDER_NOTES),
                "rows": [_record(row, names) for row in page.rows],
                "next": page.rows[-1]["position"] if page.more else None,
            }
            return json_answer(shown | more)

        return await answers.of_versions(request, names, versions, make)

    return router


def plan_row(tables: EstateTables, plan: str, names: VisibleNames) -> Row:
    """The head of a plan; 404 where there is none that the caller may see."""
    found = tables.reader.rows(_PLANS, where=[Condition("plan", "=", plan)], limit=2).rows
    if len(found) != 1 or not names.has(found[0]["group"]):
        raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no plan '{plan}'")
    return found[0]


def plan_heads(tables: EstateTables) -> dict[str, PlanHead]:
    """The heads of all plans, which replays need."""
    columns = ("plan", "group", "to", "records", "parked")
    rows = tables.reader.stream(_PLANS, columns=columns) or iter(())
    return {row["plan"]: head_of(row) for row in bounded(rows)}


def plan_head(tables: EstateTables, plan: str) -> PlanHead | None:
    """The head of a plan, which its replay needs; None when the plan is not in the tables any more."""
    found = tables.reader.rows(_PLANS, where=[Condition("plan", "=", plan)], limit=2).rows
    return head_of(found[0]) if len(found) == 1 else None


def head_of(row: Row) -> PlanHead:
    return PlanHead(group=row["group"], to=row["to"], records=row["records"] + row["parked"])


def _plan(row: Row, view: ReplayView, names: VisibleNames) -> Row:
    to_is_shown = row["to"] == ORIGINAL or names.has(row["to"])
    return {
        **{name: row[name] for name in ("plan", "group", "at", "by", "oldest_at", *_COUNTS)},
        "to": row["to"] if to_is_shown else None,
        "targets": [topic if names.has(topic) else None for topic in sorted(json.loads(row["targets"]))],
        "to_park": row["parked"],
        "reasons": {} if names.are_limited else json.loads(row["reasons"]),
        "readers": None if names.are_limited else json.loads(row["readers"]),
        **view.state(row["plan"]),
    }


def _record(row: Row, names: VisibleNames) -> Row:
    hidden = {name: None for name in ("topic", "target_topic") if row[name] is not None and not names.has(row[name])}
    return row | hidden | ({"reason": None} if "topic" in hidden else {})
