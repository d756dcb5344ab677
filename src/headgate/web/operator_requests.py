"""Checks all requests of operators: a bounded body of JSON, a page of this server, and a user.

A change needs a JSON body, so that no form and no link of another site can send it, and a request of a browser must
come from a page of this server (Origin, Sec-Fetch-Site). A password is accepted over TLS or from this machine only. The
body is bounded before it is read, and no error repeats it.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from headgate.kafka.connections import Credentials
from headgate.web.access import AccessControl, Caller, client_address, is_local
from headgate.web.api.models import ApiModel, errors
from headgate.web.operations import GatewayAccess, OperationError, Operator
from headgate.web.tokens import MECHANISMS

MAX_BODY: Final = 16 * 1024
OPERATION_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
CREDENTIAL_HINT: Final = f"credential with user, password and mechanism ({', '.join(MECHANISMS)})"
_MAX_LOGIN: Final = 255
_SAME: Final = frozenset({"same-origin", "none"})

M = TypeVar("M", bound=BaseModel)


class AsciiResponse(JSONResponse):
    """JSON of ASCII characters: a name that is not UTF-8, from a client or a topic, fails no answer."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class CredentialModel(ApiModel):
    """A user of the cluster, for this one operation; it is not kept."""

    user: str = Field(min_length=1, max_length=_MAX_LOGIN)
    password: str = Field(min_length=1, max_length=_MAX_LOGIN)
    mechanism: str = Field(default="SCRAM-SHA-512", json_schema_extra={"enum": list(MECHANISMS)})


class OperatorModel(ApiModel):
    """`credential`: `bound` to the token, to be `typed`, or `none` where the cluster has no users."""

    may_operate: bool
    problem: str | None
    credential: str
    principal: str | None
    may_type: bool
    gateway: str


def operator_router(gateway: GatewayAccess, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["operations"])

    @router.get("/operator", response_class=JSONResponse, responses={200: {"model": OperatorModel}, **errors()})
    async def operator(request: Request, caller: Annotated[Caller, Depends(access.caller)]) -> JSONResponse:
        """The caller's rights here, and the user of the cluster that it acts as."""
        problem = None
        try:
            caller = await access.operator(request)
        except HTTPException as refused:
            problem = str(refused.detail)
        bound = caller.token.kafka if caller.token is not None else None
        is_open = bound is None and not gateway.has_sasl and is_local_request(request)
        return JSONResponse(
            {
                "may_operate": problem is None,
                "problem": problem,
                "credential": "bound" if bound is not None else "none" if is_open else "typed",
                "principal": None if bound is None else f"User:{bound.user}",
                "may_type": may_type(request),
                "gateway": str(gateway.address),
            },
            headers=OPERATION_HEADERS,
        )

    return router


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """The documentation of a body."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def require_own_page(headers: Mapping[str, str]) -> None:
    """Refuse what the page of another site may have sent through the browser of an operator (CSRF)."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The Content-Type must be application/json")
    origin = headers.get("origin")
    is_foreign = origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower()
    if is_foreign or headers.get("sec-fetch-site", "none") not in _SAME:
        raise HTTPException(HTTPStatus.FORBIDDEN, "The request comes from a page of another site")


async def read_body(request: Request, model: type[M], hint: str) -> M:
    """The body, refused before more than its bound is in memory. No error repeats it: it may have a password."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body has more than {MAX_BODY:,} bytes")
    try:
        document = json.loads(body)
        found = model.model_validate(document)
    except (ValueError, RecursionError):  # pydantic's ValidationError is a ValueError
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"The body must be {hint}") from None
    return found


def operator_of(request: Request, caller: Caller, typed: CredentialModel | None) -> Operator:
    """The operator who sent the request; refused where a password came over the network in the clear."""
    if typed is not None and (typed.mechanism not in MECHANISMS or "\0" in typed.user + typed.password):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"credential.mechanism must be one of {', '.join(MECHANISMS)}")
    if typed is not None and not may_type(request):
        text = "A password is accepted over TLS or from this machine only: nothing was done, and change the password"
        raise HTTPException(HTTPStatus.FORBIDDEN, text)
    return Operator(
        caller=caller.name,
        typed=None
        if typed is None
        else Credentials(user=typed.user, password=typed.password, mechanism=typed.mechanism),
        bound=caller.token.kafka if caller.token is not None else None,
        may_be_anonymous=is_local_request(request),
    )


def refusal_of(refused: OperationError) -> HTTPException:
    is_rate = refused.status == HTTPStatus.TOO_MANY_REQUESTS
    return HTTPException(refused.status, str(refused), {"Retry-After": "60"} if is_rate else None)


def is_local_request(request: Request) -> bool:
    return is_local(client_address(request), request.headers)


def may_type(request: Request) -> bool:
    return request.url.scheme == "https" or is_local_request(request)
