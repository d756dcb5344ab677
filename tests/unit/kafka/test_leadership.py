"""What a worker does when it is given the lead and when it is taken away; Kafka itself is in the integration tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from headgate.base.errors import ClusterError
from headgate.kafka.leadership import Leadership

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


class Told:
    """What was called, in order; `begin` is what `on_gained` does."""

    def __init__(self, begin: Callable[[], Awaitable[None]] | None = None) -> None:
        self.calls: list[str] = []
        self._begin = begin

    async def on_gained(self) -> None:
        self.calls.append("gained")
        if self._begin is not None:
            await self._begin()

    async def on_lost(self) -> None:
        self.calls.append("lost")


@asynccontextmanager
async def led(told: Told) -> AsyncIterator[Leadership]:
    leadership = Leadership(NOWHERE, topic="headgate.leader", on_gained=told.on_gained, on_lost=told.on_lost)
    leadership.start()
    try:
        yield leadership
    finally:
        await leadership.close()


def leads(leadership: Leadership) -> bool:
    return leadership.is_leader


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - it is about call-backs
            await asyncio.sleep(0.005)


async def test_no_worker_leads_without_a_cluster() -> None:
    told = Told()
    async with led(told) as leadership:
        await until(lambda: leadership.problem != "the leader's group was not joined yet")
        assert not leadership.is_leader
    assert told.calls == []


async def test_the_lead_is_gained_and_lost_in_turn() -> None:
    told = Told()
    async with led(told) as leadership:
        for _ in range(2):
            leadership.gain()
            await until(lambda: told.calls[-1:] == ["gained"])
            assert leads(leadership)
            leadership.lose()
            assert not leads(leadership)
            await until(lambda: told.calls[-1] == "lost")
    assert told.calls == ["gained", "lost"] * 2


async def test_a_lead_that_comes_back_at_once_is_another_one() -> None:
    told = Told()
    async with led(told) as leadership:
        leadership.gain()
        await until(lambda: told.calls == ["gained"])
        leadership.lose()
        leadership.gain()
        await until(lambda: told.calls == ["gained", "lost", "gained"])


async def test_a_lead_that_is_lost_before_it_is_taken_is_given_up() -> None:
    ends: list[str] = []

    async def begin() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    told = Told(begin)
    async with led(told) as leadership:
        leadership.gain()
        await until(lambda: told.calls == ["gained"])
        leadership.lose()
        await until(lambda: told.calls == ["gained", "lost"])
        assert ends == ["cancelled"]


async def test_a_lead_that_cannot_be_taken_is_tried_again() -> None:
    failures = [ClusterError("no trips"), ClusterError("no trips")]

    async def begin() -> None:
        if failures:
            raise failures.pop()

    told = Told(begin)
    async with led(told) as leadership:
        leadership.retry_s = 0.01
        leadership.gain()
        await until(lambda: told.calls == ["gained", "lost", "gained", "lost", "gained"])
        assert leadership.is_leader
    assert told.calls[-1] == "lost"
