"""`GET /api/v1/graph/overlay`: the figures that the map shows on its nodes now: states, lags, dead letters and gaps.

Whether share groups are paused comes from Headgate's topics and is current. The rest is read from tables once a minute,
because a lag of each partition may be a row for each change of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import APIRouter, Depends, Query, Request, Response

from headgate.lineage.estate_map import EstateMap
from headgate.lineage.graph import SHARE_GROUP
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables, LoadedEstate, Stamps
from headgate.web.api.models import GraphOverlayModel, errors
from headgate.web.api.parameters import Cluster
from headgate.web.share_states import SharePort
from headgate.web.visible_names import VisibleNames

MINUTES: Final = 60
# The lags of a group that stands still are written again within an hour.
_LAGS_MS: Final = 65 * 60_000
_MINUTE_MS: Final = 60_000
_MOST_ROWS: Final = 500_000
_MOST_NODES: Final = 5_000
_MOST_USES: Final = 20_000
_CONNECT: Final = "connect-"

NodeName = tuple[str, str]
Row = dict[str, Any]


class _DeadLetters(NamedTuple):
    processed: int
    dead_lettered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayFigures:
    """The figures of the tables at a minute; `lags` are of a node and a topic."""

    stamps: Stamps
    lags: dict[tuple[NodeName, str], int]
    dead_letters: dict[NodeName, _DeadLetters]
    gaps: dict[NodeName, int]
    is_cut: bool


def overlay_router(tables: EstateTables, answers: Answers, access: AccessControl, port: SharePort | None) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["graph"])

    @router.get(
        "/graph/overlay", response_class=Response, responses={200: {"model": GraphOverlayModel}, 304: {}, **errors()}
    )
    async def graph_overlay(
        request: Request,
        names: Annotated[VisibleNames, Depends(access.visible_names)],
        as_of: Annotated[  # noqa: ARG001 - refused, so that no one takes these for the figures of a map of the past
            Literal["now"] | None, Query(description="only now: there are no figures of the past")
        ] = None,
        cluster: Cluster = None,
    ) -> Response:
        """States, lags, dead letters of the last hour and open gaps of what is on the map now."""
        estate = await tables.estate(cluster=cluster, as_of_ms=None)
        minute = tables.now_ms()
        figures = await tables.loaded(
            "overlay", (cluster, None), (), lambda stamps: _load(tables, estate, stamps, minute), also=(minute,)
        )
        versions = (*estate.stamps, *figures.stamps, port.changes if port is not None else 0)
        problem = None if port is None else port.problem
        return await answers.of_versions(
            request,
            names,
            versions,
            lambda: _rendered(estate, figures, names, port),
            variant=f"{port is None} {problem}",
        )

    return router


def _rendered(estate: LoadedEstate, figures: OverlayFigures, names: VisibleNames, port: SharePort | None) -> Rendered:
    states = {
        (SHARE_GROUP, name): _state(port, name)
        for kind, name in estate.map.nodes
        if kind == SHARE_GROUP and names.has(name)
    }
    by_node: defaultdict[NodeName, int] = defaultdict(int)
    for (node, _), lag in figures.lags.items():
        by_node[node] += lag
    known = sorted(one for one in {*states, *by_node, *figures.dead_letters, *figures.gaps} if names.has(one[1]))
    nodes: list[Row] = []
    for node in known[:_MOST_NODES]:
        dead_letters = figures.dead_letters.get(node)
        nodes.append(
            {
                "kind": node[0],
                "name": node[1],
                "state": states.get(node),
                "lag": by_node.get(node),
                "processed": None if dead_letters is None else dead_letters.processed,
                "dead_lettered": None if dead_letters is None else dead_letters.dead_lettered,
                "gaps": figures.gaps.get(node, 0),
            }
        )
    uses = sorted(one for one in figures.lags if names.has(one[0][1]) and names.has(one[1]))
    listed: list[Row] = [
        {"kind": kind, "name": name, "topic": topic, "lag": figures.lags[(kind, name), topic]}
        for (kind, name), topic in uses[:_MOST_USES]
    ]
    is_cut = figures.is_cut or len(known) > _MOST_NODES or len(uses) > _MOST_USES
    return json_answer(
        {"cluster": estate.cluster, "minutes": MINUTES, "nodes": nodes, "uses": listed, "truncated": is_cut}
    )


def _state(port: SharePort | None, group: str) -> str:
    """The state of a group is unknown while its topics are not read to their ends."""
    if port is None or port.problem is not None:
        return "unknown"
    found = port.of(group)
    if found.is_paused:
        return "tripped" if found.is_tripped else "paused"
    return "running"


# --- on the pool


def _load(tables: EstateTables, estate: LoadedEstate, stamps: Stamps, minute: int) -> OverlayFigures:
    since_lags, since_dead_letters = minute - _LAGS_MS, minute - MINUTES * _MINUTE_MS
    of_cluster = [] if estate.cluster is None else [Condition("cluster_id", "=", estate.cluster)]

    def rows(table: str, columns: tuple[str, ...], *where: Condition) -> Iterator[Row]:
        found = tables.reader.stream(TABLES[table], where=[*of_cluster, *where], columns=columns)
        return iter(()) if found is None else islice(found, _MOST_ROWS + 1)

    lags, is_cut = _lags(
        rows("group_lags", ("group", "kind", "topic", "partition", "lag"), Condition("at", ">=", since_lags)),
        estate.map,
    )
    dead_letters: defaultdict[NodeName, _DeadLetters] = defaultdict(lambda: _DeadLetters(0, 0))
    counted = rows("dlq_rates", ("group", "processed", "dead_lettered"), Condition("minute", ">=", since_dead_letters))
    for row in counted:
        known = dead_letters[SHARE_GROUP, row["group"]]
        dead_letters[SHARE_GROUP, row["group"]] = _DeadLetters(
            known.processed + row["processed"], known.dead_lettered + row["dead_lettered"]
        )
    gaps: defaultdict[NodeName, int] = defaultdict(int)
    for row in rows("lineage_gaps", ("actor_kind", "app_id"), Condition("state", "=", "open")):
        gaps[row["actor_kind"], row["app_id"]] += 1
    return OverlayFigures(stamps=stamps, lags=lags, dead_letters=dict(dead_letters), gaps=dict(gaps), is_cut=is_cut)


def _lags(rows: Iterable[Row], known: EstateMap) -> tuple[dict[tuple[NodeName, str], int], bool]:
    """The last lag of each partition, summed by node and topic; rows come in the order of their times."""
    last: dict[tuple[str, str, str, int], int | None] = {}
    count = 0
    for row in rows:
        count += 1
        last[row["group"], row["kind"], row["topic"], row["partition"]] = row["lag"]
    sums: defaultdict[tuple[NodeName, str], int] = defaultdict(int)
    for (group, kind, topic, _), lag in last.items():
        node = _node(group, kind, known)
        if node is not None and lag is not None:
            sums[node, topic] += lag
    return dict(sums), count > _MOST_ROWS


def _node(group: str, kind: str, known: EstateMap) -> NodeName | None:
    """The node of a group: an application and a sink connector read as groups, too."""
    candidates: list[NodeName] = [(SHARE_GROUP, group)] if kind == "share" else [("streams", group)]
    if kind != "share":
        candidates += [("consumer_group", group), ("spark", group)]
        if group.startswith(_CONNECT):
            candidates.append(("connector", group.removeprefix(_CONNECT)))
    return next((one for one in candidates if known.has(*one)), None)
