"""Watches what `/api/v1/events` reports: the state of share groups, `headgate.events`, and the versions of tables.

A change of a share group is published within moments. Several changes at once are one notice for each group, or one
snapshot where they are many: that is so while topics are read from their starts. Tables are looked at twice a second,
and only while someone listens.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import structlog

from headgate.base.clock import Clock
from headgate.base.log_throttle import LogThrottle
from headgate.facts import EventHappened, decode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactTail
from headgate.kafka.topic_consumer import TopicConsumer
from headgate.web.live_feed import FeedLimits, LiveFeed, NoticeKind
from headgate.web.share_states import SharePort, share_group_row
from headgate.web.visible_names import ALL_NAMES, VisibleNames

log = structlog.get_logger()

_GATHER_S: Final = 0.02
_LOOK_S: Final = 0.5
MOST_AT_ONCE: Final = 100
_MOST_PAUSED: Final = 1_000
_EVENTS: Final = "events"


class TableVersions(Protocol):
    """The versions of all tables that exist, by name."""

    async def versions(self) -> Mapping[str, int]: ...


class LiveSources:
    """`port` is None if share groups are not enabled, `tables` where tables cannot be read.

    `consumer` reads `headgate.events`; without it these events are missing.
    """

    def __init__(
        self,
        *,
        port: SharePort | None,
        tables: TableVersions | None,
        clock: Clock,
        consumer: TopicConsumer | None = None,
        prefix: str = "",
        limits: FeedLimits | None = None,
        look_s: float = _LOOK_S,
    ) -> None:
        self.feed = LiveFeed(self._snapshot, limits or FeedLimits())
        self._look_s = look_s
        self._port = port
        self._tables = tables
        self._versions: Mapping[str, int] = {}
        self._throttle = LogThrottle(clock.monotonic)
        self._has_logged_failure = False
        self._changed: set[str] = set()
        self._is_snapshot_due = False
        self._woken = asyncio.Event()
        self._problem: str | None = None if port is None else port.problem
        self._tail: FactTail[list[EventHappened]] | None = None
        if consumer is not None:
            self._tail = FactTail(consumer, topic=prefix + _EVENTS, digest=events_of, take=self.take_events)
        if port is not None:
            port.on_change = self.take_groups

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if self._tail is not None:
            self._tail.start()
        tasks = [asyncio.create_task(self._publish_groups()), asyncio.create_task(self._look())]
        try:
            yield
        finally:
            self.feed.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._tail is not None:
                await self._tail.close()

    def take_groups(self, groups: Iterable[str] | None) -> None:
        """Note that these groups changed; None: any group may have."""
        if groups is None:
            self._is_snapshot_due = True
        else:
            self._changed.update(groups)
        self._woken.set()

    def take_events(self, facts: Sequence[EventHappened]) -> None:
        for fact in facts:
            self.feed.publish(
                NoticeKind.HAPPENED,
                {
                    "event_id": fact.id,
                    "event": fact.event,
                    "subject_kind": fact.subject_kind,
                    "subject": fact.subject,
                    "by": fact.by,
                    "at": fact.at,
                    "detail": fact.detail.value(),
                },
                subject=fact.subject,
            )

    async def _publish_groups(self) -> None:
        while True:
            await self._woken.wait()
            await asyncio.sleep(_GATHER_S)  # what was decided together is read together
            self._woken.clear()
            port, changed = self._port, sorted(self._changed)
            self._changed.clear()
            if port is None:
                continue
            if self._is_snapshot_due or len(changed) > MOST_AT_ONCE or port.problem is not None:
                self._is_snapshot_due = port.problem is not None  # published when the topics were read
                if not self._is_snapshot_due:
                    self.feed.publish(NoticeKind.SNAPSHOT)
                continue
            for group in changed:
                row = share_group_row(group, port, ALL_NAMES)
                self.feed.publish(NoticeKind.SHARE_GROUP, row, subject=group)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            self._look_at_port()
            if self._tables is None or not self.feed.has_listeners:
                continue
            try:
                found = await self._tables.versions()
            except Exception as failure:  # noqa: BLE001 - a supervisor: the next look may succeed
                self._on_unreadable(failure)
                continue
            if self._has_logged_failure:
                self._has_logged_failure = False
                log.info("versions of tables can be read again")
            changed = {name: version for name, version in found.items() if self._versions.get(name) != version}
            self._versions = found
            if changed:
                self.feed.publish(NoticeKind.TABLES, {"tables": changed})

    def _on_unreadable(self, failure: Exception) -> None:
        """Log each kind of failure once a minute, because each look may fail."""
        if self._throttle.allows("versions of tables cannot be read", type(failure).__name__):
            self._has_logged_failure = True
            log.warning("versions of tables cannot be read", error=repr(failure))

    def _look_at_port(self) -> None:
        problem = None if self._port is None else self._port.problem
        if problem != self._problem:
            self._problem = problem
            self.feed.publish(NoticeKind.PROBLEM, {"problem": problem})
        if problem is None and self._is_snapshot_due:
            self._woken.set()

    def _snapshot(self, names: VisibleNames) -> dict[str, Any]:
        port = self._port
        paused = [] if port is None else [name for name in names.among(port.groups()) if port.of(name).is_paused]
        rows = [share_group_row(name, port, names) for name in sorted(paused)[:_MOST_PAUSED]]
        problem = None if port is None else port.problem
        return {
            "paused": rows,
            "truncated": len(paused) > _MOST_PAUSED,
            "problem": problem,
            "tables": dict(self._versions),
        }


def events_of(records: Sequence[ConsumedRecord]) -> list[EventHappened]:
    """The events in these records; what cannot be read is passed over."""
    decoded = (decode(_EVENTS, record.key, record.value) for record in records)
    return [fact for fact in decoded if isinstance(fact, EventHappened)]
