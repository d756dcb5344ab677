"""Only a whole Metadata answer counts as one, whatever listens at the port."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.embedded.readiness import Answer, ask, parse

# Captured from a 4.3.1 broker: Metadata v4 without topics, node 0 at 127.0.0.1:21000, controller 0.
FRAME = bytes.fromhex(
    "00000001 00000000 00000001 00000000 0009 3132372e302e302e31 00005208 ffff"
    "0016 65434548556266705169536f7561596a30435454745100000000 00000000"
)
ANSWER = Answer(cluster_id="eCEHUbfpQiSouaYj0CTTtQ", nodes=frozenset({0}))  # type: ignore[arg-type]


@contextmanager
def listening(reply: bytes) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_an_answer_of_a_real_broker_is_understood() -> None:
    assert parse(FRAME) == ANSWER


def test_the_answer_is_read_from_a_socket() -> None:
    with listening(struct.pack(">i", len(FRAME)) + FRAME) as port:
        assert ask("127.0.0.1", port, timeout=5) == ANSWER


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4\0\0\0\1", struct.pack(">ii", 8, 7) + b"\0" * 20]
)
def test_whatever_else_listens_there_gives_no_answer(reply: bytes) -> None:
    with listening(reply) as port:
        assert ask("127.0.0.1", port, timeout=5) is None


def test_nobody_there_gives_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert ask("127.0.0.1", port, timeout=1) is None


@given(st.binary(max_size=60), st.integers(0, len(FRAME)))
def test_no_frame_does_worse_than_be_refused(noise: bytes, cut: int) -> None:
    for frame in (noise, FRAME[:cut] + noise):
        with suppress(struct.error, IndexError, UnicodeDecodeError):
            parse(frame)
