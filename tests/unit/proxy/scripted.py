"""An interceptor that does what a test says, and writes down what it saw."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from headgate.base.ids import ApiKey
from headgate.proxy.interceptor import Forward, Interceptor, OnRequest, OnResponse, RequestFrame, ResponseFrame, Session

HEARTBEAT = ApiKey(12)


class Scripted(Interceptor[Any]):
    """Calls what it is given; what is not given passes. `events` has every call in order, of all that share it."""

    def __init__(
        self,
        name: str = "it",
        *,
        events: list[str] | None = None,
        keys: tuple[int, ...] = (HEARTBEAT,),
        stream_keys: tuple[int, ...] = (),
        fail_closed: bool = False,
        adds: Mapping[int, tuple[int, int]] | None = None,
        request: Callable[[RequestFrame, Session], Any] | None = None,
        response: Callable[[ResponseFrame, object], Any] | None = None,
        chunk: Callable[[bytes], None] | None = None,
        opened: Callable[[Session], None] | None = None,
    ) -> None:
        self.name = name
        self.events = [] if events is None else events
        self.api_keys = frozenset(map(ApiKey, keys))
        self.stream_keys = frozenset(map(ApiKey, stream_keys))
        self.fail_closed = fail_closed
        self.sessions: list[Session] = []
        self.chunks: list[bytes] = []
        self._adds = adds or {}
        self._request = request
        self.response = response
        self._chunk = chunk
        self._opened = opened

    def added_versions(self, broker: Mapping[int, tuple[int, int]]) -> Mapping[int, tuple[int, int]]:  # noqa: ARG002
        return self._adds

    def on_open(self, session: Session) -> None:
        self.sessions.append(session)
        if self._opened is not None:
            self._opened(session)

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[Any]:
        self.events.append(f"{self.name} request {request.correlation_id}")
        outcome: OnRequest[Any] = Forward() if self._request is None else self._request(request, session)
        return outcome

    def on_response(self, response: ResponseFrame, context: object, session: Session) -> OnResponse:  # noqa: ARG002
        self.events.append(f"{self.name} response {context}")
        outcome: OnResponse = Forward() if self.response is None else self.response(response, context)
        return outcome

    def on_chunk(self, view: memoryview, context: object, session: Session) -> None:  # noqa: ARG002
        assert view.readonly
        self.chunks.append(bytes(view))
        if self._chunk is not None:
            self._chunk(bytes(view))


async def at_once(value: Any) -> Any:
    return value


async def after(event: asyncio.Event, value: Any) -> Any:
    await event.wait()
    return value


async def fails(failure: BaseException) -> Any:
    raise failure
