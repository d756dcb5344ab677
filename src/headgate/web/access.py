"""Authorization: a request that is not allowed is refused before it does anything.

Changes need a bearer token with the scope `operate`; without a tokens file they are allowed for clients on this
machine only. Reading needs no token if `web.listen` is a loopback address, and a token with the scope `read`
otherwise. A request that a proxy forwarded does not count as local. A token that is limited to some names opens only
resources that leave the others out, which take the names from `visible_names`.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import structlog
from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool

from headgate.base.clock import Clock
from headgate.base.errors import UsageError
from headgate.web.tokens import Token, TokenScope, find_token, read_tokens
from headgate.web.visible_names import ALL_NAMES, VisibleNames

log = structlog.get_logger()

_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request; `name` is of the token, or else the address."""

    name: str
    names: VisibleNames
    token: Token | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControl:
    """Authorizes requests: its methods are dependencies of routes. They read a file, so they run on a thread."""

    tokens_file: Path | None
    is_read_open: bool  # reading needs no token
    clock: Clock

    def require_read(self, request: Request) -> None:
        if not self.is_read_open:
            self._require(request, TokenScope.READ)

    def require_operate(self, request: Request) -> None:
        if self.tokens_file is not None:
            self._require(request, TokenScope.OPERATE)
        elif not is_local(client_address(request), request.headers):
            raise HTTPException(HTTPStatus.FORBIDDEN, "Without web.tokens_file only local clients may change anything")

    async def operator(self, request: Request) -> Caller:
        """The caller, if it may change something; a token may be limited to names, which the resource must heed."""
        if self.tokens_file is None:
            self.require_operate(request)
            return Caller(name=f"address {client_address(request)}", names=ALL_NAMES)
        token = await run_in_threadpool(self._token, request, TokenScope.OPERATE)
        return Caller(name=f"token {token.name}", names=token.names, token=token)

    async def visible_names(self, request: Request) -> VisibleNames:
        """The names that the caller may read."""
        return (await self.caller(request)).names

    async def caller(self, request: Request) -> Caller:
        """The caller, if it may read. A token that is sent counts also where reading needs none."""
        is_sent = "authorization" in request.headers and self.tokens_file is not None
        if self.is_read_open and not is_sent:
            return Caller(name=f"address {client_address(request)}", names=ALL_NAMES)
        token = await run_in_threadpool(self._token, request, TokenScope.READ)
        return Caller(name=f"token {token.name}", names=token.names, token=token)

    def _require(self, request: Request, scope: TokenScope) -> None:
        if self._token(request, scope).names.are_limited:
            raise HTTPException(HTTPStatus.FORBIDDEN, "The bearer token is limited to names, this resource is not")

    def _token(self, request: Request, scope: TokenScope) -> Token:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not given.strip():
            raise HTTPException(
                HTTPStatus.UNAUTHORIZED, f"A bearer token with the scope {scope} is required", _CHALLENGE
            )
        if self.tokens_file is None:  # the configuration is validated, so this does not happen
            raise HTTPException(HTTPStatus.FORBIDDEN, "web.tokens_file is not configured")
        try:
            tokens = read_tokens(self.tokens_file)
        except UsageError as failure:
            log.warning("tokens file cannot be used", file=str(self.tokens_file), error=str(failure))
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "The tokens file cannot be used") from None
        token = find_token(tokens, given.strip(), now_ms=self.clock.epoch_ms())
        if token is None:
            raise HTTPException(HTTPStatus.UNAUTHORIZED, "Invalid or expired bearer token", _CHALLENGE)
        if not token.may(scope):
            raise HTTPException(HTTPStatus.FORBIDDEN, f"The bearer token does not have the scope {scope}")
        return token


def client_address(request: Request) -> str:
    return request.client.host if request.client else ""


def is_local(client: str, headers: Mapping[str, str]) -> bool:
    """Whether the request was made on this machine, and not forwarded by a proxy."""
    if any(name in headers for name in _PROXY_HEADERS):
        return False
    try:
        return ipaddress.ip_address(client).is_loopback
    except ValueError:
        return False
