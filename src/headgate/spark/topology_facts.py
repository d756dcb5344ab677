"""Described queries as facts: each becomes a version of its application in the topic `topologies`.

One rule: it is a fact like any other. The query's name is the application, its id (one life of its checkpoint) the
incarnation, and the provenance is `spark`. The topic is the gateway's to make: where it is absent, nothing is written,
or a broker that makes topics by itself would make one that forgets.
"""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.facts import TopologyDescribed, encode
from headgate.kafka.topics import quiet, reason
from headgate.spark.describe import DescribedQuery

_TIMEOUT_S: Final = 10.0
_SUFFIX: Final = "topologies"


class TopologyFacts:
    """A sink for `listen`; `settings` are librdkafka's, of the cluster that has Headgate's topics.

    One thread calls it. `ClusterError` says what could not be written, and the listener makes a warning of it.
    """

    def __init__(self, settings: Mapping[str, Any], *, prefix: str = "headgate.", clock: Clock | None = None) -> None:
        self._settings = quiet(
            settings, enable__idempotence=True, acks="all", delivery__timeout__ms=int(_TIMEOUT_S * 1000)
        )
        self._topic = prefix + _SUFFIX
        self._clock = clock or SystemClock()
        self._boot = uuid.uuid4().hex
        self._seq = 0
        self._producer: Producer | None = None
        self._cluster: str | None = None

    def __call__(self, described: DescribedQuery) -> None:
        """Returns when every replica in sync has the fact."""
        try:
            producer = self._connected()
            _, key, value = encode(self._fact(described))
            self._write(producer, key, value)
        except KafkaException as failure:
            raise self._not_written(reason(failure)) from None

    def _connected(self) -> Producer:
        if self._producer is None:
            producer = Producer(self._settings)
            known = producer.list_topics(timeout=_TIMEOUT_S)
            if self._topic not in known.topics:
                raise self._not_written("the topic is not there: a gateway makes it when it starts")
            self._producer, self._cluster = producer, known.cluster_id
        return self._producer

    def _fact(self, described: DescribedQuery) -> TopologyDescribed:
        seq, self._seq = self._seq, self._seq + 1
        return TopologyDescribed(
            at=self._clock.epoch_ms(),
            group=described.group,
            incarnation=described.query_id,
            epoch=0,
            hash=described.hash,
            provenance="spark",
            member=None,
            process=None,
            description=described.description,
            cluster=self._cluster,
            writer="spark/0",
            boot=self._boot,
            seq=seq,
        )

    def _write(self, producer: Producer, key: bytes, value: bytes | None) -> None:
        outcome: list[KafkaError | None] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            outcome.append(error)

        producer.produce(self._topic, key=key, value=value, on_delivery=on_delivery)
        producer.flush(2 * _TIMEOUT_S)
        if not outcome:
            raise self._not_written("the cluster does not answer")
        if outcome[0] is not None:
            raise self._not_written(reason(outcome[0]))

    def _not_written(self, why: str) -> ClusterError:
        return ClusterError(f"a topology could not be written to {self._topic}: {why}")
