"""An encrypted link behaves as a plain one, says goodbye, and its certificates can be exchanged under way."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.errors import UsageError
from headgate.config.addresses import Address
from headgate.config.model import Config, UpstreamConfig
from headgate.proxy.endpoints import PeerSockets
from headgate.proxy.hangups import HangupWatcher
from headgate.proxy.interceptor import CloseCause
from headgate.proxy.link import LinkMeter
from headgate.proxy.shared_buffer import BUFFER_BYTES, SHARED
from headgate.proxy.tls import Certificates, TlsLink, TlsSession
from tests.support.certificates import Certificates as Files
from tests.support.certificates import make_certificates
from tests.support.fake_upstream import request
from tests.unit.proxy.stage import stage, turns, until
from tests.unit.proxy.test_link import Owner, connected

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def server_side(files: Files, *, ca: Path | None = None) -> Certificates:
    return Certificates("gateway.tls_cert", (files.server_cert, files.server_key), server=True, ca=ca)


class Peer:
    """The client at the other end, whose every byte a test may hold back or spoil."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, other: TlsSession | None = None) -> None:
        self.sock = sock
        self.other: Any = other  # the gateway's side
        self._loop = asyncio.get_running_loop()
        self.tls = TlsSession(context, server_hostname="localhost")

    def sealed(self, data: bytes) -> bytes:
        """The records of this data, not sent yet."""
        self.tls.object.write(data)
        return self.tls.outgoing.read()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, self.sealed(data))

    async def goodbye(self) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.object.unwrap()
        await self._loop.sock_sendall(self.sock, self.tls.outgoing.read())

    async def receive(self) -> bytes:
        """Some bytes; none after a goodbye, `EOFError` when the connection was cut without one."""
        while True:
            try:
                return self.tls.object.read(BUFFER_BYTES)
            except ssl.SSLWantReadError:
                async with asyncio.timeout(20):
                    received = await self._loop.sock_recv(self.sock, BUFFER_BYTES)
                if not received:
                    raise EOFError from None
                self.tls.incoming.write(received)


async def says_goodbye(peer: Peer) -> bool:
    """Read to the end; False when it was cut."""
    try:
        while await peer.receive():
            pass
    except (EOFError, ConnectionResetError):
        return False
    return True


def client_context(files: Files, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    context.minimum_version = context.maximum_version = version
    return context


@asynccontextmanager
async def linked(
    files: Files, owner: Owner, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> AsyncIterator[tuple[TlsLink, Peer]]:
    """A link over TCP after its handshake, and the client at its other end."""
    loop = asyncio.get_running_loop()
    sock, other = connected()
    session = TlsSession(server_side(files).context, server_hostname=None)
    peer = Peer(other, client_context(files, version), session)
    await asyncio.gather(session.handshake(sock, loop), peer.tls.handshake(other, loop))
    link = TlsLink(loop, sock, owner, LinkMeter(lambda *_: None), session)
    try:
        yield link, peer
    finally:
        link.close()
        other.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_bytes_pass_both_ways(files: Files, version: ssl.TLSVersion) -> None:
    owner = Owner()
    async with linked(files, owner, version) as (link, peer):
        link.resume()
        await peer.send(b"there")
        await until(lambda: owner.received == b"there")
        link.write(b"")
        link.write(b"and ")
        link.write(memoryview(bytearray(b"back")))
        received = b""
        while len(received) < 8:
            received += await peer.receive()
        assert received == b"and back"
        assert link.meter.sent_bytes == len(received)


async def test_a_record_with_nothing_behind_it_is_read_with_one_call(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner()
    reads: list[int] = []
    read = ssl.SSLObject.read

    def counted(tls: ssl.SSLObject, *most: Any) -> int | bytes:
        reads.append(most[0])
        return read(tls, *most)

    async with linked(files, owner) as (link, peer):
        link.resume()
        await peer.send(b"first")
        await until(lambda: owner.received == b"first")
        monkeypatch.setattr(ssl.SSLObject, "read", counted)
        await peer.send(b"second")
        await until(lambda: owner.received == b"firstsecond")
        assert len(reads) == 1


async def test_bytes_that_came_with_the_end_of_the_handshake_are_shown(files: Files) -> None:
    loop = asyncio.get_running_loop()
    sock, other = connected()
    session = TlsSession(server_side(files).context, server_hostname=None)
    shaking = asyncio.create_task(session.handshake(sock, loop))
    peer = Peer(other, client_context(files))
    while True:
        try:
            peer.tls.object.do_handshake()
        except ssl.SSLWantReadError:
            await loop.sock_sendall(other, peer.tls.outgoing.read())
            peer.tls.incoming.write(await loop.sock_recv(other, 16384))
        else:
            break
    await peer.send(b"at once")  # in one piece with the handshake's last message
    await shaking
    owner = Owner()
    link = TlsLink(loop, sock, owner, LinkMeter(lambda *_: None), session)
    link.resume()
    await until(lambda: owner.received == b"at once")
    link.close()
    other.close()


@pytest.mark.parametrize("most", [1000, BUFFER_BYTES])
async def test_megabytes_come_whole_through_pauses(files: Files, most: int) -> None:
    owner = Owner(most=most)
    data = os.urandom(3_000_000)
    async with linked(files, owner) as (link, peer):
        link.resume()
        sending = asyncio.create_task(peer.send(data))
        while not sending.done() or len(owner.received) + link.unused_bytes < len(data):
            link.pause()
            await turns(3)
            if link.unused_bytes > BUFFER_BYTES // 2:  # an owner that used too little at once
                owner.most = BUFFER_BYTES
                link.release_input()
                owner.most = most
            link.resume()
            await turns(3)
        owner.most = BUFFER_BYTES
        link.release_input()
        assert owner.received == data


async def test_megabytes_are_received_where_they_are_wanted(files: Files) -> None:
    owner = Owner()
    data = os.urandom(3_000_000)
    room = bytearray(2_900_000)
    async with linked(files, owner) as (link, peer):
        link.fill(memoryview(room))
        link.resume()
        await peer.send(data)
        await until(lambda: len(owner.received) == len(data) - len(room))
        assert room + owner.received == data


async def test_what_the_socket_does_not_take_is_sent_when_it_does(files: Files) -> None:
    owner = Owner()
    data = os.urandom(9_000_000)  # more than the kernel takes
    async with linked(files, owner) as (link, peer):
        link.write(data)
        assert link.backlog
        link.write(b"behind it")
        received = bytearray()
        while len(received) < len(data) + 9:
            received += await peer.receive()
        assert received == data + b"behind it"
        await until(lambda: owner.events == ["drained"])
        assert not link.backlog


class BufferSpy:
    """The buffer of sealed bytes, and the most that it ever held: it never shrinks."""

    def __init__(self, buffer: ssl.MemoryBIO) -> None:
        self._buffer = buffer
        self.most = 0

    @property
    def pending(self) -> int:
        return self._buffer.pending

    def read(self) -> bytes:
        self.most = max(self.most, self._buffer.pending)
        return self._buffer.read()


async def test_a_large_response_is_sealed_in_pieces_and_leaves_no_large_buffer(files: Files) -> None:
    owner = Owner()
    data = os.urandom(20_000_000)
    async with linked(files, owner) as (link, peer):
        spy: Any = BufferSpy(peer.other.outgoing)
        peer.other.outgoing = spy
        link.write(data)
        assert len(data) / 2 < link.backlog < len(data) + BUFFER_BYTES
        link.write(b"behind it")
        received = bytearray()
        while len(received) < len(data) + 9:
            received += await peer.receive()
        assert received == data + b"behind it"
        await until(lambda: owner.events == ["drained"])
        assert not link.backlog
        assert 0 < spy.most < BUFFER_BYTES / 2
        assert not link.has_queue
        assert link.meter.sent_bytes == len(data) + 9


async def test_bytes_of_the_shared_buffer_that_wait_to_be_sealed_do_not_change(files: Files) -> None:
    owner = Owner()
    async with linked(files, owner) as (link, peer):
        data = os.urandom(9_000_000)
        link.write(data)
        assert link.backlog
        shared = SHARED.view
        shared[:5] = b"first"
        link.write(shared[:5])
        shared[:5] = b"other"
        received = bytearray()
        while len(received) < len(data) + 5:
            received += await peer.receive()
        assert received == data + b"first"


async def test_nothing_of_a_large_response_is_kept_after_the_end(files: Files) -> None:
    async with linked(files, Owner()) as (link, _):
        link.write(os.urandom(9_000_000))
        link.close()
        assert not link.backlog
        assert not link.has_queue


async def test_a_goodbye_behind_the_last_bytes_is_an_end_behind_them(files: Files) -> None:
    owner = Owner()
    async with linked(files, owner) as (link, peer):
        last = peer.sealed(b"last")
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.object.unwrap()
        peer.sock.send(last + peer.tls.outgoing.read())  # the socket itself stays open
        link.resume()
        await until(lambda: owner.events == ["end"])
        assert owner.received == b"last"


async def test_a_connection_that_is_cut_is_an_end_too(files: Files) -> None:
    owner = Owner()
    async with linked(files, owner) as (link, peer):
        await peer.send(b"last")
        peer.sock.shutdown(socket.SHUT_WR)
        link.resume()
        await until(lambda: owner.events == ["end"])
        assert owner.received == b"last"


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_came_before_a_spoiled_record_is_shown_before_the_error(
    files: Files, version: ssl.TLSVersion
) -> None:
    owner = Owner()
    async with linked(files, owner, version) as (link, peer):
        good, bad = peer.sealed(b"good"), bytearray(peer.sealed(b"bad"))
        bad[-1] ^= 1
        peer.sock.send(good + bad)
        link.resume()
        await until(lambda: bool(owner.events))
        assert owner.received == b"good"
        assert owner.events == ["error SSLError"]


@pytest.mark.parametrize("reads_first", [True, False])
async def test_a_reset_behind_half_a_record_is_noticed(files: Files, reads_first: bool) -> None:
    owner = Owner()
    hangups = HangupWatcher(asyncio.get_running_loop())
    async with linked(files, owner) as (link, peer):
        link.watch_for_hangup(hangups)
        hangups.register()
        if reads_first:
            link.resume()
        peer.sock.send(peer.sealed(b"never whole")[:-3])
        if reads_first:
            await turns()
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        peer.sock.close()
        await until(lambda: link.peer_has_left)
        link.resume()
        await until(lambda: bool(owner.events))
        assert owner.events == ["error ConnectionResetError"]
        assert not owner.received
    hangups.close()


async def test_what_is_counted_is_what_was_said_and_not_how_it_was_sealed(files: Files) -> None:
    owner = Owner()
    async with linked(files, owner) as (link, peer):
        link.resume()
        await peer.send(bytes(1000))
        await until(lambda: len(owner.received) == 1000)
        link.write(bytes(500))
        assert (link.meter.received_bytes, link.meter.sent_bytes) == (1000, 500)


@pytest.mark.parametrize("version", VERSIONS)
async def test_closing_says_goodbye(files: Files, version: ssl.TLSVersion) -> None:
    async with linked(files, Owner(), version) as (link, peer):
        link.write(b"last")
        link.close()
        assert await says_goodbye(peer)


async def test_closing_with_a_backlog_cuts_instead_of_waiting(files: Files) -> None:
    async with linked(files, Owner()) as (link, peer):
        link.write(bytes(9_000_000))
        assert link.backlog
        link.close()
        assert not await says_goodbye(peer)


async def test_writing_after_the_peer_is_gone_is_told_once_and_closing_is_quiet(files: Files) -> None:
    owner = Owner()
    async with linked(files, owner) as (link, peer):
        peer.sock.close()
        for _ in range(3):
            link.write(b"anybody?")
            await turns()
        await until(lambda: bool(owner.events))
        link.write(b"anybody?")
        await turns()
        assert [event.partition(" ")[0] for event in owner.events] == ["unwritable"]


async def test_a_gateway_that_ends_answers_what_is_under_way_and_says_goodbye(files: Files) -> None:
    async with stage(tls_cert=files.server_cert, tls_key=files.server_key, drain_ms=60_000) as one:
        client = await one.client()
        peer = Peer(client.sock, client_context(files))
        await peer.tls.handshake(client.sock, asyncio.get_running_loop())
        await peer.send(request(12, 4, b"\x02g\x00\x00\x00\x01\x02m\x00\x00"))
        broker = await one.upstream.accept()
        asked = await broker.request()
        stopping = one.stop()
        await turns()
        answer = asked.answer(bytes(7))
        await broker.send(answer)
        assert await peer.receive() == answer
        assert await says_goodbye(peer)
        await stopping


# Certificates.


def assert_names(certificates: Certificates, *words: str) -> None:
    assert all(word in (certificates.problem or "") for word in words), certificates.problem


@contextmanager
def copied(files: Files, folder: Path) -> Iterator[Files]:
    """The same files in a folder of their own, where a test may change them."""
    shutil.copytree(files.ca.parent, folder)
    yield Files(**{name: folder / getattr(files, name).name for name in Files.__dataclass_fields__})


def test_certificates_are_read_again_only_when_a_file_has_changed(files: Files, tmp_path: Path) -> None:
    with copied(files, tmp_path / "own") as own:
        certificates = server_side(own)
        first = certificates.context
        certificates.refresh()
        assert certificates.context is first
        shutil.copy(own.server_cert, own.server_cert.with_suffix(".new"))
        own.server_cert.with_suffix(".new").rename(own.server_cert)
        certificates.refresh()
        assert certificates.context is not first
        assert certificates.problem is None


def test_a_file_that_keeps_the_time_of_the_one_that_it_replaces_is_noticed(files: Files, tmp_path: Path) -> None:
    with copied(files, tmp_path / "own") as own:
        certificates = server_side(own)
        first = certificates.context
        times = own.server_cert.stat()
        new = own.server_cert.with_suffix(".new")
        shutil.copy(own.server_cert, new)
        os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
        new.rename(own.server_cert)
        certificates.refresh()
        assert certificates.context is not first


def test_a_pair_that_is_exchanged_file_by_file_is_taken_when_both_are_there(
    files: Files, tmp_path: Path, logs: list[EventDict]
) -> None:
    other = make_certificates(tmp_path / "other", days=30)
    with copied(files, tmp_path / "own") as own:
        certificates = server_side(own)
        first, until_then = certificates.context, certificates.expires_at or 0
        shutil.copy(other.server_cert, own.server_cert)
        certificates.refresh()
        certificates.refresh()
        assert certificates.context is first
        assert certificates.expires_at == until_then
        assert_names(certificates, "gateway.tls_cert: these files cannot be used", str(own.server_key))
        shutil.copy(other.server_key, own.server_key)
        certificates.refresh()
        assert certificates.problem is None
        assert certificates.context is not first
        assert (certificates.expires_at or 0) > until_then
        events = [event["event"] for event in logs]
        assert events == ["certificates cannot be used, the old ones stay", "certificates read again"]


def test_a_file_that_is_gone_is_a_problem_until_it_is_back(files: Files, tmp_path: Path) -> None:
    with copied(files, tmp_path / "own") as own:
        certificates = server_side(own, ca=own.ca)
        away = own.ca.rename(own.ca.with_suffix(".away"))
        certificates.refresh()
        assert certificates.problem is not None
        away.rename(own.ca)
        certificates.refresh()
        assert certificates.problem is None


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(files: Files, tmp_path: Path) -> None:
    with copied(files, tmp_path / "own") as own:
        key = str(own.server_key)
        words = ["openssl", "ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", key]
        subprocess.run(words, check=True, capture_output=True)
        with pytest.raises(UsageError, match="the private key is encrypted: store it without a password"):
            server_side(own)


# Before a connection is one.


async def test_a_broker_is_told_the_name_that_is_dialled(files: Files) -> None:
    names: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server_cert, files.server_key)
    context.sni_callback = lambda _sock, name, _context: names.append(name)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    ends = PeerSockets(Config(upstream=UpstreamConfig(tls=True, tls_ca=files.ca)), asyncio.get_running_loop())
    for host in ("localhost", "127.0.0.1"):  # an address is no name: it is verified and not told (RFC 6066, 3)
        end = await ends.dial([Address(host, port)], lambda: None)
        assert end is not None
        end.sock.close()
    assert names == ["localhost", None]
    server.close()
    await server.wait_closed()


async def test_a_broker_with_a_certificate_for_another_name_is_not_dialled(files: Files, logs: list[EventDict]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server_cert, files.server_key)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.4", 0, ssl=context)
    address = Address("127.0.0.4", server.sockets[0].getsockname()[1])
    ends = PeerSockets(Config(upstream=UpstreamConfig(tls=True, tls_ca=files.ca)), asyncio.get_running_loop())
    assert await ends.dial([address], lambda: None) is None
    [event] = logs
    assert event["event"] == "broker cannot be reached"
    assert "certificate is not valid for '127.0.0.4'" in event["problem"]
    server.close()
    await server.wait_closed()


async def test_a_client_that_never_shakes_hands_is_disconnected_in_time(files: Files) -> None:
    async with stage(tls_cert=files.server_cert, tls_key=files.server_key, connect_timeout_ms=50) as one:
        client = await one.client()
        assert await client.rest() == b""
        await one.ends_with(CloseCause.HANDSHAKE_FAILED)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x10\x00\x12\x00\x03" + bytes(16)])
async def test_a_client_that_does_not_speak_tls_is_disconnected(files: Files, sent: bytes) -> None:
    async with stage(tls_cert=files.server_cert, tls_key=files.server_key) as one:
        client = await one.client()
        await client.send(sent)
        assert len(await client.rest()) < 16  # an alert at most
        await one.ends_with(CloseCause.HANDSHAKE_FAILED)
