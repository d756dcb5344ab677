"""A paused group acquires nothing, and its clients notice nothing but that; others pass byte for byte."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.config.values import GroupPatterns
from headgate.facts import BreakerResumed
from headgate.proxy import chain
from headgate.proxy.interceptor import CloseCause
from headgate.wire.codec import encode
from headgate.wire.errors import ErrorCode
from tests.support.fake_upstream import request
from tests.unit.proxy.stage import until
from tests.unit.share_groups.fake_kafka import trip
from tests.unit.share_groups.scene import (
    ACCEPT,
    DENIED,
    FETCH,
    GROUP,
    REJECT,
    Scene,
    acknowledged,
    acknowledging,
    acks_of,
    fetched,
    fetching,
    scene,
)


async def passes(on: Scene, frame: bytes) -> None:
    """Byte for byte, and nobody looks at the answer."""
    await on.client.send(frame)
    asked = await on.broker.request()
    assert asked.frame == frame
    answer = asked.answer(fetched({0: [(0, 5, 9)]}))
    await on.broker.send(answer)
    assert await on.client.frame() == answer


def opened(on: Scene) -> int:
    return sum(one.opened_calls for one in on.stage.gateway.routes._routes.values() if one.api_key == FETCH)


async def test_a_group_without_our_configs_is_not_opened_and_passes_byte_for_byte() -> None:
    async with scene() as on:
        on.configure("another")
        for message in (fetching(), fetching({0: [(1, 1, [REJECT])]}), fetching(group="")):
            await passes(on, request(FETCH, 2, message))
        assert opened(on) == 0
        assert (on.service.acknowledgements.acquired_ranges, on.counted()) == (0, {})


@pytest.mark.parametrize("group", ["g" * 127, "g" * 30_000, None])
async def test_a_group_with_a_long_name_or_none_is_opened_and_still_passes_byte_for_byte(group: str | None) -> None:
    async with scene() as on:
        on.configure("another")
        await passes(on, request(FETCH, 2, fetching(group=group)))
        assert opened(on) == 1
        assert on.service.acknowledgements.acquired_ranges == 0


async def test_a_group_with_a_long_name_is_managed_like_any_other() -> None:
    name = "g" * 200
    async with scene() as on:
        on.pause(name)
        asked, _ = await on.fetch(fetching(group=name), fetched())
        assert asked.max_bytes == 0


async def test_a_group_that_is_not_selected_passes_whatever_was_decided_about_it() -> None:
    async with scene(groups=GroupPatterns(allow=("only-this",))) as on:
        on.pause()
        await passes(on, request(FETCH, 2, fetching()))


async def test_only_a_paused_group_is_told_to_acquire_nothing() -> None:
    async with scene() as on:
        on.configure()
        asked, _ = await on.fetch(fetching(), fetched())
        assert asked.max_bytes == 1 << 20
        on.pause()
        asked, _ = await on.fetch(fetching(), fetched())
        assert asked.max_bytes == 0
        on.resume()
        asked, _ = await on.fetch(fetching(), fetched())
        assert asked.max_bytes == 1 << 20


async def test_a_right_that_was_granted_a_moment_ago_does_not_get_around_a_pause() -> None:
    """A denial that is kept for some seconds says nothing of now: the broker would accept the fetch as it came."""
    async with scene() as on:
        on.pause()
        on.broker.code = DENIED
        for probes in (1, 2):
            await on.send(fetching())
            assert await on.broker.is_quiet(), "not forwarded: the right may be granted behind the probe"
            assert await on.fetched() == fetched(error_code=DENIED, lock_ms=0)
            assert on.broker.probes == probes
        on.broker.code = 25
        asked, _ = await on.fetch(fetching(), fetched())
        assert asked.max_bytes == 0


async def test_the_answer_waits_as_long_as_the_client_would_have_and_no_longer() -> None:
    async with scene() as on:
        on.pause()
        began = asyncio.get_running_loop().time()
        await on.fetch(fetching(wait_ms=200), fetched())
        assert 0.19 < asyncio.get_running_loop().time() - began < 3


async def test_the_answer_comes_at_once_when_the_group_is_resumed() -> None:
    async with scene() as on:
        on.pause()
        await on.send(fetching(wait_ms=60_000))
        await on.broker.reply(fetched())
        assert await on.client.is_quiet()
        began = asyncio.get_running_loop().time()
        on.resume()
        await on.fetched()
        assert asyncio.get_running_loop().time() - began < 5, "not after the minute that the client gave it"


async def test_acknowledgements_of_a_paused_group_hold_and_are_answered_at_once() -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((0, 0, 1))
        on.pause()
        began = asyncio.get_running_loop().time()
        asked, _ = await on.fetch(fetching({0: [(0, 0, [ACCEPT])]}, wait_ms=60_000), fetched({}, codes={0: 0}))
        assert asyncio.get_running_loop().time() - began < 5
        assert asked.max_bytes == 0
        assert acks_of(asked) == {0: [(0, 0, (ACCEPT,))]}
        assert on.counted() == {"accepted": 1}


async def test_a_fetch_that_closes_a_session_is_not_changed() -> None:
    async with scene() as on:
        on.pause()
        asked, _ = await on.fetch(fetching(epoch=-1, wait_ms=60_000), fetched())
        assert asked.max_bytes == 1 << 20


async def test_where_pausing_is_switched_off_nothing_is_paused() -> None:
    async with scene(pause_enable=False) as on:
        on.pause()
        asked, _ = await on.fetch(fetching(wait_ms=60_000), fetched())
        assert asked.max_bytes == 1 << 20


async def test_a_fetch_that_cannot_be_read_does_not_get_around_a_pause() -> None:
    async with scene() as on:
        on.pause()
        body = encode(fetching({0: []}), 2)
        # A broker reads over as many unknown tags as there are, here in a partition; we do not.
        tags = b"\x11" + b"".join(bytes((tag, 0)) for tag in range(100, 117))
        await on.client.send(request(FETCH, 2, body[:-4] + tags + body[-3:]))
        assert await on.broker.is_quiet()
        assert (await on.fetched()).error_code == 42


async def test_what_is_acquired_by_a_fetch_that_was_under_way_at_a_trip_is_older_than_the_trip() -> None:
    async with scene() as on:
        on.configure()
        await on.send(fetching())
        asked = await on.broker.request()
        on.read(trip(), BreakerResumed(group="g", generation=1, at=2))
        await on.broker.send(asked.answer(fetched({0: [(0, 0, 1)]})))
        await on.fetched()
        await on.acquires((1, 1, 1))
        await on.fetch(fetching({0: [(0, 1, [ACCEPT])]}), fetched({}, codes={0: 0}))
        assert [one.generation for one in on.service.acknowledgements.drain(1 << 60)] == [0, 1]


async def test_a_resume_of_an_operator_ends_the_breakers_pause_too() -> None:
    async with scene() as on:
        on.read(trip())
        on.pause()
        await on.service.resume(GROUP, "mended", "User:o")
        assert not on.service.is_paused(GROUP)


async def test_a_version_that_the_broker_does_not_have_ends_the_connection() -> None:
    async with scene() as on:
        on.pause()
        await on.client.send(request(FETCH, 0, b""))
        await on.stage.ends_with(CloseCause.UNSUPPORTED_CALL)
        assert await on.broker.rest() == b""


async def test_a_held_fetch_that_is_decided_too_late_does_not_get_around_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a stop of the process: the request is answered, and neither acquires nor archives anything."""
    deadline = asyncio.Event()

    async def outcome(work: Coroutine[Any, Any, object], _seconds: float) -> object:
        tasks = [asyncio.create_task(work), asyncio.create_task(deadline.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()
        tasks[0].cancel()
        raise chain._NotInTimeError

    monkeypatch.setattr(chain, "_outcome", outcome)
    async with scene() as on:
        on.configure()
        await on.acquires((10, 10, 1))
        on.dead_letters.open.clear()
        on.spool.open.clear()
        await on.send(fetching({0: [(10, 10, [REJECT])]}))
        await on.names_topic()
        await until(lambda: bool(on.dead_letters.begun))
        on.pause()
        deadline.set()
        assert (await on.fetched()).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert await on.broker.is_quiet()
        on.dead_letters.open.set()
        await until(lambda: bool(on.events("dead_letter_withdrawn")))
        assert on.counted() == {}


async def test_a_held_fetch_that_fails_does_not_get_around_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((10, 10, 1))
        on.pause()
        monkeypatch.setattr(on.service.acknowledgements, "drop_expired", lambda _: 1 / 0)
        await on.send(fetching({0: [(10, 10, [REJECT])]}))
        await on.names_topic()
        assert (await on.fetched()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        await on.send(fetching())
        assert (await on.fetched()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await on.broker.is_quiet()
        assert on.service.meter.failures == 2
        on.resume()
        await on.send(fetching())
        assert (await on.broker.request()).key == FETCH, "records of other groups flow"


@pytest.mark.parametrize("member", ["", None])
async def test_a_fetch_without_a_member_does_not_get_around_a_pause(member: str | None) -> None:
    async with scene() as on:
        on.pause()
        asked, _ = await on.fetch(replace(fetching(), member_id=member), fetched())
        assert asked.max_bytes == 0


# --- before the topics are read


async def test_until_it_is_known_who_is_paused_a_fetch_waits_its_time_and_then_acquires_nothing() -> None:
    async with scene(opens=asyncio.Event()) as on:
        began = asyncio.get_running_loop().time()
        asked, _ = await on.fetch(fetching(wait_ms=200), fetched())
        assert 0.19 < asyncio.get_running_loop().time() - began < 3
        assert asked.max_bytes == 0


async def test_a_fetch_that_waits_goes_on_when_it_is_known_that_its_group_is_not_paused() -> None:
    opens = asyncio.Event()
    async with scene(opens=opens) as on:
        await on.send(fetching(wait_ms=20_000))
        assert await on.broker.is_quiet()
        opens.set()
        asked, _ = await on.goes_on_fetching(fetched())
        assert asked.max_bytes == 1 << 20


async def test_a_reject_waits_for_its_group_to_be_known_and_is_dead_lettered_then() -> None:
    opens = asyncio.Event()
    async with scene(opens=opens) as on:
        await on.send(acknowledging({0: [(0, 0, [REJECT])]}))
        assert await on.broker.is_quiet()
        on.configure()
        opens.set()
        await on.names_topic()
        await on.goes_on_acknowledging(acknowledged({0: 0}))
        assert on.dead_letters.offsets == [(0, 0)]


async def test_other_acknowledgements_do_not_wait_for_that() -> None:
    async with scene(opens=asyncio.Event()) as on:
        await on.send(acknowledging({0: [(0, 0, [ACCEPT])]}))
        await on.goes_on_acknowledging(acknowledged({0: 0}))


async def test_when_it_takes_too_long_records_flow_and_one_error_says_so(logs: list[EventDict]) -> None:
    async with scene(opens=asyncio.Event(), max_opening_s=0.2) as on:
        assert on.service.problems()
        began = asyncio.get_running_loop().time()
        await on.send(fetching(wait_ms=600_000))
        asked = await on.broker.request()
        assert asyncio.get_running_loop().time() - began < 5, "not as long as the client would wait"
        await on.broker.send(asked.answer(fetched()))
        await on.fetched()
        await until(lambda: not on.service.is_opening)
        await passes(on, request(FETCH, 2, fetching(), correlation_id=9))
        assert [one["event"] for one in logs if one["log_level"] == "error"] == [
            "share groups are unknown, records flow without the brake"
        ]
        assert on.service.problems() == {}
