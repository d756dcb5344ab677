"""The shipped stores: the conformance suite, the loading of plugins, and the bound of memory:."""

import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headgate.base.errors import UsageError
from headgate.config.model import TopologiesConfig
from headgate.config.values import Store, parse_plugin_settings, parse_store
from headgate.plugin import Description, TopologyStore, TransientFailure, to_bytes
from headgate.plugin.conformance import TopologyStoreContract, pushed, settings_in, topology
from headgate.topologies.model.group_state import Bookkeeping
from headgate.topologies.stores.loading import bookkeeping_of, find_plugin, load_plugin, make_store, settings_of
from headgate.topologies.stores.memory_store import MemoryStore
from headgate.topologies.stores.sqlite_store import SqliteStore

DOCS = Path(__file__).parents[3] / "docs" / "stores.md"
SIZE = len(to_bytes(topology()))


class TestMemory(TopologyStoreContract):
    keeps = False

    @asynccontextmanager
    async def open_store(self, folder: Path) -> AsyncIterator[TopologyStore]:
        store = MemoryStore()
        await store.configure(settings_in(folder))
        yield store
        await store.close()


def example() -> type[TopologyStoreContract]:
    """The example of docs/stores.md, which is a store and a test class."""
    store, test = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    sys.modules["my_stores"] = module = ModuleType("my_stores")
    exec(store, module.__dict__)
    names: dict[str, Any] = {}
    exec(test, names)
    found: type[TopologyStoreContract] = names["TestFolderStore"]
    return found


TestTheExampleOfThePage = example()


def test_a_store_that_blocks_the_event_loop_fails_the_suite(tmp_path: Path) -> None:
    class Blocking(MemoryStore):
        async def get(self, group: str, epoch: int) -> Description | None:
            time.sleep(0.21)  # noqa: ASYNC251 - that is the fault
            return await super().get(group, epoch)

    class Suite(TestMemory):
        max_pause_s = 0.2

        @asynccontextmanager
        async def open_store(self, folder: Path) -> AsyncIterator[TopologyStore]:  # noqa: ARG002
            yield Blocking()

    with pytest.raises(AssertionError, match="the event loop was blocked"):
        Suite().test_the_event_loop_is_not_blocked(tmp_path)


def test_a_stall_of_the_machine_during_one_call_does_not_fail_the_suite(tmp_path: Path) -> None:
    class StalledOnce(MemoryStore):
        calls = 0

        async def get(self, group: str, epoch: int) -> Description | None:
            self.calls += 1
            if self.calls == 2:
                time.sleep(0.6)  # noqa: ASYNC251 - as if the machine did something else
            return await super().get(group, epoch)

    class Suite(TestMemory):
        max_pause_s = 0.5

        @asynccontextmanager
        async def open_store(self, folder: Path) -> AsyncIterator[TopologyStore]:  # noqa: ARG002
            yield StalledOnce()

    Suite().test_the_event_loop_is_not_blocked(tmp_path)


class TestSqlite(TopologyStoreContract):
    @asynccontextmanager
    async def open_store(self, folder: Path) -> AsyncIterator[TopologyStore]:
        store = SqliteStore()
        await store.configure(settings_in(folder, target=str(folder / "topologies.db")))
        yield store
        await store.close()


async def test_a_full_store_takes_no_more_until_something_is_deleted() -> None:
    store = MemoryStore(max_bytes=2 * SIZE)
    await store.set(pushed("a"))
    await store.set(pushed("b"))
    with pytest.raises(TransientFailure, match="is full"):
        await store.set(pushed("c"))
    await store.delete("a")
    await store.set(pushed("c"))
    assert await store.get("c", 0) == topology()


async def test_what_replaces_itself_needs_no_more_room() -> None:
    store = MemoryStore(max_bytes=SIZE)
    for _ in range(3):
        await store.set(pushed("a"))
    assert await store.get("a", 0) == topology()


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which modules can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def test_none_is_no_store() -> None:
    assert make_store(Store("none")) is None


def test_stores_are_made_by_their_scheme() -> None:
    assert isinstance(make_store(parse_store("memory:")), MemoryStore)
    assert isinstance(make_store(parse_store("sqlite:/tmp/t.db")), SqliteStore)


def test_a_plugin_is_a_class_in_a_module(plugin: Path) -> None:
    (plugin / "my_store.py").write_text("from headgate.topologies.stores.memory_store import MemoryStore as Mine\n")
    assert isinstance(make_store(parse_store("plugin:my_store:Mine")), MemoryStore)


def test_only_kafka_does_its_own_bookkeeping() -> None:
    assert bookkeeping_of(Store("kafka")) is Bookkeeping.STORE
    others = [Store("memory"), Store("sqlite"), Store("plugin")]
    assert {bookkeeping_of(store) for store in others} == {Bookkeeping.STATE_TOPIC}


def test_a_store_gets_its_target_and_its_limits() -> None:
    topologies = TopologiesConfig(store=Store("sqlite", "/var/t.db"), max_bytes=5000)
    settings = settings_of(topologies, folder=Path("/cache"), environment={"A": "b"})
    assert (settings.target, settings.max_bytes, settings.folder) == ("/var/t.db", 5000, Path("/cache"))


def test_a_plugin_gets_its_table_of_settings() -> None:
    table: dict[str, str | float | bool] = {"url": "https://store.example", "retries": 3, "ratio": 0.5, "strict": True}
    topologies = TopologiesConfig(store=Store("plugin", "my.stores:One"), plugin=table)
    assert settings_of(topologies, folder=Path("/cache"), environment={}).plugin == table


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"a": [1]}, "a: must be a text, a number, true or false"),
        ({"a": {"b": 1}}, "a: must be a text"),
        ("a", "must be a table"),
        ({str(number): 1 for number in range(101)}, "at most 100"),
    ],
)
def test_settings_of_a_plugin_are_few_and_flat(table: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_plugin_settings(table)


def test_a_module_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"no_such_module cannot be imported .*install it"):
        load_plugin("no_such_module:Store")


def test_a_module_that_raises_is_an_error(plugin: Path) -> None:
    (plugin / "broken_store.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        load_plugin("broken_store:Store")


def test_a_name_that_is_no_class_is_an_error(plugin: Path) -> None:
    (plugin / "function_store.py").write_text("def Store(): pass\n")
    with pytest.raises(UsageError, match="has no class Store"):
        load_plugin("function_store:Store")


def test_a_class_without_all_methods_is_an_error(plugin: Path) -> None:
    (plugin / "half_store.py").write_text("class Store:\n    async def set(self, pushed): pass\n")
    with pytest.raises(UsageError, match="lacks configure, get, delete, close"):
        load_plugin("half_store:Store")


def test_a_class_whose_constructor_takes_arguments_is_an_error(plugin: Path) -> None:
    (plugin / "needy_store.py").write_text(
        "from headgate.topologies.stores.memory_store import MemoryStore\n"
        "class Store(MemoryStore):\n    def __init__(self, url): pass\n"
    )
    for load in (find_plugin, load_plugin):  # the first is the check before workers start
        with pytest.raises(UsageError, match="takes no arguments"):
            load("needy_store:Store")
