"""The names that the interface may be called by: everything else is refused before anybody looks at it.

A page of another site can make its own name resolve to 127.0.0.1 and then read what is served there (DNS rebinding);
the name that a browser sends along is still that site's.
"""

from collections.abc import Collection
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from headgate.config.addresses import parse_host
from headgate.web.errors import error_answer


class AllowedHosts:
    """An ASGI application in front of another; `hosts` are names and addresses without ports, `*` is not known."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and host_of(Headers(scope=scope).getlist("host")) not in self._hosts:
            text = "The Host of this request is not one of web.allowed_hosts"
            await error_answer(HTTPStatus.BAD_REQUEST, text)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def host_of(headers: Collection[str]) -> str | None:
    """The host of the one Host header, without its port, in small letters; None when there is no such thing."""
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
