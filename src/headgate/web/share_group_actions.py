"""`POST /api/v1/share-groups/NAME/pause` and `.../resume`, and what a caller may do here.

A change needs a JSON body with a reason, so that no form and no link of another site can send it, and a request of a
browser must come from a page of this server (Origin, Sec-Fetch-Site). A password is accepted over TLS or from this
machine only. The body is bounded before it is read.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from headgate.kafka.connections import Credentials
from headgate.share_groups.model.group_configs import MAX_REASON_CHARACTERS
from headgate.web.access import AccessControl, Caller, client_address, is_local
from headgate.web.api.models import ApiModel, errors
from headgate.web.api.share_group_models import PauseReasonModel
from headgate.web.operations import GroupOperation, OperationError, Operator, ShareGroupOperations
from headgate.web.paths import NameInPath
from headgate.web.tokens import MECHANISMS

_MAX_BODY: Final = 16 * 1024
_MAX_LOGIN: Final = 255
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_SAME: Final = frozenset({"same-origin", "none"})


class CredentialModel(ApiModel):
    """A user of the cluster, for this one operation; it is not kept."""

    user: str = Field(min_length=1, max_length=_MAX_LOGIN)
    password: str = Field(min_length=1, max_length=_MAX_LOGIN)
    mechanism: str = Field(default="SCRAM-SHA-512", json_schema_extra={"enum": list(MECHANISMS)})


class OperationModel(ApiModel):
    reason: str = Field(min_length=1, max_length=MAX_REASON_CHARACTERS, description="printable; others will see it")
    credential: CredentialModel | None = None


class OperationDoneModel(ApiModel):
    """The group afterwards: a resume ends all pauses, so `remaining_reasons` are those of pauses that began since."""

    group: str
    paused: bool
    reason: str
    remaining_reasons: list[PauseReasonModel]


class OperatorModel(ApiModel):
    """`credential`: `bound` to the token, to be `typed`, or `none` where the cluster has no users."""

    may_operate: bool
    problem: str | None
    credential: str
    principal: str | None
    may_type: bool
    gateway: str


_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": OperationModel.model_json_schema()}}}
}


def share_group_actions_router(operations: ShareGroupOperations, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["share groups"])

    @router.get("/operator", response_class=JSONResponse, responses={200: {"model": OperatorModel}, **errors()})
    async def operator(request: Request, caller: Annotated[Caller, Depends(access.caller)]) -> JSONResponse:
        """What the caller may do here, and as which user of the cluster."""
        problem = None
        try:
            caller = await access.operator(request)
        except HTTPException as refused:
            problem = str(refused.detail)
        bound = caller.token.kafka if caller.token is not None else None
        is_open = bound is None and not operations.gateway.has_sasl and _is_local(request)
        return JSONResponse(
            {
                "may_operate": problem is None,
                "problem": problem,
                "credential": "bound" if bound is not None else "none" if is_open else "typed",
                "principal": None if bound is None else f"User:{bound.user}",
                "may_type": _may_type(request),
                "gateway": str(operations.gateway.address),
            },
            headers=_HEADERS,
        )

    async def act(operation: GroupOperation, request: Request, name: str, caller: Caller) -> JSONResponse:
        require_own_page(request.headers)
        if not caller.names.has(name):
            raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no share group '{name}'")
        asked = await _body(request)
        if asked.credential is not None and not _may_type(request):
            text = (
                "A password is accepted over TLS or from this machine only: nothing was done, and change the password"
            )
            raise HTTPException(HTTPStatus.FORBIDDEN, text)
        typed = asked.credential
        by = Operator(
            caller=caller.name,
            typed=None
            if typed is None
            else Credentials(user=typed.user, password=typed.password, mechanism=typed.mechanism),
            bound=caller.token.kafka if caller.token is not None else None,
            may_be_anonymous=_is_local(request),
        )
        try:
            return JSONResponse(await operations.run(operation, name, asked.reason, by), headers=_HEADERS)
        except OperationError as refused:
            is_rate = refused.status == HTTPStatus.TOO_MANY_REQUESTS
            raise HTTPException(refused.status, str(refused), {"Retry-After": "60"} if is_rate else None) from None

    answers: dict[int | str, dict[str, Any]] = {
        200: {"model": OperationDoneModel},
        **errors(404, 413, 415, 429, 502, 504),
    }

    @router.post("/share-groups/{name}/pause", response_class=JSONResponse, responses=answers, openapi_extra=_BODY)
    async def pause(
        request: Request, name: NameInPath, caller: Annotated[Caller, Depends(access.operator)]
    ) -> JSONResponse:
        """Pause a share group: its members get no records until it is resumed."""
        return await act(GroupOperation.PAUSE, request, name, caller)

    @router.post("/share-groups/{name}/resume", response_class=JSONResponse, responses=answers, openapi_extra=_BODY)
    async def resume(
        request: Request, name: NameInPath, caller: Annotated[Caller, Depends(access.operator)]
    ) -> JSONResponse:
        """End all pauses of a share group, also that of its breaker."""
        return await act(GroupOperation.RESUME, request, name, caller)

    return router


def require_own_page(headers: Mapping[str, str]) -> None:
    """Refuse what the page of another site may have sent through the browser of an operator (CSRF)."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The Content-Type must be application/json")
    origin = headers.get("origin")
    is_foreign = origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower()
    if is_foreign or headers.get("sec-fetch-site", "none") not in _SAME:
        raise HTTPException(HTTPStatus.FORBIDDEN, "The request comes from a page of another site")


async def _body(request: Request) -> OperationModel:
    """The body, refused before more than its bound is in memory. No error repeats it: it may have a password."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body has more than {_MAX_BODY:,} bytes")
    try:
        document = json.loads(body)
        found = OperationModel.model_validate(document)
    except (ValueError, RecursionError):  # pydantic's ValidationError is a ValueError
        text = (
            f'The body must be {{"reason": "..."}} with 1 to {MAX_REASON_CHARACTERS:,} characters, and at most a '
            f"credential with user, password and mechanism ({', '.join(MECHANISMS)})"
        )
        raise HTTPException(HTTPStatus.BAD_REQUEST, text) from None
    if not found.reason.strip() or not found.reason.isprintable():
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The reason must have printable characters only, and not be blank")
    typed = found.credential
    if typed is not None and (typed.mechanism not in MECHANISMS or "\0" in typed.user + typed.password):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"credential.mechanism must be one of {', '.join(MECHANISMS)}")
    return found


def _is_local(request: Request) -> bool:
    return is_local(client_address(request), request.headers)


def _may_type(request: Request) -> bool:
    return request.url.scheme == "https" or _is_local(request)
