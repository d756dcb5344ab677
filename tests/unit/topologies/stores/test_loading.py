"""From the configuration's word to a store; what an operator reads when a plugin cannot be had."""

import sys
from pathlib import Path

import pytest

from headgate.base.errors import UsageError
from headgate.config.model import TopologiesConfig
from headgate.config.values import Store, parse_store
from headgate.topologies.model.group_life import Keeper
from headgate.topologies.stores.loading import keeper_of, load_plugin, make_store, settings_of
from headgate.topologies.stores.memory_store import MemoryStore
from headgate.topologies.stores.sqlite_store import SqliteStore


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which modules can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def test_none_is_no_store() -> None:
    assert make_store(Store("none"), None) is None


def test_stores_are_made_by_their_scheme() -> None:
    assert isinstance(make_store(parse_store("memory:"), None), MemoryStore)
    assert isinstance(make_store(parse_store("sqlite:/tmp/t.db"), None), SqliteStore)


def test_a_plugin_is_a_class_in_a_module(plugin: Path) -> None:
    (plugin / "my_store.py").write_text("from headgate.topologies.stores.memory_store import MemoryStore as Mine\n")
    assert isinstance(make_store(parse_store("plugin:my_store:Mine"), None), MemoryStore)


def test_only_kafka_keeps_its_own_books() -> None:
    assert keeper_of(Store("kafka")) is Keeper.STORE
    assert {keeper_of(Store(scheme)) for scheme in ("memory", "sqlite", "plugin")} == {Keeper.EPOCHS}


def test_a_store_is_told_its_target_and_its_limits() -> None:
    settings = settings_of(
        TopologiesConfig(store=Store("sqlite", "/var/t.db"), max_bytes=5000),
        folder=Path("/cache"),
        environment={"A": "b"},
    )
    assert (settings.target, settings.max_bytes, settings.folder) == ("/var/t.db", 5000, Path("/cache"))


def test_a_module_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match=r"no_such_module cannot be imported .*install it"):
        load_plugin("no_such_module:Store")


def test_a_module_that_breaks_is_told(plugin: Path) -> None:
    (plugin / "broken_store.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        load_plugin("broken_store:Store")


def test_a_name_that_is_no_class_is_told(plugin: Path) -> None:
    (plugin / "function_store.py").write_text("def Store(): pass\n")
    with pytest.raises(UsageError, match="has no class Store"):
        load_plugin("function_store:Store")


def test_methods_that_are_missing_are_told(plugin: Path) -> None:
    (plugin / "half_store.py").write_text("class Store:\n    async def set(self, pushed): pass\n")
    with pytest.raises(UsageError, match="lacks configure, get, delete, close"):
        load_plugin("half_store:Store")


def test_a_class_that_wants_arguments_is_told(plugin: Path) -> None:
    (plugin / "needy_store.py").write_text(
        "from headgate.topologies.stores.memory_store import MemoryStore\n"
        "class Store(MemoryStore):\n    def __init__(self, url): pass\n"
    )
    with pytest.raises(UsageError, match="called without arguments"):
        load_plugin("needy_store:Store")
