"""The resources of one worker's topologies: the fact writer, the state topic, and the store.

Opened in this order and closed in the opposite one, also when opening fails half-way (`stack`). When `open_resources`
returns, the topics were read to their ends and `groups` has their records.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.config.model import Config
from headgate.facts import (
    EventHappened,
    MemberTasksEnded,
    MemberTasksObserved,
    TopologyDescribed,
    TopologyEpochsRemoved,
    TopologyEpochsSet,
    decode,
)
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import CatchUp, FactReader
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.shared_clients import SharedClients, open_clients
from headgate.kafka.topic_consumer import TopicConsumer
from headgate.kafka.topics import find_origin
from headgate.plugin import StoreSettings, TopologyStore
from headgate.topologies.model.streams_groups import StreamsGroups
from headgate.topologies.store_calls import StoreCalls
from headgate.topologies.stores.kafka_store import SUFFIX as TOPOLOGIES
from headgate.topologies.stores.kafka_store import KafkaStore
from headgate.topologies.stores.loading import make_store, settings_of

log = structlog.get_logger()

_Epochs = TopologyEpochsSet | TopologyEpochsRemoved
_STATE: Final = "state"
_EVENTS: Final = "events"
_REPLAY_TIMEOUT_S: Final = 300.0
_CONFIGURE_TIMEOUT_S: Final = 60.0
_CLOSE_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class TopologyResources:
    """`write_epochs` returns when the record was read back; `ClusterError` when it was not written.

    `kafka_store` is the store itself if it is `kafka:`, and `keep_version` then writes a version that was not pushed.
    `write_event` writes an event for operators; None: there is no topic for them, as in tests.
    `write_tasks` writes the tasks of a member, also with another store.
    """

    store: StoreCalls
    write_epochs: Callable[[TopologyEpochsSet | TopologyEpochsRemoved], Awaitable[None]]
    kafka_store: KafkaStore | None = None
    keep_version: Callable[[TopologyDescribed], Awaitable[None]] | None = None
    write_event: Callable[[EventHappened], Awaitable[object]] | None = None
    write_tasks: Callable[[MemberTasksObserved | MemberTasksEnded], Awaitable[object]] | None = None


async def open_resources(
    config: Config,
    groups: StreamsGroups,
    stack: AsyncExitStack,
    *,
    worker: int = 0,
    clients: SharedClients | None = None,
    cache_name: str = "topologies.db",
    clock: Clock,
    environment: Mapping[str, str],
) -> TopologyResources:
    """`groups` gets every record that is read; `cache_name` is the file of the cache of `kafka:`.

    `clients` are those of the worker; by default new ones, which are closed with the stack.
    """
    kafka = await open_clients(config, clients, stack)
    writer = FactWriter(
        kafka.producer,
        prefix=config.facts.prefix,
        origin=await find_origin(config, worker, kafka.admin, TOPOLOGIES),
        delivery_timeout_s=config.topologies.call_timeout_ms / 1000,
    )
    stack.push_async_callback(writer.close)
    await writer.open(_STATE, TOPOLOGIES, _EVENTS)
    epochs = EpochsTopic(kafka.consumer, prefix=config.facts.prefix, writer=writer, clock=clock, groups=groups)
    stack.push_async_callback(epochs.close)

    def make_kafka_store() -> KafkaStore:
        return KafkaStore(
            kafka,
            prefix=config.facts.prefix,
            writer=writer,
            clock=clock,
            on_record=groups.on_record_read,
            cache_name=cache_name,
        )

    store = make_store(config.topologies.store, make_kafka_store)
    assert store is not None
    stack.push_async_callback(_close, store)
    folder = _cache_folder(config)
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    await _configure(store, settings_of(config.topologies, folder=folder, environment=environment))
    await _replay(epochs, store)
    timeout_s = config.topologies.call_timeout_ms / 1000
    calls = StoreCalls(store, timeout_s=timeout_s)
    if not isinstance(store, KafkaStore):
        return TopologyResources(calls, epochs.write, write_event=writer.write, write_tasks=writer.write)
    keep_version = partial(_keep_version, store, timeout_s)
    return TopologyResources(calls, epochs.write, store, keep_version, writer.write, writer.write)


def _cache_folder(config: Config) -> Path:
    """The cache is beside the tables if these are in a folder, because it belongs to this machine."""
    tables = config.tables.path
    return (tables.parent if isinstance(tables, Path) else Path(".headgate")) / "cache"


async def _keep_version(store: KafkaStore, timeout_s: float, fact: TopologyDescribed) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await store.keep(fact)
    except TimeoutError:
        raise ClusterError(f"the version was not read back within {timeout_s:g} s") from None


async def _configure(store: TopologyStore, settings: StoreSettings) -> None:
    try:
        async with asyncio.timeout(_CONFIGURE_TIMEOUT_S):
            await store.configure(settings)
    except TimeoutError:
        raise ClusterError(f"the store was not configured within {_CONFIGURE_TIMEOUT_S:g} s") from None


async def _close(store: TopologyStore) -> None:
    """Close the store; a failure is logged, so that the other resources are closed too."""
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await store.close()
    except Exception as failure:  # noqa: BLE001 - a plugin may raise anything
        log.warning("topology store was not closed", problem=str(failure) or repr(failure))


async def _replay(epochs: "EpochsTopic", store: TopologyStore) -> None:
    try:
        async with asyncio.timeout(_REPLAY_TIMEOUT_S):
            await epochs.open()
            if isinstance(store, KafkaStore):
                await store.replayed()
    except TimeoutError:
        why = epochs.problem or (store.problem if isinstance(store, KafkaStore) else None)
        raise ClusterError(f"the topics were not read to their ends in {_REPLAY_TIMEOUT_S:g} s: {why}") from None


class EpochsTopic:
    """The epochs of KIP-1331 in `headgate.state`: any gateway writes them, and they count once they are read back.

    `groups` gets them in the order of the topic, and not before the topic was read to its end.
    """

    def __init__(
        self, consumer: TopicConsumer, *, prefix: str, writer: FactWriter, clock: Clock, groups: StreamsGroups
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._groups = groups
        self._replay: CatchUp[_Epochs] = CatchUp(self._on_epochs)
        self._reader: FactReader[list[_Epochs] | None] = FactReader(
            consumer,
            topic=prefix + _STATE,
            digest=_epochs_in,
            forget=lambda lost: None if lost else [],
            take=self._take,
            detects_loss=True,
        )

    @property
    def problem(self) -> str | None:
        return self._reader.problem

    async def open(self) -> None:
        """Return when the topic was read to its end and `groups` has its records."""
        self._reader.start()
        await self._reader.replayed.wait()
        await self._replay.catch_up()

    async def write(self, epochs: _Epochs) -> None:
        if isinstance(epochs, TopologyEpochsSet):
            epochs = replace(epochs, at=self._clock.epoch_ms())
        position = await self._writer.write(epochs)
        await self._reader.reached(position.offset)

    async def close(self) -> None:
        await self._reader.close()

    def _take(self, found: list[_Epochs] | None) -> None:
        if found is None:  # the topic lost records
            self._replay.forget()
            self._groups.on_state_topic_replaced()
            return
        for epochs in found:
            self._replay.take(epochs.group, epochs)

    def _on_epochs(self, group: str, epochs: _Epochs) -> None:
        if isinstance(epochs, TopologyEpochsRemoved):
            self._groups.on_epochs_removed(group)
        else:
            self._groups.on_epochs_read(epochs, is_own=self._writer.is_own(epochs))


def _epochs_in(records: Sequence[ConsumedRecord]) -> list[_Epochs]:
    facts = (decode(_STATE, record.key, record.value) for record in records)
    return [fact for fact in facts if isinstance(fact, _Epochs)]
