"""TLS on either side of the gateway: a link that encrypts, and certificates that are read again when they change.

A `TlsLink` is a `Link` whose bytes go through an SSL object in memory, so that pausing, holding and flushing are the
plain link's own. New certificates are for new connections; files that cannot be used leave the old ones in place,
and the problem is shown.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from headgate.base.errors import UsageError
from headgate.proxy.certificate_expiry import expiry_of
from headgate.proxy.link import Link, LinkMeter, LinkOwner
from headgate.proxy.shared_buffer import BUFFER_BYTES, kept_view
from headgate.wire.primitives import Buffer

log = structlog.get_logger()

# Half of what a link shows at once: plaintext is never longer than its ciphertext, so it always fits.
_CIPHERTEXT: Final = memoryview(bytearray(BUFFER_BYTES // 2))
# What one send is given.
_SEALED_AT_ONCE: Final = BUFFER_BYTES
# The buffer of an SSL object never shrinks, and has a third more than it ever held: 87 KB stay with a connection that
# has sent much. Four times as many would make sealing 10 % cheaper.
_SEALED_A_CALL: Final = 64 * 1024


class TlsSession:
    """An SSL object between two memory buffers: the state of one encrypted connection."""

    __slots__ = ("incoming", "object", "outgoing")

    def __init__(self, context: ssl.SSLContext, *, server_hostname: str | None) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.object = context.wrap_bio(
            self.incoming, self.outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )

    async def handshake(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Shake hands; every failure is an `OSError` (`ssl.SSLError` is one). The caller sets the deadline."""
        while True:
            try:
                self.object.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush(sock, loop)
            except ssl.SSLError:
                with suppress(OSError):  # the alert that tells the peer why, if the peer still listens
                    await self._flush(sock, loop)
                raise
            else:
                await self._flush(sock, loop)
                return
            received = await loop.sock_recv(sock, 16 * 1024)
            if not received:
                raise ConnectionResetError("the peer closed during the TLS handshake")
            self.incoming.write(received)

    async def first_byte(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> bytes:
        """The first decrypted byte; nothing at the peer's end. Failures and deadline as those of the handshake."""
        while True:
            with suppress(ssl.SSLWantReadError):
                return self.object.read(1)
            await self._flush(sock, loop)  # a key update is answered
            received = await loop.sock_recv(sock, 16 * 1024)
            if not received:
                return b""
            self.incoming.write(received)

    async def _flush(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        if self.outgoing.pending:
            await loop.sock_sendall(sock, self.outgoing.read())


class TlsLink(Link):
    """An encrypted link, after its handshake."""

    is_plain = False

    __slots__ = ("_fault", "_more", "_plain", "_tls", "_woken")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: LinkOwner, meter: LinkMeter, tls: TlsSession
    ) -> None:
        super().__init__(loop, sock, owner, meter)
        self._tls = tls
        # To be sealed when all before it has been sent; part of `backlog`. An idle connection has none.
        self._plain: deque[memoryview] | None = None
        self._more = True  # there may be bytes that the socket knows nothing of: the handshake may have brought some
        self._woken = False
        self._fault: ssl.SSLError | None = None  # of a record behind those that were shown

    @property
    def has_queue(self) -> bool:
        return self._plain is not None or super().has_queue

    def write(self, data: Buffer) -> None:
        if self.closed or self._failure is not None:
            return
        size = len(data)
        if 0 < size <= _SEALED_A_CALL and not self.backlog:  # nearly always
            try:
                sealed = self._seal_piece(data)
            except ssl.SSLError as failure:
                self._fail(failure)
                return
            self.meter.sent_bytes += size - len(sealed)  # what is counted is Kafka's bytes, both ways
            Link.write(self, sealed)
            return
        view = memoryview(data)
        self.meter.sent_bytes += size
        done = 0
        while done < len(view) and not self.backlog:
            try:
                sealed = self._seal(view[done : done + _SEALED_AT_ONCE])
            except ssl.SSLError as failure:
                self._fail(failure)
                return
            done += _SEALED_AT_ONCE
            self.meter.sent_bytes -= len(sealed)
            super().write(sealed)
            if self._has_failed():
                return
        if done < len(view):
            if self._plain is None:
                self._plain = deque()
            self._plain.append(kept_view(view[done:]))
            self.backlog += len(view) - done

    def _has_failed(self) -> bool:
        return self._failure is not None

    def _seal(self, view: memoryview) -> bytes:
        if len(view) <= _SEALED_A_CALL:
            return self._seal_piece(view)
        return b"".join(
            [self._seal_piece(view[at : at + _SEALED_A_CALL]) for at in range(0, len(view), _SEALED_A_CALL)]
        )

    def _seal_piece(self, piece: Buffer) -> bytes:
        tls = self._tls
        write = tls.object.write
        size = len(piece)
        done = write(piece)
        while done < size:
            done += write(memoryview(piece)[done:])
        return tls.outgoing.read()

    def _refill(self) -> bool:
        if not self._plain:
            return False
        view = self._plain[0]
        piece = view[:_SEALED_AT_ONCE]
        sealed = self._seal(piece)
        if len(piece) < len(view):
            self._plain[0] = view[len(piece) :]
        else:
            self._plain.popleft()
            self._plain = self._plain or None
        self._keep_output(memoryview(sealed))
        self.backlog += len(sealed) - len(piece)
        return True

    def _fail(self, failure: OSError) -> None:
        self._plain = None
        super()._fail(failure)

    def resume(self) -> None:
        super().resume()
        if self._more and self.is_reading:
            self._look_again()

    def close(self) -> None:
        """Say goodbye, if that needs no waiting: without it the peer cannot tell an end from a cut."""
        if not self.closed and self._failure is None and not self.backlog:
            with suppress(OSError):  # the peer has not said goodbye yet, and we do not wait for it
                self._tls.object.unwrap()
            with suppress(OSError):
                self._sock.send(self._tls.outgoing.read())
        self._plain = None
        super().close()

    def _look_again(self) -> None:
        """There are bytes, or an end, behind those that were read, and the socket will not tell of them."""
        self._more = True
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._on_woken)

    def _on_woken(self) -> None:
        self._woken = False
        if self._more and self.is_reading and not self.closed:
            self._on_readable()

    def _receive(self, into: memoryview) -> int:
        """Plaintext into `into`; 0 at the peer's end, `BlockingIOError` when there is no whole record yet."""
        if self._fault is not None:
            raise self._fault
        tls = self._tls
        incoming = tls.incoming
        if not self._more:
            size = self._sock.recv_into(_CIPHERTEXT)
            if not size:
                return 0
            incoming.write(_CIPHERTEXT[:size])
        total = 0
        most = len(into)
        # With a buffer, `read` returns a count, 0 at the peer's end; typeshed knows only the form without one.
        read: Callable[[int, memoryview], int] = tls.object.read  # type: ignore[assignment]
        self._more = False
        try:
            while total < most and (size := read(most - total, into[total:] if total else into)):
                total += size
                if total < most and not incoming.pending:
                    # A record that ended, and nothing behind it: to read again would cost as much, for an exception.
                    if tls.outgoing.pending:
                        self._answer_key_update()
                    return total
        except ssl.SSLWantReadError:
            self._answer_key_update()
            if not total:
                if self.peer_has_left:
                    self._loop.call_soon(self._read_on)
                raise BlockingIOError from None
        except ssl.SSLError as fault:
            if not total:
                raise
            self._fault = fault
            self._look_again()
        else:
            if total:
                self._look_again()
        return total

    def _answer_key_update(self) -> None:
        if self._tls.outgoing.pending:
            super().write(self._tls.outgoing.read())


class Certificates:
    """The files of one side, and the context made from them; `refresh` reads them again when they have changed."""

    def __init__(self, section: str, files: tuple[Path, ...], *, server: bool, ca: Path | None) -> None:
        self.section = section
        self._files = files  # certificate and key, or nothing
        self._server = server
        self._ca = ca
        self._stamp = self._stamps()
        self.problem: str | None = None
        self.expires_at: float | None = None  # epoch seconds
        self.context = self._load()

    def refresh(self) -> None:
        """Read changed files; what cannot be used is a problem and changes nothing."""
        stamp = self._stamps()
        if stamp == self._stamp and self.problem is None:
            return
        try:
            self.context = self._load()
        except UsageError as problem:
            if self.problem != str(problem):
                log.warning("certificates cannot be used, the old ones stay", problem=str(problem))
            self.problem = str(problem)
        else:
            self.problem = None
            self._stamp = stamp
            log.info("certificates read again", section=self.section)

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        """What changes with a file, also with one that keeps the time of the one that it replaces."""
        stamps = []
        for file in (*self._files, *([self._ca] if self._ca else [])):
            try:
                now = file.stat()
                stamps.append((now.st_mtime_ns, now.st_ino, now.st_size))
            except OSError:
                stamps.append((-1, -1, -1))
        return tuple(stamps)

    def _load(self) -> ssl.SSLContext:
        try:
            if self._server:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                if self._ca is not None:
                    context.verify_mode = ssl.CERT_REQUIRED
                    context.load_verify_locations(self._ca)
            else:
                context = ssl.create_default_context(cafile=self._ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.options |= ssl.OP_NO_RENEGOTIATION
            if self._files:
                context.load_cert_chain(self._files[0], self._files[1], password=_no_password)
                self.expires_at = expiry_of(self._files[0].read_text("ascii", "replace"))
        except (OSError, ValueError) as failure:
            names = ", ".join(str(file) for file in (*self._files, *([self._ca] if self._ca else [])))
            raise UsageError(f"{self.section}: these files cannot be used: {names}: {failure}") from None
        return context


def _no_password() -> str:
    """Without this OpenSSL would ask for it at the terminal, and wait."""
    raise ValueError("the private key is encrypted: store it without a password, readable by this user only")
