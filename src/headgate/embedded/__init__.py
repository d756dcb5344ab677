"""A real Kafka cluster of one to three nodes on this machine, for `headgate kafka`, `headgate dev` and the tests.

    with EmbeddedKafka(ClusterSpec(data_dir=folder, port=19092)) as kafka:
        client(kafka.bootstrap)

Read `spec.py` (what can be configured), `node.py` (one process) and `cluster.py` (the data directory and all nodes);
`java.py` finds Java and the jars, `spawn.py` starts processes. Everything here is synchronous and may be called from
any thread; the gateway does not use it.
"""

from headgate.embedded.cluster import EmbeddedKafka
from headgate.embedded.node import Node, NodeDeath, StartGivenUpError, StartOptions
from headgate.embedded.spec import QUICK_SETTINGS, ClusterAccess, ClusterSpec, Listener, SecurityProtocol, TlsFiles

__all__ = [
    "QUICK_SETTINGS",
    "ClusterAccess",
    "ClusterSpec",
    "EmbeddedKafka",
    "Listener",
    "Node",
    "NodeDeath",
    "SecurityProtocol",
    "StartGivenUpError",
    "StartOptions",
    "TlsFiles",
]
