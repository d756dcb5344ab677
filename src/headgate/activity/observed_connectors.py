"""The topics that connectors used on the wire, from the records of `headgate.activity` whose actor is a connector.

Only names are kept, and a bounded number of them: above the bound, new ones are dropped, with a `problem`. The
topic has a retention time; names that were read stay known until the process ends.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from headgate.activity.model.connect_records import MAX_CONNECTOR, ActiveTopics
from headgate.facts import ActivityObserved, decode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.topic_consumer import TopicConsumer

log = structlog.get_logger()

_SUFFIX: Final = "activity"
_MOST_PAIRS: Final = 100_000
_TOO_MANY: Final = "too many connectors and topics, new ones are dropped"
Pair = tuple[str, str]


class ObservedConnectors:
    """Reads all partitions from their start; created and used on the event loop."""

    def __init__(self, source: TopicConsumer | Mapping[str, Any], *, prefix: str, most: int = _MOST_PAIRS) -> None:
        self.topics = ActiveTopics()
        self._topic = prefix + _SUFFIX
        self._most = most
        self._pairs = 0
        self._is_full = False
        self._reader: FactReader[Sequence[Pair]] = FactReader(
            source,
            topic=self._topic,
            every_partition=True,
            digest=connector_pairs,
            forget=lambda _: (),
            take=self.add,
        )

    def start(self) -> None:
        self._reader.start()

    async def close(self) -> None:
        await self._reader.close()

    @property
    def problem(self) -> str | None:
        if self._reader.problem is None and not self._reader.replayed.is_set():
            return f"{self._topic} has not been read to its end yet"
        return _TOO_MANY if self._reader.problem is None and self._is_full else self._reader.problem

    def add(self, pairs: Sequence[Pair]) -> None:
        for connector, topic in pairs:
            if self.topics.has(topic, connector):
                continue
            if self._pairs < self._most:
                self.topics.add(topic, connector)
                self._pairs += 1
            elif not self._is_full:
                self._is_full = True
                log.warning(_TOO_MANY, most=self._most)


def connector_pairs(records: Sequence[ConsumedRecord]) -> list[Pair]:
    """The distinct pairs of connector and topic in these records."""
    found: dict[Pair, None] = {}
    for record in records:
        # Most records are about other actors, and a search is a hundred times faster than decoding.
        if record.value is None or b'"connector"' not in record.value:
            continue
        fact = decode(_SUFFIX, record.key, record.value)
        if isinstance(fact, ActivityObserved) and fact.actor.kind == "connector" and fact.topic is not None:
            pair = (fact.actor.name, fact.topic)
            if max(map(len, pair)) <= MAX_CONNECTOR:
                found[pair] = None
    return list(found)
