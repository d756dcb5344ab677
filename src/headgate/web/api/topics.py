"""`/api/v1/topics`: the topics of the estate, who uses one, and what depends on it."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from headgate.lineage import questions
from headgate.lineage.estate import absent
from headgate.lineage.graph import TOPIC
from headgate.lineage.questions import HOUR_MS
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables, LoadedEstate
from headgate.web.api.models import ImpactModel, TopicModel, TopicsModel, errors
from headgate.web.api.parameters import After, AsOf, Cluster, Contains, Limit, page_after, parse_as_of
from headgate.web.api.topic_activity import MAX_DAYS, TopicActivityModel, activity_document
from headgate.web.api.topic_owners import owners_document, topic_facts
from headgate.web.paths import NameInPath
from headgate.web.visible_names import VisibleNames

_TOPICS = frozenset({TOPIC})


def topics_router(tables: EstateTables, answers: Answers, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1/topics", tags=["topics"])
    names_of = Depends(access.visible_names)

    @router.get("", response_class=Response, responses={200: {"model": TopicsModel}, 304: {}, **errors()})
    async def topics(
        request: Request,
        names: Annotated[VisibleNames, names_of],
        contains: Contains = "",
        after: After = "",
        internal: Annotated[
            bool, Query(description="with topics that are internal to an application or to Connect")
        ] = True,
        limit: Limit = 100,
        as_of: AsOf = None,
        cluster: Cluster = None,
    ) -> Response:
        """The topics by name, with the numbers of their writers and readers."""
        estate = await tables.estate(cluster=cluster, as_of_ms=parse_as_of(as_of))

        def make() -> Rendered:
            low = contains.lower()
            rows = [
                {"name": one.name, "internal": one.internal, "writers": one.edges_in, "readers": one.edges_out}
                for one in estate.map.summaries(_TOPICS)
                if low in one.lower and (internal or not one.internal) and names.has(one.name)
            ]
            page, following = page_after([str(row["name"]) for row in rows], after, limit)
            return json_answer({"topics": rows[page], "count": len(rows), "next": following})

        return await answers.of_versions(request, names, estate.stamps, make)

    @router.get("/{name}", response_class=Response, responses={200: {"model": TopicModel}, 304: {}, **errors(404)})
    async def topic(
        request: Request,
        name: NameInPath,
        names: Annotated[VisibleNames, names_of],
        limit: Limit = 20,
        as_of: AsOf = None,
        cluster: Cluster = None,
    ) -> Response:
        """The writers and readers of a topic, and how much of it passes the gateway."""
        at = parse_as_of(as_of)
        estate = await tables.estate(cluster=cluster, as_of_ms=at)
        facts = await topic_facts(tables, (cluster, at), estate)

        def make() -> Rendered:
            _require_topic(estate, name, names)
            return json_answer(owners_document(estate, facts, name, names, limit))

        return await answers.of_versions(request, names, (*estate.stamps, *facts.stamps), make)

    @router.get(
        "/{name}/impact", response_class=Response, responses={200: {"model": ImpactModel}, 304: {}, **errors(404)}
    )
    async def impact(
        request: Request,
        name: NameInPath,
        names: Annotated[VisibleNames, names_of],
        direction: Annotated[Literal["down", "up"], Query(description="down: what depends on the topic")] = "down",
        limit: Limit = 1_000,
        as_of: AsOf = None,
        cluster: Cluster = None,
    ) -> Response:
        """The dependents of a topic, or its dependencies, through all applications."""
        estate = await tables.estate(cluster=cluster, as_of_ms=parse_as_of(as_of))

        def make() -> Rendered:
            _require_topic(estate, name, names)
            found = estate.graph.closure(name, direction, limit=limit)
            document = questions.impact(name, direction, found)
            counts = {"topics": found.topics, "actors": found.actors, "depth": found.depth}
            return json_answer(document | counts | {"nodes": _masked(document["nodes"], names)})

        return await answers.of_versions(request, names, estate.stamps, make)

    @router.get(
        "/{name}/activity",
        response_class=Response,
        responses={200: {"model": TopicActivityModel}, 304: {}, **errors(404)},
    )
    async def activity(
        request: Request,
        name: NameInPath,
        names: Annotated[VisibleNames, names_of],
        days: Annotated[int, Query(ge=1, le=MAX_DAYS, description="so many days, up to now")] = 7,
        limit: Annotated[int, Query(ge=1, le=100, description="at most so many actors")] = 20,
        cluster: Cluster = None,
    ) -> Response:
        """The records written to a topic and read from it in each hour, and the actors."""
        estate = await tables.estate(cluster=cluster, as_of_ms=None)
        now_ms = tables.now_ms()

        def make() -> Rendered:
            _require_topic(estate, name, names)
            reading = tables.open_estate(cluster=estate.cluster, as_of_ms=None)
            return json_answer(activity_document(reading, name, names, now_ms=now_ms, days=days, limit=limit))

        stamps = await tables.stamps(("activity_hours",))
        return await answers.of_versions(request, names, (*estate.stamps, *stamps, now_ms // HOUR_MS), make)

    return router


def _require_topic(estate: LoadedEstate, name: str, names: VisibleNames) -> None:
    if not names.has(name) or not estate.graph.has_topic(name):
        raise absent("topic", name, names.among(estate.graph.topics))


def _masked(rows: list[dict[str, Any]], names: VisibleNames) -> list[dict[str, Any]]:
    """The rows without the names that the caller may not see; such rows come last."""
    if not names.are_limited:
        return rows
    hidden = [row | {"name": None} for row in rows if not names.has(row["name"])]
    return [row for row in rows if names.has(row["name"])] + hidden
