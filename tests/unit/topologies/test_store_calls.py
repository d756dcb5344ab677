"""Every result, exception and timeout of a store is a value: the shipped broker's table (KIP-1331)."""

import asyncio
import time
from typing import Any

import pytest

from headgate.plugin import PermanentFailure, TransientFailure
from headgate.plugin.conformance import pushed, topology
from headgate.topologies.model.group_state import PushOutcome
from headgate.topologies.store_calls import (
    DELETE_FAILED,
    SET_FAILED,
    SetResult,
    StoreCalls,
    StoreFailure,
)
from headgate.topologies.stores.memory_store import MemoryStore
from tests.unit.topologies.fake_stores import (
    BREACH,
    FakeStore,
    hang,
    raise_before_awaited,
    raising,
    return_nonsense,
    return_nothing_to_await,
)

LATE = "The topology store did not answer within 50 ms."


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def calls_of(store: Any) -> StoreCalls:
    return StoreCalls(store, timeout_s=0.05)


@pytest.mark.parametrize(
    ("store", "outcome", "text"),
    [
        (FakeStore(), PushOutcome.STORED, None),
        (FakeStore(raise_before_awaited), PushOutcome.PERMANENT, SET_FAILED),
        (FakeStore(return_nothing_to_await), PushOutcome.PERMANENT, SET_FAILED),
        (raising(PermanentFailure("too large for me")), PushOutcome.PERMANENT, "too large for me"),
        (raising(TransientFailure("not now")), PushOutcome.TRANSIENT, "not now"),
        (raising(OSError("not now")), PushOutcome.TRANSIENT, "not now"),
        (raising(OSError()), PushOutcome.TRANSIENT, "OSError"),
        (raising(UnprintableError()), PushOutcome.TRANSIENT, "UnprintableError"),
        (raising(OSError("x" * 100_000)), PushOutcome.TRANSIENT, "x" * 1000),
        (raising(asyncio.CancelledError()), PushOutcome.TRANSIENT, "the store cancelled its own call"),
        (FakeStore(hang), PushOutcome.TRANSIENT, LATE),
    ],
)
async def test_a_set_is_stored_or_a_permanent_or_a_transient_failure(
    store: FakeStore, outcome: PushOutcome, text: str | None
) -> None:
    assert await calls_of(store).set(pushed("g")) == SetResult(outcome, text)


async def test_a_description_that_is_there_is_found() -> None:
    store = MemoryStore()
    await store.set(pushed("g"))
    assert await StoreCalls(store, timeout_s=5.0).get("g", 0) == topology()


async def test_a_store_that_lost_its_data_is_missing_it() -> None:
    assert await calls_of(FakeStore()).get("g", 0) is None


@pytest.mark.parametrize(
    ("store", "text"),
    [
        (raising(TransientFailure("no")), "no"),
        (FakeStore(hang), LATE),
        (FakeStore(return_nonsense), "the store returned a dict instead of a Description"),
        (FakeStore(raise_before_awaited), None),
        (FakeStore(return_nothing_to_await), None),
    ],
)
async def test_a_get_that_fails_or_breaks_the_contract_is_an_error(store: FakeStore, text: str | None) -> None:
    found = await calls_of(store).get("g", 0)
    assert isinstance(found, StoreFailure)
    assert text in {None, found.text}
    assert BREACH not in found.text


@pytest.mark.parametrize(
    ("store", "text"),
    [
        (FakeStore(), None),
        (raising(PermanentFailure("no")), "no"),
        (FakeStore(hang), LATE),
        (FakeStore(raise_before_awaited), DELETE_FAILED),
        (FakeStore(return_nothing_to_await), DELETE_FAILED),
    ],
)
async def test_a_deletion_that_fails_has_the_text_of_the_store_or_a_generic_one(
    store: FakeStore, text: str | None
) -> None:
    assert await calls_of(store).delete("g") == (None if text is None else StoreFailure(text))


class Hanging:
    """Hangs until it is cancelled, and then for `ignores_s` longer."""

    def __init__(self, ignores_s: float = 0.0) -> None:
        self.store = FakeStore(self.act)
        self.cancelled = 0
        self._ignores_s = ignores_s

    async def act(self) -> None:
        try:
            await hang()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(self._ignores_s)
            if self._ignores_s:
                raise RuntimeError("late") from None
            raise


async def test_a_call_that_times_out_is_cancelled() -> None:
    hanging = Hanging()
    await calls_of(hanging.store).set(pushed("g"))
    await asyncio.sleep(0)
    assert hanging.cancelled == 1


async def test_a_store_that_ignores_cancellation_delays_no_caller() -> None:
    calls = calls_of(Hanging(ignores_s=0.3).store)
    begun = time.monotonic()
    await calls.set(pushed("g"))
    assert time.monotonic() - begun < 0.25
    assert calls.hanging == 1
    await asyncio.sleep(0.4)
    assert calls.hanging == 0


async def test_a_store_of_which_too_many_calls_hang_is_left_alone() -> None:
    store = Hanging(ignores_s=0.2).store
    calls = StoreCalls(store, timeout_s=0.01, max_hanging=2)
    outcomes = [await calls.set(pushed("g")) for _ in range(4)]
    assert {outcome.outcome for outcome in outcomes} == {PushOutcome.TRANSIENT}
    assert store.calls == 2
    await asyncio.sleep(0.3)
    await calls.set(pushed("g"))
    assert store.calls == 3
    await asyncio.sleep(0.3)


async def test_a_caller_that_is_cancelled_cancels_its_call() -> None:
    hanging = Hanging()
    task = asyncio.ensure_future(StoreCalls(hanging.store, timeout_s=60.0).set(pushed("g")))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert hanging.cancelled == 1
