"""`GET /api/v1/graph`: the map of the estate or a part of it, in five formats."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from headgate.lineage.estate import absent
from headgate.lineage.estate_map import (
    MAX_EDGES,
    MAX_HOPS,
    MAX_NODES,
    NODE_KINDS,
    MapDirection,
    MapQuestion,
    TooLarge,
)
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered
from headgate.web.api.estate_tables import EstateTables, LoadedEstate
from headgate.web.api.graph_formats import MEDIA_TYPES, GraphFormat, accepted_format, render_graph
from headgate.web.api.models import GraphModel, errors
from headgate.web.api.parameters import MAX_NAME, AsOf, Cluster, parse_as_of
from headgate.web.visible_names import VisibleNames

_TEXTS: dict[str, Any] = {
    MEDIA_TYPES[one]: {"schema": {"type": "string"}} for one in GraphFormat if one is not GraphFormat.JSON
}


def graph_router(tables: EstateTables, answers: Answers, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["graph"])

    @router.get(
        "/graph",
        response_class=Response,
        responses={200: {"model": GraphModel, "content": _TEXTS}, 304: {}, **errors(404, 501)},
    )
    async def graph(
        request: Request,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        focus: Annotated[str | None, Query(max_length=MAX_NAME, description="a name: only what is near it")] = None,
        focus_kind: Annotated[
            str | None, Query(max_length=20, description="its kind, where several nodes have the name")
        ] = None,
        hops: Annotated[
            str, Query(pattern=r"^([1-9]|1[0-9]|20|all)$", description=f"uses of topics, 1 to {MAX_HOPS}, or all")
        ] = "1",
        direction: Annotated[MapDirection, Query(description="from the focus")] = "both",
        kinds: Annotated[
            str | None,
            Query(max_length=200, description=f"of {', '.join(NODE_KINDS)}; without topic, actors are joined directly"),
        ] = None,
        internal: Annotated[bool, Query(description="with topics that are internal to an application")] = True,
        collapsed: Annotated[bool, Query(description="false: a node for each component of an application")] = True,
        as_of: AsOf = None,
        cluster: Cluster = None,
        format: Annotated[GraphFormat | None, Query(description="instead of the header Accept")] = None,  # noqa: A002
    ) -> Response:
        """The map of the estate. More than 2,000 nodes are refused."""
        at = parse_as_of(as_of)
        asked = MapQuestion(
            focus=focus,
            focus_kind=_one_kind(focus_kind),
            hops=None if hops == "all" else int(hops),
            direction=direction,
            kinds=_kinds(kinds),
            internal=internal,
            collapsed=collapsed,
        )
        form = accepted_format(request.headers.get("accept", "")) if format is None else format
        estate = await tables.estate(cluster=cluster, as_of_ms=at)
        about = {"cluster": estate.cluster, "as_of": at, "collapsed": collapsed}
        return await answers.of_versions(
            request, names, estate.stamps, lambda: _rendered(estate, names, asked, form, about), variant=form
        )

    return router


def _rendered(
    estate: LoadedEstate, names: VisibleNames, asked: MapQuestion, form: GraphFormat, about: dict[str, Any]
) -> Rendered:
    visible = estate.visible(names)
    try:
        found = estate.map.select(asked, visible)
    except KeyError:
        wanted = asked.focus or ""
        raise absent("topic or actor", wanted, names.among(name for _, name in estate.map.nodes)) from None
    if isinstance(found, TooLarge):
        raise HTTPException(400, refusal(found, asked))
    return render_graph(found, form, about)


def refusal(found: TooLarge, asked: MapQuestion) -> str:
    """How to narrow a selection that is too large, with what it has."""
    counts = ", ".join(
        f"{count:,} {kind}" for kind, count in sorted(found.kinds.items(), key=lambda one: (-one[1], one[0]))
    )
    ways = []
    if asked.focus is None:
        ways.append("name a focus, such as focus=TOPIC&hops=2")
    elif asked.hops != 1:
        ways.append("take fewer hops")
    if asked.direction == "both" and asked.focus is not None:
        ways.append("take direction=up or direction=down")
    ways.append("select kinds, such as kinds=topic,streams")
    if asked.internal:
        ways.append("leave internal topics out with internal=false")
    if not asked.collapsed:
        ways.append("leave out collapsed=false")
    size = f"{found.nodes:,} nodes ({counts})"
    if found.edges > MAX_EDGES:
        size = f"more than {MAX_EDGES:,} edges between {size}"
    return f"The graph has {size}, and at most {MAX_NODES:,} nodes are returned: {'; '.join(ways)}"


def _kinds(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    kinds = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not kinds or not kinds <= set(NODE_KINDS):
        raise HTTPException(400, f"kinds: must be a list of {', '.join(NODE_KINDS)}, separated by commas")
    return kinds


def _one_kind(text: str | None) -> str | None:
    if text is not None and text not in NODE_KINDS:
        raise HTTPException(400, f"focus_kind: must be one of {', '.join(NODE_KINDS)}")
    return text
