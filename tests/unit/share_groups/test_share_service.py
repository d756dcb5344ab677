"""The life of the service: it opens when it can, says what is in the way, and ends without losing what it counted."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.errors import ClusterError
from headgate.config.model import Config
from headgate.facts import DispositionsCounted, GroupConfigSet, GroupConfigUnset, GroupPaused, GroupPauseEnded
from headgate.share_groups import service as module
from headgate.share_groups.dead_letter_delivery import Wanted
from headgate.share_groups.model.dead_letter_records import Cause
from headgate.share_groups.model.dispositions import Kind
from headgate.share_groups.model.group_configs import DLQ_TOPIC, LIMIT
from headgate.share_groups.resources import Listeners
from headgate.share_groups.service import ShareGroupService
from tests.unit.proxy.stage import config, until
from tests.unit.share_groups.share_scene import TOPIC, SceneParts

KEY = ("g", "m", TOPIC, 0)


class Opening:
    """What stands for `open_parts`; fails with what is given, and then opens."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.fails_for_ever: Exception | None = None
        self.asked = 0
        self.parts: SceneParts | None = None
        self.closed = 0

    async def __call__(self, _config: Config, _worker: int, told: Listeners, stack: AsyncExitStack) -> Any:
        self.asked += 1
        stack.callback(self._close)
        told.on_event(GroupPaused(group="g", reason="r", by="o", at=1))
        if self.fails_for_ever is not None:
            raise self.fails_for_ever
        if self.failures:
            raise self.failures.pop(0)
        assert self.parts is not None
        return self.parts

    def _close(self) -> None:
        self.closed += 1


class Alone:
    """What stands for `Leadership`: nobody leads."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def start(self) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Opening:
    one = Opening()
    monkeypatch.setattr(module, "open_parts", one)
    monkeypatch.setattr(module, "Leadership", Alone)
    monkeypatch.setattr(module, "_RETRY_S", 0.01)
    return one


def service_of(opening: Opening) -> ShareGroupService:
    service = ShareGroupService(config(9))
    service.limits.default = 5

    async def learn() -> None:
        pass

    service.limits.learn = learn  # type: ignore[method-assign]
    opening.parts = SceneParts(service)
    return service


async def test_it_tries_until_it_opens_and_says_once_what_is_in_the_way(
    opening: Opening, logs: list[EventDict]
) -> None:
    service = service_of(opening)
    opening.failures = [ClusterError("no"), ClusterError("no"), ZeroDivisionError("oh")]
    async with service.running():
        await until(lambda: service.is_ready)
        assert opening.asked == 4
        assert opening.closed == 3, "what an attempt opened is closed"
        assert service.states.of("g").is_paused
        assert [one["problem"] for one in logs if one["log_level"] == "warning"] == ["no", "oh"]
    assert opening.closed == 4


async def test_what_an_attempt_that_failed_had_read_is_forgotten(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 60)
    service = service_of(opening)
    opening.fails_for_ever = ClusterError("no right to the topic")
    async with service.running():
        await until(lambda: bool(opening.closed))
        await asyncio.sleep(0)
        assert not service.minded
        assert service.is_opening
        assert service.problems()


async def test_a_service_that_never_opens_gives_up_waiting_once_and_goes_on_trying(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, logs: list[EventDict]
) -> None:
    monkeypatch.setattr(module, "LONGEST_OPENING_S", 0.05)
    service = service_of(opening)
    opening.fails_for_ever = ClusterError("no right to the topic")
    async with service.running():
        await until(lambda: not service.is_opening)
        asked = opening.asked
        await until(lambda: opening.asked > asked + 2)
        [said] = [one for one in logs if one["log_level"] == "error"]
        assert said["problem"] == "no right to the topic"
        opening.fails_for_ever = None
        await until(lambda: service.is_ready)
        assert service.minded == {b"g"}


async def test_what_was_counted_is_written_at_the_end(opening: Opening) -> None:
    service = service_of(opening)
    async with service.running():
        await until(lambda: service.is_ready)
        service.dispositions.count(KEY, 0, service._clock.epoch_ms() // 1000, Kind.ACCEPTED, 7, 1)
    assert opening.parts is not None
    assert sum(one.accepted for one in opening.parts.writer.facts if isinstance(one, DispositionsCounted)) == 7


async def test_a_group_is_minded_as_long_as_it_has_anything_of_ours(opening: Opening) -> None:
    service = service_of(opening)
    service._on_event(GroupConfigSet(group="g", name=DLQ_TOPIC, value="dlq.x", by="o", at=1))
    service._on_event(GroupPaused(group="g", reason="r", by="o", at=1))
    service._on_event(GroupConfigUnset(group="g", name=DLQ_TOPIC))
    assert service.minded == {b"g"}
    service._on_event(GroupPauseEnded(group="g"))
    assert service.minded == set()


async def test_locks_are_bounded(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LOCKS", 10)
    service = service_of(opening)
    for number in range(20):
        service.lock_began(("g", f"m{number}", TOPIC, 0), 30_000)
    assert len(service._locks) == 10


async def test_a_hold_is_as_long_as_the_lock_that_began_first_allows(opening: Opening) -> None:
    service = service_of(opening)
    settings = service.states.of("g").settings
    assert service.hold_s(settings, [KEY]) == 10, "of an unknown lock nothing is known"
    service.lock_began(KEY, 8_000)
    service.lock_began(KEY, 8_000)
    assert 5.5 < service.hold_s(settings, [KEY]) <= 6
    service.lock_began(KEY, 100)
    assert service.hold_s(settings, [KEY]) == 0.1


async def test_a_task_that_fails_is_counted_and_said(opening: Opening, logs: list[EventDict]) -> None:
    service = service_of(opening)

    async def breaks() -> None:
        raise ZeroDivisionError

    service.spawn(breaks())
    await until(lambda: not service._tasks)
    assert service.meter.failures == 1
    assert [one["event"] for one in logs] == ["task of the share groups failed"]


@pytest.mark.parametrize(
    ("changes", "given"),
    [({DLQ_TOPIC: None}, 4), ({DLQ_TOPIC: None, LIMIT: "7"}, 7), ({DLQ_TOPIC: None, LIMIT: None}, None)],
)
async def test_the_broker_gets_the_limit_back_that_the_user_means(
    opening: Opening, changes: dict[str, str | None], given: int | None
) -> None:
    service = service_of(opening)
    back: list[int | None] = []

    async def give_back(_group: str, value: int | None) -> bool:
        back.append(value)
        return True

    service.limits.give_back = give_back  # type: ignore[method-assign, assignment]
    async with service.running():
        await until(lambda: service.is_ready)
        for name, value in ((DLQ_TOPIC, "dlq.x"), (LIMIT, "4")):
            service._on_event(GroupConfigSet(group="h", name=name, value=value, by="o", at=1))
        await service.operating.set_configs("h", changes, "User:o")
        assert back == [given]
        assert service.states.of("h").values == {}


async def test_limits_that_could_not_be_learnt_are_asked_for_again(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEARN_S", 0.01)
    service = service_of(opening)
    service.limits.default = None
    asked = 0

    async def learn() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            service.limits.default = 5

    service.limits.learn = learn  # type: ignore[method-assign]
    async with service.running():
        await until(lambda: service.limits.default == 5)
    assert asked == 3


async def test_a_client_that_names_many_partitions_does_not_fill_the_log(
    opening: Opening, logs: list[EventDict]
) -> None:
    service = service_of(opening)
    for partition in range(500):
        wanted = Wanted(
            key=("g", "m", TOPIC, partition),
            first=0,
            last=0,
            delivery_count=None,
            generation=0,
            cause=Cause.REJECTED,
        )
        service.letters.give_up(wanted, "because")
    service.letters.say()
    assert len(logs) == 100
    assert len(service._outbox._facts) == 500
    assert service.meter.write_timeouts == {"g": 500}
