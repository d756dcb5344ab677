"""Every result, exception and timeout of a store is a value: the shipped broker's table (KIP-1331)."""

import asyncio

import pytest
from structlog.typing import EventDict

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
from tests.unit.proxy.stage import turns, until
from tests.unit.topologies.fake_stores import (
    BREACH,
    FakeStore,
    hang,
    raise_before_awaited,
    raising,
    return_nonsense,
    return_nothing_to_await,
)

NEVER_S = 60.0
LATE = "The topology store did not answer within 10 ms."


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def calls_of(store: FakeStore | MemoryStore, *, timeout_s: float = NEVER_S, max_hanging: int = 64) -> StoreCalls:
    return StoreCalls(store, timeout_s=timeout_s, max_hanging=max_hanging)


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
    ],
)
async def test_a_set_is_stored_or_a_permanent_or_a_transient_failure(
    store: FakeStore, outcome: PushOutcome, text: str | None
) -> None:
    assert await calls_of(store).set(pushed("g")) == SetResult(outcome, text)


async def test_a_description_that_is_there_is_found() -> None:
    store = MemoryStore()
    await store.set(pushed("g"))
    assert await calls_of(store).get("g", 0) == topology()


async def test_a_store_that_lost_its_data_is_missing_it() -> None:
    assert await calls_of(FakeStore()).get("g", 0) is None


@pytest.mark.parametrize(
    ("store", "text"),
    [
        (raising(TransientFailure("no")), "no"),
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
        (FakeStore(raise_before_awaited), DELETE_FAILED),
        (FakeStore(return_nothing_to_await), DELETE_FAILED),
    ],
)
async def test_a_deletion_that_fails_has_the_text_of_the_store_or_a_generic_one(
    store: FakeStore, text: str | None
) -> None:
    assert await calls_of(store).delete("g") == (None if text is None else StoreFailure(text))


async def test_a_call_that_never_ends_is_a_failure() -> None:
    calls = calls_of(FakeStore(hang), timeout_s=0.01)
    assert await calls.set(pushed("g")) == SetResult(PushOutcome.TRANSIENT, LATE)
    assert await calls.get("g", 0) == await calls.delete("g") == StoreFailure(LATE)


class Hanging(FakeStore):
    """Hangs until it is cancelled, and then until `may_end` is set."""

    def __init__(self) -> None:
        super().__init__(self._hang)
        self.cancelled = 0
        self.may_end = asyncio.Event()

    async def _hang(self) -> None:
        try:
            await hang()
        except asyncio.CancelledError:
            self.cancelled += 1
            await self.may_end.wait()
            raise RuntimeError("late") from None


async def test_a_store_that_ignores_cancellation_delays_no_caller() -> None:
    store = Hanging()
    calls = calls_of(store, timeout_s=0.01)
    await calls.set(pushed("g"))
    await turns()
    assert (store.cancelled, calls.hanging) == (1, 1)
    store.may_end.set()
    await until(lambda: calls.hanging == 0)


async def test_a_store_of_which_too_many_calls_hang_is_left_alone(logs: list[EventDict]) -> None:
    store = Hanging()
    calls = calls_of(store, timeout_s=0.01, max_hanging=2)
    outcomes = [await calls.set(pushed("g")) for _ in range(4)]
    assert {outcome.outcome for outcome in outcomes} == {PushOutcome.TRANSIENT}
    assert (store.calls, calls.hanging) == (2, 2)
    store.may_end.set()
    await until(lambda: calls.hanging == 0)
    assert [entry["event"] for entry in logs] == [
        "topology store is not called: too many calls hang",
        "topology store is called again",
    ]
    await calls.set(pushed("g"))
    assert store.calls == 3
    await until(lambda: calls.hanging == 0)


async def test_a_caller_that_is_cancelled_cancels_its_call() -> None:
    store = Hanging()
    store.may_end.set()
    task = asyncio.ensure_future(calls_of(store).set(pushed("g")))
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await turns()
    assert store.cancelled == 1
