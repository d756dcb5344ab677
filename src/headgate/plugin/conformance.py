"""The contract of topology stores as tests: subclass `TopologyStoreContract` in a test module and run pytest.

    from headgate.plugin.conformance import TopologyStoreContract, settings_in

    class TestMyStore(TopologyStoreContract):
        keeps = True                                    # whether descriptions survive a restart

        @asynccontextmanager
        async def open_store(self, folder: Path):
            store = MyStore()
            await store.configure(settings_in(folder))
            yield store
            await store.close()

Each test opens the store in its own folder and on its own event loop. The test of a restart calls `open_store` again
with the same folder. Only pytest itself is needed.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from headgate.plugin import (
    Description,
    GlobalStore,
    Node,
    ProcessorNode,
    PushedTopology,
    SinkNode,
    SourceNode,
    StoreSettings,
    Subtopology,
    TopologyStore,
    content_hash,
)

_TEST_DEADLINE_S = 60.0
HOSTILE_NAMES = (
    "",
    " ",
    "a/b\\c",
    "../../etc/passwd",
    "'; DROP TABLE topologies; --",
    'quote " and \\',
    "line\nend",
    "\0",
    "\x1b[31m",
    "é",
    "\U0001f600",
    "\udcff",
    "x" * 30_000,
)


def settings_in(folder: Path, *, target: str = "") -> StoreSettings:
    return StoreSettings(folder=folder, max_bytes=4 * 1024 * 1024, target=target, environment={})


def topology(name: str = "one", *, nodes: int = 3) -> Description:
    """A small application that reads `name`; with more nodes, a longer one."""
    middle = [ProcessorNode(name=f"p{i}", stores=(f"{name}-{i}",), successors=(f"p{i + 1}",)) for i in range(nodes)]
    chain: list[Node] = [SourceNode(name="source", topics=(name,), successors=("p0",)), *middle]
    chain.append(SinkNode(name=f"p{nodes}", topic=None))
    store = GlobalStore(
        source=SourceNode(name="gs", topics=("rates",), successors=("gp",)), processor=ProcessorNode(name="gp")
    )
    return Description(subtopologies=(Subtopology(id="0", nodes=tuple(chain)),), global_stores=(store,))


def pushed(
    group: str, description: Description | None = None, *, epoch: int = 0, incarnation: str = "9f2c"
) -> PushedTopology:
    described = topology() if description is None else description
    return PushedTopology(
        group=group,
        epoch=epoch,
        description=described,
        incarnation=incarnation,
        hash=content_hash(described),
        member="m-1",
        process="p-1",
    )


def _on_open_store(
    test: "Callable[[TopologyStoreContract, TopologyStore], Awaitable[None]]",
) -> "Callable[[TopologyStoreContract, Path], None]":
    """Run a coroutine test with the opened store."""

    def run(self: "TopologyStoreContract", tmp_path: Path) -> None:
        self.run(tmp_path, lambda store: test(self, store))

    return run


class TopologyStoreContract:
    """The contract of `TopologyStore`, one test for each rule."""

    # Whether descriptions are there after the store was closed and opened again.
    keeps = True
    # How long a call may keep the event loop from running other work.
    max_pause_s = 2.0

    def open_store(self, folder: Path) -> AbstractAsyncContextManager[TopologyStore]:
        """Open the store, configured, in this folder; close it when the block ends."""
        raise NotImplementedError

    def group(self, name: str = "g") -> str:
        """The name of a group; override it when tests share a backend, where names must differ."""
        return name

    def run(self, folder: Path, *acts: Callable[[TopologyStore], Awaitable[None]]) -> None:
        """Run each act with the store opened anew; an exception that reaches the event loop fails the test."""

        async def all_acts() -> None:
            unhandled: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
            for act in acts:
                async with asyncio.timeout(_TEST_DEADLINE_S), self.open_store(folder) as store:
                    await act(store)
            assert unhandled == []

        asyncio.run(all_acts())

    @_on_open_store
    async def test_what_was_never_set_is_not_there(self, store: TopologyStore) -> None:
        assert await store.get(self.group(), 0) is None

    @_on_open_store
    async def test_what_was_set_comes_back_as_it_was(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group()))
        assert await store.get(self.group(), 0) == topology()

    @_on_open_store
    async def test_an_empty_description_is_one_too(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group(), Description()))
        assert await store.get(self.group(), 0) == Description()

    @_on_open_store
    async def test_another_epoch_is_not_there(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group(), epoch=3))
        assert await store.get(self.group(), 2) is None
        assert await store.get(self.group(), 4) is None
        assert await store.get(self.group(), 3) == topology()

    @_on_open_store
    async def test_the_largest_epoch_is_kept(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group(), epoch=2**31 - 1))
        assert await store.get(self.group(), 2**31 - 1) == topology()

    @_on_open_store
    async def test_what_is_set_later_replaces_what_was_there(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group(), topology("one")))
        await store.set(pushed(self.group(), topology("two")))
        assert await store.get(self.group(), 0) == topology("two")

    @_on_open_store
    async def test_a_lower_epoch_of_a_later_life_replaces_what_was_there(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group(), topology("one"), epoch=5))
        await store.set(pushed(self.group(), topology("two"), epoch=0, incarnation="77aa"))
        assert await store.get(self.group(), 0) == topology("two")

    @_on_open_store
    async def test_setting_the_same_again_changes_nothing(self, store: TopologyStore) -> None:
        for _ in range(3):
            await store.set(pushed(self.group()))
        assert await store.get(self.group(), 0) == topology()

    @_on_open_store
    async def test_groups_do_not_touch_each_other(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group("g"), topology("one")))
        await store.set(pushed(self.group("G"), topology("two")))
        await store.delete(self.group("G"))
        assert await store.get(self.group("g"), 0) == topology("one")
        assert await store.get(self.group("G"), 0) is None

    @_on_open_store
    async def test_what_was_deleted_is_not_there(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group()))
        await store.delete(self.group())
        assert await store.get(self.group(), 0) is None

    @_on_open_store
    async def test_deleting_takes_every_epoch(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group(), topology("one"), epoch=1))
        await store.set(pushed(self.group(), topology("two"), epoch=2))
        await store.delete(self.group())
        assert [await store.get(self.group(), epoch) for epoch in (1, 2)] == [None, None]

    @_on_open_store
    async def test_deleting_nothing_is_success(self, store: TopologyStore) -> None:
        await store.delete(self.group())
        await store.set(pushed(self.group()))
        await store.delete(self.group())
        await store.delete(self.group())

    @_on_open_store
    async def test_what_is_set_after_a_deletion_is_there(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group(), topology("one")))
        await store.delete(self.group())
        await store.set(pushed(self.group(), topology("one"), incarnation="77aa"))
        assert await store.get(self.group(), 0) == topology("one")

    @_on_open_store
    async def test_names_are_whatever_clients_call_themselves(self, store: TopologyStore) -> None:
        for number, name in enumerate(HOSTILE_NAMES):
            await store.set(pushed(self.group(name), topology(f"{name}{number}")))
        for number, name in enumerate(HOSTILE_NAMES):
            assert await store.get(self.group(name), 0) == topology(f"{name}{number}")

    @_on_open_store
    async def test_a_topology_of_ten_thousand_nodes_is_kept(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group(), topology(nodes=10_000)))
        assert await store.get(self.group(), 0) == topology(nodes=10_000)

    @_on_open_store
    async def test_every_method_gives_something_to_await(self, store: TopologyStore) -> None:
        for call in (store.set(pushed(self.group())), store.get(self.group(), 0), store.delete(self.group())):
            assert inspect.isawaitable(call)
            await call

    @_on_open_store
    async def test_calls_at_the_same_time_end_as_if_one_came_after_the_other(self, store: TopologyStore) -> None:
        group = self.group()
        names = [f"t{number}" for number in range(8)]
        await asyncio.gather(*(store.set(pushed(group, topology(name))) for name in names))
        found = await asyncio.gather(*(store.get(group, 0) for _ in range(8)))
        assert len({content_hash(one) for one in _there(found)}) == 1
        assert found[0] in [topology(name) for name in names]
        await asyncio.gather(store.set(pushed(group)), store.delete(group), store.get(group, 0))
        assert await store.get(group, 0) in {None, topology()}

    @_on_open_store
    async def test_a_cancelled_call_leaves_a_store_that_works(self, store: TopologyStore) -> None:
        group = self.group()
        for pause in (0.0, 0.001, 0.01):
            task = asyncio.ensure_future(store.set(pushed(group, topology(nodes=500))))
            await asyncio.sleep(pause)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await store.set(pushed(group))
        await asyncio.sleep(0.1)
        assert await store.get(group, 0) in {topology(), topology(nodes=500)}

    @_on_open_store
    async def test_the_event_loop_is_not_blocked(self, store: TopologyStore) -> None:
        """A store that blocks does so in each call: what a busy machine does to a few of them is no failure."""

        async def shortest_pause(call: Callable[[int], Awaitable[object]]) -> float:
            return min([await _longest_pause(partial(call, number)) for number in range(5)])

        texts = [pushed(self.group(), topology(nodes=1_000 + number)) for number in range(5)]
        set_s = await shortest_pause(lambda number: store.set(texts[number]))
        get_s = await shortest_pause(lambda _: store.get(self.group(), 0))
        pause_s = max(set_s, get_s)
        assert pause_s < self.max_pause_s, f"the event loop was blocked for {pause_s:.2f} s"

    def test_what_was_set_or_deleted_is_so_after_a_restart(self, tmp_path: Path) -> None:
        async def before(store: TopologyStore) -> None:
            await store.set(pushed(self.group("kept"), topology("one")))
            await store.set(pushed(self.group("gone"), topology("two")))
            await store.delete(self.group("gone"))

        async def after(store: TopologyStore) -> None:
            assert await store.get(self.group("kept"), 0) == (topology("one") if self.keeps else None)
            assert await store.get(self.group("gone"), 0) is None

        self.run(tmp_path, before, after)

    @_on_open_store
    async def test_closing_twice_is_as_good_as_once(self, store: TopologyStore) -> None:
        await store.set(pushed(self.group()))
        await store.close()
        await store.close()


async def _longest_pause(call: Callable[[], Awaitable[object]]) -> float:
    """The longest time, in seconds, for which no other task ran during this call."""
    longest, last = 0.0, time.monotonic()

    async def beat() -> None:
        nonlocal longest, last
        while True:
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            await asyncio.sleep(0.001)

    beating = asyncio.ensure_future(beat())
    try:
        await asyncio.sleep(0)  # it has begun
        await call()
        await asyncio.sleep(0.005)  # it has seen the end
    finally:
        beating.cancel()
        await asyncio.wait({beating})
    return longest


def _there(found: Iterable[Description | None]) -> list[Description]:
    assert None not in found
    return [one for one in found if one is not None]
