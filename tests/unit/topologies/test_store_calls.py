"""Every way in which a store can answer, or not, is an outcome: the shipped broker's table (KIP-1331)."""

import asyncio
import time

import pytest

from headgate.plugin import PermanentFailure, TransientFailure
from headgate.plugin.conformance import pushed, topology
from headgate.topologies.model.group_state import PushOutcome
from headgate.topologies.store_calls import (
    DELETE_FAILED,
    SET_FAILED,
    DescriptionFound,
    DescriptionNotStored,
    SetResult,
    StoreCalls,
    StoreFailure,
)
from headgate.topologies.stores.memory_store import MemoryStore
from tests.unit.topologies.fake_stores import (
    AnswersNonsense,
    Fine,
    Hangs,
    Raises,
    RaisesAtOnce,
    ReturnsNothing,
)

LATE = "The topology store did not answer within 50 ms."


def behind(store: Fine) -> StoreCalls:
    return StoreCalls(store, timeout_s=0.05)


async def test_a_store_that_returns_has_stored() -> None:
    assert await behind(Fine()).set(pushed("g")) == SetResult(PushOutcome.STORED)


async def test_what_is_there_is_found() -> None:
    store = MemoryStore()
    await store.set(pushed("g"))
    assert await StoreCalls(store, timeout_s=5.0).get("g", 0) == DescriptionFound(topology())


async def test_a_store_that_lost_its_data_is_missing_it() -> None:
    assert await behind(Fine()).get("g", 0) == DescriptionNotStored()


async def test_a_deletion_that_returns_is_done() -> None:
    assert await behind(Fine()).delete("g") is None


@pytest.mark.parametrize("store", [RaisesAtOnce, ReturnsNothing])
async def test_a_store_that_breaks_the_contract_fails_permanently_with_a_generic_text(store: type[Fine]) -> None:
    assert await behind(store()).set(pushed("g")) == SetResult(PushOutcome.PERMANENT, SET_FAILED)


@pytest.mark.parametrize("store", [RaisesAtOnce, ReturnsNothing])
async def test_a_deletion_that_breaks_the_contract_fails_with_a_generic_text(store: type[Fine]) -> None:
    assert await behind(store()).delete("g") == StoreFailure(DELETE_FAILED)


@pytest.mark.parametrize("store", [RaisesAtOnce, ReturnsNothing, AnswersNonsense])
async def test_a_get_that_breaks_the_contract_is_an_error(store: type[Fine]) -> None:
    found = await behind(store()).get("g", 0)
    assert isinstance(found, StoreFailure)
    assert "hunter2" not in found.text


async def test_the_permanent_failure_has_its_own_words() -> None:
    outcome = await behind(Raises(PermanentFailure("too large for me"))).set(pushed("g"))
    assert outcome == SetResult(PushOutcome.PERMANENT, "too large for me")


@pytest.mark.parametrize("error", [TransientFailure("not now"), OSError("not now"), KeyError("not now")])
async def test_any_other_failure_is_transient_and_has_its_own_words(error: Exception) -> None:
    outcome = await behind(Raises(error)).set(pushed("g"))
    assert outcome.outcome is PushOutcome.TRANSIENT
    assert "not now" in (outcome.text or "")


async def test_a_failure_without_words_is_called_by_its_name() -> None:
    assert await behind(Raises(OSError())).set(pushed("g")) == SetResult(PushOutcome.TRANSIENT, "OSError")


async def test_a_text_without_end_is_cut() -> None:
    outcome = await behind(Raises(OSError("x" * 100_000))).set(pushed("g"))
    assert len(outcome.text or "") == 1000


async def test_a_deletion_that_fails_has_the_stores_words() -> None:
    assert await behind(Raises(PermanentFailure("no"))).delete("g") == StoreFailure("no")


async def test_a_get_that_fails_is_an_error() -> None:
    assert await behind(Raises(TransientFailure("no"))).get("g", 0) == StoreFailure("no")


async def test_a_store_that_cancels_itself_fails_for_now() -> None:
    outcome = await behind(Raises(asyncio.CancelledError())).set(pushed("g"))
    assert outcome.outcome is PushOutcome.TRANSIENT


async def test_a_store_that_hangs_fails_for_now_and_is_cancelled() -> None:
    store = Hangs()
    assert await behind(store).set(pushed("g")) == SetResult(PushOutcome.TRANSIENT, LATE)
    await asyncio.sleep(0)
    assert store.cancelled == 1


async def test_a_get_that_hangs_is_an_error() -> None:
    assert await behind(Hangs()).get("g", 0) == StoreFailure(LATE)


async def test_a_deletion_that_hangs_fails() -> None:
    assert await behind(Hangs()).delete("g") == StoreFailure(LATE)


async def test_a_store_that_ignores_cancellation_delays_no_caller() -> None:
    calls = behind(Hangs(stubborn=0.3))
    begun = time.monotonic()
    await calls.set(pushed("g"))
    assert time.monotonic() - begun < 0.25
    assert calls.hanging == 1
    await asyncio.sleep(0.4)
    assert calls.hanging == 0


async def test_a_store_of_which_too_many_calls_hang_is_left_alone() -> None:
    store = Hangs(stubborn=0.2)
    calls = StoreCalls(store, timeout_s=0.01, max_hanging=2)
    outcomes = [await calls.set(pushed("g")) for _ in range(4)]
    assert {outcome.outcome for outcome in outcomes} == {PushOutcome.TRANSIENT}
    assert store.calls == 2
    await asyncio.sleep(0.3)
    await calls.set(pushed("g"))
    assert store.calls == 3
    await asyncio.sleep(0.3)


async def test_a_caller_that_goes_away_takes_its_call_along() -> None:
    store = Hangs()
    task = asyncio.ensure_future(StoreCalls(store, timeout_s=60.0).set(pushed("g")))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert store.cancelled == 1


class Unspeakable(Exception):  # noqa: N818 - it is not even an error that can be told
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_a_failure_whose_text_cannot_be_had_is_called_by_its_name() -> None:
    assert await behind(Raises(Unspeakable())).set(pushed("g")) == SetResult(PushOutcome.TRANSIENT, "Unspeakable")
