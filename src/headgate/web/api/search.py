"""`GET /api/v1/search`: topics and actors by a part of their names."""

from heapq import nsmallest
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from headgate.lineage.estate_map import NODE_KINDS, NodeSummary
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import SearchModel, errors
from headgate.web.api.parameters import AsOf, Cluster, parse_as_of
from headgate.web.visible_names import VisibleNames

_ALL = frozenset(NODE_KINDS)


def search_router(tables: EstateTables, answers: Answers, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["search"])

    @router.get("/search", response_class=Response, responses={200: {"model": SearchModel}, 304: {}, **errors()})
    async def search(
        request: Request,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        q: Annotated[str, Query(min_length=1, max_length=1_000, description="a part of a name, in any case")],
        limit: Annotated[int, Query(ge=1, le=100, description="at most so many results")] = 20,
        as_of: AsOf = None,
        cluster: Cluster = None,
    ) -> Response:
        """Topics, applications, groups, connectors and clients whose names have this part, the nearest first."""
        estate = await tables.estate(cluster=cluster, as_of_ms=parse_as_of(as_of))

        def make() -> Rendered:
            low = q.lower()
            found = [one for one in estate.map.summaries(_ALL) if low in one.lower and names.has(one.name)]

            def distance(one: NodeSummary) -> tuple[bool, bool, int, str, str]:
                return one.lower != low, not one.lower.startswith(low), len(one.name), one.name, one.kind

            results = [{"kind": one.kind, "name": one.name} for one in nsmallest(limit, found, key=distance)]
            return json_answer({"results": results, "count": len(found)})

        return await answers.of_versions(request, names, estate.stamps, make)

    return router
