"""Decoding requests and responses for interceptors; large ones on a thread beside the event loop.

A message of a megabyte can hold a hundred thousand parts, and decoding it takes longer than other connections should
wait. The thread decodes one message at a time, so that large ones do not starve the event loop of the interpreter.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import (
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    Outcome,
    RequestFrame,
    ResponseFrame,
    ResponseOutcome,
    Rewritten,
    Session,
)
from headgate.wire.codec import decode, encode
from headgate.wire.schema import Message, Request

SMALL_BYTES: Final = 16 * 1024
A_STEP: Final = 100  # parts of a message that are handled on the event loop before other connections are served
DECODE_SECONDS: Final = 60.0
C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")
Q = TypeVar("Q", bound=Request[Any])
A = TypeVar("A", bound=Message)

_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="headgate-large")


async def run_off_loop(work: Callable[[], T]) -> T:
    """Run `work` on the thread for large messages."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)


async def map_in_steps(function: Callable[[T], R], items: Sequence[T]) -> tuple[R, ...]:
    """Apply `function` to each item on the event loop, and let other connections be served after every `A_STEP`."""
    results: list[R] = []
    for begin in range(0, len(items), A_STEP):
        results.extend(map(function, items[begin : begin + A_STEP]))
        await asyncio.sleep(0)
    return tuple(results)


class DecodingInterceptor(Interceptor[C], Generic[Q, A, C]):
    """Base of interceptors that need a request of one api decoded, and perhaps its response.

    A subclass sets `request_class` and overrides `on_decoded_request` and, if that returns contexts,
    `on_decoded_response`. Bodies over `SMALL_BYTES` are decoded, and encoded again, off the event loop.
    """

    request_class: type[Q]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "request_class" in vars(cls):
            cls.api_keys = frozenset((ApiKey(cls.request_class.api_key),))

    def is_relevant(self, request: RequestFrame) -> bool:  # noqa: ARG002
        """False lets a request pass without decoding it."""
        return True

    def on_decoded_request(self, message: Q, request: RequestFrame, session: Session) -> OnRequest[C]:
        raise NotImplementedError

    def on_decoded_response(
        self,
        message: A,  # noqa: ARG002
        context: C,  # noqa: ARG002
        session: Session,  # noqa: ARG002
    ) -> A | Coroutine[Any, Any, A | None] | None:
        """The response that the client gets, in the same version; None to let the broker's pass unchanged.

        A coroutine of it when there is more to do than other connections should wait for.
        """
        return None

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[C]:
        if not self.is_relevant(request):
            return Forward()
        if len(request.body) <= SMALL_BYTES:
            message = decode(self.request_class, request.api_version, request.body)
            return self.on_decoded_request(message, request, session)
        return Hold(self._decode_request(request, session), DECODE_SECONDS)

    async def _decode_request(self, request: RequestFrame, session: Session) -> Outcome[C]:
        message = await run_off_loop(lambda: decode(self.request_class, request.api_version, request.body))
        outcome = self.on_decoded_request(message, request, session)
        if not isinstance(outcome, Hold):
            return outcome
        try:
            async with asyncio.timeout(outcome.deadline) as limit:
                return await outcome.outcome
        except TimeoutError:
            if not limit.expired():
                raise
            return outcome.late

    def on_response(self, response: ResponseFrame, context: C, session: Session) -> OnResponse:
        version = response.api_version
        if len(response.body) > SMALL_BYTES:
            return Hold(self._decode_response(response, context, session), DECODE_SECONDS)
        message = decode(self.request_class.response_class(), version, response.body)
        changed = self.on_decoded_response(message, context, session)
        if isinstance(changed, Coroutine):
            return Hold(_encode_off_loop(changed, version), DECODE_SECONDS)
        return Forward() if changed is None else Rewritten(encode(changed, version))

    async def _decode_response(self, response: ResponseFrame, context: C, session: Session) -> ResponseOutcome:
        version = response.api_version
        response_class = self.request_class.response_class()
        message = await run_off_loop(lambda: decode(response_class, version, response.body))
        changed = self.on_decoded_response(message, context, session)
        if isinstance(changed, Coroutine):
            return await _encode_off_loop(changed, version)
        if changed is None:
            return Forward()
        return Rewritten(await run_off_loop(lambda: encode(changed, version)))


async def _encode_off_loop(changing: Coroutine[Any, Any, Message | None], version: ApiVersion) -> ResponseOutcome:
    changed = await changing
    return Forward() if changed is None else Rewritten(await run_off_loop(lambda: encode(changed, version)))
