"""What a run knows of topics in Kafka: those with dead letters, their offsets, ids and retention.

A topic that does not exist, or may not be described, has no bounds: nothing is read from it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException

from headgate.config.model import Config
from headgate.kafka.topics import TopicAdmin, TopicListing, client_settings, list_topics

_TIMEOUT_S: Final = 10.0
_CONFIGS: Final = ("retention.ms", "cleanup.policy")
LAST_MS: Final = 253_402_300_799_999  # the end of the year 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """One topic as it is now; `bounds` are the first and the end offset of each partition that can be read."""

    topic_id: str
    bounds: Mapping[int, tuple[int, int]]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.configs.get("cleanup.policy", "delete")

    @property
    def kept_ms(self) -> int | None:
        """How long retention keeps a record; None is for ever, or unknown."""
        if "delete" not in self.configs.get("cleanup.policy", ""):
            return None
        retention = self.configs.get("retention.ms", "-1")
        kept_ms = int(retention) if retention.lstrip("-").isdecimal() else -1
        return None if kept_ms < 0 else min(kept_ms, LAST_MS)

    def expires_at(self, written_at: int | None) -> int | None:
        """When retention may delete a record of this time; None is never, or unknown."""
        kept_ms = self.kept_ms
        return None if written_at is None or kept_ms is None else min(written_at + kept_ms, LAST_MS)


class TopicCatalog:
    """The topics of one run, each asked for once."""

    def __init__(self, config: Config) -> None:
        settings = client_settings(config.upstream)
        self._admin = TopicAdmin(settings)
        self._config = config
        self._known: dict[str, KnownTopic | None] = {}
        self._is_gone: dict[str, bool] = {}
        self.listing: TopicListing = list_topics(settings)

    def dead_letter_topics(self, configured: Iterable[str]) -> list[str]:
        """The existing topics that have the prefix of dead-letter topics, or that a group's config names."""
        prefix, facts = self._config.share_groups.dlq_prefix, self._config.facts.prefix
        named = {*(one for one in self.listing.topics if one.startswith(prefix)), *configured}
        return sorted(one for one in named if one in self.listing.topics and not one.startswith(facts))

    def topic(self, name: str) -> KnownTopic | None:
        """The topic as it is now; None when it does not exist or may not be described."""
        return self.topics([name]).get(name)

    def topics(self, names: Collection[str]) -> dict[str, KnownTopic]:
        asked = [one for one in names if one not in self._known]
        existing = [one for one in asked if one in self.listing.topics]
        ids = self._admin.ids(existing) if existing else {}
        configs = self._admin.configs(list(ids), _CONFIGS)
        for name in asked:
            self._known[name] = self._described(name, ids[name], configs.get(name, {})) if name in ids else None
        return {one: known for one in names if (known := self._known[one]) is not None}

    def gone(self, names: Collection[str]) -> set[str]:
        """Those that do not exist: asked for by name, because the listing leaves out what may not be described."""
        known = self.topics(names)
        asked = [one for one in names if one not in known and one not in self._is_gone]
        absent = self._admin.absent(asked) if asked else set()
        self._is_gone |= {one: one in absent for one in asked}
        return {one for one in names if self._is_gone.get(one, False)}

    def _described(self, name: str, topic_id: str, configs: Mapping[str, str]) -> KnownTopic:
        try:
            bounds = self._admin.bounds(name, self.listing.topics[name], timeout_s=_TIMEOUT_S)
        except KafkaException:  # deleted meanwhile, or its leaders are away: the next run asks again
            bounds = {}
        return KnownTopic(topic_id=topic_id, bounds=bounds, configs=configs)
