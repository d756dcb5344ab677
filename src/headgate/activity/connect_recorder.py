"""Records the topics that connectors use on the wire in the status topic of their cluster (KIP-558).

For `[connect.NAME] record = true`, where the workers do not track topics themselves. The first use of a topic by a
connector is recorded with its task and the time, and not again once the record was read back, whatever wrote it.
After a reset the next use is the first.

Invariant: a client counts as a connector only under a principal that is listed for its cluster and that the broker
has authenticated, because any client can choose the client id `connector-producer-x-0`. Where several clusters list one
principal, a connector is recorded in those whose config topic names it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from headgate.activity.connect_status_topic import ConnectStatusTopic
from headgate.activity.model.connect_records import TopicUsed
from headgate.activity.model.identity import connector_client
from headgate.activity.model.intervals import Interval, TopicRef
from headgate.activity.topic_resolver import TopicResolver
from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.base.tasks import retry

log = structlog.get_logger()

_MOST_PENDING: Final = 10_000
_RETRY_S: Final = 10.0


class ConnectRecorder:
    """`clusters` are the status topics by the principals of the workers."""

    def __init__(
        self, clusters: Mapping[str, Sequence[ConnectStatusTopic]], topics: TopicResolver, clock: Clock
    ) -> None:
        self._clusters = clusters
        self._topics = topics
        self._clock = clock
        self._pending: dict[tuple[str, str, TopicRef], tuple[int, int]] = {}  # task and time of the first use
        self._has_pending = asyncio.Event()
        self.recorded = 0

    def on_used(self, intervals: Sequence[Interval]) -> None:
        """Queue the intervals that were used in the last second, if they are those of connectors and new."""
        for interval in intervals:
            principal = interval.client.principal
            if principal is None or principal not in self._clusters or interval.actor.kind != "connector":
                continue
            found = connector_client(interval.client.client_id)
            if found is None or self._is_recorded(principal, found.connector, interval.topic.name):
                continue
            if len(self._pending) < _MOST_PENDING:
                key = (principal, found.connector, interval.topic)
                self._pending.setdefault(key, (found.task, self._clock.epoch_ms()))
                self._has_pending.set()

    def _is_recorded(self, principal: str, connector: str, topic: str | None) -> bool:
        return topic is not None and not any(one.is_missing(topic, connector) for one in self._clusters[principal])

    async def run(self) -> None:
        """Write pending records for ever."""
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            await retry(
                self._write_pending,
                pause_s=_RETRY_S,
                on_problem=lambda problem: log.warning(
                    "active topics of connectors not recorded, retrying", problem=problem
                ),
                errors=ClusterError,
            )

    async def _write_pending(self) -> None:
        pending = list(self._pending.items())
        await self._topics.resolve([topic for (_, _, topic), _ in pending])
        failed: dict[ConnectStatusTopic, ClusterError] = {}  # one that fails does not hold up the others
        for key, (task, at_ms) in pending:
            principal, connector, topic = key
            # Without a name the use is dropped: the next one, when the name is known, is recorded.
            clusters = self._clusters[principal] if topic.name is not None else ()
            for status in clusters:
                if status in failed:
                    continue
                used = TopicUsed(topic=topic.name or "", connector=connector, task=task, discover_timestamp_ms=at_ms)
                try:
                    if await status.record(used):
                        self.recorded += 1
                        log.info("active topic recorded", connector=connector, topic=topic.name, task=task)
                except ClusterError as failure:
                    failed[status] = failure
            if failed.keys().isdisjoint(clusters):
                del self._pending[key]
        if failed:
            raise next(iter(failed.values()))
