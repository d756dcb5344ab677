"""Requests that interceptors open: forwarded at once, held, or answered by the gateway.

Start reading at `open`: it shows a whole request to its interceptors. While one of them holds or answers it, the
requests behind it wait (`blocked`). A large request on an unproved connection waits for the proof first.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import WireError
from headgate.base.ids import ApiKey, ApiVersion, CorrelationId
from headgate.proxy.chain import Contexts, Opened, Purpose, RequestChain, Watched, watch
from headgate.proxy.interceptor import CloseCause, Hold, RequestFrame
from headgate.proxy.routes import HANDSHAKE_KEYS, Route
from headgate.wire import frames

if TYPE_CHECKING:
    from headgate.proxy.connection import Connection

# Before proof, nothing larger is opened: decoding is work for the event loop that anyone could cause.
LARGEST_UNPROVED: Final = 1024


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
        purpose = Opened(route, [(route.knows, known.api_version)], watchers, is_known=not watchers)
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
            connection.responses.respond(opened.route, opened.header.correlation_id, body, chain.contexts)
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
