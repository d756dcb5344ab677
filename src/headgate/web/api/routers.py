"""All resources that are read from tables, and how their errors are answered.

Paths of files, which the texts of some errors have, are for the log and not for clients.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from headgate.base.errors import PlatformError, UsageError
from headgate.lineage.estate import NoTableError, NotInEstateError, SeveralClustersError
from headgate.tables.storage import TableError
from headgate.tables.table import WRITTEN_BY
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers
from headgate.web.api.applications import applications_router
from headgate.web.api.attention import attention_router
from headgate.web.api.backtests import backtests_router
from headgate.web.api.changes import changes_router
from headgate.web.api.dead_letters import dead_letters_router
from headgate.web.api.estate_tables import EstateTables, GraphTooLargeError, TooBusyError
from headgate.web.api.graph import graph_router
from headgate.web.api.graph_overlay import overlay_router
from headgate.web.api.health import health_router
from headgate.web.api.search import search_router
from headgate.web.api.share_groups import share_groups_router
from headgate.web.api.topics import topics_router
from headgate.web.api.topologies import topologies_router
from headgate.web.share_states import SharePort

log = structlog.get_logger()


def estate_routers(
    tables: EstateTables, access: AccessControl, problems: Callable[[], dict[str, str]], port: SharePort | None
) -> list[APIRouter]:
    answers = Answers(tables)
    return [
        health_router(tables, answers, access, problems),
        attention_router(tables, answers, access, port),
        graph_router(tables, answers, access),
        overlay_router(tables, answers, access, port),
        topics_router(tables, answers, access),
        applications_router(tables, answers, access),
        share_groups_router(tables, answers, access, port),
        backtests_router(tables, answers, access),
        dead_letters_router(tables, answers, access),
        changes_router(tables, answers, access),
        search_router(tables, answers, access),
        topologies_router(tables, access),
    ]


def _respond(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error_code": status, "message": message}, status, headers)


async def _on_absent(_: Request, error: Exception) -> JSONResponse:
    return _respond(HTTPStatus.NOT_FOUND, _sentence(str(error)))


async def _on_no_table(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, NoTableError)
    text = f"No table {error.table} yet: {WRITTEN_BY}"
    return _respond(HTTPStatus.SERVICE_UNAVAILABLE, text)


async def _on_several_clusters(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SeveralClustersError)
    one, other = error.clusters
    known = f"The tables have several clusters, {one!r} and {other!r} among them"
    if request.app.state.tables.is_upstream_unknown:
        text = f"{known}, and the upstream has not answered yet which it is: repeat, or specify one with cluster=ID"
        return _respond(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "1"})
    return _respond(HTTPStatus.BAD_REQUEST, f"{known}: specify one with cluster=ID")


async def _on_usage_error(_: Request, error: Exception) -> JSONResponse:
    return _respond(HTTPStatus.BAD_REQUEST, _sentence(str(error)))


async def _on_too_busy(_: Request, error: Exception) -> JSONResponse:
    return _respond(HTTPStatus.SERVICE_UNAVAILABLE, str(error), {"Retry-After": "1"})


async def _on_too_large(_: Request, error: Exception) -> JSONResponse:
    return _respond(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


async def _on_unusable(_: Request, error: Exception) -> JSONResponse:
    log.warning("tables cannot be read", error=str(error))
    text = "The tables cannot be read: see the log of headgate web"
    return _respond(HTTPStatus.SERVICE_UNAVAILABLE, text)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


ERROR_HANDLERS: Final = {
    NotInEstateError: _on_absent,
    NoTableError: _on_no_table,
    SeveralClustersError: _on_several_clusters,
    UsageError: _on_usage_error,
    TooBusyError: _on_too_busy,
    GraphTooLargeError: _on_too_large,
    PlatformError: _on_unusable,
    TableError: _on_unusable,
}
