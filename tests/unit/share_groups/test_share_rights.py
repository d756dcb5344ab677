"""Nothing of a request is read before the broker has shown that its client has READ on the group."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from structlog.typing import EventDict

from headgate.proxy.decoding import SMALL_BYTES
from headgate.share_groups import share_interceptor
from headgate.wire.messages.groups import HeartbeatResponse
from headgate.wire.messages.share import ShareAcknowledgeResponse
from headgate.wire.primitives import Buffer
from headgate.wire.share_requests import ShareRequest, read_acknowledge
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import turns, until
from tests.unit.share_groups.scene import (
    ACCEPT,
    ACKNOWLEDGE,
    DENIED,
    GROUP,
    HEARTBEAT,
    REJECT,
    Scene,
    acknowledged,
    acknowledging,
    fetched,
    fetching,
    scene,
)

MANY = {partition: [(0, 9, [REJECT])] for partition in range(10_000)}


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The thread of each parse of a ShareAcknowledge."""
    threads: list[str] = []

    def parse(body: Buffer, version: int) -> ShareRequest:
        threads.append(threading.current_thread().name)
        return read_acknowledge(body, version)

    monkeypatch.setattr(share_interceptor, "read_acknowledge", parse)
    return threads


def reports(on: Scene) -> tuple[object, ...]:
    return (on.counted(), on.service.meter.write_timeouts, on.events("write_timeout"), on.dead_letters.begun)


NO_REPORTS: tuple[object, ...] = ({}, {}, [], [])


async def test_a_request_on_a_connection_that_the_broker_closes_is_not_parsed_and_not_reported(
    parsed: list[str], logs: list[EventDict]
) -> None:
    async with scene() as on:
        on.configure()
        on.broker.code = None
        await on.send(acknowledging(MANY))
        asked = await on.broker.request()
        assert asked.key == HEARTBEAT
        assert parsed == []
        on.broker.close()
        await until(lambda: on.stage.ended == {"upstream_closed": 1})
        await turns()
        assert parsed == []
        assert reports(on) == NO_REPORTS
        assert [one for one in logs if one["log_level"] in ("warning", "error")] == []


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_request_of_a_client_without_the_right_passes_unread(parsed: list[str], is_kept: bool) -> None:
    async with scene() as on:
        on.configure()
        on.broker.code = DENIED
        for _ in range(1 + is_kept):
            sent = await on.send(acknowledging(MANY))
            asked = await on.broker.request()
            assert asked.frame == sent
            await on.broker.send(asked.answer(acknowledged(error_code=DENIED)))
            await on.client.frame()
        assert on.broker.probes == 1
        assert parsed == []
        assert reports(on) == NO_REPORTS
        assert on.service.acknowledgements.acquired_ranges == 0


async def test_a_right_that_was_lost_is_noticed_by_the_brokers_response(parsed: list[str]) -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((0, 0, 1))
        await on.fetch(fetching(), fetched(error_code=DENIED))
        on.broker.code = DENIED
        await on.send(acknowledging({0: [(0, 0, [REJECT])]}))
        await on.goes_on_acknowledging(acknowledged(error_code=DENIED))
        assert parsed == []
        assert on.dead_letters.begun == []


async def test_responses_prove_the_right_so_that_an_active_member_is_probed_once() -> None:
    clock = FakeClock()
    async with scene(clock=clock) as on:
        on.configure()
        for _ in range(5):
            await on.fetch(fetching(), fetched())
            clock.now += 4
        assert on.broker.probes == 1
        clock.now += 4
        await on.fetch(fetching(), fetched())
        assert on.broker.probes == 2


async def test_another_group_on_the_same_connection_has_a_probe_of_its_own() -> None:
    async with scene() as on:
        on.configure()
        on.configure("another")
        await on.fetch(fetching(), fetched())
        await on.fetch(fetching(group="another"), fetched())
        assert on.broker.probes == 2


async def test_a_large_request_of_a_client_with_the_right_is_parsed_off_the_event_loop(parsed: list[str]) -> None:
    async with scene() as on:
        on.configure()
        await on.acquires((0, 0, 1))
        small = {partition: [(0, 0, [ACCEPT])] for partition in range(10)}
        large = {partition: [(0, 0, [ACCEPT])] for partition in range(SMALL_BYTES // 20)}
        for acks in (small, large):
            await on.send(acknowledging(acks))
            await on.goes_on_acknowledging(acknowledged(dict.fromkeys(acks, 0)))
        on_loop, off_loop = parsed
        assert on_loop == threading.current_thread().name
        assert off_loop.startswith("headgate-large")
        assert on.counted() == {"accepted": len(small) + len(large)}


@pytest.mark.parametrize("message", [fetching, acknowledging])
async def test_a_probe_without_an_answer_lets_nothing_pass_a_pause(
    message: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_interceptor, "_PROBE_S", 0.05)
    async with scene() as on:
        on.pause()
        on.broker.code = None
        await on.send(message())  # type: ignore[arg-type]
        probe = await on.broker.request()
        assert await on.broker.is_quiet(0.2), "the request itself is not sent"
        await on.broker.send(probe.answer(HeartbeatResponse(error_code=25)))
        frame = await on.client.frame()
        assert b"\x00\x07" in frame, "REQUEST_TIMED_OUT, behind the probe's response"


async def test_nothing_is_parsed_before_the_probe_while_the_service_opens(parsed: list[str]) -> None:
    opens = asyncio.Event()
    async with scene(opens=opens) as on:
        on.broker.code = None
        await on.send(acknowledging({0: [(0, 0, [ACCEPT])]}))
        probe = await on.broker.request()
        assert parsed == []
        await on.broker.send(probe.answer(HeartbeatResponse(error_code=DENIED)))
        asked = await on.broker.request()
        assert asked.key == ACKNOWLEDGE
        assert parsed == []


async def test_a_client_without_the_right_to_its_group_writes_no_dead_letters() -> None:
    async with scene() as on:
        on.configure()
        on.broker.code = DENIED
        await on.send(acknowledging({0: [(10, 10, [REJECT])]}))
        _, answer = await on.goes_on_acknowledging(acknowledged(error_code=DENIED))
        assert isinstance(answer, ShareAcknowledgeResponse)
        assert answer.error_code == DENIED
        assert on.dead_letters.begun == []
        assert on.counted() == {}
        assert on.service.state(GROUP).settings.dlq_topic is not None
