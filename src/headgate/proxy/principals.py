"""Who a connection has proved to be, and what its client calls itself: read from the log-in while it passes.

The mechanism stands in SaslHandshake (17), the user's name in the first SaslAuthenticate (36) of PLAIN and SCRAM, and
that it is true in the broker's last answer, error 0. A connection that never logs in is `User:ANONYMOUS`, as at the
broker. The result is None where the wire does not show it: OAUTHBEARER, GSSAPI, delegation tokens, while the log-in is
going on, and when the name did not come in one piece. A broker with a principal builder of its own may call users
otherwise.

Invariant: a name is returned only after the broker has accepted it; it may then be used to allow something. It must
never keep or log a password, a proof or a token: nothing behind the name is looked at, and nothing is kept but the
name.
"""

import re
from dataclasses import dataclass
from typing import Final

from headgate.base.errors import WireError
from headgate.base.ids import ApiKey
from headgate.proxy.features import Feature
from headgate.proxy.interceptor import Forward, Interceptor, RequestFrame, Session
from headgate.wire.apis import has_flexible_response
from headgate.wire.errors import ErrorCode
from headgate.wire.frames import ErrorCodeReader
from headgate.wire.primitives import Buffer, read_uvarint

ANONYMOUS: Final = "User:ANONYMOUS"
_LONGEST_MECHANISM: Final = 32
_LONGEST_START: Final = 1024  # of a token: what is looked at for a name
_LONGEST_NAME: Final = 255
_ROUNDS: Final = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}  # of SaslAuthenticate, until it is proved
_SOFTWARE_FROM: Final = 3
_LONGEST_SOFTWARE: Final = 128
_LONGEST_KEPT, _MOST_KEPT = 256, 256  # bytes of an ApiVersions request, and such requests
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")  # what a broker takes (KIP-511)


@dataclass(frozen=True, slots=True)
class ClientSoftware:
    """What a client calls itself in ApiVersions, from version 3 on; it is not verified."""

    name: str
    version: str


class _LogIn:
    """How far one connection has come."""

    __slots__ = ("awaits", "is_tangled", "mechanism", "name", "proved", "rounds")

    def __init__(self) -> None:
        self.mechanism: str | None = None
        self.name: str | None = None  # as the client says, not proved
        self.proved: str | None = None
        self.rounds = 0
        self.awaits = False  # the response to a call of the log-in
        # Another such request came before that response. No client does so; which user was accepted is then unknown.
        self.is_tangled = False


class _Awaited:
    """A call of the log-in whose answer decides something."""

    __slots__ = ("code", "log_in", "mechanism")

    def __init__(self, log_in: _LogIn, code: ErrorCodeReader, mechanism: str | None = None) -> None:
        self.log_in = log_in
        self.code = code
        self.mechanism = mechanism  # of a handshake


class Principals(Interceptor[_Awaited]):
    """A watcher of every connection's log-in; one for each worker, shared by all features that ask it."""

    stream_keys = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS))

    def __init__(self) -> None:
        self._log_ins: dict[int, _LogIn] = {}
        self._software: dict[int, ClientSoftware] = {}
        self._known_software: dict[bytes, ClientSoftware] = {}  # by the body of ApiVersions; one for all its clients

    @property
    def known_sessions(self) -> int:
        """Connections of which something is kept."""
        return len(self._log_ins.keys() | self._software.keys())

    def principal_of(self, session: Session) -> str | None:
        """`User:name` as the broker has accepted it; None when it cannot be told.

        `User:ANONYMOUS` is a proof only together with a response that the broker gives only to authenticated clients.
        """
        log_in = self._log_ins.get(session.number)
        if log_in is None:
            return ANONYMOUS
        return None if log_in.is_tangled else log_in.proved

    def software_of(self, session: Session) -> ClientSoftware | None:
        return self._software.get(session.number)

    # The watcher.

    def on_request(self, request: RequestFrame, session: Session) -> Forward[_Awaited]:
        if request.api_key == ApiKey.API_VERSIONS:
            if request.api_version >= _SOFTWARE_FROM and (software := self._software_in(request.body)) is not None:
                self._software[session.number] = software
            return Forward()
        log_in = self._log_ins.get(session.number)
        if log_in is None:
            log_in = self._log_ins[session.number] = _LogIn()
        if log_in.awaits:
            log_in.is_tangled = True
        log_in.awaits = True
        flexible = has_flexible_response(request.api_key, request.api_version)
        code = ErrorCodeReader(flexible=flexible)
        if request.api_key == ApiKey.SASL_HANDSHAKE:
            return Forward(_Awaited(log_in, code, _mechanism(request.body)))
        if log_in.rounds == 0 and log_in.mechanism in _ROUNDS:
            log_in.name = _name(log_in.mechanism, request.body, flexible=flexible)
        return Forward(_Awaited(log_in, code))

    def _software_in(self, body: Buffer) -> ClientSoftware | None:
        if len(body) > _LONGEST_KEPT:
            return _software(body)
        key = bytes(body)
        software = self._known_software.get(key)
        if software is None:
            software = _software(key)
            if software is not None:
                if len(self._known_software) >= _MOST_KEPT:
                    self._known_software.clear()
                self._known_software[key] = software
        return software

    def on_chunk(self, view: memoryview, context: _Awaited, session: Session) -> None:
        error_code = context.code.feed(view)
        if error_code is None:
            return
        log_in = context.log_in
        log_in.awaits = False
        if context.mechanism is not None:
            self._handshaken(log_in, context.mechanism, error_code, session)
        elif error_code:
            log_in.proved = log_in.name = log_in.mechanism = None
        elif log_in.mechanism in _ROUNDS:
            log_in.rounds += 1
            if log_in.rounds == _ROUNDS[log_in.mechanism] and log_in.name is not None:
                log_in.proved = f"User:{log_in.name}"

    def _handshaken(self, log_in: _LogIn, mechanism: str, error_code: int, session: Session) -> None:
        """A log-in begins, perhaps anew. What was proved stays: a broker lets no other user in then (58)."""
        if error_code == ErrorCode.ILLEGAL_SASL_STATE:
            # Where there is no SASL, or no second time: everything is as if it had not been asked.
            if log_in.proved is None and not log_in.is_tangled:
                self._log_ins.pop(session.number, None)
            return
        log_in.mechanism = None if error_code else mechanism
        log_in.name = None
        log_in.rounds = 0

    def on_close(self, session: Session) -> None:
        self._log_ins.pop(session.number, None)
        self._software.pop(session.number, None)


class PrincipalsFeature(Feature):
    """Installs `Principals` once per worker, for all features that use it."""

    def __init__(self, principals: Principals) -> None:
        self.interceptors = (principals,)


# Parsing of bytes that any client may have sent: None for what does not fit.


def _mechanism(body: Buffer) -> str:
    """The mechanism that a SaslHandshake asks for; "" is none that is known."""
    size = int.from_bytes(body[:2], "big")
    name = bytes(body[2 : 2 + size]) if size <= _LONGEST_MECHANISM else b""
    return name.decode("ascii", errors="replace")


def _name(mechanism: str, body: Buffer, *, flexible: bool) -> str | None:
    """The user's name in the first SaslAuthenticate, whose bytes may not all be here."""
    try:
        size, at = read_uvarint(body, 0) if flexible else (int.from_bytes(body[:4], "big") + 1, 4)
    except WireError:
        return None
    token = body[at : at + min(size - 1, _LONGEST_START)]
    name = _plain_name(token) if mechanism == "PLAIN" else _scram_name(bytes(token), whole=len(token) == size - 1)
    if name is None or not 0 < len(name) <= _LONGEST_NAME:
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def _plain_name(token: Buffer) -> bytes | None:
    """The name in "authorization id NUL name NUL password" (RFC 4616); the password is never copied."""
    ends = []
    for at in range(len(token)):
        if not token[at]:
            ends.append(at)
            if len(ends) == 2:
                return bytes(token[ends[0] + 1 : at])
    return None


def _scram_name(token: bytes, *, whole: bool) -> bytes | None:
    """The name in "n,authorization id,n=name,r=nonce" (RFC 5802); None for that of a delegation token."""
    parts = token.split(b",")
    if not whole or len(parts) < 4 or not parts[2].startswith(b"n=") or b"tokenauth=true" in parts[4:]:
        return None
    return parts[2][2:].replace(b"=2C", b",").replace(b"=3D", b"=")


def _software(body: Buffer) -> ClientSoftware | None:
    """ClientSoftwareName and ClientSoftwareVersion, which an ApiVersions request begins with."""
    texts = []
    at = 0
    for _ in range(2):
        try:
            size, at = read_uvarint(body, at)
        except WireError:
            return None
        if not 1 < size <= _LONGEST_SOFTWARE or at + size - 1 > len(body):
            return None
        text = bytes(body[at : at + size - 1]).decode("ascii", errors="replace")
        if _SOFTWARE.fullmatch(text) is None:
            return None
        texts.append(text)
        at += size - 1
    return ClientSoftware(*texts)
