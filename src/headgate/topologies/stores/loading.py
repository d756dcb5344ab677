"""From `[topologies] store` to a store.

`kafka:` is made from the worker's own Kafka clients; every other store is made without arguments and gets its settings
by `configure`. `none` is no store at all.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from headgate.base.errors import UsageError
from headgate.config.model import TopologiesConfig
from headgate.config.values import Store
from headgate.plugin import StoreSettings, TopologyStore
from headgate.topologies.model.group_state import Bookkeeping
from headgate.topologies.stores.kafka_store import KafkaStore
from headgate.topologies.stores.memory_store import MemoryStore
from headgate.topologies.stores.sqlite_store import SqliteStore

_METHODS = ("configure", "set", "get", "delete", "close")


def bookkeeping_of(store: Store) -> Bookkeeping:
    return Bookkeeping.STORE if store.scheme == "kafka" else Bookkeeping.STATE_TOPIC


def settings_of(topologies: TopologiesConfig, *, folder: Path, environment: Mapping[str, str]) -> StoreSettings:
    return StoreSettings(
        folder=folder,
        max_bytes=topologies.max_bytes,
        target=topologies.store.target,
        environment=environment,
        plugin=topologies.plugin,
    )


def make_store(store: Store, make_kafka_store: Callable[[], KafkaStore] | None = None) -> TopologyStore | None:
    """The store, not configured yet; None for `none`. `UsageError` when a plugin cannot be loaded."""
    match store.scheme:
        case "none":
            return None
        case "memory":
            return MemoryStore()
        case "sqlite":
            return SqliteStore()
        case "kafka":
            assert make_kafka_store is not None, "kafka: needs the worker's clients"
            return make_kafka_store()
        case "plugin":
            return load_plugin(store.target)


def find_plugin(target: str) -> Callable[[], TopologyStore]:
    """The class `package.module:Class`, not created; every failure is a `UsageError` with the remedy."""
    module_name, _, class_name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as failure:
        raise UsageError(
            f"topologies.store: {module_name} cannot be imported ({type(failure).__name__}: {failure}): install it in "
            "the environment of headgate, or correct its name"
        ) from failure
    found: Any = getattr(module, class_name, None)
    if not inspect.isclass(found):
        raise UsageError(f"topologies.store: {module_name} has no class {class_name}: correct its name")
    missing = [name for name in _METHODS if not callable(getattr(found, name, None))]
    if missing:
        raise UsageError(
            f"topologies.store: {target} lacks {', '.join(missing)}: a store has all methods of "
            "headgate.plugin.TopologyStore"
        )
    try:
        inspect.signature(found).bind()
    except TypeError as failure:
        raise UsageError(
            f"topologies.store: the constructor of {target} needs arguments ({failure}): it takes no arguments, and "
            "settings come with configure"
        ) from None
    except ValueError:
        pass  # a class without a signature, for instance of a C extension
    return cast("Callable[[], TopologyStore]", found)


def load_plugin(target: str) -> TopologyStore:
    """An instance of `package.module:Class`; every failure is a `UsageError` with the remedy."""
    plugin = find_plugin(target)
    try:
        return plugin()
    except Exception as failure:
        raise UsageError(
            f"topologies.store: {target} cannot be created ({type(failure).__name__}: {failure}): its constructor "
            "takes no arguments, and settings come with configure"
        ) from failure
