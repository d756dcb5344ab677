"""The ASGI application: all routes, the format of errors, and the check of the Host header.

Errors have the form of Kafka Connect, `{"error_code": 404, "message": "..."}`. This is the only place that maps an
exception to an HTTP status, with `api/routers.py` for tables; the text of an unexpected exception goes to the log and
not to the client. Resources that are read from tables need the libraries of `headgate[pipeline]`.
"""

from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException as RouteError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

import headgate
from headgate.activity.observed_connectors import ObservedConnectors
from headgate.base.errors import ClusterError, HeadgateError
from headgate.config.addresses import parse_host
from headgate.web import index_page, page
from headgate.web.access import AccessControl
from headgate.web.api.connectors import EstateSource, connectors_router
from headgate.web.breaker_statuses import BreakerStatuses, breaker_statuses_router
from headgate.web.connectors import ConnectCluster, connect_router, problems
from headgate.web.events import events_router
from headgate.web.gateway_leader import LeaderStatus, leader_router
from headgate.web.live_feed import LiveFeed
from headgate.web.operations import ShareGroupOperations
from headgate.web.operator_requests import operator_router
from headgate.web.page import page_router
from headgate.web.paths import NormalizedPaths
from headgate.web.share_group_actions import share_group_actions_router
from headgate.web.share_states import SharePort

if TYPE_CHECKING:
    from headgate.web.api.estate_tables import EstateTables, LoadedEstate
    from headgate.web.replay_runs.service import ReplayService

_NOT_INSTALLED: Final = "Tables cannot be read here: pip install 'headgate[pipeline]'"


def make_application(
    *,
    clusters: Mapping[str, ConnectCluster],
    wire: ObservedConnectors | None,
    access: AccessControl,
    allowed_hosts: Collection[str],
    tables: "EstateTables | None",
    share_port: SharePort | None,
    feed: LiveFeed,
    leader: LeaderStatus | None,
    operations: ShareGroupOperations | None,
    statuses: BreakerStatuses | None,
    replays: "ReplayService | None" = None,
) -> ASGIApp:
    """`clusters` are in the order of the configuration; `wire` is None if activity is not watched.

    `share_port`, `operations` and `statuses` are None if share groups are not enabled.
    `tables` and `replays` are None where the libraries that read tables are not installed, `leader` where no cluster is
    asked who leads.
    """
    # The documentation pages of FastAPI load scripts from other sites.
    app = FastAPI(title="Headgate", version=headgate.__version__, openapi_url=None, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    app.add_exception_handler(RouteError, _on_route_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_argument)
    app.add_exception_handler(ClusterError, _on_cluster_error)
    app.add_exception_handler(ClientDisconnect, _on_unfinished_body)
    app.add_exception_handler(Exception, _on_unexpected_error)
    app.include_router(connect_router(clusters, access))
    app.include_router(connectors_router(clusters, wire, access, None if tables is None else _estate_source(tables)))
    app.include_router(events_router(feed, access))
    if leader is not None:
        app.include_router(leader_router(leader, access))
    if operations is not None:
        app.include_router(share_group_actions_router(operations, access))
    gateway = operations.gateway if operations is not None else None if replays is None else replays.gateway
    if gateway is not None:
        app.include_router(operator_router(gateway, access))
    if statuses is not None:
        app.include_router(breaker_statuses_router(statuses, access))
    app.include_router(page_router(page.ROOT))

    @app.get("/api", include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse(index_page.HTML, headers=index_page.HEADERS)

    @app.get("/api/v1/openapi.json", include_in_schema=False, dependencies=[Depends(access.visible_names)])
    async def openapi() -> dict[str, Any]:
        return openapi_document(app)

    def found() -> dict[str, str]:
        return problems(clusters, wire, share_port)

    if tables is None:
        _add_without_tables(app, access, found)
    else:
        _add_tables(app, tables, access, found, share_port)
        if replays is not None:
            replays.add_routers(app, access)
    return AllowedHosts(NormalizedPaths(app, _error), allowed_hosts)


def _estate_source(tables: "EstateTables") -> EstateSource:
    """Tables are an addition to what connectors are known by: whatever is wrong with them, the rest is answered."""

    async def estate() -> "LoadedEstate | None":
        try:
            return await tables.estate(cluster=await tables.default_cluster(), as_of_ms=None)
        except HeadgateError:
            return None

    return estate


def _add_tables(
    app: FastAPI,
    tables: "EstateTables",
    access: AccessControl,
    found: Callable[[], dict[str, str]],
    share_port: SharePort | None,
) -> None:
    # Without these libraries everything else works.
    from headgate.web.api.routers import ERROR_HANDLERS, estate_routers  # noqa: PLC0415

    app.state.tables = tables  # for the parameter `cluster`
    for error, handler in ERROR_HANDLERS.items():
        app.add_exception_handler(error, handler)
    for router in estate_routers(tables, access, found, share_port):
        app.include_router(router)


def _add_without_tables(app: FastAPI, access: AccessControl, found: Callable[[], dict[str, str]]) -> None:
    can_read = [Depends(access.visible_names)]

    @app.get("/api/v1/health", dependencies=can_read)
    async def health() -> dict[str, Any]:
        nothing: dict[str, Any] = {"tables": [], "tables_path": None, "pipeline": [], "rejected": None}
        return {"ready": not found(), "problems": found(), "version": headgate.__version__} | nothing

    @app.get("/api/v1/{path:path}", dependencies=can_read, include_in_schema=False)
    async def unavailable(path: str) -> None:  # noqa: ARG001
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_INSTALLED)


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document. Invalid parameters are 400 here, and not the 422 that FastAPI documents."""
    document = app.openapi()
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        document.get("components", {}).get("schemas", {}).pop(name, None)
    return document


class AllowedHosts:
    """Refuses requests whose Host header is not one of `hosts`, which are names and addresses without ports.

    Another site can make its own name resolve to 127.0.0.1, and read what is served there through the browser of a
    visitor (DNS rebinding). The Host header is still the name of that site.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and requested_host(Headers(scope=scope).getlist("host")) not in self._hosts:
            refusal = _error(HTTPStatus.BAD_REQUEST, "The Host header is not one of web.allowed_hosts")
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def requested_host(headers: Collection[str]) -> str | None:
    """The host of the only Host header, in lower case and without its port; None if it is missing or malformed."""
    if len(headers) != 1:
        return None
    (text,) = headers
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):  # no port
        host, port = text, ""
    if port and not (port.isascii() and port.isdigit()):
        return None
    try:
        return parse_host(host).lower().removesuffix(".")
    except ValueError:
        return None


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error_code": status, "message": message}, status, headers)


async def _on_route_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RouteError)
    # Errors of the router itself, for unknown paths and methods, have no message: Connect uses the status line.
    message = error.detail if isinstance(error, HTTPException) else f"HTTP {error.status_code} {error.detail}"
    return _error(error.status_code, message, error.headers)


async def _on_invalid_argument(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return _error(HTTPStatus.BAD_REQUEST, f"{where}: {first['msg']}")


async def _on_cluster_error(_: Request, error: Exception) -> JSONResponse:
    return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


async def _on_unfinished_body(_: Request, __: Exception) -> JSONResponse:
    """The response has no reader: the client is gone, which is no error of this process."""
    return _error(HTTPStatus.BAD_REQUEST, "The connection ended before the body was whole")


async def _on_unexpected_error(_: Request, __: Exception) -> JSONResponse:
    return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error: see the log of headgate web")
