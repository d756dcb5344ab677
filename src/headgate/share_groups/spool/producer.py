"""One producer of the spool, with the reports of its records."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.facts.topics import LARGEST_DEAD_LETTER, MIB
from headgate.kafka.delivery_reports import DeliveryReports
from headgate.kafka.fact_writer import MakeProducer, PolledProducer
from headgate.kafka.topics import quiet, reason
from headgate.share_groups.model.dead_letter_records import Header

log = structlog.get_logger()

DELIVERY_TIMEOUT_S: Final = 10.0
_LARGEST: Final = LARGEST_DEAD_LETTER + MIB
T = TypeVar("T")


class SpoolProducer(Generic[T]):
    """Made on the event loop, on which `on_report` is called: item, error (None: delivered), offset or -1.

    Without idempotence: a record that is written twice has the same key, and only idempotent producers stop all
    partitions when one of them had an error.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        acks: str,
        max_dead_letters: int,
        max_bytes: int,
        on_report: Callable[[T, KafkaError | str | None, int], None],
        make_producer: MakeProducer = Producer,
    ) -> None:
        producing = quiet(
            settings,
            acks=acks,
            linger__ms=2,
            compression__type="zstd",
            allow__auto__create__topics=False,
            delivery__timeout__ms=int(DELIVERY_TIMEOUT_S * 1000),
            request__timeout__ms=int(DELIVERY_TIMEOUT_S * 1000),
            reconnect__backoff__max__ms=1000,
            message__max__bytes=_LARGEST,
            queue__buffering__max__messages=4 * max_dead_letters,  # some partitions, and tombstones
            queue__buffering__max__kbytes=2 * (max_bytes + _LARGEST) // 1024,
        )
        self._topic = topic
        self._on_report = on_report
        self._reports: DeliveryReports[T] = DeliveryReports(on_report)
        self._producer = PolledProducer(
            producing,
            thread=f"headgate-spool-{acks}",
            give_up=lambda: self._reports.fail_all("the producer had a fatal error"),
            on_fatal=lambda error: log.warning("producer of the spool replaced", error=reason(error)),
            make_producer=make_producer,
        )

    def produce(self, item: T, partition: int, key: bytes, value: bytes | None, headers: list[Header]) -> None:
        """Produce a record; a failure is reported at once."""
        try:
            producer = self._producer.alive()
            self._reports.produce(
                producer, item, self._topic, key=key, value=value, headers=headers, partition=partition
            )
            self._producer.wake()
        except BufferError:
            self._on_report(item, "the producer's queue is full", -1)
        except ClusterError as problem:
            self._on_report(item, str(problem), -1)
        except KafkaException as problem:
            self._on_report(item, problem.args[0], -1)

    async def partitions(self, timeout_s: float) -> int:
        """The number of partitions of the topic; `ClusterError` when it is not known."""
        producer = self._producer.alive()
        try:
            metadata = await off_loop(lambda: producer.list_topics(self._topic, timeout_s))
        except KafkaException as failure:
            raise ClusterError(f"the topic {self._topic} cannot be reached: {reason(failure)}") from None
        found = metadata.topics.get(self._topic)
        if found is None or not found.partitions:
            problem = "it has no partitions" if found is None or found.error is None else reason(found.error)
            raise ClusterError(f"the topic {self._topic} cannot be reached: {problem}")
        return len(found.partitions)

    async def close(self, timeout_s: float) -> None:
        await self._reports.wait_until_idle(timeout_s)
        self._reports.fail_all("the writer was closed")
        await self._producer.close()
