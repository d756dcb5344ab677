"""Reads the status topic of a Connect cluster, and appends records and tombstones of active topics (KIP-558).

All partitions are read from the start, whatever wrote the records, and a write of Headgate counts once it was read
back. Records go to the partition where a Java producer would put them, so that all records of a key stay in order.

With a config topic, the active topics of deleted connectors are reset, which a worker with tracking off does not do,
and only connectors that it names are recorded: two Connect clusters may share a principal. The values of that topic may
contain secrets: only keys, and whether a value is null, are used.

Invariant: nothing is written before the topic was read to its end, so a missing topic is never created.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import structlog

from headgate.activity.model.connect_records import (
    ActiveTopics,
    ConnectorConfigs,
    ConnectorConfigured,
    Skipped,
    TopicStatus,
    TopicUsed,
    is_writable,
    read_config,
    read_status,
    status_key,
    status_value,
)
from headgate.activity.skipped_records import SkippedRecordLog
from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError
from headgate.base.tasks import TaskSet, run_forever
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.fact_writer import RecordWriter
from headgate.kafka.shared_clients import SharedClients

log = structlog.get_logger()

_READ_BACK_S: Final = 10.0
_RETRY_S: Final = 5.0
_RECORDS_PER_WRITE: Final = 500


class ConnectStatusTopic:
    """Created and used on the event loop; it reads while `running`."""

    def __init__(
        self,
        source: SharedClients | Mapping[str, Any],
        *,
        status_topic: str,
        config_topic: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Without `config_topic`, resetting deleted connectors is left to Connect.

        `source` are the clients that it shares with others, or settings: then it has clients of its own.
        """
        clients = source if isinstance(source, SharedClients) else SharedClients(lambda: source)
        self._own_clients = None if isinstance(source, SharedClients) else clients
        self.status_topic = status_topic
        self._config_topic = config_topic
        self.topics = ActiveTopics()
        self._connectors = ConnectorConfigs()
        self.skipped = SkippedRecordLog(clock or SystemClock(), status_topic)
        self._deletions_changed = asyncio.Event()
        self._writer = RecordWriter(clients.connect_producer)
        options: dict[str, Any] = {"every_partition": True, "forget": lambda _: None}
        self._status: FactReader[list[TopicStatus] | None] = FactReader(
            clients.bulk_consumer, topic=status_topic, digest=self._decode, take=self._apply, **options
        )
        self._configs: FactReader[list[ConnectorConfigured] | None] | None = None
        if config_topic is not None:
            self._configs = FactReader(
                clients.bulk_consumer, topic=config_topic, digest=_decode_configs, take=self._apply_configs, **options
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read in the background; failures are retried, and `problem` names them."""
        readers = [one for one in (self._status, self._configs) if one is not None]
        for reader in readers:
            reader.start()
        tasks = TaskSet(_log_failure)
        tasks.spawn(run_forever(self.skipped.run, pause_s=_RETRY_S, on_failure=_log_failure))
        if (configs := self._configs) is not None:
            work = partial(self._reset_deleted, configs)
            tasks.spawn(run_forever(work, pause_s=_RETRY_S, on_failure=_log_failure))
        try:
            yield
        finally:
            try:
                await tasks.cancel_all()
            finally:
                for reader in readers:
                    await reader.close()
                await self._writer.close()
                if self._own_clients is not None:
                    await self._own_clients.close()

    @property
    def is_ready(self) -> bool:
        """Whether the status topic was read to its end once."""
        return self._status.replayed.is_set()

    async def ready(self) -> None:
        await self._status.replayed.wait()

    @property
    def problem(self) -> str | None:
        """Why the active topics are unknown or may be outdated; None if they are not."""
        found = self._status.problem
        if found is None and not self.is_ready:
            found = f"{self.status_topic} has not been read to its end yet"
        if found is None and self._configs is not None:
            found = self._configs.problem
            if found is None and not self._configs.replayed.is_set():
                found = f"{self._config_topic} has not been read to its end yet"
        return found

    def is_deleted(self, connector: str) -> bool:
        """Whether its last record in the config topic is a tombstone; False without a config topic."""
        return self._connectors.is_deleted(connector)

    def is_missing(self, topic: str, connector: str) -> bool:
        """Whether a use is to be recorded, as far as it is known: always before both topics were read to their end."""
        if not self._can_record:
            return True
        is_ours = self._configs is None or self._connectors.is_configured(connector)
        return is_ours and not self.topics.has(topic, connector)

    @property
    def _can_record(self) -> bool:
        return self.is_ready and (self._configs is None or self._configs.replayed.is_set())

    async def record(self, used: TopicUsed) -> bool:
        """Append a record unless there is one, and wait until it was read back; True if it was written.

        Nothing is written for a connector that the config topic does not name, or names as deleted, and for names
        that are not writable. `ClusterError` if a topic was not read or the write fails: the caller retries.
        """
        self._require_ready()
        if not self._can_record:
            raise ClusterError(f"the connectors of this cluster are not known yet: {self.problem}")
        if not self.is_missing(used.topic, used.connector) or not is_writable(used.topic, used.connector):
            return False
        await self._append([(status_key(used.topic, used.connector), status_value(used))])
        return True

    async def reset(self, connector: str) -> tuple[str, ...]:
        """Write a tombstone for each active topic, wait until they were read back, and return the topics.

        Not atomic: after a `ClusterError` some may be written, and a second attempt writes the rest.
        """
        self._require_ready()
        topics = self.topics.of(connector)
        for first in range(0, len(topics), _RECORDS_PER_WRITE):
            await self._append(
                [(status_key(topic, connector), None) for topic in topics[first : first + _RECORDS_PER_WRITE]]
            )
        return topics

    def _require_ready(self) -> None:
        if not self.is_ready:
            raise ClusterError(f"the active topics are not known yet: {self.problem}")

    async def _append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        appends = (self._writer.append(self.status_topic, key, value) for key, value in records)
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
            raise ClusterError(
                f"records written to {self.status_topic} were not read back within {_READ_BACK_S:g} s"
            ) from None

    async def _reset_deleted(self, configs: FactReader[list[ConnectorConfigured] | None]) -> None:
        """Reset every deleted connector that has active topics, now and later."""
        await self._status.replayed.wait()
        await configs.replayed.wait()
        while True:
            self._deletions_changed.clear()
            for connector in self._connectors.still_active(self.topics):
                try:
                    topics = await self.reset(connector)
                except ClusterError as failure:
                    log.warning("deleted connector not reset, retrying", connector=connector, error=str(failure))
                    await asyncio.sleep(_RETRY_S)
                    self._deletions_changed.set()
                else:
                    log.info("deleted connector reset", connector=connector, topics=len(topics))
            await self._deletions_changed.wait()

    # --- on the event loop

    def _apply(self, records: list[TopicStatus] | None) -> None:
        if records is None:
            self.topics.clear()
            return
        for one in records:
            self.topics.apply(one)
            if self._connectors.is_deleted(one.connector):
                self._deletions_changed.set()

    def _apply_configs(self, records: list[ConnectorConfigured] | None) -> None:
        if records is None:
            self._connectors.clear()
            return
        self._connectors.apply(records)
        self._deletions_changed.set()

    # --- on the reader's thread

    def _decode(self, records: Sequence[ConsumedRecord]) -> list[TopicStatus]:
        found: list[TopicStatus] = []
        for record in records:
            one = read_status(record.key, record.value)
            if not isinstance(one, Skipped):
                found.append(one)
            elif one.reason is not None:
                self.skipped.on_skipped(record, one.reason)
        return found


def _log_failure(failure: BaseException) -> None:
    log.error("resetting deleted connectors failed", exc_info=failure)


def _decode_configs(records: Sequence[ConsumedRecord]) -> list[ConnectorConfigured]:
    found = (read_config(record.key, is_null=record.value is None) for record in records)
    return [one for one in found if one is not None]
