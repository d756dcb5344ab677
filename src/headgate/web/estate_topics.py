"""Follows `activity` and `topologies`, so that the estate is known before the pipeline has made tables of it.

`EstatePort` is what the tables need of it. It is followed for as long as the server runs: what is newer than the tables
is added to them. The dead-letter topics of share groups come from the port that follows these.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import structlog

from headgate.base.clock import Clock
from headgate.facts import ActivityObserved, TopologyDeleted, TopologyDescribed, decode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.topic_consumer import TopicConsumer
from headgate.lineage.estate_map import MapRow
from headgate.lineage.graph import LineageFlow
from headgate.web.estate_facts import (
    DescribedApplication,
    EstateFacts,
    UsedTopic,
    described_application,
    used_topic,
)
from headgate.web.share_states import SharePort

log = structlog.get_logger()

_MOST_DEAD_LETTER_TOPICS: Final = 5_000


class EstatePort(Protocol):
    """The estate as the topics describe it now."""

    def version(self) -> int | None:
        """Another number after each change; None before the topics have been read. Called on the event loop."""

    def clusters(self) -> set[str]: ...

    def rows(self, cluster: str) -> tuple[list[MapRow], list[LineageFlow]]:
        """The rows as `lineage_edges` and `app_io` would have them. Any thread may call it."""


class EstateTopics:
    """Reads both topics from their starts; created and used on the event loop."""

    def __init__(
        self,
        source: TopicConsumer | Mapping[str, Any],
        *,
        prefix: str,
        quiet_ms: int,
        clock: Clock,
        shares: SharePort | None,
    ) -> None:
        self._facts = EstateFacts(quiet_ms=quiet_ms)
        self._clock = clock
        self._shares = shares
        self._seen_shares = -1
        self._was_full = False
        self._activity: FactReader[Sequence[UsedTopic] | None] = FactReader(
            source,
            topic=f"{prefix}activity",
            every_partition=True,
            digest=used_topics,
            forget=lambda _: None,
            take=self.take_uses,
        )
        self._topologies: FactReader[Sequence[DescribedApplication] | None] = FactReader(
            source,
            topic=f"{prefix}topologies",
            digest=described_applications,
            forget=lambda _: None,
            take=self.take_applications,
        )

    def start(self) -> None:
        self._activity.start()
        self._topologies.start()

    async def close(self) -> None:
        await self._activity.close()
        await self._topologies.close()

    def version(self) -> int | None:
        if not (self._activity.replayed.is_set() and self._topologies.replayed.is_set()):
            return None
        if self._shares is not None and self._shares.changes != self._seen_shares:
            self._seen_shares = self._shares.changes
            self._facts.name_dead_letter_topics(_dead_letter_topics(self._shares))
        return self._facts.changes

    def clusters(self) -> set[str]:
        return self._facts.clusters()

    def rows(self, cluster: str) -> tuple[list[MapRow], list[LineageFlow]]:
        return self._facts.rows(cluster, self._clock.epoch_ms())

    def take_uses(self, found: Sequence[UsedTopic] | None) -> None:
        """Fold uses; None: the topic is read again from its start."""
        if found is None:
            self._facts.forget_uses()
            return
        for one in found:
            self._facts.use(one)
        self._warn()

    def take_applications(self, found: Sequence[DescribedApplication] | None) -> None:
        if found is None:
            self._facts.forget_applications()
            return
        for one in found:
            self._facts.describe(one)
        self._warn()

    def _warn(self) -> None:
        if self._facts.is_full and not self._was_full:
            self._was_full = True
            log.warning("the estate is too large to be served from the topics, some of it is known from tables only")


def used_topics(records: Sequence[ConsumedRecord]) -> list[UsedTopic]:
    """The uses that these records report; others, and what cannot be read, are passed over."""
    facts = (decode("activity", record.key, record.value) for record in records)
    uses = (used_topic(fact) for fact in facts if isinstance(fact, ActivityObserved))
    return [use for use in uses if use is not None]


def described_applications(records: Sequence[ConsumedRecord]) -> list[DescribedApplication]:
    facts = (decode("topologies", record.key, record.value) for record in records)
    found = (described_application(one) for one in facts if isinstance(one, TopologyDescribed | TopologyDeleted))
    return [one for one in found if one is not None]


def _dead_letter_topics(shares: SharePort) -> tuple[tuple[str, str], ...]:
    named = ((group, shares.of(group).settings.dlq_topic) for group in shares.groups())
    return tuple(sorted((group, topic) for group, topic in named if topic is not None)[:_MOST_DEAD_LETTER_TOPICS])
