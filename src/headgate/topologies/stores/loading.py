"""From `[topologies] store` to a store that can be used.

One rule: `kafka:` is made here from the worker's own Kafka clients; every other store is made without arguments and
told its settings by `configure`. `none` is no store at all.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from headgate.base.clock import Clock
from headgate.base.errors import UsageError
from headgate.config.model import TopologiesConfig
from headgate.config.values import Store
from headgate.kafka.fact_writer import FactWriter
from headgate.plugin.topology_store import StoreSettings, TopologyStore
from headgate.topologies.model.group_events import Event
from headgate.topologies.model.group_life import Keeper
from headgate.topologies.stores.kafka_store import KafkaStore
from headgate.topologies.stores.memory_store import MemoryStore
from headgate.topologies.stores.sqlite_store import SqliteStore

_METHODS = ("configure", "set", "get", "delete", "close")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaClients:
    """What `kafka:` needs of the worker."""

    settings: Mapping[str, Any]
    prefix: str
    writer: FactWriter
    clock: Clock
    on_event: Callable[[str, Event], object]
    cache_name: str = "topologies.db"


def keeper_of(store: Store) -> Keeper:
    """Who remembers what the store holds."""
    return Keeper.STORE if store.scheme == "kafka" else Keeper.EPOCHS


def settings_of(topologies: TopologiesConfig, *, folder: Path, environment: Mapping[str, str]) -> StoreSettings:
    return StoreSettings(
        folder=folder, max_bytes=topologies.max_bytes, target=topologies.store.target, environment=environment
    )


def make_store(store: Store, clients: KafkaClients | None) -> TopologyStore | None:
    """The store, not configured yet; None for `none`. `UsageError` says why there can be none."""
    match store.scheme:
        case "none":
            return None
        case "memory":
            return MemoryStore()
        case "sqlite":
            return SqliteStore()
        case "kafka":
            assert clients is not None, "kafka: needs the worker's clients"
            return KafkaStore(
                clients.settings,
                prefix=clients.prefix,
                writer=clients.writer,
                clock=clients.clock,
                on_event=clients.on_event,
                cache_name=clients.cache_name,
            )
        case "plugin":
            return load_plugin(store.target)


def load_plugin(target: str) -> TopologyStore:
    """An instance of `package.module:Class`; whatever goes wrong is the operator's to mend."""
    module_name, _, class_name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as failure:
        raise UsageError(
            f"topologies.store: {module_name} cannot be imported ({type(failure).__name__}: {failure}): install it in "
            "the environment of headgate, or mend its name"
        ) from failure
    found: Any = getattr(module, class_name, None)
    if not inspect.isclass(found):
        raise UsageError(f"topologies.store: {module_name} has no class {class_name}: mend its name")
    missing = [name for name in _METHODS if not callable(getattr(found, name, None))]
    if missing:
        raise UsageError(
            f"topologies.store: {target} lacks {', '.join(missing)}: a store has the methods of "
            "headgate.plugin.topology_store.TopologyStore"
        )
    try:
        return cast("TopologyStore", found())
    except Exception as failure:
        raise UsageError(
            f"topologies.store: {target} cannot be made ({type(failure).__name__}: {failure}). It is called without "
            "arguments; settings come with configure"
        ) from failure
