"""Pausing and resuming share groups for an operator, as the operator's own user of the cluster.

The change is the request that `headgate share-groups` sends to the gateway, so the broker proves the right to it
(ALTER_CONFIGS on the group). The service account is never used for it: its rights are not the operator's. The user is
one that is typed for this one operation, or the one that is bound to the token. Without either, the request is sent
without a user, for a caller on this machine only: where the gateway has no SASL every client may send it too, and where
it has, the gateway refuses it.

Every operation that is tried is an event `operation` in `headgate.events`. Passwords are in no log, event or answer.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError, HeadgateError, UsageError
from headgate.config.addresses import Address, is_wildcard
from headgate.config.files import exposure, read_secret
from headgate.config.model import Config
from headgate.facts import EventHappened, JsonText
from headgate.kafka.connections import Connections, Credentials, Dialler, LoginError
from headgate.share_groups.admin import ActionRefusedError, pause_or_resume
from headgate.share_groups.model.breaker import json_of
from headgate.share_groups.model.group_configs import PAUSE, RESUME
from headgate.web.share_states import SharePort
from headgate.web.tokens import KafkaLogin
from headgate.wire.errors import ErrorCode

log = structlog.get_logger()

ANONYMOUS: Final = "User:ANONYMOUS"
_WINDOW_S: Final = 60.0
_MOST, _MOST_OF_ONE = 60, 10  # operations within the window
_CALL_S: Final = 10.0
_SEEN_S: Final = 3.0
_LOOK_S: Final = 0.02
_AUDIT_S: Final = 10.0

Audit = Callable[[EventHappened], Awaitable[object]]


class GroupOperation(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"

    @property
    def key(self) -> str:
        """The write-only config of the group that does it."""
        return PAUSE if self is GroupOperation.PAUSE else RESUME


class OperationError(HeadgateError):
    """An operation was not done, or it is not known whether it was: an HTTP status, and what to do."""

    def __init__(self, status: HTTPStatus, text: str, *, outcome: str = "refused") -> None:
        super().__init__(text)
        self.status = status
        self.outcome = outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The sender of an operation: `caller` as the log names it, and the user of the cluster that it may act as.

    `may_be_anonymous`: the caller is on this machine.
    """

    caller: str
    typed: Credentials | None = None
    bound: KafkaLogin | None = None
    may_be_anonymous: bool = False

    @property
    def principal(self) -> str:
        user = self.typed.user if self.typed is not None else self.bound.user if self.bound is not None else None
        return ANONYMOUS if user is None else f"User:{user}"

    @property
    def source(self) -> str:
        return "typed" if self.typed is not None else "token" if self.bound is not None else "none"


class OperationRate:
    """At most so many operations of one caller and of all in a minute.

    Each kind of operation has its own: who looks at thirty records must still be able to pause a group.
    """

    _text = "Too many operations: wait a minute"

    def __init__(self, clock: Clock, *, most: int = _MOST, most_of_one: int = _MOST_OF_ONE) -> None:
        self._clock = clock
        self._most, self._most_of_one = most, most_of_one
        self._last: deque[tuple[float, str]] = deque()

    def take(self, caller: str) -> None:
        """Count an operation; `OperationError` if there were too many."""
        self._drop_old()
        if len(self._last) >= self._most or sum(one == caller for _, one in self._last) >= self._most_of_one:
            raise OperationError(HTTPStatus.TOO_MANY_REQUESTS, self._text)
        self._last.append((self._clock.monotonic(), caller))

    def _drop_old(self) -> None:
        now = self._clock.monotonic()
        while self._last and self._last[0][0] <= now - _WINDOW_S:
            self._last.popleft()


class LoginRate(OperationRate):
    """Failed logins, of operations of all kinds together: so many passwords can be guessed here, and no more.

    A login counts from its start until it has succeeded, so that many at once are not more.
    """

    _text = "Too many failed logins: wait a minute"

    @contextlib.contextmanager
    def counted(self, caller: str) -> Iterator[None]:
        """Count the login in this block unless it succeeds or cannot be tried; `OperationError` if too many failed."""
        self.take(caller)
        begun = self._last[-1]
        try:
            yield
        except ClusterError as failure:
            if not isinstance(failure, LoginError):
                self._forget(begun)
            raise
        self._forget(begun)

    def _forget(self, begun: tuple[float, str]) -> None:
        with contextlib.suppress(ValueError):  # it is older than the window
            self._last.remove(begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccess:
    """The connection to the gateway as one of its clients."""

    address: Address
    has_tls: bool
    tls_ca: str | None
    has_sasl: bool  # as far as the configuration says

    @classmethod
    def of(cls, config: Config) -> "GatewayAccess":
        address = config.web.gateway or config.gateway.listen
        if is_wildcard(address.host):
            address = Address("127.0.0.1" if ":" not in address.host else "::1", address.port)
        ca = config.web.gateway_tls_ca
        return cls(
            address=address,
            has_tls=ca is not None or config.gateway.tls_cert is not None,
            tls_ca=None if ca is None else str(ca),
            has_sasl=config.upstream.service_mechanism != "none",
        )

    def dialler(self, credentials: Credentials | None, *, timeout_s: float = _CALL_S) -> Dialler:
        """Reads the certificates, so it runs on a thread."""
        try:
            tls = ssl.create_default_context(cafile=self.tls_ca) if self.has_tls else None
        except OSError as failure:  # ssl.SSLError is one
            text = f"web.gateway_tls_ca cannot be used: {failure}"
            raise OperationError(HTTPStatus.SERVICE_UNAVAILABLE, text, outcome="failed") from None
        return Dialler(
            bootstrap=(self.address,), tls=tls, credentials=credentials, call_timeout_s=timeout_s, timeout_s=timeout_s
        )

    async def login(self, operator: Operator) -> Dialler:
        """The operator's connection; `OperationError` when there is no user, or its password cannot be read."""
        credentials = await asyncio.to_thread(credentials_of, operator)
        return await asyncio.to_thread(self.dialler, credentials)

    async def reach(self, connections: Connections, operator: Operator, logins: LoginRate) -> None:
        """Connect and log in; `OperationError` when that is refused or not possible."""
        try:
            with logins.counted(operator.caller):
                await connections.to(self.address)
        except LoginError as refused:
            raise OperationError(HTTPStatus.FORBIDDEN, _login_text(str(refused), operator)) from None
        except ClusterError as failure:
            text = f"The gateway cannot be reached, nothing was changed: {failure}"
            raise OperationError(HTTPStatus.SERVICE_UNAVAILABLE, text, outcome="failed") from None


def credentials_of(operator: Operator) -> Credentials | None:
    """Reads the password of the token's user, so it runs on a thread."""
    if operator.typed is not None:
        return operator.typed
    bound = operator.bound
    if bound is None:
        if operator.may_be_anonymous:
            return None  # a gateway with SASL refuses it
        text = (
            "No user of the cluster is bound to the token: type one, or add one to the token in web.tokens_file, "
            "or run `headgate share-groups` or `headgate dlq` as your own user"
        )
        raise OperationError(HTTPStatus.FORBIDDEN, text)
    try:
        password = read_secret(bound.password_file).get_secret_value()
    except UsageError as failure:
        log.warning("password file of a token cannot be used", caller=operator.caller, error=str(failure))
        text = "The password of the token's user cannot be read: see the log of headgate web"
        raise OperationError(HTTPStatus.SERVICE_UNAVAILABLE, text, outcome="failed") from None
    if (trouble := exposure(bound.password_file)) is not None:
        log.warning("password file of a token is open to others", caller=operator.caller, problem=trouble)
    return Credentials(user=bound.user, password=password, mechanism=bound.mechanism)


class OperationTrail:
    """Records operations as events of what they are about, mostly a share group; `audit` writes one."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock

    async def write(
        self, group: str, principal: str, detail: Mapping[str, object], *, kind: str = "share_group"
    ) -> None:
        """An operation that cannot be recorded is in the log, as every one is."""
        fact = EventHappened(
            at=self._clock.epoch_ms(),
            subject_kind=kind,
            subject=group,
            id=uuid4().hex,
            event="operation",
            by=principal,
            detail=JsonText.of(dict(detail)),
        )
        log.info(
            "operation", group=group, by=principal, **{key: detail[key] for key in ("operation", "outcome", "caller")}
        )
        try:
            async with asyncio.timeout(_AUDIT_S):
                await self._audit(fact)
        except (HeadgateError, TimeoutError) as failure:
            log.warning(
                "operation could not be written to headgate.events", group=group, by=principal, error=repr(failure)
            )

    @contextlib.asynccontextmanager
    async def audited(
        self, subject: str, operator: Operator, detail: dict[str, object], *, kind: str = "share_group"
    ) -> AsyncIterator[None]:
        """Record the block as an operation, whatever becomes of it."""
        outcome, error = "done", None
        try:
            yield
        except OperationError as refused:
            outcome, error = refused.outcome, str(refused)
            raise
        except BaseException:
            outcome = "unknown"
            raise
        finally:
            of_caller = {"outcome": outcome, "error": error, "caller": operator.caller, "credential": operator.source}
            # The event is written also where the client of the server is gone.
            await asyncio.shield(self.write(subject, operator.principal, {**detail, **of_caller}, kind=kind))


Act = Callable[[GroupOperation, str, str, Operator], Awaitable[None]]


class ShareGroupOperations:
    """`audit` writes an event; `port` shows the state afterwards, None if share groups are not read here.

    `logins` is shared with all other operations.
    """

    def __init__(
        self,
        gateway: GatewayAccess,
        *,
        audit: Audit,
        port: SharePort | None,
        clock: Clock,
        logins: LoginRate,
        act: Act | None = None,
    ) -> None:
        """`act` pauses and resumes, instead of the gateway."""
        self.gateway = gateway
        self._logins = logins
        self._act = act or self._ask_gateway
        self._trail = OperationTrail(audit, clock)
        self._port = port
        self._rate = OperationRate(clock)

    async def run(self, operation: GroupOperation, group: str, reason: str, operator: Operator) -> dict[str, Any]:
        """Pause or resume the group, and return its state; `OperationError` if that was not done."""
        self._rate.take(operator.caller)
        async with self._trail.audited(group, operator, {"operation": operation.value, "reason": reason}):
            await self._act(operation, group, reason, operator)
        return await self._state_after(operation, group, reason)

    async def _ask_gateway(self, operation: GroupOperation, group: str, reason: str, operator: Operator) -> None:
        dialler = await self.gateway.login(operator)
        async with Connections(dialler) as connections:
            await self.gateway.reach(connections, operator, self._logins)
            try:
                await pause_or_resume(connections, group, operation.key, reason)
            except ActionRefusedError as refused:
                raise _refused(refused, operator) from None
            except ClusterError as failure:
                text = f"It is not known whether the group was changed, look at its state: {failure}"
                raise OperationError(HTTPStatus.GATEWAY_TIMEOUT, text, outcome="unknown") from None

    async def _state_after(self, operation: GroupOperation, group: str, reason: str) -> dict[str, Any]:
        """The state when the change was read, for a few seconds at most; else the change that was requested."""
        wanted = operation is GroupOperation.PAUSE
        port = self._port
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SEEN_S):
                while port is not None and port.of(group).is_paused != wanted:  # noqa: ASYNC110 - the port has one listener
                    await asyncio.sleep(_LOOK_S)
        state = None if port is None or port.problem is not None else port.of(group)
        return {
            "group": group,
            "paused": wanted if state is None else state.is_paused,
            "reason": reason,
            "remaining_reasons": [] if state is None else json_of(state.pause_reasons),
        }


def _login_text(text: str, operator: Operator) -> str:
    advice = {
        "typed": "check the user, the password and the mechanism",
        "token": "check the user and the password file of the token",
        "none": "type a user of the cluster, or bind one to a token",
    }
    return f"{text[:1].upper()}{text[1:]}: {advice[operator.source]}"


_DENIED: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
_INVALID: Final = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_GROUP_ID})


def _refused(error: ActionRefusedError, operator: Operator) -> OperationError:
    """Kafka's error as an HTTP status, with what to do."""
    text = f"{str(error)[:1].upper()}{str(error)[1:]}"
    if error.code in _DENIED:
        advice = f"{operator.principal} needs ALTER_CONFIGS on the group: kafka-acls.sh --add --operation AlterConfigs"
        return OperationError(HTTPStatus.FORBIDDEN, f"{text} {advice}")
    if error.code in _INVALID:
        return OperationError(HTTPStatus.BAD_REQUEST, text)
    return OperationError(HTTPStatus.BAD_GATEWAY, text, outcome="failed")
