"""The health of the store in `/readyz`: details that never make the gateway not ready."""

import asyncio

import pytest

from headgate.plugin import PermanentFailure, TransientFailure
from headgate.plugin.conformance import pushed
from headgate.topologies.store_calls import StoreCalls
from headgate.topologies.store_health import NOT_AVAILABLE, STORE, store_details
from tests.unit.proxy.stage import until
from tests.unit.topologies.fake_stores import BREACH, FakeStore, raise_before_awaited, raising
from tests.unit.topologies.scene import scene

NEVER_S = 60.0


def details(calls: StoreCalls) -> str | None:
    return store_details(calls, is_ready=True).get(STORE)


async def test_a_store_whose_calls_succeed_has_no_details() -> None:
    calls = StoreCalls(FakeStore(), timeout_s=NEVER_S)
    assert details(calls) is None
    await calls.set(pushed("g"))
    assert details(calls) is None


async def test_calls_that_hang_are_counted_until_they_end() -> None:
    ends = asyncio.Event()

    async def hang_on() -> None:
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue  # a store that ignores it

    calls = StoreCalls(FakeStore(hang_on), timeout_s=0.01, max_hanging=2)
    try:
        await calls.get("g", 0)
        assert details(calls) == "1 cancelled calls have not ended, the last 1 calls failed or timed out"
        await calls.get("g", 0)
        assert details(calls) == (
            "2 cancelled calls have not ended, the store is not called until some of them end, "
            "the last 2 calls failed or timed out"
        )
    finally:
        ends.set()
    await until(lambda: not calls.hanging)
    await calls.get("g", 0)
    assert details(calls) is None


@pytest.mark.parametrize("store", [raising(TransientFailure(BREACH)), FakeStore(raise_before_awaited)])
async def test_failures_in_a_row_are_counted_and_their_texts_are_not_shown(store: FakeStore) -> None:
    calls = StoreCalls(store, timeout_s=NEVER_S)
    for _ in range(3):
        await calls.set(pushed("g"))
    assert details(calls) == "the last 3 calls failed or timed out"


async def test_a_description_that_the_store_refuses_is_no_matter_of_its_health() -> None:
    calls = StoreCalls(raising(PermanentFailure("too large for me")), timeout_s=NEVER_S)
    calls.failures_in_a_row = 2
    await calls.set(pushed("g"))
    assert details(calls) is None


async def test_the_gateway_shows_it_and_stays_ready() -> None:
    async with scene(raising(TransientFailure(BREACH))) as it:
        gateway = it.stage.gateway
        assert gateway.details() == {}
        await it.join()
        await it.pushes()
        assert gateway.details() == {STORE: "the last 1 calls failed or timed out"}
        assert gateway.problems() == {}


async def test_a_store_that_is_not_open_is_a_detail() -> None:
    async with scene(opens=asyncio.Event()) as it:
        assert it.stage.gateway.details() == {STORE: NOT_AVAILABLE}
        assert it.stage.gateway.problems() == {}


async def test_without_a_store_there_are_no_details() -> None:
    async with scene(scheme="none") as it:
        assert it.stage.gateway.details() == {}


async def test_a_store_whose_topics_are_read_again_is_a_detail() -> None:
    calls = StoreCalls(FakeStore(), timeout_s=NEVER_S)
    assert store_details(calls, is_ready=False) == {STORE: NOT_AVAILABLE}
