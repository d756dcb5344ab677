"""The recorder alters nothing: what one side sends is what the other side gets and what is kept, ends included."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.ports import port_block
from tests.support.recorder import Endpoint, Recorder, Side

HOST, RECORDER_HOST = "127.0.0.1", "127.0.0.2"
RESET = struct.pack("ii", 1, 0)  # linger for no time: close() resets


@contextmanager
def recorded(serve: Callable[[socket.socket], None]) -> Iterator[tuple[Recorder, socket.socket]]:
    """A client whose one connection is recorded and served."""
    port = port_block()
    endpoint = Endpoint(RECORDER_HOST, port)
    with socket.create_server((HOST, port)) as listening:

        def accept() -> None:
            connection, _ = listening.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        with Recorder({endpoint: Endpoint(HOST, port)}) as recorder, socket.create_connection(endpoint) as client:
            yield recorder, client
        thread.join(10)


def receive(connection: socket.socket) -> bytes:
    """Everything until the other side ends."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_every_byte_passes_both_ways_and_is_kept() -> None:
    sent = bytes(range(256)) * 20_000
    with recorded(lambda connection: connection.sendall(receive(connection)[::-1])) as (recorder, client):
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        got = receive(client)
        client.close()
        [connection] = recorder.take()
    assert got == sent[::-1]
    assert connection.sent_by(Side.CLIENT) == sent
    assert connection.sent_by(Side.SERVER) == got
    assert connection.left_by_client


@pytest.mark.parametrize("side", list(Side))
def test_a_reset_passes_and_is_kept_as_one(side: Side) -> None:
    arrived = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(5)
        arrived.set()
        if side is Side.SERVER:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        else:
            with pytest.raises(ConnectionResetError):
                receive(connection)

    with recorded(serve) as (recorder, client):
        client.sendall(b"hello")
        assert arrived.wait(10)
        if side is Side.CLIENT:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        else:
            with pytest.raises(ConnectionResetError):
                receive(client)
            client.close()
        [connection] = recorder.take()
    assert connection.reset_by is side
    assert connection.left_by_client is (side is Side.CLIENT)
