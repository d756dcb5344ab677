"""Errors as Connect writes them: `{"error_code": 404, "message": "..."}`, whoever found them.

One rule: this is the one place where an error becomes an HTTP status. What the program itself got wrong is told in
three words; the rest is for its log.
"""

from http import HTTPStatus

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as RouteError

from headgate.base.errors import ClusterError


def error_answer(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error_code": status, "message": message}, status, headers)


def install_errors(app: FastAPI) -> None:
    app.add_exception_handler(RouteError, _on_route_error)
    app.add_exception_handler(RequestValidationError, _on_wrong_argument)
    app.add_exception_handler(ClusterError, _on_cluster_error)
    app.add_exception_handler(Exception, _on_defect)


async def _on_route_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RouteError)
    headers = dict(error.headers) if error.headers else None
    # Paths and methods that nobody has come from the router, without a text of ours; Connect's has the status line.
    message = error.detail if isinstance(error, HTTPException) else f"HTTP {error.status_code} {error.detail}"
    return error_answer(error.status_code, message, headers)


async def _on_wrong_argument(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return error_answer(HTTPStatus.BAD_REQUEST, f"{where}: {first['msg']}")


async def _on_cluster_error(_: Request, error: Exception) -> JSONResponse:
    return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


async def _on_defect(_: Request, __: Exception) -> JSONResponse:
    return error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, "Headgate failed: see its log")
