"""`/api/v1/connectors`: the topics of connectors as Connect records them, beside what was seen on the wire.

Connect's own paths are in `web/connectors.py`. On the wire connectors have no Connect cluster: those with the same name
in two clusters share what was observed. It works without tables; with them there are also connectors that were seen
before this process began to read, and how much they read and write.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from pydantic import Field

from headgate.activity.observed_connectors import ObservedConnectors
from headgate.web.access import AccessControl
from headgate.web.api.answers import answer_of_content, json_answer
from headgate.web.api.models import ApiModel, Time, TopicUseModel, errors
from headgate.web.api.parameters import MAX_NAME
from headgate.web.connectors import ConnectCluster, find_cluster, problems
from headgate.web.paths import NameInPath
from headgate.web.visible_names import VisibleNames

if TYPE_CHECKING:
    from headgate.web.api.estate_tables import LoadedEstate

_MOST_ROWS: Final = 10_000
_KIND: Final = "connector"

Row = dict[str, Any]
EstateSource = Callable[[], Awaitable["LoadedEstate | None"]]  # None where there are no tables yet
Topics = Annotated[list[str] | None, Field(description="null where they are not known")]


class ConnectorRowModel(ApiModel):
    """A connector in a Connect cluster; `cluster` is null where it is known from the wire only."""

    cluster: str | None
    connector: str
    connect: Topics
    wire: Topics
    hidden_topics: Annotated[int, Field(description="how many further topics the caller may not see")]
    tracking: Annotated[bool | None, Field(description="whether Connect's topics are tracked; null without a cluster")]
    reset_allowed: bool
    reads_count: int | None
    writes_count: int | None
    last_seen: Time | None


class ConnectClusterModel(ApiModel):
    name: str
    tracking: bool
    reset_allowed: bool
    problem: str | None


class ConnectorsModel(ApiModel):
    connectors: list[ConnectorRowModel]
    clusters: list[ConnectClusterModel]
    truncated: bool
    problems: dict[str, str]


class ConnectorModel(ApiModel):
    """A connector in each cluster that has it; `reads` and `writes` are null where there are no tables."""

    connector: str
    rows: list[ConnectorRowModel]
    reads: list[TopicUseModel] | None
    writes: list[TopicUseModel] | None
    problems: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownConnectors:
    """The connectors that are known at one moment, for one caller."""

    clusters: Mapping[str, ConnectCluster]
    wire: ObservedConnectors | None
    estate: "LoadedEstate | None"
    names: VisibleNames

    def pairs(self) -> list[tuple[str | None, str]]:
        """Clusters with their connectors, and at last those that are in no cluster."""
        found: list[tuple[str | None, str]] = [
            (known, connector)
            for known, one in self.clusters.items()
            if one.status is not None
            for connector in sorted(self.names.among(one.status.topics.connectors()))
        ]
        in_connect = {connector for _, connector in found}
        return found + [(None, one) for one in sorted(self.names.among(self._seen())) if one not in in_connect]

    def rows_of(self, connector: str) -> list[Row]:
        """In the clusters that have topics of it; where none has, in all whose topics are tracked."""
        tracked = {name: one.status for name, one in self.clusters.items() if one.status is not None}
        having: list[str | None] = [name for name, status in tracked.items() if status.topics.of(connector)]
        return [self.row(name, connector) for name in having or [*tracked] or [None]]

    def has(self, connector: str) -> bool:
        if not self.names.has(connector):
            return False
        in_connect = (one.status.topics.of(connector) for one in self.clusters.values() if one.status is not None)
        return any(in_connect) or connector in self._seen()

    def uses(self, connector: str) -> tuple[list[Row] | None, list[Row] | None]:
        if self.estate is None:
            return None, None
        if not self.estate.map.has(_KIND, connector):
            return [], []
        before, after = self.estate.map.uses(_KIND, connector)
        reads, writes = (
            [{"topic": topic if self.names.has(topic) else None, **use._asdict()} for _, topic, use in uses]
            for uses in (before, after)
        )
        return reads, writes

    def row(self, cluster: str | None, connector: str) -> Row:
        found = self.clusters[cluster] if cluster is not None else None
        status = found.status if found is not None else None
        connect = status.topics.of(connector) if status is not None and status.is_ready else None
        seen = self.wire.topics.of(connector) if self.wire is not None and self.wire.problem is None else None
        everything = {*(connect or ()), *(seen or ())}
        reads, writes = self.uses(connector)
        times = [use["last_seen"] for use in (*(reads or ()), *(writes or ())) if use["last_seen"] is not None]
        return {
            "cluster": cluster,
            "connector": connector,
            "connect": self._visible(connect),
            "wire": self._visible(seen),
            "hidden_topics": len(everything) - sum(1 for _ in self.names.among(everything)),
            "tracking": None if found is None else status is not None,
            "reset_allowed": found is not None and status is not None and found.allow_reset,
            "reads_count": None if reads is None else len(reads),
            "writes_count": None if writes is None else len(writes),
            "last_seen": max(times, default=None),
        }

    def _seen(self) -> set[str]:
        found = set(self.wire.topics.connectors()) if self.wire is not None else set()
        if self.estate is not None:
            found.update(one.name for one in self.estate.map.summaries(frozenset({_KIND})))
        return found

    def _visible(self, topics: Iterable[str] | None) -> list[str] | None:
        return None if topics is None else list(self.names.among(topics))


def connectors_router(
    clusters: Mapping[str, ConnectCluster],
    wire: ObservedConnectors | None,
    access: AccessControl,
    estate: EstateSource | None,
) -> APIRouter:
    """`estate` is None where the libraries that read tables are not installed."""
    router = APIRouter(prefix="/api/v1/connectors", tags=["connectors"])
    names_of = Depends(access.visible_names)

    async def known(names: VisibleNames, cluster: str | None = None) -> _KnownConnectors:
        chosen = clusters if cluster is None else {cluster: find_cluster(clusters, cluster)}
        loaded = None if estate is None else await estate()
        return _KnownConnectors(clusters=chosen, wire=wire, estate=loaded, names=names)

    @router.get("", response_class=Response, responses={200: {"model": ConnectorsModel}, 304: {}, **errors(404)})
    async def connectors(
        request: Request,
        names: Annotated[VisibleNames, names_of],
        name: Annotated[str | None, Query(max_length=MAX_NAME, description="only this connector, known or not")] = None,
        cluster: Annotated[str | None, Query(max_length=255, description="only this [connect.NAME]")] = None,
    ) -> Response:
        """The connectors by cluster and name, with their topics in Connect and on the wire."""
        found = await known(names, cluster)
        if name is None:
            pairs = [one for one in found.pairs() if cluster is None or one[0] is not None]
        elif names.has(name):
            pairs = [(one, name) for one in found.clusters] or [(None, name)]
        else:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"No connector {name!r} is known")
        document = {
            "connectors": [found.row(*one) for one in pairs[:_MOST_ROWS]],
            "clusters": [_cluster(name, one) for name, one in found.clusters.items()],
            "truncated": len(pairs) > _MOST_ROWS,
            "problems": problems(found.clusters, wire),
        }
        return answer_of_content(request, json_answer(document))

    @router.get("/{name}", response_class=Response, responses={200: {"model": ConnectorModel}, 304: {}, **errors(404)})
    async def connector(request: Request, name: NameInPath, names: Annotated[VisibleNames, names_of]) -> Response:
        """A connector: its topics in each Connect cluster and on the wire, and how much it reads and writes."""
        found = await known(names)
        if not found.has(name):
            raise HTTPException(HTTPStatus.NOT_FOUND, f"No connector {name!r} is known")
        reads, writes = found.uses(name)
        document = {"connector": name, "rows": found.rows_of(name), "reads": reads, "writes": writes}
        return answer_of_content(request, json_answer(document | {"problems": problems(clusters, wire)}))

    return router


def _cluster(name: str, one: ConnectCluster) -> Row:
    return {
        "name": name,
        "tracking": one.status is not None,
        "reset_allowed": one.status is not None and one.allow_reset,
        "problem": None if one.status is None else one.status.problem,
    }
