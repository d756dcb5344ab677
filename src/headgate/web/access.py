"""Who may call what: a refusal is an HTTP error before the call does anything.

One rule: what changes something needs a bearer token with the scope `operate`; without a tokens file it is for callers
on this machine alone. Reading is free where only this machine can call (`web.listen` is loopback), and needs a token
with the scope `read` everywhere else. A call that a proxy passed on does not come from this machine.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import structlog
from fastapi import HTTPException, Request

from headgate.base.clock import Clock
from headgate.base.errors import UsageError
from headgate.web.tokens import Scope, find_token, read_tokens

log = structlog.get_logger()

_PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_ASK = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Its methods are dependencies of routes; they read a file, so they are plain functions and run on a thread."""

    tokens_file: Path | None
    reading_is_free: bool
    clock: Clock

    def reading(self, request: Request) -> None:
        if not self.reading_is_free:
            self._demand(request, Scope.READ)

    def operating(self, request: Request) -> None:
        if self.tokens_file is not None:
            self._demand(request, Scope.OPERATE)
        elif not is_local(request.client.host if request.client else "", request.headers):
            raise HTTPException(
                HTTPStatus.FORBIDDEN, "Without web.tokens_file only callers on this machine may change anything"
            )

    def _demand(self, request: Request, scope: Scope) -> None:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not given.strip():
            raise HTTPException(HTTPStatus.UNAUTHORIZED, f"A bearer token with the scope {scope} is needed", _ASK)
        if self.tokens_file is None:  # the configuration does not let it come to this
            raise HTTPException(HTTPStatus.FORBIDDEN, "There is no web.tokens_file")
        try:
            tokens = read_tokens(self.tokens_file)
        except UsageError as failure:
            log.warning("the tokens file cannot be used", file=str(self.tokens_file), error=str(failure))
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "The tokens file cannot be used") from None
        token = find_token(tokens, given.strip(), now_ms=self.clock.epoch_ms())
        if token is None:
            raise HTTPException(HTTPStatus.UNAUTHORIZED, "The bearer token is not known, or has expired", _ASK)
        if not token.may(scope):
            raise HTTPException(HTTPStatus.FORBIDDEN, f"The bearer token does not have the scope {scope}")


def is_local(client: str, headers: Mapping[str, str]) -> bool:
    """Whether the call was made on this machine, and not passed on."""
    if any(name in headers for name in _PASSED_ON):
        return False
    try:
        return ipaddress.ip_address(client).is_loopback
    except ValueError:
        return False
