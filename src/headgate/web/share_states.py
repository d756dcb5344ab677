"""The state of share groups as gateways have decided it: read from `state` and `trips`, and followed.

It is known within moments, before any pipeline has made a table of it. `SharePort` is what the resources need of it.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from headgate.facts import decode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.topic_consumer import TopicConsumer
from headgate.share_groups.model.breaker import json_of
from headgate.share_groups.model.group_state import ShareGroupFact, ShareGroupState, ShareStates
from headgate.web.visible_names import VisibleNames

_TOPICS: Final = ("state", "trips")
KeyedFact = tuple[bytes, ShareGroupFact]
OnChange = Callable[[Iterable[str] | None], None]  # with the groups that changed; None is any of them


class SharePort(Protocol):
    """The current state of share groups; `on_change` is called after each change."""

    on_change: OnChange | None

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
        self.on_change: OnChange | None = None
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
        for key, fact in facts or ():
            known.pop(key, None)  # a fact has the place of its last record
            known[key] = fact
            self._states.apply(fact)
        if self.on_change is not None:
            self.on_change(None if facts is None else {fact.group for _, fact in facts})


def share_facts(suffix: str, records: Sequence[ConsumedRecord]) -> list[KeyedFact]:
    """The facts about share groups in these records; others, and what cannot be read, are passed over."""
    decoded = ((record.key or b"", decode(suffix, record.key, record.value)) for record in records)
    return [(key, fact) for key, fact in decoded if isinstance(fact, ShareGroupFact)]


def share_group_row(name: str, port: SharePort | None, names: VisibleNames) -> dict[str, Any]:
    """A group in lists and events; all but the name is null if the state of share groups is not read here."""
    state: ShareGroupState | None = None if port is None else port.of(name)
    row = {
        "name": name,
        "managed": None if state is None else state.is_managed,
        "breaker_enabled": None if state is None else state.settings.breaker_enable,
        "paused": None if state is None else state.is_paused,
        "tripped": None if state is None else state.is_tripped,
        "pause_reasons": [] if state is None else json_of(state.pause_reasons),
        "generation": None if state is None else state.generation,
        "auto_resume_at": state.trip.resume_at if state is not None and state.trip and state.is_tripped else None,
        "dlq_topic": state.settings.dlq_topic if state is not None else None,
        "dlq_topic_hidden": False,
    }
    return visible_row(row, names)


def visible_row(row: dict[str, Any], names: VisibleNames) -> dict[str, Any]:
    """Without the name of a dead-letter topic that the caller may not see."""
    if row["dlq_topic"] is None or names.has(row["dlq_topic"]):
        return row
    return row | {"dlq_topic": None, "dlq_topic_hidden": True}
