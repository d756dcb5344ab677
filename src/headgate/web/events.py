"""`GET /api/v1/events`: changes as server-sent events.

The connection stays open. The caller's token is checked again every ten seconds, however many notices come: one that
was removed or has expired ends the stream, and so does one that sees other names now. Ten seconds without a notice are
followed by a comment. Clients that cannot send a header, such as the browser's EventSource, cannot send a token either;
the page reads the stream with `fetch`.
"""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headgate.web.access import AccessControl, Caller
from headgate.web.api.models import errors
from headgate.web.live_feed import FeedListener, LiveFeed, NoticeKind, TooManyListenersError, event_text

_RETRY_MS: Final = 2_000
_MEDIA_TYPE: Final = "text/event-stream"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back
    "X-Content-Type-Options": "nosniff",
}


def events_router(feed: LiveFeed, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["events"])

    @router.get(
        "/events",
        response_class=StreamingResponse,
        responses={200: {"content": {_MEDIA_TYPE: {"schema": {"type": "string"}}}}, **errors()},
    )
    async def events(
        request: Request,
        caller: Annotated[Caller, Depends(access.caller)],
        last_event_id: Annotated[
            str | None, Header(max_length=64, description="the id of the last event that was read")
        ] = None,
    ) -> Response:
        """Changes of share groups, events and new versions of tables, as they are noticed."""
        stack = ExitStack()
        try:
            listener = stack.enter_context(feed.listening(caller.name, last_event_id))
        except TooManyListenersError as problem:
            return JSONResponse({"error_code": 503, "message": str(problem)}, 503, {"Retry-After": "5"})

        return _ClosingResponse(_texts(feed, listener, access, request, caller), stack)

    return router


class _ClosingResponse(StreamingResponse):
    """Ends its listener also where the client was gone before the first byte."""

    def __init__(self, content: AsyncIterator[str], stack: ExitStack) -> None:
        super().__init__(content, media_type=_MEDIA_TYPE, headers=_HEADERS)
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._stack:
            await super().__call__(scope, receive, send)


async def _texts(
    feed: LiveFeed, listener: FeedListener, access: AccessControl, request: Request, caller: Caller
) -> AsyncIterator[str]:
    yield f"retry: {_RETRY_MS}\n\n"
    due = access.clock.monotonic() + feed.limits.heartbeat_s
    while True:
        notice = await listener.next(max(0.0, due - access.clock.monotonic()))
        if listener.closed is not None:
            break
        if notice is None or access.clock.monotonic() >= due:
            # Before the notice is sent, so that nothing of the last ten seconds passes a token that has ended.
            refusal = await _refusal(access, request, caller)
            if refusal is not None:
                listener.close(refusal)
                break
            due = access.clock.monotonic() + feed.limits.heartbeat_s
        yield ": heartbeat\n\n" if notice is None else feed.text(notice, caller.names)
    yield event_text(NoticeKind.CLOSED, {"reason": listener.closed})


async def _refusal(access: AccessControl, request: Request, caller: Caller) -> str | None:
    """Why the caller may not read on as it began; None where it may."""
    try:
        now = await access.caller(request)
    except HTTPException as refused:
        return str(refused.detail)
    return None if now.names == caller.names else "The names of the token are others now: connect again"
