"""How often the stored description of one group may be replaced."""

from headgate.topologies.model.push_rate import AT_ONCE, REFILL_S, PushRate
from tests.unit.topologies.scene import pushed, scene

UPDATE_FAILED, AVAILABLE = 135, 3


def test_some_at_once_and_then_one_in_each_period() -> None:
    rate = PushRate()
    assert [rate.take("g", 0.0) for _ in range(AT_ONCE + 1)] == [True] * AT_ONCE + [False]
    assert not rate.take("g", REFILL_S / 2)
    assert rate.take("g", REFILL_S)
    assert not rate.take("g", REFILL_S)
    assert rate.take("other", REFILL_S)


def test_no_more_at_once_after_a_long_pause() -> None:
    rate = PushRate()
    assert rate.take("g", 0.0)
    assert [rate.take("g", 1e6) for _ in range(AT_ONCE + 1)] == [True] * AT_ONCE + [False]


def test_memory_is_bounded() -> None:
    rate = PushRate(max_groups=3)
    for number in range(10):
        rate.take(str(number), 0.0)
    assert len(rate) == 3


async def test_a_member_that_pushes_ever_other_descriptions_is_bounded_and_what_is_stored_stays() -> None:
    async with scene() as it:
        await it.join()
        for number in range(AT_ONCE):
            assert await it.pushes(pushed(name=f"N{number}")) == 0
        answer = await it.push(pushed(name="one-too-many"))
        assert answer.error_code == UPDATE_FAILED
        assert "too often" in answer.error_message
        assert it.service.metrics.store_calls["set", "success"] == AT_ONCE
        assert await it.pushes(pushed(name=f"N{AT_ONCE - 1}")) == 0  # what is stored is confirmed as before
        assert await it.status() == AVAILABLE
