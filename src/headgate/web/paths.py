"""Paths of `/api/v1`: normalised before they are routed and authorised, so that a name can have any character.

Servers decode a path before they pass it on, and a group may be called `a/topology`. So the path is split as it was
sent, and each part is encoded in one way: equal names have equal paths, and a slash in a name stays a part of it. The
resources decode a name with `decoded_name`. A path with `.` or `..` as a part, or one that only looks like a path of
this interface after it was decoded, is refused.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from fastapi import Depends, HTTPException, Path
from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX: Final = "/api/v1/"
_LITERAL: Final = "-._~:"
_MAX_PATH: Final = 64 * 1024
_MAX_NAME: Final = 40_000  # encoded; a request line has 64 KiB


class NormalizedPaths:
    """Normalises the path of each request; `refuse` makes the response to a path that is malformed."""

    def __init__(self, app: ASGIApp, refuse: Callable[[int, str], ASGIApp]) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = normalized_path(scope.get("raw_path") or quote_from_bytes(scope["path"].encode()).encode())
            if path is not None:
                scope = {**scope, "path": path}
            elif scope["path"].startswith(PREFIX):
                await self._refuse(HTTPStatus.BAD_REQUEST, "The path is malformed")(scope, receive, send)
                return
        await self._app(scope, receive, send)


def normalized_path(raw: bytes) -> str | None:
    """The path with each part encoded in one way; None if it is not one of this interface, or malformed."""
    if len(raw) > _MAX_PATH:
        return None
    parts = [unquote_to_bytes(part) for part in raw.partition(b"?")[0].split(b"/")]
    path = "/".join(quote_from_bytes(part, safe=_LITERAL) for part in parts)
    return path if path.startswith(PREFIX) and not {b".", b".."} & set(parts) else None


def decoded_name(
    name: Annotated[str, Path(min_length=1, max_length=_MAX_NAME, description="the name, encoded")],
) -> str:
    try:
        return unquote_to_bytes(name).decode()
    except UnicodeDecodeError:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The name in the path is not UTF-8") from None


NameInPath = Annotated[str, Depends(decoded_name)]
