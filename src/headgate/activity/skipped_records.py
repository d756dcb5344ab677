"""Counts the records of a Connect status topic that are not valid, and logs ten of them a minute at most.

A record is counted when it is skipped. The number of those that were not logged is logged when the minute ends, without
waiting for another one.
"""

import asyncio
from threading import Lock
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.kafka.consumer_thread import ConsumedRecord

log = structlog.get_logger()

_MOST_WARNINGS: Final = 10
_INTERVAL_S: Final = 60.0
_LOGGED_KEY_BYTES: Final = 200


class SkippedRecordLog:
    """`on_skipped` is called on the thread of a reader, everything else on the event loop."""

    def __init__(self, clock: Clock, topic: str, *, interval_s: float = _INTERVAL_S) -> None:
        self._clock = clock
        self._topic = topic
        self._interval_s = interval_s
        self._since = clock.monotonic()
        self._logged = 0
        self._not_logged = 0
        self._lock = Lock()
        self.count = 0

    def on_skipped(self, record: ConsumedRecord, reason: str) -> None:
        """Count a record, and log it if fewer than ten were logged since the minute began."""
        self.log_count()
        with self._lock:
            self.count += 1
            if self._logged >= _MOST_WARNINGS:
                self._not_logged += 1
                return
            self._logged += 1
        log.warning(
            "status record skipped",
            topic=self._topic,
            partition=record.partition,
            offset=record.offset,
            key=(record.key or b"")[:_LOGGED_KEY_BYTES],
            reason=reason,
        )

    def log_count(self) -> None:
        """At the end of a minute, log how many of its records were not logged, and begin the next one."""
        now = self._clock.monotonic()
        with self._lock:
            if now - self._since < self._interval_s:
                return
            not_logged = self._not_logged
            self._since, self._logged, self._not_logged = now, 0, 0
        if not_logged:
            log.warning("more status records skipped", topic=self._topic, count=not_logged)

    async def run(self) -> None:
        """Call `log_count` for ever: no other invalid record may come."""
        while True:
            await asyncio.sleep(self._interval_s / 10)
            self.log_count()
