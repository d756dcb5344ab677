"""`GET /api/v1/graph`: the map of the estate or a part of it, in six formats, and where its nodes stand."""

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from headgate.lineage.estate import absent
from headgate.lineage.estate_map import (
    MAX_EDGES,
    MAX_HOPS,
    MAX_NODES,
    NODE_KINDS,
    MapDirection,
    MapQuestion,
    MapSelection,
    TooLarge,
)
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables, LoadedEstate
from headgate.web.api.graph_formats import MEDIA_TYPES, GraphFormat, accepted_format, render_graph
from headgate.web.api.graph_layout import GraphLayouts, layout_document
from headgate.web.api.models import GraphLayoutModel, GraphModel, errors
from headgate.web.api.parameters import MAX_NAME, AsOf, Cluster, parse_as_of
from headgate.web.visible_names import VisibleNames

_OTHER_FORMATS: dict[str, Any] = {
    MEDIA_TYPES[one]: {"schema": {"type": "string"} | ({"format": "binary"} if one is GraphFormat.PNG else {})}
    for one in GraphFormat
    if one is not GraphFormat.JSON
}


class _Asked(NamedTuple):
    """The parameters that all resources of the map have: the selection, the time and the cluster."""

    question: MapQuestion
    as_of_ms: int | None
    cluster: str | None


def _asked(
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
    internal: Annotated[
        bool, Query(description="with topics that are internal to an application or to Connect")
    ] = True,
    collapsed: Annotated[bool, Query(description="false: a node for each component of an application")] = True,
    as_of: AsOf = None,
    cluster: Cluster = None,
) -> _Asked:
    question = MapQuestion(
        focus=focus,
        focus_kind=_one_kind(focus_kind),
        hops=None if hops == "all" else int(hops),
        direction=direction,
        kinds=_kinds(kinds),
        internal=internal,
        collapsed=collapsed,
    )
    return _Asked(question, parse_as_of(as_of), cluster)


def graph_router(tables: EstateTables, answers: Answers, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["graph"])
    layouts = GraphLayouts()

    @router.get(
        "/graph",
        response_class=Response,
        responses={200: {"model": GraphModel, "content": _OTHER_FORMATS}, 304: {}, **errors(404, 501)},
    )
    async def graph(
        request: Request,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        asked: Annotated[_Asked, Depends(_asked)],
        format: Annotated[GraphFormat | None, Query(description="instead of the header Accept")] = None,  # noqa: A002
    ) -> Response:
        """The map of the estate. More than 2,000 nodes are refused."""
        form = accepted_format(request.headers.get("accept", "")) if format is None else format
        estate = await tables.estate(cluster=asked.cluster, as_of_ms=asked.as_of_ms)
        about = {
            "cluster": estate.cluster,
            "as_of": asked.as_of_ms,
            "collapsed": asked.question.collapsed,
            "provisional": estate.is_provisional,
        }
        return await answers.of_versions(
            request,
            names,
            estate.stamps,
            lambda: render_graph(_selected(estate, names, asked.question), form, about),
            variant=form,
        )

    @router.get(
        "/graph/layout",
        response_class=Response,
        responses={200: {"model": GraphLayoutModel}, 304: {}, **errors(404, 501)},
    )
    async def graph_layout(
        request: Request,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        asked: Annotated[_Asked, Depends(_asked)],
    ) -> Response:
        """The positions of the nodes of the same map: the centre of each in pixels, computed by Graphviz."""
        estate = await tables.estate(cluster=asked.cluster, as_of_ms=asked.as_of_ms)

        def make() -> Rendered:
            selection = _selected(estate, names, asked.question)
            return json_answer(layout_document(selection, layouts.points(selection)))

        return await answers.of_versions(request, names, estate.stamps, make)

    return router


def _selected(estate: LoadedEstate, names: VisibleNames, asked: MapQuestion) -> MapSelection:
    visible = estate.visible(names)
    try:
        found = estate.map.select(asked, visible)
    except KeyError:
        wanted = asked.focus or ""
        raise absent("topic or actor", wanted, names.among(name for _, name in estate.map.nodes)) from None
    if isinstance(found, TooLarge):
        raise HTTPException(400, refusal(found, asked))
    return found


def refusal(found: TooLarge, asked: MapQuestion) -> str:
    """Advice how to narrow a selection that is too large, with the sizes that it has."""
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
