"""Calls the interceptors of a request in their order, and of its response in the opposite order.

A chain runs until an interceptor returns `Hold` and continues with the outcome. A request that no interceptor holds,
as nearly all, is handled in the wake-up in which it was received. The end of the module is what is pending.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, assert_never

import structlog

from headgate.base.errors import HeadgateError
from headgate.proxy.interceptor import (
    Answer,
    FastPath,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    Outcome,
    RequestFrame,
    ResponseFrame,
    Rewritten,
    Session,
)
from headgate.proxy.routes import Route

log = structlog.get_logger()

ANSWER_SECONDS: Final = 60.0  # what an interceptor may take to answer a call itself
Contexts = list[tuple[Interceptor[Any], Any]]
T = TypeVar("T")


class ChainMeter:
    """How often interceptors failed; one WARN for each interceptor and kind of error, then only the count."""

    def __init__(self) -> None:
        self.failures = 0
        self._warned: set[tuple[str, str]] = set()

    def failed(self, interceptor: Interceptor[Any], call: str, failure: BaseException) -> None:
        self.failures += 1
        kind = (type(interceptor).__name__, type(failure).__name__)
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("interceptor failed, call passed", interceptor=kind[0], call=call, error=repr(failure))


class _NotInTimeError(HeadgateError):
    """The deadline that an interceptor named has passed."""


async def _outcome(work: Awaitable[T], deadline: float) -> T:
    """The outcome of a hold; a cancellation that does not come from the connection is an error like any other."""
    try:
        async with asyncio.timeout(deadline) as limit:
            return await work
    except TimeoutError as failure:
        if limit.expired():
            raise _NotInTimeError(f"not decided within {deadline:g} s") from failure
        raise
    except asyncio.CancelledError as failure:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("the awaited work was cancelled") from failure


def discard(work: object) -> None:
    """Cancel the awaitable of a hold or answer that will not be awaited any more."""
    if asyncio.iscoroutine(work):
        work.close()
    elif isinstance(work, asyncio.Future):
        work.cancel()


def watch(
    interceptors: tuple[Interceptor[Any], ...], request: RequestFrame, session: Session, meter: ChainMeter
) -> Contexts:
    """The interceptors that watch the response; the request passes in any case."""
    contexts: Contexts = []
    for interceptor in interceptors:
        try:
            outcome = interceptor.on_request(request, session)
            if not isinstance(outcome, Forward):
                raise TypeError(f"{type(outcome).__name__} for a request of stream_keys, which can only pass")  # noqa: TRY301
        except Exception as failure:  # noqa: BLE001 - see RequestChain.run
            meter.failed(interceptor, "on_request", failure)
        else:
            if outcome.context is not None:
                contexts.append((interceptor, outcome.context))
    return contexts


class RequestChain:
    """One request and its interceptors: the rewritten request, the response, and the contexts for the response."""

    __slots__ = ("_asked", "_interceptors", "_meter", "answer", "contexts", "request")

    def __init__(self, interceptors: tuple[Interceptor[Any], ...], request: RequestFrame, meter: ChainMeter) -> None:
        self._interceptors = interceptors
        self._asked = 0
        self._meter = meter
        self.request = request
        self.contexts: Contexts = []
        self.answer: Answer | None = None

    def run(self, session: Session) -> Hold[Any] | None:
        """Ask the interceptors that are left; a `Hold` when one of them wants to wait."""
        while self._asked < len(self._interceptors) and self.answer is None:
            interceptor = self._interceptors[self._asked]
            self._asked += 1
            try:
                outcome: OnRequest[Any] = interceptor.on_request(self.request, session)
                if isinstance(outcome, Hold):
                    return outcome
                self._apply(interceptor, outcome)
            except Exception as failure:
                if interceptor.fail_closed:
                    raise
                self._meter.failed(interceptor, "on_request", failure)
        return None

    async def wait(self, hold: Hold[Any]) -> None:
        """Await the outcome of the interceptor that was asked last; after the deadline it is `hold.late`."""
        interceptor = self._interceptors[self._asked - 1]
        try:
            self._apply(interceptor, await _outcome(hold.outcome, hold.deadline))
        except _NotInTimeError:
            if interceptor.fail_closed:
                raise
            self._apply(interceptor, hold.late)
        except Exception as failure:
            if interceptor.fail_closed:
                raise
            self._meter.failed(interceptor, "hold of a request", failure)

    async def answer_body(self, answer: Answer) -> bytes | None:
        """The body of the response; None when the interceptor fails: then the request passes."""
        if isinstance(answer.body, bytes):
            return answer.body
        interceptor = self._interceptors[self._asked - 1]
        try:
            return await _outcome(answer.body, ANSWER_SECONDS)
        except Exception as failure:
            if interceptor.fail_closed:
                raise
            self._meter.failed(interceptor, "answer", failure)
            return None

    def _apply(self, interceptor: Interceptor[Any], outcome: Outcome[Any]) -> None:
        match outcome:
            case Forward(context):
                pass
            case Rewritten(body, context, api_version):
                was = self.request
                self.request = RequestFrame(  # not by `replace`, which costs as much as all the rest
                    api_key=was.api_key,
                    api_version=was.api_version if api_version is None else api_version,
                    correlation_id=was.correlation_id,
                    client_id=was.client_id,
                    body=body,
                    size=was.size,
                    is_truncated=was.is_truncated,
                    is_opened=True,
                )
            case Answer():
                self.answer = outcome
                return
            case _:
                assert_never(outcome)
        if context is not None:
            self.contexts.append((interceptor, context))


class ResponseChain:
    """One response and the interceptors that returned a context, the last of them first."""

    __slots__ = ("_asked", "_left", "_meter", "response")

    def __init__(self, contexts: Contexts, response: ResponseFrame, meter: ChainMeter) -> None:
        self._left = list(contexts)
        self._asked: Interceptor[Any] = Interceptor()
        self._meter = meter
        self.response = response

    def run(self, session: Session) -> Hold[Any] | None:
        while self._left:
            interceptor, context = self._left.pop()
            try:
                outcome: OnResponse = interceptor.on_response(self.response, context, session)
                if isinstance(outcome, Hold):
                    self._asked = interceptor
                    return outcome
                self._apply(outcome)
            except Exception as failure:
                if interceptor.fail_closed:
                    raise
                self._meter.failed(interceptor, "on_response", failure)
        return None

    async def wait(self, hold: Hold[Any]) -> None:
        """Await the outcome of the interceptor that was asked last; a deadline that passes is `Forward`."""
        try:
            self._apply(await _outcome(hold.outcome, hold.deadline))
        except Exception as failure:
            if self._asked.fail_closed:
                raise
            if not isinstance(failure, _NotInTimeError):
                self._meter.failed(self._asked, "hold of a response", failure)

    def _apply(self, outcome: Outcome[Any]) -> None:
        match outcome:
            case Forward():
                pass
            case Rewritten(body, _, api_version):
                was = self.response
                version = was.api_version if api_version is None else api_version
                self.response = ResponseFrame(api_key=was.api_key, api_version=version, body=body)
            case _:
                raise TypeError(f"{type(outcome).__name__} cannot be the outcome of a response")


# Pending requests: each that went upstream leaves one entry, (route, correlation id, purpose), in the order of
# responses. A request that no interceptor sees has no purpose (None).


@dataclass(slots=True)
class Opened:
    """The response is gathered and shown to the interceptors; `asked` is the route that the client used.

    `watchers` see its bytes as the broker sent them. `is_known`: the request was recognized, and the response may be.
    """

    asked: Route
    contexts: Contexts
    watchers: Contexts
    is_known: bool = False


@dataclass(slots=True)
class Watched:
    """The response passes, and these interceptors see its bytes."""

    watchers: Contexts


@dataclass(slots=True)
class OwnRequest:
    """The response to a request of the gateway; the client does not see it."""

    body: asyncio.Future[bytes]


@dataclass(slots=True)
class OwnResponse:
    """A response of an interceptor that waits for those in front of it."""

    route: Route
    head: bytes
    body: bytes
    contexts: Contexts


# A client with this many pending requests is not read: a request of 14 bytes costs the gateway far more than that.
MOST_PENDING: Final = 1024
# With this many pending, an opened request waits: all responses may arrive at once, and each is work for the loop.
MOST_BEFORE_OPENED: Final = 16

Purpose = Opened | Watched | FastPath | OwnRequest | OwnResponse | None
Entry = tuple[Route | None, int, Purpose]
