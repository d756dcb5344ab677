"""From the broker to the client: each response belongs to the oldest pending call, and passes, is walked, or opened.

Start reading at `on_bytes`. Large responses are cut through (`cut_through`): what has been walked goes on at once, and
only the tail, where broker addresses may stand, is held back. The records of a large response that no interceptor
watches are not received at all: the kernel moves them through a pipe (`on_pipe`). Responses for interceptors are
gathered whole. Everything reaches the client in the order of its requests (`client_output`).
"""

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import ClusterError, WireError
from headgate.proxy.chain import Opened, OwnRequest, OwnResponse, Purpose, ResponseChain, VersionedContexts, Watched
from headgate.proxy.client_output import ClientOutput, Slot
from headgate.proxy.cut_through import CutThrough, with_own_addresses
from headgate.proxy.gather_budget import FREE_BYTES, BudgetShare
from headgate.proxy.interceptor import CloseCause, FastPath, Hold, ResponseFrame
from headgate.proxy.pipes import SPLICE_FROM, Pipe
from headgate.proxy.routes import HANDSHAKE_KEYS, Route
from headgate.wire import frames
from headgate.wire.primitives import Buffer

if TYPE_CHECKING:
    from headgate.proxy.connection import Connection

_SIZE = Struct(">i")
_SMALL_ANSWER: Final = 64 * 1024  # a split response up to here is gathered: then a new address may have another length
_HELD_ANSWER: Final = 1024  # what holding a response costs beside its body
_NOTHING: Final = memoryview(b"")
# Looked up once, not with every response.
_START: Final = frames.RESPONSE_START.unpack_from
_START_BYTES: Final = frames.RESPONSE_START.size
_SMALLEST: Final = frames.SMALLEST_RESPONSE


class ResponseStream:
    """The broker's side of a connection; the owner of its link."""

    __slots__ = (
        "_connection",
        "_emit",
        "_gathered",
        "_large",
        "_needed",
        "_output",
        "_passing",
        "_purpose",
        "_reserved",
        "_route",
        "_share",
    )

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._route: Route | None = None  # of the response that is partly through
        self._purpose: Purpose = None
        self._passing = 0  # bytes still to come of a response that passes
        self._gathered: bytearray | None = None  # a response that is opened, as far as it is here, and room for more
        self._needed = 0
        self._large: CutThrough | None = None
        self._output = ClientOutput(connection)
        self._emit = self._output.emit
        self._share: BudgetShare | None = None  # of the budget for gathered responses
        self._reserved = 0  # bytes of it for the response that is gathered

    @property
    def is_quiet(self) -> bool:
        """No response is partly through, and none is held."""
        return self._is_between_answers() and self.is_released

    @property
    def is_released(self) -> bool:
        """No response is held."""
        return self._output.is_released

    @property
    def is_crowded(self) -> bool:
        """So much waits behind a held response that no more should come."""
        return self._output.is_crowded

    @property
    def unsent(self) -> int:
        """Bytes of the budget for responses that are decided, until the client has taken them."""
        return self._output.unsent

    @property
    def is_waiting(self) -> bool:
        """The next response waits for other gathered responses to be sent."""
        return self._share is not None and self._share.wanted > 0

    def _is_between_answers(self) -> bool:
        return not self._passing and self._gathered is None and self._large is None

    # The link's owner.

    def on_bytes(self, view: memoryview, size: int) -> int:
        connection = self._connection
        connection.was_active = True
        try:
            used = self._walk(view, size)
        except WireError as problem:
            connection.close(CloseCause.BAD_ANSWER, detail=str(problem))
            return size
        except Exception as failure:  # noqa: BLE001 - one connection must not take the process with it
            connection.close_on_bug(failure)
            return size
        if (self._passing or self._large is not None) and used == size:
            self._splice_unseen()
        if not connection.is_flowing or connection.client.backlog:
            connection.regulate()
        return used

    def on_pipe(self, pipe: Pipe) -> None:
        """Bytes that nothing has to look at are in a pipe."""
        connection = self._connection
        connection.was_active = True
        if self._large is not None:
            self._large.jump(pipe.size)
        else:
            self._passing -= pipe.size
        connection.client.write_pipe(pipe)
        if self._is_between_answers():
            self.on_bytes(_NOTHING, 0)  # a response of the gateway may wait behind this one
        elif not connection.is_flowing or connection.client.backlog:
            connection.regulate()

    def on_end(self) -> None:
        self._connection.close_when_flushed(CloseCause.UPSTREAM_CLOSED)

    def on_error(self, error: OSError) -> None:
        self._connection.close_when_flushed(CloseCause.UPSTREAM_RESET, detail=str(error))

    def on_unwritable(self, error: OSError) -> None:
        """Keep reading: what the broker sent before is still to be read, then `on_end` or `on_error` comes."""

    def on_drained(self) -> None:
        self._connection.drained()

    def _splice_unseen(self) -> None:
        """Have the kernel move what comes next, if it is much and no interceptor sees it."""
        unseen = self._passing if self._large is None else self._large.unseen
        if unseen < SPLICE_FROM or self._purpose is not None or not self._output.is_released:
            return
        connection = self._connection
        client, upstream, pipes = connection.client, connection.upstream, connection.gateway.pipes
        if client.is_plain and upstream.is_plain and pipes.limit:
            upstream.splice(unseen, pipes, self.on_pipe)

    # The walk.

    def _walk(self, view: memoryview, size: int) -> int:
        connection = self._connection
        pending = connection.pending
        pos = begin = 0
        if self._passing:
            pos = min(self._passing, size)
            self._passing -= pos
            self._show(view[:pos])
            if not self._passing:
                self._purpose = None
        elif self._large is not None:
            pos = begin = self._cut_through(self._large, view, 0, 0, self._large.walk(view, 0, size), size)
            if self._large is not None:
                return pos
        elif self._gathered is not None:
            self._gather(self._gathered)
        while True:
            if pending and type(pending[0][2]) is OwnResponse and self._is_between_answers():
                self._emit(view[begin:pos])
                begin = pos
                self._respond_local()
            if size - pos < _START_BYTES:
                break
            length, correlation_id = _START(view, pos)
            if not pending:
                raise WireError("the broker sent a response without a request")
            route, expected, purpose = pending[0]
            if correlation_id != expected or route is None:
                raise WireError(f"the broker answered correlation id {correlation_id} instead of {expected}")
            if length < _SMALLEST:
                raise WireError(f"a response of {length} bytes")
            if length > FREE_BYTES and purpose is not None and not self._reserve(route, purpose, 4 + length):
                break
            pending.pop(0)
            if not connection.is_proved and route.api_key not in HANDSHAKE_KEYS:
                connection.mark_proved()
            end = pos + 4 + length
            if purpose is not None and isinstance(purpose, FastPath):
                try:
                    context = purpose.on_response(view, pos, size, length)
                except Exception as failure:  # noqa: BLE001 - a feature that fails must not stop the stream
                    connection.chain_meter.failed(route.watchers[0], "fast path of a response", failure)
                    context = None
                purpose = None if context is None else Watched([(route.watchers[0], context)])
            self._route = route
            self._purpose = purpose
            if purpose is not None and type(purpose) is not Watched:
                self._emit(view[begin:pos])
                pos = begin = self._begin_gathering(view, pos, end, size)
            elif route.tail_program is None and purpose is None and end <= size:
                pos = end
            elif route.tail_program is None:
                self._show(view[pos : min(end, size)])
                self._passing = max(0, end - size)
                pos = min(end, size)
                if not self._passing:
                    self._purpose = None
            elif end <= size:
                changed = with_own_addresses(view[pos:end], route, connection.lookup)
                if changed is not None:
                    self._emit(view[begin:pos])
                    self._emit(changed)
                    begin = end
                if purpose is not None:
                    self._show(view[pos:end])
                    self._purpose = None
                pos = end
            elif length <= _SMALL_ANSWER:
                self._emit(view[begin:pos])
                pos = begin = self._begin_gathering(view, pos, end, size)
            else:
                large = self._large = CutThrough(route, length, connection.lookup)
                return self._cut_through(large, view, begin, pos, large.walk(view, pos + 4, size), size)
        if pos > begin:
            self._emit(view[begin:pos])
        return pos

    def _cut_through(self, large: CutThrough, view: memoryview, begin: int, pos: int, at: int, size: int) -> int:
        """Send what was walked of a large response, from `pos` to `at`, and what is in front of it, from `begin` on.

        The result is up to where bytes were used. A tail that is here whole and stays as it is goes with them.
        """
        if (end := large.plain_end(view, at, size)) is not None:
            at = end
            self._large = None
        if at > pos:
            self._show(view[pos:at])
            self._emit(view[begin:at])
        if end is None:
            at += large.take_tail(view, at, size)
            if (tails := large.whole_tail()) is not None:
                self._large = None
                self._show(memoryview(tails[0]))
                self._emit(tails[1])
        if self._large is None:
            self._purpose = None
        return at

    def _show(self, piece: memoryview) -> None:
        """Let the watchers of this response see a piece of it."""
        if type(self._purpose) is Watched or type(self._purpose) is Opened:
            for interceptor, context in self._purpose.watchers:
                try:
                    interceptor.on_chunk(piece.toreadonly(), context, self._connection)
                except Exception as failure:  # noqa: BLE001 - a feature that fails must not stop the stream
                    self._connection.chain_meter.failed(interceptor, "on_chunk", failure)

    # Gathered responses.

    def _reserve(self, route: Route, purpose: Purpose, size: int) -> bool:
        """Reserve the bytes of a response before it is gathered; False: it stays with the link until there are some."""
        connection = self._connection
        is_own = type(purpose) is OwnRequest
        if not is_own and type(purpose) is not Opened:
            return True  # it passes
        if size - 4 > min(connection.max_frame_bytes, route.max_response_bytes):
            return True  # it is refused
        if self._share is None:
            self._share = connection.budget_share(connection.gateway.budgets.responses, connection.responses_granted)
        if is_own:  # a held request or response may depend on it, and holds bytes meanwhile
            self._share.take(size)
        elif not self._share.reserve(size):
            connection.is_flowing = False
            return False
        self._reserved = size
        return True

    def settle(self) -> None:
        """The client has taken all that was decided."""
        assert self._share is not None
        unsent, self._output.unsent = self._output.unsent, 0
        self._share.give_back(unsent)

    def _begin_gathering(self, view: memoryview, pos: int, end: int, size: int) -> int:
        assert self._route is not None
        if end - pos - 4 > min(self._connection.max_frame_bytes, self._route.max_response_bytes):
            raise WireError(f"a response of {end - pos - 4} bytes to an opened request")
        if end > size:
            self._needed = end - pos
            self._gather_behind(view[pos:size])
            return size
        frame = view[pos:end]
        self._gathered_whole(frame if len(frame) <= _SMALL_ANSWER else memoryview(bytes(frame)))
        return end

    def _gather_behind(self, come: Buffer) -> None:
        """Have the next bytes received behind these; for no more than came yet, or a length alone would take memory."""
        size = len(come)
        self._gathered = bytearray(min(self._needed, max(2 * size, _SMALL_ANSWER)))
        self._gathered[:size] = come
        self._connection.upstream.fill(memoryview(self._gathered)[size:])

    def _gather(self, gathered: bytearray) -> None:
        """The room of `_gather_behind` is full."""
        if len(gathered) < self._needed:
            self._gather_behind(gathered)
        else:
            self._gathered = None
            self._gathered_whole(memoryview(gathered))

    def _gathered_whole(self, frame: memoryview) -> None:
        """All of a response is here; the bytes of a large one stay, and are not copied again unless it is changed."""
        route = self._route
        purpose = self._purpose
        assert route is not None
        if type(purpose) is Opened and purpose.is_known and self._respond_known(route, frame):
            self._purpose = None
            return
        if isinstance(purpose, OwnRequest):
            if not purpose.body.done():
                content = frame[4:]
                purpose.body.set_result(
                    bytes(content[frames.response_body(content, flexible=route.flexible_response) :])
                )
            reserved, self._reserved = self._reserved, 0
            self._output.count_unsent(reserved)
        else:
            self._show(frame)
            changed = None
            if route.tail_program is not None:
                changed = with_own_addresses(frame, route, self._connection.lookup)
            frame = frame if changed is None else memoryview(changed)
            if isinstance(purpose, Opened):
                content = frame[4:]
                body_at = frames.response_body(content, flexible=route.flexible_response)
                head = bytes(content[:body_at])
                body: Buffer = content[body_at:].toreadonly()
                if len(frame) <= _SMALL_ANSWER:
                    body = bytes(body)  # read quicker
                as_it_came: Buffer | None = frame
                if route.flexible_response != purpose.asked.flexible_response:
                    head = frames.response_header(head[:4], flexible=purpose.asked.flexible_response)
                    as_it_came = None
                response = ResponseFrame(api_key=route.api_key, api_version=route.api_version, body=body)
                self._open(response, head, purpose.contexts, as_it_came)
            else:
                self._emit(frame)
        self._purpose = None

    def _respond_known(self, route: Route, frame: memoryview) -> bool:
        """Send the response that replaces this one, if the interceptor recognizes it."""
        assert route.knows is not None
        body = route.knows.known_response(bytes(frame[_START_BYTES:]), route.api_version, self._connection)
        if body is None:
            return False
        reserved, self._reserved = self._reserved, 0
        self._output.emit_decided(frames.frame(frame[4:_START_BYTES], body), reserved)
        return True

    def respond(self, route: Route, correlation_id: int, response: ResponseFrame, contexts: VersionedContexts) -> None:
        """Send a response of an interceptor, behind those that the broker still owes."""
        pending = self._connection.pending
        idle = not pending and self._is_between_answers()
        head = frames.response_header(_SIZE.pack(correlation_id), flexible=route.flexible_response)
        pending.append((None, correlation_id, OwnResponse(head, response, contexts)))
        if idle:
            self._respond_local()

    def _respond_local(self) -> None:
        pending = self._connection.pending
        while pending and isinstance(local := pending[0][2], OwnResponse):
            pending.pop(0)
            self._open(local.response, local.head, local.contexts)

    def _open(
        self, response: ResponseFrame, head: bytes, contexts: VersionedContexts, as_it_came: Buffer | None = None
    ) -> None:
        """Ask the interceptors about a response; `head` is the header that the client gets.

        `as_it_came` is the whole frame, if the client may have it unless an interceptor changes the body.
        """
        reserved, self._reserved = self._reserved, 0
        chain = ResponseChain(contexts, response, self._connection.chain_meter)
        hold = chain.run(self._connection)
        if hold is None:
            if as_it_came is None or chain.response is not response:
                as_it_came = frames.frame(head, chain.response.body)
            self._output.emit_decided(as_it_came, reserved)
            return
        slot = Slot(_HELD_ANSWER + len(response.body), reserved=reserved)
        self._output.hold(slot)
        self._connection.spawn(self._decide(chain, hold, slot, head), hold.outcome)

    async def _decide(self, chain: ResponseChain, hold: Hold[Any] | None, slot: Slot, head: bytes) -> None:
        while hold is not None:
            await chain.wait(hold)
            hold = chain.run(self._connection)
        slot.frame = frames.frame(head, chain.response.body)
        self._output.release()

    def abandon(self, reason: ClusterError) -> None:
        """Fail a request of the gateway whose response was received only in part."""
        if isinstance(self._purpose, OwnRequest) and not self._purpose.body.done():
            self._purpose.body.set_exception(reason)
        if self._share is not None:
            self._share.close()
