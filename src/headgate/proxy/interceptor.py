"""The one extension point of the proxy: what a feature may see of requests and responses, and what it may do.

An interceptor names the api keys that it opens (`api_keys`). The gateway gathers each such request whole, calls
`on_request`, and later calls `on_response` with the whole response if `on_request` returned a context. Requests of
`stream_keys` are not gathered: `on_request` sees the bytes that have arrived and must return `Forward`; if it returns
a context, `on_chunk` sees the bytes of the response while they pass.

The connection, and no interceptor, is responsible for order, pending requests, acks=0, back-pressure, limits and
draining. An interceptor that raises counts as `Forward`, with one WARN and a metric: a feature that fails must not stop
the stream. `fail_closed` turns that around.
"""

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from headgate.base.ids import ApiKey, ApiVersion, ClusterId, CorrelationId, NodeId
from headgate.wire.primitives import Buffer
from headgate.wire.schema import Message, Request

C = TypeVar("C")  # what an interceptor remembers of a request until its response
M = TypeVar("M", bound=Message)


class CloseCause(enum.Enum):
    """Why a client's connection ended; the label of a metric, so names are few and fixed."""

    CLIENT_CLOSED = "client_closed"
    CLIENT_RESET = "client_reset"
    UPSTREAM_CLOSED = "upstream_closed"
    UPSTREAM_RESET = "upstream_reset"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    HANDSHAKE_FAILED = "handshake_failed"
    BAD_REQUEST = "bad_request"
    BAD_ANSWER = "bad_answer"
    FRAME_TOO_LARGE = "frame_too_large"
    UNSUPPORTED_CALL = "unsupported_call"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_MANY_UNPROVED = "too_many_unproved"
    DISPLACED = "displaced"
    NO_REQUEST = "no_request"
    UNPROVED = "unproved"
    WRONG_CLUSTER = "wrong_cluster"
    GATHER_TIMEOUT = "gather_timeout"
    IDLE = "idle"
    DRAINED = "drained"
    DRAIN_TIMEOUT = "drain_timeout"
    INTERNAL = "internal"


class Oversize(enum.Enum):
    """What becomes of a request that is larger than `max_bytes`, or than a connection may gather before it is proved.

    Of several interceptors of a request, all have to permit that it passes, and all that it waits.
    """

    CLOSE = enum.auto()  # the connection is closed
    PASS_UNPROVED = enum.auto()  # up to `max_bytes` it passes unopened; for features that lose nothing by that
    AWAIT_PROOF = enum.auto()  # up to `max_bytes` it waits for the proof; often the first request of its connection
    AWAIT_PROOF_OR_PASS = enum.auto()  # the same, and over `max_bytes` it passes unopened
    AWAIT_PROOF_OR_FILTER = enum.auto()  # the same, if the prefilter does not open it; else the connection is closed


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFrame:
    """A client's request; `body` is what follows the header.

    For `stream_keys` the body is only what has arrived so far, perhaps nothing, and valid only during `on_request`.
    `size` is the announced size of the frame. `is_truncated`: the request was too large to be gathered, and `body` is
    its beginning (see `Interceptor.truncated_bytes`). `is_answered` is False for a Produce with acks=0. `is_opened`:
    interceptors were shown it, and have to see the next one like it too, so that no fast path may learn from it.
    """

    api_key: ApiKey
    api_version: ApiVersion
    correlation_id: CorrelationId
    client_id: str | None
    body: Buffer
    size: int = 0
    is_truncated: bool = False
    is_answered: bool = True
    is_opened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFrame:
    """The response to a request, in the version of the client's request unless an interceptor changed it."""

    api_key: ApiKey
    api_version: ApiVersion
    body: Buffer


@dataclass(frozen=True, slots=True)
class Forward(Generic[C]):
    """Let it pass unchanged. `on_response` is called only when there is a context."""

    context: C | None = None


@dataclass(frozen=True, slots=True)
class Rewritten(Generic[C]):
    """Let it pass with another body, a request in another version of the same api when one is given.

    A response has the version in which the interceptor was shown the request, unless another one is given.
    """

    body: bytes
    context: C | None = None
    api_version: ApiVersion | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Respond with this body and do not ask the broker. Later requests of the connection wait for it."""

    body: bytes | Awaitable[bytes]


@dataclass(frozen=True, slots=True)
class Hold(Generic[C]):
    """Decide later: the outcome is awaited for at most `deadline` seconds, then a request has the outcome `late`.

    By default the frame passes unchanged then. An interceptor that fails closed ends the connection instead.
    While a request is held, later requests of the connection wait; the client's socket is still read, and when the
    client disconnects the hold is cancelled and nothing is sent.
    """

    outcome: "Awaitable[Outcome[C]]"
    deadline: float
    late: Forward[C] | Answer = Forward()


class FastPath:
    """Recognises requests that a stream interceptor has seen before, so that no `RequestFrame` is made of them.

    Set for a connection by `Session.use_fast_path` and called for every request of that version once the connection is
    proved, so that it may only compare and add. `end` is where the received bytes end, inside the frame or behind it. A
    Produce request may be recognized only if it has a response (acks).
    """

    __slots__ = ()

    # True: it recognizes only requests whose first fields are those of one that passed unopened, so that a prefilter,
    # which sees no more than these, would let them pass too and is not asked again.
    covers_prefilter: bool = False

    def on_request(self, view: memoryview, pos: int, end: int, length: int) -> "FastPath | None":
        """The request of `length` bytes whose frame begins at `pos`: what sees its response; None: not recognized.

        `UNWATCHED` if the request is recognized and nothing needs to see its response.
        """
        raise NotImplementedError

    def on_response(self, view: memoryview, pos: int, end: int, length: int) -> object | None:
        """The response whose frame begins at `pos`; a context if `on_chunk` shall see all of its bytes."""
        raise NotImplementedError


UNWATCHED: Final = FastPath()

# Whether to open the request whose body begins at the first position; the second is where the received bytes end.
Prefilter = Callable[[Buffer, int, int], bool]
Versions = Mapping[int, tuple[int, int]]  # api key to lowest and highest version
Outcome = Forward[C] | Rewritten[C] | Answer
OnRequest = Forward[C] | Rewritten[C] | Answer | Hold[C]
ResponseOutcome = Forward[Any] | Rewritten[Any]
OnResponse = Forward[Any] | Rewritten[Any] | Hold[Any]


class Session(Protocol):
    """A client's connection as interceptors see it."""

    @property
    def number(self) -> int:
        """The number of this connection, from 1 on; unique in the life of the process."""

    @property
    def node_id(self) -> NodeId | None:
        """The node whose port the client dialled; None for the bootstrap port."""

    @property
    def cluster_id(self) -> ClusterId | None: ...

    @property
    def peer(self) -> str:
        """The client's address."""

    @property
    def is_proved(self) -> bool:
        """The broker has answered a request that it answers only to authenticated clients.

        That is every response except those to ApiVersions, SaslHandshake and SaslAuthenticate, also one to `call`.
        Until then nothing that the client says may be counted, reported or made large work of.
        """

    @property
    def throttle_ms(self) -> int:
        """What is left of the throttle times that responses to `call` had: the broker is not reading until then.

        A response that an interceptor makes itself tells the client, which would otherwise take the broker for dead.
        """

    async def call(self, request: Request[M], api_version: int, *, deadline: float = 5.0) -> M:
        """Send a request on the client's own upstream connection; the client does not see its response.

        Raises `ClusterError` when the connection ends or `deadline` seconds pass first: whether the broker handled the
        request is then unknown. Raises `WireError` when the response cannot be decoded.
        """

    def use_fast_path(self, api_key: ApiKey, api_version: ApiVersion, fast_path: FastPath) -> None:
        """Use this fast path from now on.

        Without effect if several interceptors watch the api, or if interceptors open its requests by something that the
        fast path does not compare (`FastPath.covers_prefilter`).
        """

    def broker_versions(self) -> Versions:
        """The versions that this connection's broker supports, as far as they are known."""

    def set_broker_versions(self, versions: Versions) -> None:
        """Set the versions that this connection's broker announced in its own ApiVersions response."""


class Interceptor(Generic[C]):
    """Base of interceptors: every method lets pass, so that a subclass overrides only what it needs."""

    api_keys: frozenset[ApiKey] = frozenset()
    stream_keys: frozenset[ApiKey] = frozenset()
    # True: a frame that this interceptor cannot handle must not pass unchanged; the connection is closed instead.
    fail_closed: bool = False
    # Larger requests and responses close the connection: decoding them whole would block the event loop.
    max_bytes: int = 2**31 - 1
    max_response_bytes: int | None = None  # None: as `max_bytes`
    # If set, a request that is too large to be gathered is shown up to this size and the rest is read and discarded.
    # It must be answered, because it cannot pass.
    truncated_bytes: int | None = None

    def prefilter(self, api_version: ApiVersion) -> Prefilter | None:  # noqa: ARG002
        """A cheap test of a request's first bytes, if most requests are irrelevant: False lets one pass unopened."""
        return None

    def oversize(self, api_version: ApiVersion) -> Oversize:  # noqa: ARG002
        """What becomes of a request of this version that is too large to be gathered."""
        return Oversize.CLOSE

    def added_versions(self, broker: Versions) -> Versions:  # noqa: ARG002
        """Versions that clients may use although this broker lacks them: the interceptor implements them."""
        return {}

    def version_limits(self, broker: Versions) -> Mapping[int, int]:  # noqa: ARG002
        """The highest version by api key that clients may use although this broker has more; -1 for none."""
        return {}

    def on_open(self, session: Session) -> None:
        """A client's connection has its upstream connection."""

    def on_close(self, session: Session) -> None:
        """The client's connection has ended; nothing can be sent any more."""

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[C]:  # noqa: ARG002
        return Forward()

    def on_response(self, response: ResponseFrame, context: C, session: Session) -> OnResponse:  # noqa: ARG002
        return Forward()

    def known_request(self, frame: Buffer, session: Session) -> RequestFrame | None:  # noqa: ARG002
        """A request for which `on_request` would return `Forward` with its version as context, without asking it.

        For an interceptor that has its api for itself, and whose requests are byte for byte the same on many
        connections. What watches the api sees the result, which has neither the client id nor the correlation id.
        """
        return None

    def known_response(self, body: bytes, api_version: ApiVersion, session: Session) -> bytes | None:  # noqa: ARG002
        """The body that the client gets instead of this one, the response to a known request, without `on_response`."""
        return None

    def on_chunk(self, view: memoryview, context: C, session: Session) -> None:
        """Bytes of a passing response, header included, in order; read only, and valid only during this call.

        There are never none: where a response ends, its own size says.
        """
