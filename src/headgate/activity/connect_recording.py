"""`[connect.NAME] record = true`: topics that connectors use on the wire, written to the status topic (KIP-558).

For clusters whose workers do not track topics themselves. The first use of a topic by a connector is recorded with its
task and the time; not again once the record was read back, whoever wrote it. After a reset the next use is the first.

One rule: a connector is believed only under a principal that is listed for its cluster, proved by the broker: anybody
can call itself `connector-producer-x-0`. Bounded, and never in the way of the data plane.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, Protocol

import structlog

from headgate.activity.connect_follower import ConnectFollower
from headgate.activity.model.connect_topics import TopicUsed
from headgate.activity.model.identity import connector_client
from headgate.activity.model.intervals import Interval, TopicRef
from headgate.activity.topic_names import Topics
from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.config.model import Config, ConnectConfig
from headgate.kafka.topics import client_settings

log = structlog.get_logger()

_MOST_WAITING: Final = 10_000
_AGAIN_S: Final = 10.0


class Status(Protocol):
    """A `ConnectFollower`, as far as it is needed."""

    def is_known(self, topic: str, connector: str) -> bool: ...

    async def record(self, used: TopicUsed) -> bool: ...


class _Followed:
    """A follower that says what it knows."""

    def __init__(self, follower: ConnectFollower) -> None:
        self._follower = follower

    def is_known(self, topic: str, connector: str) -> bool:
        return self._follower.topics.has(topic, connector)

    async def record(self, used: TopicUsed) -> bool:
        return await self._follower.record(used)


class Recorder:
    """Records for the clusters of one configuration; `clusters` are by the principals of their workers."""

    def __init__(self, clusters: Mapping[str, Sequence[Status]], topics: Topics, clock: Clock) -> None:
        self._clusters = clusters
        self._topics = topics
        self._clock = clock
        # The task and the time of the first use, until it is recorded.
        self._waiting: dict[tuple[str, str, TopicRef], tuple[int, int]] = {}
        self._wanted = asyncio.Event()
        self.recorded = 0

    def saw(self, intervals: Sequence[Interval]) -> None:
        """These were used in the last second."""
        for interval in intervals:
            principal = interval.client.principal
            if principal is None or principal not in self._clusters or interval.who.kind != "connector":
                continue
            found = connector_client(interval.client.client_id)
            if found is None or self._is_recorded(principal, found.connector, interval.topic.name):
                continue
            if len(self._waiting) < _MOST_WAITING:
                key = (principal, found.connector, interval.topic)
                self._waiting.setdefault(key, (found.task, self._clock.epoch_ms()))
                self._wanted.set()

    def _is_recorded(self, principal: str, connector: str, topic: str | None) -> bool:
        statuses = self._clusters[principal]
        return topic is not None and all(one.is_known(topic, connector) for one in statuses)

    async def run(self) -> None:
        """For ever, as a task of the feature."""
        said = ""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._record_waiting()
                said = ""
            except ClusterError as failure:
                if str(failure) != said:
                    log.warning("active topics of connectors were not recorded, trying again", problem=str(failure))
                said = str(failure)
                await asyncio.sleep(_AGAIN_S)
                self._wanted.set()

    async def _record_waiting(self) -> None:
        waiting = list(self._waiting.items())
        await self._topics.resolve([topic for (_, _, topic), _ in waiting])
        for (principal, connector, topic), (task, at_ms) in waiting:
            # Without a name it is dropped: its next use, when the name is known, brings it again.
            for status in self._clusters[principal] if topic.name is not None else ():
                used = TopicUsed(topic=topic.name or "", connector=connector, task=task, discover_timestamp_ms=at_ms)
                if await status.record(used):
                    self.recorded += 1
                    log.info("active topic recorded", connector=connector, topic=topic.name, task=task)
            self._waiting.pop((principal, connector, topic), None)


@asynccontextmanager
async def following(config: Config) -> AsyncIterator[dict[str, list[Status]]]:
    """The status topics of the clusters for which is recorded, by principal; each is followed until the end."""
    clusters: dict[str, list[Status]] = {}
    async with AsyncExitStack() as stack:
        recorded = [one for one in config.connect.values() if records(one)]
        settings: dict[str, Any] = {}
        if recorded:
            settings = await asyncio.to_thread(client_settings, config.upstream)
        for one in recorded:
            follower = ConnectFollower(settings, status_topic=one.status_topic, config_topic=one.config_topic)
            await stack.enter_async_context(follower.running())
            for principal in one.principals:
                clusters.setdefault(principal, []).append(_Followed(follower))
        yield clusters


def records(cluster: ConnectConfig) -> bool:
    return cluster.record and cluster.tracking_enable and bool(cluster.principals)


async def ended(task: "asyncio.Task[None]") -> None:
    """Cancel a task and see it end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
