"""Opening what topologies stand on: the topics, the writer of facts, the epochs, and the store.

One rule: opened in this order, closed in the opposite one, whatever failed in between (`stack`). When `open_parts`
returns, the topics were read to their ends and told.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.config.model import Config
from headgate.facts.topics import message_limit
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.topics import client_settings, find_origin
from headgate.plugin.topology_store import StoreSettings, TopologyStore
from headgate.topologies.epochs import SUFFIX as STATE
from headgate.topologies.epochs import EpochFacts
from headgate.topologies.model.group_events import Event
from headgate.topologies.store_calls import StoreCalls
from headgate.topologies.stores.kafka_store import SUFFIX as TOPOLOGIES
from headgate.topologies.stores.kafka_store import KafkaStore
from headgate.topologies.stores.loading import KafkaClients, make_store, settings_of

log = structlog.get_logger()

_LONGEST_REPLAY_S: Final = 300.0
_LONGEST_CONFIGURE_S: Final = 60.0
_LONGEST_CLOSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the service works with once it is open."""

    calls: StoreCalls
    epochs: EpochFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Where this worker's facts come from and go to; `on_another` is told that `state` is a new, empty topic."""

    config: Config
    worker: int
    cache_name: str
    clock: Clock
    environment: Mapping[str, str]
    on_event: Callable[[str, Event], object]
    on_another: Callable[[], None]


async def open_parts(opening: Opening, stack: AsyncExitStack) -> Parts:
    config = opening.config
    settings = client_settings(config.upstream)
    writer = await _open_writer(opening, settings, stack)
    epochs = EpochFacts(
        settings,
        prefix=config.facts.prefix,
        writer=writer,
        clock=opening.clock,
        on_event=opening.on_event,
        on_another=opening.on_another,
    )
    stack.push_async_callback(epochs.close)
    store = _make_store(opening, settings, writer)
    stack.push_async_callback(_close, store)
    folder = config.tables.path.parent / "cache"
    await asyncio.to_thread(_make_folder, folder)
    await _configure(store, settings_of(config.topologies, folder=folder, environment=opening.environment))
    await _replay(epochs, store)
    return Parts(StoreCalls(store, timeout_s=config.topologies.call_timeout_ms / 1000), epochs)


async def _open_writer(opening: Opening, settings: Mapping[str, Any], stack: AsyncExitStack) -> FactWriter:
    config = opening.config
    writer = FactWriter(
        settings,
        prefix=config.facts.prefix,
        origin=await find_origin(config, opening.worker, settings, TOPOLOGIES),
        largest=message_limit(config.topologies.max_bytes),
        delivery_timeout_s=config.topologies.call_timeout_ms / 1000,
    )
    stack.push_async_callback(writer.close)
    await writer.open(STATE, TOPOLOGIES)
    return writer


def _make_store(opening: Opening, settings: Mapping[str, Any], writer: FactWriter) -> TopologyStore:
    clients = KafkaClients(
        settings=settings,
        prefix=opening.config.facts.prefix,
        writer=writer,
        clock=opening.clock,
        on_event=opening.on_event,
        cache_name=opening.cache_name,
    )
    store = make_store(opening.config.topologies.store, clients)
    assert store is not None
    return store


async def _configure(store: TopologyStore, settings: StoreSettings) -> None:
    try:
        async with asyncio.timeout(_LONGEST_CONFIGURE_S):
            await store.configure(settings)
    except TimeoutError:
        raise ClusterError(f"the store was not configured within {_LONGEST_CONFIGURE_S:g} s") from None


async def _close(store: TopologyStore) -> None:
    """Whatever a store does at its end, the rest ends too."""
    try:
        async with asyncio.timeout(_LONGEST_CLOSE_S):
            await store.close()
    except Exception as failure:  # noqa: BLE001 - a plugin may raise whatever it likes
        log.warning("the store was not closed", problem=str(failure) or repr(failure))


async def _replay(epochs: EpochFacts, store: TopologyStore) -> None:
    try:
        async with asyncio.timeout(_LONGEST_REPLAY_S):
            await epochs.open()
            if isinstance(store, KafkaStore):
                await store.replayed()
    except TimeoutError:
        why = epochs.problem or (store.problem if isinstance(store, KafkaStore) else None)
        raise ClusterError(f"the topics were not read to their ends in {_LONGEST_REPLAY_S:g} s: {why}") from None


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
