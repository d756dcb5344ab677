"""The recorder alters nothing: what one side sends is what the other side gets and what is kept, ends included."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.ports import port_block
from tests.support.recorder import Connection, Endpoint, Recorder, Side

HOST, RECORDER_HOST = "127.0.0.1", "127.0.0.2"


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[Endpoint]:
    """One connection is accepted and served; the address is that of the recorder before it."""
    port = port_block()
    with socket.create_server((HOST, port)) as listening:

        def accept() -> None:
            connection, _ = listening.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield Endpoint(RECORDER_HOST, port)
        thread.join(10)


def receive(connection: socket.socket) -> bytes:
    """Everything until the other side ends."""
    got = bytearray()
    while data := connection.recv(65536):
        got += data
    return bytes(got)


@contextmanager
def recording(endpoint: Endpoint) -> Iterator[Recorder]:
    with Recorder({endpoint: Endpoint(HOST, endpoint.port)}) as recorder:
        yield recorder


def test_every_byte_passes_both_ways_and_is_kept() -> None:
    sent = bytes(range(256)) * 20_000

    def echo(connection: socket.socket) -> None:
        connection.sendall(receive(connection)[::-1])

    with server(echo) as endpoint, recording(endpoint) as recorder:
        with socket.create_connection(endpoint) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            got = receive(client)
        [connection] = recorder.take()
    assert got == sent[::-1]
    assert connection.sent_by(Side.CLIENT) == sent
    assert connection.sent_by(Side.SERVER) == got
    assert connection.left_by_client


@pytest.mark.parametrize("side", list(Side))
def test_a_reset_passes_and_is_kept_as_one(side: Side) -> None:
    at_once = struct.pack("ii", 1, 0)  # linger for no time: close() resets
    arrived = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(5)
        arrived.set()
        if side is Side.SERVER:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        else:
            with pytest.raises(ConnectionResetError):
                receive(connection)

    with server(serve) as endpoint, recording(endpoint) as recorder:
        with socket.create_connection(endpoint) as client:
            client.sendall(b"hello")
            assert arrived.wait(10)
            if side is Side.CLIENT:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            else:
                with pytest.raises(ConnectionResetError):
                    receive(client)
        [connection] = recorder.take()
    assert connection.reset_by is side
    assert connection.left_by_client is (side is Side.CLIENT)


def test_a_client_meets_the_end_of_a_server_that_is_away() -> None:
    endpoint = Endpoint(RECORDER_HOST, port_block())
    with recording(endpoint) as recorder:
        with socket.create_connection(endpoint) as client, pytest.raises(ConnectionResetError):
            receive(client)
        taken: list[Connection] = recorder.take()
    assert [one.chunks for one in taken] == [[]]


def test_what_is_forgotten_is_not_taken() -> None:
    arrived = threading.Event()

    def hold(connection: socket.socket) -> None:
        connection.recv(6)
        arrived.set()
        receive(connection)

    with server(hold) as endpoint, recording(endpoint) as recorder, socket.create_connection(endpoint) as client:
        client.sendall(b"before")
        assert arrived.wait(10)
        recorder.forget()
        assert recorder.take() == []
