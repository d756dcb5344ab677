"""Which topics connectors were seen to use on the wire: the facts of `headgate.activity` whose actor is a connector.

One rule: nothing is kept but names, and only so many: past that new ones are dropped and it says so. It remembers what
the topic held when reading began and everything since; the topic itself forgets after its retention.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import structlog

from headgate.facts import ActivityObserved, decode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader

log = structlog.get_logger()

SUFFIX: Final = "activity"
MOST_PAIRS: Final = 100_000
_LONGEST_NAME: Final = 1024
Pair = tuple[str, str]


class WireTopics:
    """The fold: connectors to topics."""

    def __init__(self, most: int = MOST_PAIRS) -> None:
        self._most = most
        self._topics: dict[str, set[str]] = {}
        self._pairs = 0
        self.is_full = False

    def take(self, pairs: Sequence[Pair]) -> None:
        for connector, topic in pairs:
            if topic in self._topics.get(connector, ()):
                continue
            if self._pairs >= self._most:
                if not self.is_full:
                    log.warning("more connectors and topics were seen than are kept", most=self._most)
                self.is_full = True
                continue
            self._topics.setdefault(connector, set()).add(topic)
            self._pairs += 1

    def of(self, connector: str) -> tuple[str, ...]:
        return tuple(sorted(self._topics.get(connector, ())))

    def connectors(self) -> Iterator[str]:
        return iter(self._topics)


class WireFollower:
    """Reads all partitions from their beginnings; made on the event loop that it serves."""

    def __init__(self, settings: Mapping[str, Any], *, prefix: str) -> None:
        self.topics = WireTopics()
        self._topic = prefix + SUFFIX
        self._reader: FactReader[Sequence[Pair]] = FactReader(
            settings,
            topic=self._topic,
            every_partition=True,
            digest=connector_pairs,
            forget=lambda _: (),  # what was seen was seen
            take=self.topics.take,
        )

    def start(self) -> None:
        self._reader.start()

    async def ready(self) -> None:
        await self._reader.replayed.wait()

    async def close(self) -> None:
        await self._reader.close()

    @property
    def problem(self) -> str | None:
        if self._reader.problem is None and not self._reader.replayed.is_set():
            return f"{self._topic} has not been read to its end yet"
        if self._reader.problem is None and self.topics.is_full:
            return "more connectors and topics were seen than are kept"
        return self._reader.problem


def connector_pairs(records: Sequence[ConsumedRecord]) -> list[Pair]:
    """(connector, topic) of the facts about connectors, each once."""
    found: dict[Pair, None] = {}
    for record in records:
        # Most facts are about others, and looking is a hundred times quicker than reading.
        if record.value is None or b'"connector"' not in record.value:
            continue
        fact = decode(SUFFIX, record.key, record.value)
        if isinstance(fact, ActivityObserved) and fact.actor.kind == "connector" and fact.topic is not None:
            pair = (fact.actor.name, fact.topic)
            if max(map(len, pair)) <= _LONGEST_NAME:
                found[pair] = None
    return list(found)
