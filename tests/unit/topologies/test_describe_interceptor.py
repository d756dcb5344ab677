"""StreamsGroupDescribe through the gateway: the statuses, and that the broker's word stays as it is."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.facts import TopologyEpochsSet
from headgate.facts.topology import Description
from headgate.plugin import TransientFailure
from headgate.proxy.decoding import run_off_loop
from headgate.topologies import describe_interceptor
from headgate.topologies.model.group_status import STATUS_TAG
from headgate.topologies.stores.memory_store import MemoryStore
from headgate.wire.messages.streams import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from tests.support.fake_upstream import request
from tests.unit.topologies.fake_stores import ControlledStore, FakeStore, hang
from tests.unit.topologies.scene import DESCRIBE, beating, described, pushed, scene

NOT_REQUESTED, NOT_STORED, ERROR, AVAILABLE = range(4)


@pytest.mark.parametrize("tags", [(), ((STATUS_TAG, b""),)])
async def test_version_0_passes_byte_for_byte(tags: tuple[tuple[int, bytes], ...]) -> None:
    async with scene() as it:
        message = StreamsGroupDescribeRequest(group_ids=("g",), unknown_tags=tags)
        sent = request(DESCRIBE, 0, message, correlation_id=5)
        answer = StreamsGroupDescribeResponse(groups=(described(),))
        await it.client.send(sent)
        asked = await it.broker.reply(answer)
        assert asked.frame == sent
        assert await it.client.frame() == asked.answer(answer)


async def test_nothing_is_added_when_it_was_not_asked_for() -> None:
    async with scene() as it:
        await it.join()
        await it.pushes()
        [group] = await it.describe(described(), descriptions=False)
        assert group == described()
        assert (group.topology_description, group.topology_description_status) == (None, NOT_REQUESTED)


async def test_what_is_stored_is_available() -> None:
    async with scene() as it:
        await it.join()
        await it.pushes()
        [group] = await it.describe(described())
        assert group.topology_description == pushed().topology_description
        assert group.topology_description_status == AVAILABLE
        assert replace(group, topology_description=None, topology_description_status=0) == described()


@pytest.mark.parametrize("said", [{"epoch": 1}, {"epoch": None}, {"group": "another"}])
async def test_another_epoch_or_group_is_not_stored(said: dict[str, Any]) -> None:
    async with scene() as it:
        await it.join()
        await it.pushes()
        assert await it.status(**said) == NOT_STORED


@pytest.mark.parametrize("code", [14, 16, 29, 30, 69])
async def test_a_groups_error_is_passed_on_and_nothing_is_added(code: int) -> None:
    async with scene() as it:
        await it.join()
        await it.pushes()
        [group] = await it.describe(described(code=code))
        assert group == described(code=code)


async def test_a_store_that_hangs_is_an_error() -> None:
    async with scene(FakeStore(hang), store_timeout_s=0.01) as it:
        epochs = TopologyEpochsSet(at=1, group="g", incarnation="9f2c", stored_epoch=0, failed_epoch=-1)
        it.service.groups.on_epochs_read(epochs, is_own=False)
        assert await it.status() == ERROR
        assert it.service.metrics.store_calls["get", "error"] == 1


async def test_a_store_that_fails_is_an_error_and_one_that_forgot_is_not(logs: list[EventDict]) -> None:
    async def fails(_: str) -> None:
        raise TransientFailure("away")

    async def forgets(_: str) -> None:
        return None

    store = ControlledStore()
    async with scene(store) as it:
        await it.join()
        await it.pushes()
        for mood, status, successes in ((fails, ERROR, 0), (None, AVAILABLE, 1), (forgets, NOT_STORED, 2)):
            store.on_get = mood
            [group] = await it.describe(described())
            assert group.topology_description_status == status
            assert (group.topology_description is not None) == (status == AVAILABLE)
            counted = it.service.metrics.store_calls
            assert (counted["get", "error"], counted["get", "success"]) == (1, successes)
        warnings = [one for one in logs if one["log_level"] == "warning"]
        what = {"log_level": "warning", "group": "g", "epoch": 0}
        assert warnings == [
            {"event": "topology description cannot be read", "reason": "away", **what},
            {"event": "topology description is missing from the store", **what},
        ]
        # What was lost is asked for again.
        assert (await it.heartbeat(beating()))[1].topology_description_required


async def test_before_the_topics_are_read_it_is_an_error() -> None:
    async with scene(opens=asyncio.Event()) as it:
        assert await it.status() == ERROR


async def test_groups_are_read_side_by_side_and_one_does_not_spoil_another() -> None:
    waiting: set[str] = set()
    both = asyncio.Event()

    async def meets(group: str) -> None:
        waiting.add(group)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        raise TransientFailure("met")

    store = ControlledStore()
    async with scene(store) as it:
        for group in ("a", "b"):
            await it.join(group=group)
            await it.pushes(pushed(group=group))
        store.on_get = meets
        groups = [described(group="a"), described(group="b"), described(group="c"), described(group="d", code=69)]
        statuses = [one.topology_description_status for one in await it.describe(*groups)]
    assert statuses == [ERROR, ERROR, NOT_STORED, NOT_REQUESTED]


async def test_a_group_that_is_named_often_is_looked_up_once_and_an_answer_is_bounded() -> None:
    looked_up: list[str] = []
    store = ControlledStore()

    async def get(group: str) -> Description | None:
        looked_up.append(group)
        return await MemoryStore.get(store, group, 0)

    store.on_get = get
    async with scene(store) as it:
        await it.join()
        assert await it.pushes(pushed(name="n" * 30_000, nodes=100)) == 0
        statuses = [one.topology_description_status for one in await it.describe(*[described()] * 30)]
    assert looked_up == ["g"]
    assert statuses == [AVAILABLE] * 11 + [ERROR] * 19


async def test_a_group_that_waits_too_long_behind_others_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as it:
        await it.join()
        assert await it.pushes() == 0
        assert await it.status() == AVAILABLE
        monkeypatch.setattr("headgate.topologies.describe_interceptor._TIMEOUT_S", -1.0)
        assert await it.status() == ERROR


async def test_a_large_answer_without_descriptions_is_carried_too() -> None:
    groups = [described(group=f"g{number}", members=[f"m{i}" for i in range(50)]) for number in range(20)]
    async with scene() as it:
        assert list(await it.describe(*groups, descriptions=False)) == groups


async def test_a_large_request_is_converted_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any client may name 60,000 groups."""
    works: list[object] = []

    async def watched(work: Any) -> Any:
        works.append(work)
        return await run_off_loop(work)

    monkeypatch.setattr(describe_interceptor, "run_off_loop", watched)
    groups = [described(group=f"group-{number}", code=69) for number in range(2_000)]
    async with scene() as it:
        statuses = [one.topology_description_status for one in await it.describe(*groups)]
        assert statuses == [NOT_REQUESTED] * 2_000
    assert len(works) == 3, "the request, and the response twice"


async def test_other_work_goes_on_while_descriptions_are_added_to_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    added = 0
    between: list[int] = []

    def counted(group: Any, **changes: Any) -> Any:
        nonlocal added
        if "topology_description_status" in changes:
            if not added:
                asyncio.get_running_loop().call_soon(lambda: between.append(added))
            added += 1
        return replace(group, **changes)

    monkeypatch.setattr(describe_interceptor, "replace", counted)
    async with scene() as it:
        await it.describe(*(described(group=f"group-{number}", code=69) for number in range(2_000)))
    assert added == 2_000
    assert between[0] <= 500
