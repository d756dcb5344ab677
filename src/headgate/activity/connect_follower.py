"""The active topics of one Connect cluster (KIP-558): its status topic followed, and records and tombstones appended.

One rule: what is known is what the topic says, read from its start, whoever wrote it; a write of ours counts once it
was read back. Records go to the partition where Connect's own producer would put them, or their order would be lost.
Nothing is written before the topic was read to its end, so a topic that is not there is never made.

With a config topic, that is followed too: a connector that was deleted there is cleared, whatever else is allowed (a
worker with tracking off would not do it). The values of that topic may hold secrets and are not looked at.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import structlog

from headgate.activity.model.connect_topics import (
    ActiveTopics,
    ConnectorWord,
    DeletedConnectors,
    Skipped,
    Status,
    TopicUsed,
    can_be_written,
    read_config,
    read_status,
    status_key,
    status_value,
)
from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.fact_writer import RecordWriter

log = structlog.get_logger()

# Java's producer hashes keys so; librdkafka's own default is another.
_JAVA_PARTITIONER: Final = "murmur2_random"
_READ_BACK_S: Final = 10.0
_AGAIN_S: Final = 5.0
_AT_ONCE: Final = 500
_WARNINGS, _WARNINGS_S = 10, 60.0
_SHOWN: Final = 200


class ConnectFollower:
    """Made on the event loop that it serves, and used there; it lives while `running`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        status_topic: str,
        config_topic: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`config_topic`: connectors that are deleted there are cleared; None leaves that to Connect."""
        self._status_topic = status_topic
        self._topics = ActiveTopics()
        self._deleted = DeletedConnectors()
        self._warnings = _Warnings(clock or SystemClock(), status_topic)
        self._stirred = asyncio.Event()
        self._writer = RecordWriter({**settings, "partitioner": _JAVA_PARTITIONER})
        self._status: FactReader[list[Status] | None] = FactReader(
            settings,
            topic=status_topic,
            every_partition=True,
            digest=self._digest,
            forget=lambda _: None,
            take=self._take,
        )
        self._configs: FactReader[list[ConnectorWord] | None] | None = None
        if config_topic is not None:
            self._configs = FactReader(
                settings,
                topic=config_topic,
                every_partition=True,
                digest=_words,
                forget=lambda _: None,
                take=self._take_words,
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read in the background; what cannot be read is `problem`, and tried again."""
        readers: list[FactReader[Any]] = [self._status]
        if self._configs is not None:
            readers.append(self._configs)
        for reader in readers:
            reader.start()
        clearing = None if self._configs is None else asyncio.create_task(self._clear(self._configs))
        try:
            yield
        finally:
            try:
                if clearing is not None:
                    clearing.cancel()
                    with suppress(asyncio.CancelledError):
                        await clearing
            finally:
                for reader in readers:
                    await reader.close()
                await self._writer.close()

    @property
    def is_ready(self) -> bool:
        """Whether the status topic was read to its end once: from then on there are answers."""
        return self._status.replayed.is_set()

    async def ready(self) -> None:
        await self._status.replayed.wait()

    @property
    def problem(self) -> str | None:
        """Why answers are missing, or may be old; None when they are not."""
        found = self._status.problem
        if found is None and not self.is_ready:
            found = f"{self._status_topic} has not been read to its end yet"
        return found if found is not None or self._configs is None else self._configs.problem

    @property
    def topics(self) -> ActiveTopics:
        return self._topics

    def is_deleted(self, connector: str) -> bool:
        """Whether the config topic's last word of it is that it was deleted; never without a config topic."""
        return connector in self._deleted

    async def record(self, used: TopicUsed) -> bool:
        """Append it, unless it is there already; return once it was read back, and whether it was written.

        Nothing is written for a deleted connector, nor for names that no record may carry. `ClusterError` when the
        cluster does not take it; another use of the topic is reason to try again.
        """
        self._demand_ready()
        known = self._topics.has(used.topic, used.connector) or self.is_deleted(used.connector)
        if known or not can_be_written(used.topic, used.connector):
            return False
        await self._append([(status_key(used.topic, used.connector), status_value(used))])
        return True

    async def reset(self, connector: str) -> tuple[str, ...]:
        """A tombstone for each topic that is known now, and return once they were read back.

        It is not atomic: after a `ClusterError` some may be there, and a second attempt writes the rest.
        """
        self._demand_ready()
        topics = self._topics.of(connector)
        for first in range(0, len(topics), _AT_ONCE):
            await self._append([(status_key(topic, connector), None) for topic in topics[first : first + _AT_ONCE]])
        return topics

    def _demand_ready(self) -> None:
        if not self.is_ready:
            raise ClusterError(f"the active topics are not known yet: {self.problem}")

    async def _append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        appends = (self._writer.append(self._status_topic, key, value) for key, value in records)
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        try:
            async with asyncio.timeout(_READ_BACK_S):
                for position in outcomes:
                    assert not isinstance(position, BaseException)
                    await self._status.reached(position.offset, position.partition)
        except TimeoutError:
            raise ClusterError(f"what was written to {self._status_topic} was not read back in time") from None

    async def _clear(self, configs: FactReader[list[ConnectorWord] | None]) -> None:
        """Reset every deleted connector that has topics, now and whenever there is another."""
        await self._status.replayed.wait()
        await configs.replayed.wait()
        while True:
            self._stirred.clear()
            for connector in self._deleted.still_active(self._topics):
                try:
                    cleared = await self.reset(connector)
                except ClusterError as failure:
                    log.warning("a deleted connector was not cleared", connector=connector, error=str(failure))
                    await asyncio.sleep(_AGAIN_S)
                    self._stirred.set()
                else:
                    log.info("a deleted connector was cleared", connector=connector, topics=len(cleared))
            await self._stirred.wait()

    # --- on the event loop

    def _take(self, found: list[Status] | None) -> None:
        if found is None:
            self._topics.clear()
            return
        for one in found:
            self._topics.take(one)
            if one.connector in self._deleted:
                self._stirred.set()

    def _take_words(self, found: list[ConnectorWord] | None) -> None:
        if found is None:
            self._deleted.clear()
            return
        self._deleted.take(found)
        self._stirred.set()

    # --- on the reader's thread

    def _digest(self, records: Sequence[ConsumedRecord]) -> list[Status]:
        found: list[Status] = []
        for record in records:
            one = read_status(record.key, record.value)
            if not isinstance(one, Skipped):
                found.append(one)
            elif one.reason is not None:
                self._warnings.say(record, one.reason)
        return found


def _words(records: Sequence[ConsumedRecord]) -> list[ConnectorWord]:
    words = (read_config(record.key, is_null=record.value is None) for record in records)
    return [word for word in words if word is not None]


class _Warnings:
    """A warning for each record that was passed over, ten in a minute at most; the rest are counted."""

    def __init__(self, clock: Clock, topic: str) -> None:
        self._clock = clock
        self._topic = topic
        self._since = clock.monotonic()
        self._said = 0
        self._unsaid = 0

    def say(self, record: ConsumedRecord, reason: str) -> None:
        now = self._clock.monotonic()
        if now - self._since >= _WARNINGS_S:
            if self._unsaid:
                log.warning("more records of a status topic were passed over", topic=self._topic, count=self._unsaid)
            self._since, self._said, self._unsaid = now, 0, 0
        if self._said >= _WARNINGS:
            self._unsaid += 1
            return
        self._said += 1
        log.warning(
            "a record of a status topic was passed over",
            topic=self._topic,
            partition=record.partition,
            offset=record.offset,
            key=(record.key or b"")[:_SHOWN],
            reason=reason,
        )
