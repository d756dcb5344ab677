"""Metadata of dead-letter topics: whether they exist, their partitions, and their `max.message.bytes`.

No topic is created unless the operator allows it (`[share_groups] dlq_auto_create`). Metadata is cached for some
seconds and refreshed as soon as a dead letter fails; dead letters that wait share one request.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.facts.topics import replication_of
from headgate.kafka.topics import TopicAdmin, reason

log = structlog.get_logger()

_FRESH_S, _EXPIRING_S = 10.0, 0.25
_CALL_S = 5.0
_MAX_TOPICS = 1000
_AT_ONCE = 8
_LIMIT = "max.message.bytes"
_PAUSE_S, _PATIENCE_S = 0.05, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterTopicInfo:
    """`partitions` 0: the topic does not exist, or may not be described, and then `problem` says so.

    `max_message_bytes` None: the service account has no DESCRIBE_CONFIGS on the topic.
    """

    partitions: int
    max_message_bytes: int | None = None
    problem: str | None = None


@dataclass(slots=True)
class _CachedInfo:
    info: DeadLetterTopicInfo
    at: float
    is_expiring: bool


class DeadLetterTopics:
    """Used on the event loop; requests to the cluster run on threads, a few at a time."""

    def __init__(self, admin: TopicAdmin, *, auto_create: bool, replication: int | None, clock: Clock) -> None:
        self._auto_create = auto_create
        self._replication = replication
        self._clock = clock
        self._admin = admin
        self._kept: dict[str, _CachedInfo] = {}
        self._asking: dict[str, asyncio.Task[DeadLetterTopicInfo | ClusterError]] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def open(self) -> None:
        """Connect, which takes longer than a client's request may wait; an unavailable cluster is not an error."""
        with suppress(KafkaException, TimeoutError):
            await off_loop(lambda: self._admin.client.describe_cluster(request_timeout=_CALL_S).result(_CALL_S))

    async def describe(self, topic: str, producer: Producer) -> DeadLetterTopicInfo:
        """The topic's metadata, requested through the producer, so that its own metadata is refreshed too."""
        kept = self._kept.get(topic)
        if kept is not None and self._clock.monotonic() - kept.at < (_EXPIRING_S if kept.is_expiring else _FRESH_S):
            return kept.info
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.create_task(self._ask(topic, producer))
        await asyncio.wait({asking})  # others wait for it too, so it is not cancelled with this caller
        result = ClusterError("the writer is closed") if asking.cancelled() else asking.result()
        if isinstance(result, ClusterError):
            raise result
        return result

    def expire(self, topic: str) -> None:
        """A dead letter failed: request the metadata again, at most four times a second."""
        if (kept := self._kept.get(topic)) is not None:
            kept.is_expiring = True

    async def close(self) -> None:
        asking = tuple(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, topic: str, producer: Producer) -> DeadLetterTopicInfo | ClusterError:
        """Returns a `ClusterError` instead of raising it: all callers may have been cancelled."""
        try:
            async with self._turns:
                facts = await off_loop(lambda: self._asked(topic, producer))
        except ClusterError as failure:
            return failure
        else:
            self._kept.pop(topic, None)
            if len(self._kept) >= _MAX_TOPICS:
                del self._kept[next(iter(self._kept))]
            self._kept[topic] = _CachedInfo(facts, self._clock.monotonic(), is_expiring=facts.partitions == 0)
            return facts
        finally:
            del self._asking[topic]

    # --- on a thread

    def _asked(self, topic: str, producer: Producer) -> DeadLetterTopicInfo:
        try:
            partitions, brokers = _partitions(topic, producer)
            if partitions == 0 and self._auto_create:
                self._create(topic, brokers)
                partitions = _wait_for_partitions(topic, producer)
        except PermissionError as refused:
            return DeadLetterTopicInfo(partitions=0, problem=str(refused))
        except TimeoutError:
            raise ClusterError(f"no metadata of topic {topic}: the request timed out") from None
        except KafkaException as failure:
            raise ClusterError(f"no metadata of topic {topic}: {reason(failure)}") from None
        if partitions == 0:
            return DeadLetterTopicInfo(partitions=0)
        return DeadLetterTopicInfo(partitions=partitions, max_message_bytes=self._max_message_bytes(topic))

    def _create(self, topic: str, brokers: int) -> None:
        """Create the topic with the broker's default partitions and the replication of Headgate's own topics."""
        wanted = NewTopic(topic, num_partitions=-1, replication_factor=replication_of(brokers, self._replication))
        created = self._admin.client.create_topics([wanted], operation_timeout=_CALL_S, request_timeout=_CALL_S)[topic]
        try:
            created.result(2 * _CALL_S)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
                raise PermissionError(f"the topic does not exist and may not be created: {reason(error)}") from None
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        else:
            log.info("dead-letter topic created", topic=topic)

    def _max_message_bytes(self, topic: str) -> int | None:
        resource = ConfigResource("topic", topic)
        described = self._admin.client.describe_configs([resource], request_timeout=_CALL_S)[resource]
        try:
            return int(described.result(2 * _CALL_S)[_LIMIT].value)
        except (KafkaException, TimeoutError, KeyError, ValueError, TypeError) as failure:
            log.debug("max.message.bytes of a topic is not known", topic=topic, error=repr(failure))
            return None


def _partitions(topic: str, producer: Producer) -> tuple[int, int]:
    """The topic's number of partitions, 0 when it does not exist, and the number of brokers."""
    metadata = producer.list_topics(topic, timeout=_CALL_S)
    found = metadata.topics.get(topic)
    error = None if found is None else found.error
    if found is None or (error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART):
        return 0, len(metadata.brokers)
    if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise PermissionError(reason(error))
    if error is not None and not found.partitions:
        raise KafkaException(error)
    return len(found.partitions), len(metadata.brokers)


def _wait_for_partitions(topic: str, producer: Producer) -> int:
    """Wait for the partitions of a topic that was created a moment ago."""
    until = time.monotonic() + _PATIENCE_S
    while (partitions := _partitions(topic, producer)[0]) == 0 and time.monotonic() < until:
        time.sleep(_PAUSE_S)
    return partitions
