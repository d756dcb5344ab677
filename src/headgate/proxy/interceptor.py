"""The one extension point: what may look into a call, and what it may do with it.

An interceptor names the calls that it opens. For each the gateway gathers the whole request, asks `on_request`, and
later shows the whole answer to `on_response` of every interceptor that returned a context. Calls in `stream_keys`
are not gathered for it: `on_request` sees what has come of them and can only let them pass, and if it gives a context,
the answer's bytes are shown to `on_chunk` while they pass, whatever others do with the call.

Everything else (order, pending calls, acks=0, back-pressure, caps, draining) is the connection's and no
interceptor's. An interceptor that raises is taken as `Forward`, with one WARN and a metric: a feature that fails
must not stop the stream.
"""

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.base.ids import ApiKey, ApiVersion, ClusterId, CorrelationId, NodeId
from headgate.wire.primitives import Buffer


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
    WRONG_CLUSTER = "wrong_cluster"
    IDLE = "idle"
    DRAINED = "drained"
    DRAIN_TIMEOUT = "drain_timeout"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFrame:
    """A client's request; `body` is what follows the header.

    For calls in `stream_keys` it is only what has come of it so far, perhaps nothing, and gone after the call. `size`
    is the frame's as it was announced. `is_cut`: it was longer than may be gathered, and `body` is only its beginning
    (see `Interceptor.cut_bytes`). `is_answered` is False for a Produce with acks=0.
    """

    api_key: ApiKey
    api_version: ApiVersion
    correlation_id: CorrelationId
    client_id: str | None
    body: Buffer
    size: int = 0
    is_cut: bool = False
    is_answered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFrame:
    """The answer to a request, at the version that the client asked for unless an interceptor changed it."""

    api_key: ApiKey
    api_version: ApiVersion
    body: Buffer


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the gateway makes on the client's own upstream connection."""

    api_key: ApiKey
    api_version: ApiVersion
    body: bytes


@dataclass(frozen=True, slots=True)
class Forward:
    """Let it pass. `on_response` is asked only when there is a context."""

    context: object = None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Let it pass with another body, and with another version of the same call when one is given."""

    body: bytes
    context: object = None
    api_version: ApiVersion | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """Send these calls instead; `merge` makes the answer's body from theirs, in the same order."""

    calls: Sequence[Call]
    merge: Callable[[Sequence[bytes]], bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """The broker is not asked: this is the answer's body. Later requests of the connection wait for it."""

    body: Awaitable[bytes]


async def at_once(body: bytes) -> bytes:
    """For an `Answer` that is known already."""
    return body


@dataclass(frozen=True, slots=True)
class Hold:
    """Decide later: the outcome is awaited for `deadline` seconds at most, then the call passes as it came.

    While a request is held, later requests of the connection wait; the client's socket is still read, and when the
    client goes away the hold is cancelled and nothing is sent.
    """

    outcome: "Awaitable[Outcome]"
    deadline: float


class Familiar:
    """The short way for calls that are like those that a watcher has seen: no `RequestFrame` is made of them.

    Set for a connection by `Session.know`, and asked about every call of that version. One rule: it is on the path of
    each call, so it only compares and adds. What has come ends at `end`, in this frame or behind it.
    """

    __slots__ = ()

    def asked(self, view: memoryview, pos: int, end: int, length: int) -> "Familiar | None":
        """A request of `length` bytes, whose frame begins at `pos`: who is told of its answer; None: not familiar."""
        raise NotImplementedError

    def answered(self, view: memoryview, pos: int, end: int, length: int) -> object | None:
        """Its answer's frame begins at `pos`; a context if the watcher is to see all of it by `on_chunk`."""
        raise NotImplementedError


# Whether the request whose body lies in the buffer from the first to the second position, or begins there when not all
# of it has come, is to be opened.
Glance = Callable[[Buffer, int, int], bool]
Outcome = Forward | Rewritten | Split | Answer
OnRequest = Outcome | Hold
OnResponse = Forward | Rewritten | Hold


class Session(Protocol):
    """What an interceptor sees of a client's connection."""

    @property
    def number(self) -> int:
        """Of this connection, and never of another in the life of the process; from 1 on."""

    @property
    def node_id(self) -> NodeId | None:
        """The node whose port the client dialled; None for the bootstrap port."""

    @property
    def cluster_id(self) -> ClusterId | None: ...

    @property
    def peer(self) -> str:
        """The client's address."""

    async def call(self, api_key: ApiKey, api_version: ApiVersion, body: bytes, *, deadline: float = 5.0) -> bytes:
        """Send a call on the client's own upstream connection; its answer's body is not shown to the client.

        Raises `ClusterError` when the connection ends or the deadline passes first: the answer is then unknown.
        """

    def know(self, api_key: ApiKey, api_version: ApiVersion, familiar: Familiar) -> None:
        """Take the short way from now on; for the only watcher of a call, and nothing happens if there are several."""

    def broker_versions(self) -> Mapping[int, tuple[int, int]]:
        """What this connection's broker has, as far as it is known."""

    def set_broker_versions(self, versions: Mapping[int, tuple[int, int]]) -> None:
        """What this connection's broker has, as its own ApiVersions answer says."""


class Interceptor:
    """Base of interceptors: every method lets pass, so that one overrides only what it needs."""

    api_keys: frozenset[ApiKey] = frozenset()
    stream_keys: frozenset[ApiKey] = frozenset()
    # True: an answer that `on_response` cannot handle must not reach the client as it came; the connection is closed.
    fail_closed: bool = False
    # Longer requests and answers of its calls end the connection: what is decoded whole must not keep the event loop.
    max_bytes: int = 2**31 - 1
    max_answer_bytes: int | None = None  # None: as `max_bytes`
    # Unless this is set: then a request that may not be gathered whole is shown up to here, and the rest is read and
    # thrown away. It must be answered, for it cannot pass.
    cut_bytes: int | None = None

    def glance(self, api_version: ApiVersion) -> Glance | None:  # noqa: ARG002
        """A cheap look at requests of this version, if most of them are of no interest: those pass unopened."""
        return None

    def adds(self, broker: Mapping[int, tuple[int, int]]) -> Mapping[int, tuple[int, int]]:  # noqa: ARG002
        """Versions, by api key, that clients may use although this broker lacks them: we carry them ourselves."""
        return {}

    def hides(self, broker: Mapping[int, tuple[int, int]]) -> Mapping[int, int]:  # noqa: ARG002
        """The highest version, by api key, that clients may use although this broker has more; -1 for none."""
        return {}

    def on_open(self, session: Session) -> None:
        """A client's connection has its upstream."""

    def on_close(self, session: Session) -> None:
        """The client's connection has ended, for whatever cause; nothing can be sent any more."""

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest:  # noqa: ARG002
        return Forward()

    def on_response(self, response: ResponseFrame, context: object, session: Session) -> OnResponse:  # noqa: ARG002
        return Forward()

    def on_chunk(self, view: memoryview, context: object, session: Session) -> None:
        """Bytes of an answer that passes, header included, in order; read only, and gone after the call."""

    async def before_upstream_close(self, session: Session, cause: CloseCause, deadline: float) -> None:
        """The client is gone and the upstream still there: the last chance for a call, `deadline` seconds at most."""
