"""The facts of `headgate.activity`: a minimal one, and a reader for what a gateway has written."""

import time
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, TopicPartition

from headgate.facts import ActivityObserved, Actor, decode
from tests.support.cluster import ClientConfig

_DEADLINE_S = 60.0
_PARTITIONS = 8
USE = ActivityObserved(
    at=1,
    actor=Actor(kind="client", name="a", rule="test", confidence="guess"),
    topic="orders",
    topic_id=None,
    direction="read",
    since=1,
    until=2,
    bytes=3,
    records=None,
    principal=None,
    client_id=None,
    group=None,
    transactional_id=None,
    software=None,
    host=None,
)


class ActivityFacts:
    """Reads from the start, and continues with each `poll`."""

    def __init__(self, config: ClientConfig, prefix: str) -> None:
        self._topic = f"{prefix}activity"
        self._consumer = Consumer({**config, "group.id": "test-facts", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(self._topic, number, 0) for number in range(_PARTITIONS)])
        self.all: list[ActivityObserved] = []

    def close(self) -> None:
        self._consumer.close()

    def poll(self, seconds: float = 0.2) -> None:
        for message in self._consumer.consume(500, seconds):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error
                continue
            fact = decode("activity", message.key(), message.value())
            assert isinstance(fact, ActivityObserved), fact
            self.all.append(fact)

    def until(
        self, wanted: Callable[[ActivityObserved], bool], count: int = 1, seconds: float = _DEADLINE_S
    ) -> list[ActivityObserved]:
        """The facts that are wanted, as soon as there are `count` of them."""
        deadline = time.monotonic() + seconds
        while True:
            found = [fact for fact in self.all if wanted(fact)]
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, f"{len(found)} of {count} in:\n" + "\n".join(map(line, self.all))
            self.poll()

    def of(self, topic: str, direction: str, kind: str | None = None) -> ActivityObserved:
        """The first use of the topic, by an actor of this kind if one is given."""
        return self.until(
            lambda one: one.topic == topic and one.direction == direction and kind in (None, one.actor.kind)
        )[0]


def line(fact: ActivityObserved) -> str:
    actor = fact.actor
    parts = (
        actor.kind,
        actor.name,
        actor.rule,
        actor.confidence,
        fact.direction,
        fact.topic,
        fact.bytes,
        fact.client_id,
    )
    return " ".join(map(str, parts))


def total(facts: Iterable[ActivityObserved]) -> int:
    return sum(fact.bytes for fact in facts)
