"""A real Kafka cluster of one to three nodes on this machine, for `headgate kafka`, `headgate dev` and the tests.

    with EmbeddedKafka(ClusterSpec(data_dir=folder, port=19092)) as kafka:
        client(kafka.bootstrap)

Read `spec.py` (what can be asked for), `properties.py` (what Kafka is told), `data_dir.py` (what lies on disk),
`node.py` (one process) and `cluster.py` (all of them) in that order. Everything here is synchronous and may be
called from any thread; nothing here is on the gateway's path.
"""

from headgate.embedded.cluster import EmbeddedKafka
from headgate.embedded.node import Node, NodeDeath
from headgate.embedded.spec import Access, ClusterSpec, Listener, SecurityProtocol, TlsFiles
from headgate.embedded.waiting import Patience, StartGivenUpError

__all__ = [
    "Access",
    "ClusterSpec",
    "EmbeddedKafka",
    "Listener",
    "Node",
    "NodeDeath",
    "Patience",
    "SecurityProtocol",
    "StartGivenUpError",
    "TlsFiles",
]
