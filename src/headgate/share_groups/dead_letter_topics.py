"""What is known of dead-letter topics: whether they are there, their partitions, the largest batch they take.

One rule: nobody's topic is made or made again unless the operator has said so (`[share_groups] dlq_auto_create`). What
is known is kept for some seconds, and asked anew as soon as a letter fails; letters that wait share one question.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from headgate.base.errors import ClusterError
from headgate.base.threads import off_loop
from headgate.facts.topics import replication_of
from headgate.kafka.topics import quiet, reason

log = structlog.get_logger()

_FRESH_S, _DOUBTFUL_S = 10.0, 0.25
_CALL_S = 5.0
_MOST_TOPICS = 1000
_AT_ONCE = 8
_LIMIT = "max.message.bytes"
_PAUSE_S, _PATIENCE_S = 0.05, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """`partitions` 0: there is no such topic, or it may not be seen, and then `problem` says so.

    `max_message_bytes` None: the service account may not ask for it (DESCRIBE_CONFIGS on the topic).
    """

    partitions: int
    max_message_bytes: int | None = None
    problem: str | None = None

    @property
    def exists(self) -> bool:
        return self.partitions > 0


@dataclass(slots=True)
class _Kept:
    facts: TopicFacts
    at: float
    doubtful: bool


class DeadLetterTopics:
    """Used on the event loop; what asks the cluster runs on threads, a few at a time."""

    def __init__(self, settings: Mapping[str, Any], *, auto_create: bool, replication: int | None) -> None:
        self._settings = quiet(settings, allow__auto__create__topics=False)
        self._auto_create = auto_create
        self._replication = replication
        self._admin: AdminClient | None = None
        self._kept: dict[str, _Kept] = {}
        self._asking: dict[str, asyncio.Task[TopicFacts | ClusterError]] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def look(self, topic: str, producer: Producer) -> TopicFacts:
        """What is known of the topic; the question goes by the producer, whose own knowledge it makes new."""
        kept = self._kept.get(topic)
        if kept is not None and time.monotonic() - kept.at < (_DOUBTFUL_S if kept.doubtful else _FRESH_S):
            return kept.facts
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.create_task(self._ask(topic, producer))
        await asyncio.wait({asking})  # others wait for it too, so it is not cancelled with one of them
        said = ClusterError("the writer is closed") if asking.cancelled() else asking.result()
        if isinstance(said, ClusterError):
            raise said
        return said

    def doubt(self, topic: str) -> None:
        """A letter failed: what is known is asked again, four times a second at the most."""
        if (kept := self._kept.get(topic)) is not None:
            kept.doubtful = True

    async def close(self) -> None:
        asking = tuple(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        self._admin = None

    async def _ask(self, topic: str, producer: Producer) -> TopicFacts | ClusterError:
        """Never raises a `ClusterError`: there may be nobody left to whom it could be raised."""
        try:
            async with self._turns:
                facts = await off_loop(lambda: self._asked(topic, producer))
        except ClusterError as failure:
            return failure
        else:
            self._kept.pop(topic, None)
            if len(self._kept) >= _MOST_TOPICS:
                del self._kept[next(iter(self._kept))]
            self._kept[topic] = _Kept(facts, time.monotonic(), doubtful=not facts.exists)
            return facts
        finally:
            del self._asking[topic]

    # --- on a thread

    def _asked(self, topic: str, producer: Producer) -> TopicFacts:
        try:
            partitions, brokers = _partitions(topic, producer)
            if partitions == 0 and self._auto_create:
                self._create(topic, brokers)
                partitions = _awaited(topic, producer)
        except PermissionError as refused:
            return TopicFacts(partitions=0, problem=str(refused))
        except TimeoutError:
            raise ClusterError(f"nothing is known of the topic {topic}: no answer in time") from None
        except KafkaException as failure:
            raise ClusterError(f"nothing is known of the topic {topic}: {reason(failure)}") from None
        if partitions == 0:
            return TopicFacts(partitions=0)
        return TopicFacts(partitions=partitions, max_message_bytes=self._max_message_bytes(topic))

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._settings)
        return self._admin

    def _create(self, topic: str, brokers: int) -> None:
        """With the broker's own number of partitions, and as many copies as the topics of facts have."""
        wanted = NewTopic(topic, num_partitions=-1, replication_factor=replication_of(brokers, self._replication))
        created = self._client().create_topics([wanted], operation_timeout=_CALL_S, request_timeout=_CALL_S)[topic]
        try:
            created.result(2 * _CALL_S)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
                raise PermissionError(f"it is absent, and may not be created: {reason(error)}") from None
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        else:
            log.info("a dead-letter topic was created", topic=topic)

    def _max_message_bytes(self, topic: str) -> int | None:
        resource = ConfigResource("topic", topic)
        described = self._client().describe_configs([resource], request_timeout=_CALL_S)[resource]
        try:
            return int(described.result(2 * _CALL_S)[_LIMIT].value)
        except (KafkaException, TimeoutError, KeyError, ValueError, TypeError) as failure:
            log.debug("the largest record of a topic is not known", topic=topic, error=repr(failure))
            return None


def _partitions(topic: str, producer: Producer) -> tuple[int, int]:
    """How many the topic has, 0 when it is absent, and how many brokers there are."""
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


def _awaited(topic: str, producer: Producer) -> int:
    """A broker may not have heard yet of a topic that was made a moment ago."""
    until = time.monotonic() + _PATIENCE_S
    while (partitions := _partitions(topic, producer)[0]) == 0 and time.monotonic() < until:
        time.sleep(_PAUSE_S)
    return partitions
