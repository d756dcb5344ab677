"""Active topics of connectors: the two resources of Kafka Connect (KIP-558), and a comparison with the wire.

Bodies, status codes and messages of Connect's resources are those of a Connect worker. The first cluster of the
configuration is served at `/connectors/...`, and each one at `/connect/CLUSTER/connectors/...`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Depends, HTTPException, Response

from headgate.activity.connect_status_topic import ConnectStatusTopic
from headgate.activity.observed_connectors import ObservedConnectors
from headgate.web.access import AccessControl
from headgate.web.share_states import SharePort

_TOPICS: Final = "/connectors/{name:path}/topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectCluster:
    """`status` is None if tracking is off."""

    status: ConnectStatusTopic | None
    allow_reset: bool

    def ready_status(self) -> ConnectStatusTopic:
        if self.status is None:
            raise HTTPException(HTTPStatus.FORBIDDEN, "Topic tracking is disabled.")
        if not self.status.is_ready:
            text = f"The active topics are not known yet: {self.status.problem}"
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return self.status


def connect_router(clusters: Mapping[str, ConnectCluster], access: AccessControl) -> APIRouter:
    """The resources of Kafka Connect."""
    router = APIRouter()

    async def topics(name: str, cluster: str | None = None) -> dict[str, Any]:
        _require_name(name)
        return {name: {"topics": list(find_cluster(clusters, cluster).ready_status().topics.of(name))}}

    async def reset(name: str, cluster: str | None = None) -> Response:
        _require_name(name)
        found = find_cluster(clusters, cluster)
        status = found.ready_status()
        if not found.allow_reset:
            raise HTTPException(HTTPStatus.FORBIDDEN, "Topic tracking reset is disabled.")
        await status.reset(name)
        return Response(status_code=HTTPStatus.ACCEPTED)

    async def first_topics(name: str) -> dict[str, Any]:
        return await topics(name)

    async def first_reset(name: str) -> Response:
        return await reset(name)

    can_read, can_operate = [Depends(access.require_read)], [Depends(access.require_operate)]
    for path, read, write in (("", first_topics, first_reset), ("/connect/{cluster}", topics, reset)):
        router.add_api_route(f"{path}{_TOPICS}", read, methods=["GET"], dependencies=can_read)
        router.add_api_route(f"{path}{_TOPICS}/reset", write, methods=["PUT"], dependencies=can_operate)
    return router


def problems(
    clusters: Mapping[str, ConnectCluster], wire: ObservedConnectors | None, share_port: SharePort | None = None
) -> dict[str, str]:
    """The topics that cannot be read, by config section."""
    found = {
        f"connect.{name}": problem
        for name, cluster in clusters.items()
        if cluster.status is not None and (problem := cluster.status.problem) is not None
    }
    if wire is not None and wire.problem is not None:
        found["activity"] = wire.problem
    if share_port is not None and share_port.problem is not None:
        found["share_groups"] = share_port.problem
    return found


def find_cluster(clusters: Mapping[str, ConnectCluster], name: str | None) -> ConnectCluster:
    """A cluster by its name; None is the first one."""
    if name is None:
        if not clusters:
            text = "No Connect cluster is configured: set status_topic in [connect.NAME]"
            raise HTTPException(HTTPStatus.NOT_FOUND, text)
        return next(iter(clusters.values()))
    if name not in clusters:
        raise HTTPException(HTTPStatus.NOT_FOUND, "The configuration has no Connect cluster with this name")
    return clusters[name]


def _require_name(name: str) -> None:
    """Connect has no resource with an empty name."""
    if not name:
        raise HTTPException(HTTPStatus.NOT_FOUND, "HTTP 404 Not Found")
