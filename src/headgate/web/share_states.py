"""The state of share groups as gateways have decided it: read from `state` and `trips`, and followed.

It is known within moments, before any pipeline has made a table of it. `SharePort` is what the resources need of it.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from headgate.facts import decode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.topic_consumer import TopicConsumer
from headgate.share_groups.model.group_state import ShareGroupFact, ShareGroupState, ShareStates

_TOPICS: Final = ("state", "trips")
KeyedFact = tuple[bytes, ShareGroupFact]


class SharePort(Protocol):
    """The current state of share groups."""

    @property
    def problem(self) -> str | None:
        """Why it is not known, or not up to date; None if it is."""

    @property
    def changes(self) -> int:
        """Another number after each change."""

    def groups(self) -> Iterable[str]: ...

    def of(self, group: str) -> ShareGroupState: ...

    def groups_of_topic(self, topic: str) -> tuple[str, ...]:
        """The groups that write their dead letters to this topic."""


class ShareStateTopics:
    """Reads both topics from their starts; created and used on the event loop."""

    def __init__(self, source: TopicConsumer | Mapping[str, Any], *, prefix: str) -> None:
        self._states = ShareStates()
        self._facts: dict[str, dict[bytes, ShareGroupFact]] = {suffix: {} for suffix in _TOPICS}
        self.changes = 0
        self._readers = {
            suffix: FactReader[list[KeyedFact] | None](
                source,
                topic=prefix + suffix,
                digest=functools.partial(share_facts, suffix),
                forget=lambda _: None,
                take=functools.partial(self.take, suffix),
                detects_loss=True,
            )
            for suffix in _TOPICS
        }

    def start(self) -> None:
        for reader in self._readers.values():
            reader.start()

    async def close(self) -> None:
        for reader in self._readers.values():
            await reader.close()

    @property
    def problem(self) -> str | None:
        for reader in self._readers.values():
            if reader.problem is not None:
                return reader.problem
            if not reader.replayed.is_set():
                return f"{reader.topic} has not been read to its end yet"
        return None

    def groups(self) -> Iterable[str]:
        return self._states.groups()

    def of(self, group: str) -> ShareGroupState:
        return self._states.of(group)

    def groups_of_topic(self, topic: str) -> tuple[str, ...]:
        return self._states.registered_groups(topic)

    def take(self, suffix: str, facts: list[KeyedFact] | None) -> None:
        """Fold facts; None: the topic is read again from its start, so only the facts of the other one hold."""
        self.changes += 1
        known = self._facts[suffix]
        if facts is None:
            known.clear()
            self._states.clear()
            for fact in (fact for kept in self._facts.values() for fact in kept.values()):
                self._states.apply(fact)
            return
        for key, fact in facts:
            known.pop(key, None)  # a fact has the place of its last record
            known[key] = fact
            self._states.apply(fact)


def share_facts(suffix: str, records: Sequence[ConsumedRecord]) -> list[KeyedFact]:
    """The facts about share groups in these records; others, and what cannot be read, are passed over."""
    decoded = ((record.key or b"", decode(suffix, record.key, record.value)) for record in records)
    return [(key, fact) for key, fact in decoded if isinstance(fact, ShareGroupFact)]
