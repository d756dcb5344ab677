"""From the client to the broker: requests are counted, passed, or gathered for the interceptors.

Start reading at `on_bytes`: it walks the headers in the received bytes and sends on, in one send, all requests that no
interceptor opens. A request that a fast path recognizes is not looked at further. One that an interceptor opens is
gathered and goes to `chain`; while it is held or answered, the requests behind it wait, as in a broker, which handles
one request of a connection at a time.
"""

from typing import TYPE_CHECKING, Final

from headgate.base.errors import ClusterError, WireError
from headgate.base.ids import ApiKey, ApiVersion, CorrelationId
from headgate.proxy.chain import (
    LARGEST_UNPROVED,
    MOST_BEFORE_OPENED,
    MOST_PENDING,
    Contexts,
    OpenedRequests,
    Purpose,
    Watched,
    watch,
)
from headgate.proxy.gather_budget import FREE_BYTES, BudgetShare
from headgate.proxy.interceptor import UNWATCHED, CloseCause, RequestFrame
from headgate.proxy.own_requests import OwnRequests
from headgate.proxy.routes import HANDSHAKE_KEYS, Route
from headgate.wire import frames
from headgate.wire.primitives import Buffer

if TYPE_CHECKING:
    from headgate.proxy.connection import Connection

# Plain integers: they are compared with the key of every request.
_PRODUCE: Final = int(ApiKey.PRODUCE)
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_NO_KEY: Final = -1
# Looked up once, not with every request.
_START: Final = frames.REQUEST_START.unpack_from
_START_BYTES: Final = frames.REQUEST_START.size
_SMALLEST: Final = frames.SMALLEST_REQUEST
_CALLS_WAIT: Final = HANDSHAKE_KEYS | {_NO_KEY}  # behind these the client is not through with authentication
_LONGEST_FILTERED: Final = 1024  # a prefilter decides by so many bytes of a body
_LARGEST_UNPROVED_HANDSHAKE: Final = 4096  # it cannot wait for the proof; Kafka's own have a hundred bytes


class RequestStream:
    """The client's side of a connection; the owner of its link."""

    __slots__ = (
        "_connection",
        "_gathered",
        "_keep",
        "_needed",
        "_own_waiting",
        "_passing",
        "_passing_is_first",
        "_passing_is_pending",
        "_route",
        "_share",
        "last_key",
        "most_pending",
        "opened",
        "own",
        "reserved",
    )

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._passing = 0  # bytes still to come of a request that passes
        self._passing_is_pending = False
        self._passing_is_first = False
        self._gathered: bytearray | None = None  # a request that is opened, as far as it is here
        self._needed = 0  # bytes of it that are still to come
        self._keep = 0  # how much of it is kept
        self._route: Route | None = None  # of the request that is gathered: the versions may change while it comes
        self.own = OwnRequests(connection)
        self._own_waiting = self.own.waiting
        self.last_key = _NO_KEY
        self.opened = OpenedRequests(connection)
        self._share: BudgetShare | None = None  # of the budget for gathered requests
        self.reserved = 0  # bytes of it that it holds
        self.most_pending = MOST_PENDING  # the next request waits while this many are pending

    @property
    def between_requests(self) -> bool:
        """True when no request is partly sent, so that a request of the gateway may be sent."""
        return not self._passing and self._gathered is None and not self.opened.blocked

    @property
    def blocked(self) -> bool:
        """A request is held, or an interceptor answers it: the requests behind it wait."""
        return self.opened.blocked

    @property
    def is_waiting(self) -> bool:
        """The next request waits for other gathered requests to be sent."""
        return self._share is not None and self._share.wanted > 0

    @property
    def has_request(self) -> bool:
        """True when a request has been received whole."""
        return self.last_key != _NO_KEY and not (self._passing and self._passing_is_first)

    @property
    def is_passing(self) -> bool:
        """True when a request is partly sent to the broker."""
        return self._passing > 0

    @property
    def unfinished_calls(self) -> int:
        """How many pending requests have not been received whole, so that no response can be under way."""
        return int(self._passing > 0 and self._passing_is_pending)

    # The link's owner.

    def on_bytes(self, view: memoryview, size: int) -> int:
        connection = self._connection
        connection.was_active = True
        try:
            used = self._walk(view, size)
        except WireError as problem:
            connection.close(CloseCause.BAD_REQUEST, detail=str(problem))
            return size
        except Exception as failure:  # noqa: BLE001 - one connection must not take the process with it
            connection.close_on_bug(failure)
            return size
        if self._own_waiting:
            self.own.flush()
        if not connection.is_flowing or connection.upstream.backlog:
            connection.regulate()
        return used

    def on_end(self) -> None:
        self._connection.close(CloseCause.CLIENT_CLOSED)

    def on_error(self, error: OSError) -> None:  # noqa: ARG002
        self._connection.close(CloseCause.CLIENT_RESET)  # not logged: clients end as they like

    on_unwritable = on_error

    def on_drained(self) -> None:
        self._connection.drained()

    # The walk.

    def _walk(self, view: memoryview, size: int) -> int:
        connection = self._connection
        table = connection.table
        pending = connection.pending
        opened = self.opened
        is_proved = connection.is_proved
        fast_paths = connection.fast_paths if is_proved else None
        pos = begin = 0
        if self._passing:
            if self._passing >= size:
                self._passing -= size
                connection.upstream.write(view[:size])
                return size
            pos = self._passing
            self._passing = 0
        elif self._gathered is not None:
            pos = begin = self._gather(view, size)
            if connection.closed is not None:
                return size
        while size - pos >= _START_BYTES and not opened.blocked and not connection.draining:
            length, key, version, correlation_id, client_id_size = _START(view, pos)
            if length < _SMALLEST:
                raise WireError(f"a request of {length} bytes")
            route = table.get(key << 16 | version)
            if route is None:
                if key != _API_VERSIONS:
                    connection.close(CloseCause.UNSUPPORTED_CALL, detail=f"api key {key} version {version}")
                    return size
                route = connection.routes.api_versions()
            end = pos + 4 + length
            most = connection.max_frame_bytes
            if fast_paths and length <= most and len(pending) < MOST_PENDING:
                fast_path = fast_paths.get(route)
                if fast_path is not None:
                    try:
                        recognized = fast_path.on_request(view, pos, size, length)
                    except Exception as failure:  # noqa: BLE001 - a feature that fails must not stop the stream
                        connection.chain_meter.failed(route.watchers[0], "fast path of a request", failure)
                        recognized = None
                    if recognized is not None:
                        pending.append((route, correlation_id, None if recognized is UNWATCHED else recognized))
                        route.calls += 1
                        pos = end
                        if end > size:
                            self._begin_passing(end - size, is_pending=True)
                            pos = size
                        self.last_key = key
                        continue
            is_opened = False
            if route.interceptors:
                is_opened = True
                if route.prefilter is not None:
                    if key == _PRODUCE and end > size and length <= most:
                        flexible = route.flexible_request
                        if frames.produce_acks(view, pos, size, flexible=flexible) is None:
                            break  # its transactional id has not been received whole, and it may be too large to gather
                    body_at = frames.plain_body(view, pos, size, client_id_size, flexible=route.flexible_request)
                    is_opened = not body_at or route.prefilter(view, body_at, min(end, size))
                if is_opened and connection.max_gathered_bytes < length <= route.max_bytes and route.passes_unproved:
                    is_opened = connection.is_proved
                elif is_opened and length > route.max_bytes and route.passes_large:
                    is_opened = self._is_filtered(route, view, pos, min(end, size))
                    decided = pos + _START_BYTES + max(0, client_id_size) + _LONGEST_FILTERED
                    if is_opened and size < min(end, decided):
                        break  # the name that decides has not been received whole
                if is_opened:  # it is gathered; one that passes costs no memory
                    most = min(connection.max_gathered_bytes, route.max_bytes)
                    if not is_proved and key in HANDSHAKE_KEYS:
                        most = min(most, _LARGEST_UNPROVED_HANDSHAKE)
            is_truncated = length > most
            can_wait = is_truncated and is_opened and route.awaits_proof and not is_proved
            if can_wait and length <= min(route.max_bytes, connection.max_frame_bytes):
                opened.await_proof(route, view[begin:pos])
                return pos
            if is_truncated and (route.truncated_bytes is None or length > connection.max_frame_bytes):
                connection.close(CloseCause.FRAME_TOO_LARGE, detail=f"{route.name} of {length} bytes")
                return size
            if is_opened:
                if len(pending) >= MOST_BEFORE_OPENED:
                    self._wait_for_answers(MOST_BEFORE_OPENED)
                    break
                keep = 4 + (route.truncated_bytes if is_truncated and route.truncated_bytes else length)
                if keep > FREE_BYTES and not self._reserve(keep):
                    break
                if pos > begin:
                    connection.upstream.write(view[begin:pos])
                if not is_proved and key not in HANDSHAKE_KEYS and (end > size or length > LARGEST_UNPROVED):
                    connection.request_proof(by_probe=True)
                if end > size or is_truncated:
                    self._gathered = bytearray()
                    self._needed = 4 + length
                    self._keep = keep
                    self._route = route
                    pos = begin = pos + self._gather(view[pos:size], size - pos)
                    if self._gathered is not None:
                        return size
                else:
                    pos = begin = end
                    opened.open(route, bytes(view[end - length - 4 : end]))
                if connection.closed is not None:
                    return size
                table = connection.table  # an ApiVersions response may have changed it
                continue
            if len(pending) >= MOST_PENDING:
                self._wait_for_answers(MOST_PENDING)
                break
            is_answered = True
            if key == _PRODUCE:
                acks = frames.produce_acks(view, pos, min(end, size), flexible=route.flexible_request)
                if acks is None:
                    if end <= size:
                        raise WireError("a Produce request that ends before its acks")
                    break
                is_answered = acks != 0
            if not is_proved and not connection.is_proof_requested and key not in HANDSHAKE_KEYS:
                if pos > begin:
                    connection.upstream.write(view[begin:pos])
                    begin = pos
                connection.request_proof(by_probe=end > size or not is_answered)
            purpose: Purpose = None
            if route.watchers:
                if pos + _START_BYTES + client_id_size > size < end:
                    break  # the client id has not been received whole
                watchers = self._watch(route, view[pos : min(end, size)], is_answered=is_answered)
                purpose = Watched(watchers) if watchers else None
            if is_answered:
                pending.append((route, correlation_id, purpose))
            route.calls += 1
            pos = end
            if end > size:
                self._begin_passing(end - size, is_pending=is_answered)
                pos = size
            self.last_key = key
        if pos > begin:
            connection.upstream.write(view[begin:pos])
        return pos

    def _is_filtered(self, route: Route, view: memoryview, pos: int, received: int) -> bool:
        """Whether a request that is too large to be opened must not pass either, by what has been received of it."""
        if route.prefilter_of_large is None:
            return False
        client_id_size = _START(view, pos)[-1]
        body_at = frames.plain_body(view, pos, received, client_id_size, flexible=route.flexible_request)
        return not body_at or route.prefilter_of_large(view, body_at, received)

    def _begin_passing(self, left: int, *, is_pending: bool) -> None:
        """The request passes, and so many bytes of it have not been received."""
        self._passing = left
        self._passing_is_pending = is_pending
        self._passing_is_first = self.last_key == _NO_KEY

    def _wait_for_answers(self, most: int) -> None:
        """Leave the next request with the link until fewer calls are pending."""
        self.most_pending = most
        self._connection.client.hold_input()
        self._connection.is_flowing = False

    def _reserve(self, size: int) -> bool:
        """Reserve the bytes of a request before it is gathered; False: it stays with the link until there are some."""
        connection = self._connection
        budget = connection.gateway.budgets.requests(is_proved=connection.is_proved)
        if self._share is None or (self._share.budget is not budget and self._share.is_free):
            self._share = connection.budget_share(budget, connection.request_decided)
        connection.is_flowing = False
        if not self._share.reserve(size):
            connection.client.hold_input()
            return False
        self.reserved += size
        return True

    def settle(self) -> None:
        """Give back what is reserved when the requests have been sent on or answered."""
        if self._gathered is None and not self.opened.blocked and not self._connection.upstream.backlog:
            assert self._share is not None
            reserved, self.reserved = self.reserved, 0
            self._share.give_back(reserved)

    def _gather(self, view: memoryview, size: int) -> int:
        """Add to the request that is being gathered; the result is where the next one begins."""
        gathered = self._gathered
        assert gathered is not None
        taken = min(self._needed, size)
        begins = len(gathered) < frames.LONGEST_TAGS_PREFIX
        gathered += view[: min(taken, self._keep - len(gathered))]
        self._needed -= taken
        assert self._route is not None
        if not self._needed:
            self._gathered = None
            self.opened.open(self._route, gathered)  # not copied: a copy of many MiB would keep the event loop
        elif begins and self._route.flexible_request:
            frames.check_tags_begin(gathered)
        return taken

    def _watch(self, route: Route, frame: Buffer, *, is_answered: bool) -> Contexts:
        """The interceptors that watch the response; `frame` is the part of the request that has been received."""
        length, _, version, correlation_id, client_id_size = frames.REQUEST_START.unpack_from(frame, 0)
        client_id_at = frames.REQUEST_START.size
        body_at = frames.plain_body(frame, 0, len(frame), client_id_size, flexible=route.flexible_request)
        client_id = None
        if client_id_size >= 0:
            client_id = bytes(frame[client_id_at : client_id_at + client_id_size]).decode(errors="backslashreplace")
        request = RequestFrame(
            api_key=route.api_key,
            api_version=ApiVersion(version),
            correlation_id=CorrelationId(correlation_id),
            client_id=client_id,
            body=memoryview(frame)[body_at:] if body_at else b"",
            size=length,
            is_answered=is_answered,
        )
        return watch(route.watchers, request, self._connection, self._connection.chain_meter)

    # Requests of the gateway itself.

    @property
    def admits_own(self) -> bool:
        """Whether a request of the gateway may be sent: none of the client is partly sent, or authenticates it."""
        return not self._passing and self.last_key not in _CALLS_WAIT

    def abandon(self, reason: ClusterError) -> None:
        """The upstream connection has ended."""
        self.own.abandon(reason)
        if self._share is not None:
            self._share.close()
