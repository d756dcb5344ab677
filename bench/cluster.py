"""The real Kafka that every peer stands in front of, with its topics: one for writing, two filled for reading.

One rule: partition p of each topic has node p as its only replica, so that a client knows whom to ask without asking.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.certificates import Certificates
from bench.loader import Loader
from bench.processes import BenchError
from headgate.embedded import ClusterSpec, EmbeddedKafka, Listener, SecurityProtocol, TlsFiles
from tests.support.ports import port_block

WRITTEN, READ, READ_SMALL, GROUP = "bench-written", "bench-read", "bench-read-small", "bench"
RECORD_BYTES = 1024
RECORDS_A_BATCH = 62  # with their headers a little less than 64 KiB
_SMALL_BATCHES = 300  # 100 on each of three nodes
_MIB = 1 << 20
_CALL_S = 20.0
_TLS_OFFSET = 3  # of a block's ports the first three are plaintext, the next three TLS
_PRIVATE_OFFSET = 6

# What is written is thrown away soon: a campaign writes tens of gigabytes, and the data lies in memory.
_SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.initial.task.delay.ms": "500",
    "log.retention.bytes": str(256 * _MIB),
    "log.retention.check.interval.ms": "500",
    "log.segment.bytes": str(64 * _MIB),
    "log.segment.delete.delay.ms": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """What a proxy has behind it: the address of each node by its id, and certificates when it is TLS."""

    nodes: tuple[str, ...]
    tls: Certificates | None

    @property
    def bootstrap(self) -> str:
        return ",".join(self.nodes)

    @property
    def client_settings(self) -> dict[str, str]:
        """What librdkafka and Java clients have to be told beside the address."""
        return client_settings(self.tls)


def client_settings(tls: Certificates | None) -> dict[str, str]:
    return {} if tls is None else {"security.protocol": "SSL", "ssl.ca.location": str(tls.authority)}


def admin(address: str, tls: Certificates | None) -> AdminClient:
    # Silent: while a proxy starts it refuses connections, and librdkafka would print each one.
    return AdminClient({"bootstrap.servers": address, "log_level": 0, **client_settings(tls)})


def answers(address: str, tls: Certificates | None) -> bool:
    """Whether a client finds a cluster at `address`."""
    try:
        return bool(admin(address, tls).list_topics(timeout=2).brokers)
    except KafkaException:
        return False


class BenchCluster:
    """A context manager: a cluster with its topics, made and filled when it is entered."""

    def __init__(self, *, folder: Path, brokers: int, tls: Certificates | None) -> None:
        first = port_block()
        listener = Listener(protocol=SecurityProtocol.SSL, port=first + _TLS_OFFSET)
        self._kafka = EmbeddedKafka(
            ClusterSpec(
                data_dir=folder,
                port=first,
                brokers=brokers,
                listeners=() if tls is None else (listener,),
                private_port=first + _PRIVATE_OFFSET,
                tls=None if tls is None else TlsFiles(keystore=tls.both),
                settings=_SETTINGS,
                heap_mb=1024,
                full_jit=True,
            )
        )
        self._tls = tls
        self.topic_ids: Mapping[str, str] = {}  # of the topics for reading, by name

    @property
    def upstream(self) -> Upstream:
        protocol = SecurityProtocol.PLAINTEXT if self._tls is None else SecurityProtocol.SSL
        return Upstream(nodes=tuple(self._kafka.bootstrap_of(protocol).split(",")), tls=self._tls)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(node.pid for node in self._kafka.nodes if node.pid is not None)

    def __enter__(self) -> Self:
        self._kafka.start()
        try:
            self._make_topics()
        except BaseException:
            self._kafka.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kafka.stop()

    def fill(self, loader: Loader, *, megabytes: int) -> None:
        """Write into the topics for reading, on every node; what a fetch reads must be there before.

        A broker returns whole batches, so that small fetches need a topic with batches of one record.
        """
        batches = megabytes * 1_000_000 // (RECORDS_A_BATCH * RECORD_BYTES)
        for topic, records, calls in ((READ, RECORDS_A_BATCH, batches), (READ_SMALL, 1, _SMALL_BATCHES)):
            words = {
                "call": "produce",
                "to": self._kafka.bootstrap,
                "topic": topic,
                "records": records,
                "size": RECORD_BYTES,
                "connections": len(self.upstream.nodes),
                "depth": 5,
                "calls": calls,
                "seconds": 60,
            }
            _patiently(partial(loader.run, words))

    def _make_topics(self) -> None:
        client = admin(self._kafka.bootstrap, None)
        placed = [[node] for node in range(len(self.upstream.nodes))]
        read = [READ, READ_SMALL]
        wanted = [
            NewTopic(name, num_partitions=len(placed), replica_assignment=placed, config=config)
            for name, config in ((WRITTEN, {}), *((name, {"retention.bytes": "-1"}) for name in read))
        ]
        for made in client.create_topics(wanted).values():
            made.result(_CALL_S)
        # librdkafka writes plain base64, Kafka's own Uuid the kind for URLs.
        for_urls = str.maketrans("+/", "-_")
        described = _patiently(
            lambda: {
                name: topic.result(_CALL_S) for name, topic in client.describe_topics(TopicCollection(read)).items()
            }
        )
        self.topic_ids = {name: str(topic.topic_id).translate(for_urls) for name, topic in described.items()}
        # Once its coordinator has been asked for, small calls of a group get the same answer from the start.
        _patiently(lambda: client.describe_consumer_groups([GROUP])[GROUP].result(_CALL_S))


def _patiently(ask: Callable[[], Any]) -> Any:
    """Ask until there is an answer: what has just been made is not known to every broker at once."""
    deadline = time.monotonic() + _CALL_S
    while True:
        try:
            return ask()
        except (KafkaException, TimeoutError, BenchError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)
