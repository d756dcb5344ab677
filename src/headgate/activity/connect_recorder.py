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
        self,
        clusters: Mapping[str, Sequence[ConnectStatusTopic]],
        topics: TopicResolver,
        clock: Clock,
        *,
        most_pending: int = _MOST_PENDING,
    ) -> None:
        """`most_pending` uses wait for each cluster, so that one that cannot be written leaves the others theirs."""
        self._clusters = clusters
        self._topics = topics
        self._clock = clock
        self._most_pending = most_pending
        # By cluster: task and time of the first use.
        self._pending: dict[ConnectStatusTopic, dict[tuple[str, TopicRef], tuple[int, int]]] = {
            status: {} for some in clusters.values() for status in some
        }
        self._full: set[ConnectStatusTopic] = set()  # clusters of which it is logged that uses are dropped
        self._has_pending = asyncio.Event()
        self.recorded = 0
        self.dropped = 0

    def on_used(self, intervals: Sequence[Interval]) -> None:
        """Queue the intervals that were used in the last second, if they are those of connectors and new."""
        for interval in intervals:
            principal = interval.client.principal
            if principal is None or principal not in self._clusters or interval.actor.kind != "connector":
                continue
            found = connector_client(interval.client.client_id)
            if found is None:
                continue
            name = interval.topic.name
            for status in self._clusters[principal]:
                if name is None or status.is_missing(name, found.connector):
                    self._add(status, (found.connector, interval.topic), found.task)

    def _add(self, status: ConnectStatusTopic, key: tuple[str, TopicRef], task: int) -> None:
        pending = self._pending[status]
        if key in pending or len(pending) < self._most_pending:
            pending.setdefault(key, (task, self._clock.epoch_ms()))
            self._has_pending.set()
            return
        self.dropped += 1
        if status not in self._full:
            self._full.add(status)
            log.warning(
                "too many active topics wait to be recorded, dropping others",
                topic=status.status_topic,
                waiting=len(pending),
            )

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
        pending = {status: list(uses.items()) for status, uses in self._pending.items()}
        await self._topics.resolve([topic for uses in pending.values() for (_, topic), _ in uses])
        failure: ClusterError | None = None  # a cluster that fails does not hold up the others
        for status, uses in pending.items():
            try:
                for (connector, topic), (task, at_ms) in uses:
                    # Without a name the use is dropped: the next one, when the name is known, is recorded.
                    if topic.name is not None:
                        used = TopicUsed(topic=topic.name, connector=connector, task=task, discover_timestamp_ms=at_ms)
                        await self._record(status, used)
                    del self._pending[status][connector, topic]
            except ClusterError as problem:
                failure = failure or problem
            else:
                self._full.discard(status)
        if failure is not None:
            raise failure

    async def _record(self, status: ConnectStatusTopic, used: TopicUsed) -> None:
        if await status.record(used):
            self.recorded += 1
            log.info("active topic recorded", connector=used.connector, topic=used.topic, task=used.task)
