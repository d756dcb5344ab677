"""Active topics of connectors: Connect's own two paths (KIP-558), and both views of them for tools and the page.

One rule: bodies, codes and texts of Connect's paths are those of a Connect worker, so that its clients need not know
whom they ask. The first cluster of the configuration answers at `/connectors/...`, each at `/connect/CLUSTER/...`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Depends, HTTPException, Response

from headgate.activity.connect_status import ConnectStatus, WireStatus
from headgate.web.access import Access

_MOST: Final = 10_000
_TOPICS: Final = "/connectors/{name:path}/topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectCluster:
    """`status` None: tracking is off, and nobody reads its topic."""

    status: ConnectStatus | None
    allow_reset: bool

    def tracked(self) -> ConnectStatus:
        if self.status is None:
            raise HTTPException(HTTPStatus.FORBIDDEN, "Topic tracking is disabled.")
        if not self.status.is_ready:
            text = f"The active topics are not known yet: {self.status.problem}"
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return self.status


def connect_router(clusters: Mapping[str, ConnectCluster], access: Access) -> APIRouter:
    """Connect's own paths."""
    router = APIRouter()

    async def topics(name: str, cluster: str | None = None) -> dict[str, Any]:
        _check_name(name)
        return {name: {"topics": list(_find(clusters, cluster).tracked().topics.of(name))}}

    async def reset(name: str, cluster: str | None = None) -> Response:
        _check_name(name)
        found = _find(clusters, cluster)
        status = found.tracked()
        if not found.allow_reset:
            raise HTTPException(HTTPStatus.FORBIDDEN, "Topic tracking reset is disabled.")
        await status.reset(name)
        return Response(status_code=HTTPStatus.ACCEPTED)

    async def first_topics(name: str) -> dict[str, Any]:
        return await topics(name)

    async def first_reset(name: str) -> Response:
        return await reset(name)

    may_read, may_operate = [Depends(access.reading)], [Depends(access.operating)]
    for path, read, write in (("", first_topics, first_reset), ("/connect/{cluster}", topics, reset)):
        router.add_api_route(f"{path}{_TOPICS}", read, methods=["GET"], dependencies=may_read)
        router.add_api_route(f"{path}{_TOPICS}/reset", write, methods=["PUT"], dependencies=may_operate)
    return router


def api_router(clusters: Mapping[str, ConnectCluster], wire: WireStatus | None, access: Access) -> APIRouter:
    """`/api/v1/connectors`: for each connector what Connect says and what was seen on the wire; null: not known.

    The wire knows connectors by their names alone: connectors of one name in two clusters share what was seen.
    """
    router = APIRouter(prefix="/api/v1", dependencies=[Depends(access.reading)])

    @router.get("/connectors")
    async def connectors(name: str | None = None, cluster: str | None = None) -> dict[str, Any]:
        chosen = {cluster: _find(clusters, cluster)} if cluster is not None else clusters
        pairs: list[tuple[str | None, str]] = [(known, name) for known in chosen] if name is not None else []
        if name is None:
            pairs = _pairs(chosen, wire, everywhere=cluster is None)
        elif not pairs:
            pairs = [(None, name)]
        rows = [_row(clusters, wire, known, connector) for known, connector in pairs[:_MOST]]
        return {"connectors": rows, "truncated": len(pairs) > _MOST, "problems": problems(chosen, wire)}

    return router


def problems(clusters: Mapping[str, ConnectCluster], wire: WireStatus | None) -> dict[str, str]:
    """What cannot be read now, by what it is about."""
    found = {
        f"connect.{name}": problem
        for name, cluster in clusters.items()
        if cluster.status is not None and (problem := cluster.status.problem) is not None
    }
    if wire is not None and wire.problem is not None:
        found["activity"] = wire.problem
    return found


def _pairs(
    clusters: Mapping[str, ConnectCluster], wire: WireStatus | None, *, everywhere: bool
) -> list[tuple[str | None, str]]:
    """Every connector that Connect has topics of, and those that only the wire knows, which belong to no cluster."""
    pairs: list[tuple[str | None, str]] = [
        (name, connector)
        for name, cluster in clusters.items()
        if cluster.status is not None
        for connector in sorted(cluster.status.topics.connectors())
    ]
    if wire is not None and everywhere:
        known = {connector for _, connector in pairs}
        pairs += [(None, connector) for connector in sorted(wire.topics.connectors()) if connector not in known]
    return pairs


def _row(
    clusters: Mapping[str, ConnectCluster], wire: WireStatus | None, cluster: str | None, connector: str
) -> dict[str, Any]:
    status = clusters[cluster].status if cluster is not None else None
    is_known = status is not None and status.is_ready
    seen = wire is not None and wire.problem is None
    return {
        "cluster": cluster,
        "connector": connector,
        "connect": list(status.topics.of(connector)) if is_known and status is not None else None,
        "wire": list(wire.topics.of(connector)) if seen and wire is not None else None,
    }


def _find(clusters: Mapping[str, ConnectCluster], name: str | None) -> ConnectCluster:
    """A cluster by its name, None for the first."""
    if name is None:
        if not clusters:
            text = "No Connect cluster is configured: name its status topic in [connect.NAME]"
            raise HTTPException(HTTPStatus.NOT_FOUND, text)
        return next(iter(clusters.values()))
    if name not in clusters:
        raise HTTPException(HTTPStatus.NOT_FOUND, "There is no Connect cluster of this name in the configuration")
    return clusters[name]


def _check_name(name: str) -> None:
    """No path of Connect's has an empty name in it."""
    if not name:
        raise HTTPException(HTTPStatus.NOT_FOUND, "HTTP 404 Not Found")
