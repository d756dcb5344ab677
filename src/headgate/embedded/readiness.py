"""Is a broker there? Asked by Kafka's own Metadata call on a plaintext listener.

One rule: one small call on a fresh socket, so that an answer means what it would mean to a new client. Version 4
without topics is the oldest form that names the cluster, and no ACL can refuse it.
"""

import socket
import struct
from dataclasses import dataclass

from headgate.base.ids import ClusterId, NodeId

_METADATA, _VERSION, _CORRELATION_ID = 3, 4, 1
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one broker says of the cluster: its id, and the brokers that are up in its eyes."""

    cluster_id: ClusterId
    nodes: frozenset[NodeId]


def ask(host: str, port: int, *, timeout: float) -> Answer | None:
    """The answer of the broker at `host`:`port`, or None while there is none (or something else listens there)."""
    # Header v1: key, version, correlation id, no client id. Body: no topics, no auto-creation.
    body = struct.pack(">hhihi?", _METADATA, _VERSION, _CORRELATION_ID, -1, 0, False)
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 0 < size <= _MOST_BYTES:
                return None
            return parse(_exactly(connection, size))
    except (OSError, struct.error, IndexError, UnicodeDecodeError):
        return None


def parse(frame: bytes) -> Answer | None:
    """A Metadata v4 response; None if it is the answer to something else."""
    # correlation_id, throttle_time_ms, then the array of brokers: node_id, host, port, rack.
    correlation_id, _, count = struct.unpack_from(">iii", frame)
    if correlation_id != _CORRELATION_ID:
        return None
    pos, nodes = 12, set()
    for _ in range(count):
        (node,) = struct.unpack_from(">i", frame, pos)
        nodes.add(NodeId(node))
        _, pos = _string(frame, pos + 4)
        _, pos = _string(frame, pos + 4)
    cluster_id, _ = _string(frame, pos)
    return Answer(cluster_id=ClusterId(cluster_id), nodes=frozenset(nodes))


def _string(frame: bytes, pos: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", frame, pos)
    end = pos + 2 + max(size, 0)
    if end > len(frame):
        raise IndexError("the answer ends inside a string")
    return frame[pos + 2 : end].decode(), end


def _exactly(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = connection.recv(size - len(got))
        if not more:
            raise ConnectionError("closed inside an answer")
        got += more
    return got
