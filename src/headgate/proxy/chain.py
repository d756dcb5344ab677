"""Requests that interceptors open: shown to them in their order, then forwarded, held, or answered by the gateway.

Start reading at `OpenedRequests.open`. A chain asks one interceptor after the other until one of them returns `Hold`,
and continues with the outcome; of a response it asks them in the opposite order. A request that no interceptor holds,
as nearly all, is handled in the wake-up in which it was received. While one is held or answered, the requests behind it
wait (`blocked`). A large request on an unproved connection waits for the proof first.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, assert_never

import structlog

from headgate.base.errors import HeadgateError, WireError
from headgate.base.ids import ApiKey, ApiVersion, CorrelationId
from headgate.proxy.interceptor import (
    Answer,
    CloseCause,
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
from headgate.proxy.routes import HANDSHAKE_KEYS, Route
from headgate.wire import frames

if TYPE_CHECKING:
    from headgate.proxy.connection import Connection

log = structlog.get_logger()

ANSWER_SECONDS: Final = 60.0  # what an interceptor may take to answer a call itself
# Before proof, nothing larger is opened: decoding is work for the event loop that anyone could cause.
LARGEST_UNPROVED: Final = 1024
Contexts = list[tuple[Interceptor[Any], Any]]
# With the version in which the interceptor was shown the request: its response has that version too.
VersionedContexts = list[tuple[Interceptor[Any], Any, ApiVersion]]
T = TypeVar("T")


class ChainMeter:
    """How often interceptors failed; one WARN for each interceptor and kind of error, then only the count."""

    def __init__(self) -> None:
        self.failures = 0
        self._warned: set[tuple[str, str]] = set()

    def failed(self, interceptor: Interceptor[Any], step: str, failure: BaseException) -> None:
        self.failures += 1
        kind = (type(interceptor).__name__, type(failure).__name__)
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning(
                "interceptor failed, forwarding without it", interceptor=kind[0], step=step, error=repr(failure)
            )


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
        self.contexts: VersionedContexts = []
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
        was = self.request
        match outcome:
            case Forward(context):
                pass
            case Rewritten(body, context, api_version):
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
            self.contexts.append((interceptor, context, was.api_version))


class ResponseChain:
    """One response and the interceptors that returned a context, the last of them first.

    An interceptor that sent the request on in another version rewrites the response to the version of the request that
    it was shown, which is the one that the interceptor before it expects.
    """

    __slots__ = ("_asked", "_left", "_meter", "_version", "response")

    def __init__(self, contexts: VersionedContexts, response: ResponseFrame, meter: ChainMeter) -> None:
        self._left = list(contexts)
        self._asked: Interceptor[Any] = Interceptor()
        self._meter = meter
        self._version = response.api_version
        self.response = response

    def run(self, session: Session) -> Hold[Any] | None:
        while self._left:
            interceptor, context, self._version = self._left.pop()
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
                version = self._version if api_version is None else api_version
                self.response = ResponseFrame(api_key=self.response.api_key, api_version=version, body=body)
            case _:
                raise TypeError(f"{type(outcome).__name__} cannot be the outcome of a response")


# --- pending requests -------------------------------------------------------------------------------------------------

# Each that went upstream leaves one entry, (route, correlation id, purpose), in the order of responses. A request that
# no interceptor sees has no purpose (None).


@dataclass(slots=True)
class Opened:
    """The response is gathered and shown to the interceptors; `asked` is the route that the client used.

    `watchers` see its bytes as the broker sent them. `is_known`: the request was recognized, and the response may be.
    """

    asked: Route
    contexts: VersionedContexts
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

    head: bytes
    response: ResponseFrame
    contexts: VersionedContexts


# A client with this many pending requests is not read: a request of 14 bytes costs the gateway far more than that.
MOST_PENDING: Final = 1024
# With this many pending, an opened request waits: all responses may arrive at once, and each is work for the loop.
MOST_BEFORE_OPENED: Final = 16

Purpose = Opened | Watched | FastPath | OwnRequest | OwnResponse | None
Entry = tuple[Route | None, int, Purpose]


# --- opened requests --------------------------------------------------------------------------------------------------


class OpenedRequests:
    """The opened requests of one connection, one at a time."""

    __slots__ = ("_awaiting_proof", "_connection", "blocked")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        # An opened request, or nothing of a large one.
        self._awaiting_proof: tuple[Route, bytes | bytearray] | None = None
        self.blocked = False  # a request is held, or an interceptor answers it

    def open(self, route: Route, frame: bytes | bytearray) -> None:
        """Show a whole request to its interceptors, and forward it unless one of them holds or answers it.

        The frame must not change afterwards.
        """
        connection = self._connection
        if len(frame) - 4 > LARGEST_UNPROVED and not connection.is_proved and route.api_key not in HANDSHAKE_KEYS:
            self._awaiting_proof = (route, frame)
            self._block()
            return
        if route.knows is not None and (known := route.knows.known_request(frame, connection)) is not None:
            self._forward_known(route, known, frame)
            return
        header, body_at = frames.request_header(frame, flexible=route.flexible_request)
        length = int.from_bytes(frame[:4], "big")
        request = RequestFrame(
            api_key=route.api_key,
            api_version=ApiVersion(header.api_version),
            correlation_id=CorrelationId(header.correlation_id),
            client_id=None if header.client_id is None else header.client_id.decode(errors="backslashreplace"),
            body=memoryview(frame).toreadonly()[body_at:],
            size=length,
            is_truncated=len(frame) < 4 + length,
            is_opened=True,
        )
        route.calls += 1
        route.opened_calls += 1
        connection.requests.last_key = header.api_key
        chain = RequestChain(route.interceptors, request, connection.chain_meter)
        watchers: Contexts = []
        if route.watchers:
            watchers = watch(route.watchers, request, connection, connection.chain_meter)
        opened = _OpenedRequest(route, request, header, frame, watchers)
        hold = chain.run(connection)
        if hold is None and chain.answer is None:
            self._forward(chain, opened)
            return
        self._block()
        awaited = hold.outcome if hold is not None else chain.answer and chain.answer.body
        connection.spawn(self._decide(chain, hold, opened), awaited)

    def _forward_known(self, route: Route, known: RequestFrame, frame: bytes | bytearray) -> None:
        """Send on a request that its interceptor recognizes: what `open` and `_forward` do, without asking it."""
        connection = self._connection
        route.calls += 1
        route.opened_calls += 1
        connection.requests.last_key = route.api_key
        watchers: Contexts = []
        if route.watchers:
            watchers = watch(route.watchers, known, connection, connection.chain_meter)
        assert route.knows is not None
        purpose = Opened(route, [(route.knows, known.api_version, known.api_version)], watchers, is_known=not watchers)
        (correlation_id,) = frames.CORRELATION_ID.unpack_from(frame, frames.CORRELATION_ID_AT)
        connection.pending.append((route, correlation_id, purpose))
        connection.upstream.write(frame)

    def await_proof(self, route: Route, before: memoryview) -> None:
        """Send what was received before the next request; that one stays with the link until the proof."""
        if before:
            self._connection.upstream.write(before)
        self._connection.request_proof(by_probe=True)
        self._awaiting_proof = (route, b"")
        self._block()

    def _block(self) -> None:
        """Let the requests behind this one wait."""
        self.blocked = True
        self._connection.is_flowing = False
        self._connection.client.hold_input()

    @property
    def is_awaiting_proof(self) -> bool:
        return self._awaiting_proof is not None

    def open_proved(self) -> None:
        """Open the request that waited for the proof, and go on with those behind it."""
        awaiting, self._awaiting_proof = self._awaiting_proof, None
        if awaiting is not None and self._connection.closed is None:
            self.blocked = False
            route, frame = awaiting
            try:
                if frame:
                    self.open(route, frame)
            except WireError as problem:
                self._connection.close(CloseCause.BAD_REQUEST, detail=str(problem))
            except Exception as failure:  # noqa: BLE001 - one connection must not take the process with it
                self._connection.close_on_bug(failure)
            self._connection.request_decided()

    async def _decide(self, chain: RequestChain, hold: Hold[Any] | None, opened: "_OpenedRequest") -> None:
        """Finish a held or answered request, then continue with the requests behind it."""
        connection = self._connection
        while hold is not None:
            await chain.wait(hold)
            hold = chain.run(connection)
        body: bytes | None = None
        if chain.answer is not None:
            try:
                body = await chain.answer_body(chain.answer)
            except WireError as problem:  # an interceptor that fails closed could not read the request
                connection.close(CloseCause.BAD_REQUEST, detail=str(problem))
                return
        if connection.closed is not None:
            return  # an interceptor may have swallowed that it was cancelled
        if body is None:
            self._forward(chain, opened)
        elif is_answered(opened.route, opened.frame):
            asked = chain.request
            response = ResponseFrame(api_key=asked.api_key, api_version=asked.api_version, body=body)
            connection.responses.respond(opened.route, opened.header.correlation_id, response, chain.contexts)
        self.blocked = False
        connection.request_decided()

    def _forward(self, chain: RequestChain, opened: "_OpenedRequest") -> None:
        """Send an opened request to the broker: unchanged, or rebuilt from what the interceptors returned."""
        connection = self._connection
        request, header = chain.request, opened.header
        route, frame = opened.route, opened.frame
        if request.is_truncated:
            connection.close(CloseCause.FRAME_TOO_LARGE, detail=f"{route.name}, which no interceptor answers")
            return
        if not connection.carries(request.api_key, request.api_version):
            text = f"{route.name} version {request.api_version}, which only an interceptor has"
            connection.close(CloseCause.UNSUPPORTED_CALL, detail=text)
            return
        if request is not opened.request:
            route = connection.routes.route(request.api_key, request.api_version)
            tags = b"" if not route.flexible_request else header.tags or b"\x00"
            start = frames.RequestHeader(
                api_key=request.api_key,
                api_version=request.api_version,
                correlation_id=header.correlation_id,
                client_id=header.client_id,
                tags=tags,
            )
            frame = frames.frame(start.encode(), request.body)
        has_response = is_answered(route, frame)
        if not connection.is_proof_requested and request.api_key not in HANDSHAKE_KEYS:
            connection.request_proof(by_probe=not has_response)
        if has_response:
            purpose: Purpose = None
            if chain.contexts:
                purpose = Opened(opened.route, chain.contexts, opened.watchers)
            elif opened.watchers:
                purpose = Watched(opened.watchers)
            connection.pending.append((route, header.correlation_id, purpose))
        connection.upstream.write(frame)


@dataclass(frozen=True, slots=True)
class _OpenedRequest:
    """A request as it came from the client."""

    route: Route
    request: RequestFrame
    header: frames.RequestHeader
    frame: bytes | bytearray
    watchers: Contexts


def is_answered(route: Route, frame: bytes | bytearray) -> bool:
    """False for Produce with acks=0, the one request that has no response."""
    if route.api_key != ApiKey.PRODUCE:
        return True
    acks = frames.produce_acks(frame, 0, len(frame), flexible=route.flexible_request)
    if acks is None:
        raise WireError("a Produce request that ends before its acks")
    return acks != 0
