"""The status of a group's description: what the gateway says of it, to whom, and on request only."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from headgate.facts import TopologyEpochsSet
from headgate.plugin import PermanentFailure, TransientFailure
from headgate.proxy.decoding import A_STEP
from headgate.topologies.group_statuses import GroupStatuses
from headgate.topologies.model.group_status import (
    STATUS_TAG,
    BackoffStatus,
    DescriptionStatus,
    LastPush,
    decode_description_status,
)
from headgate.topologies.model.push_gate import CLASSIC_JOIN_EPOCH, Push
from headgate.wire.codec import decode
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from tests.support.call_counts import count_calls
from tests.support.clock import FakeClock
from tests.support.fake_upstream import body_of, request
from tests.unit.topologies.fake_stores import BREACH, raising
from tests.unit.topologies.scene import DESCRIBE, Scene, allow, beating, described, fine, joining, pushed, scene

UPDATE_FAILED = 135
ASKS = ((STATUS_TAG, b""),)


async def ask(
    it: Scene, *groups: DescribedStreamsGroup, tags: Any = ASKS, descriptions: bool = True
) -> tuple[DescribedStreamsGroup, ...]:
    ids = tuple(one.group_id for one in groups)
    message = StreamsGroupDescribeRequest(group_ids=ids, include_topology_description=descriptions, unknown_tags=tags)
    await it.client.send(request(DESCRIBE, 1, message, correlation_id=77))
    asked = await it.broker.reply(StreamsGroupDescribeResponse(groups=groups))
    # The broker is asked as it always is.
    to_broker = decode(StreamsGroupDescribeRequest, 0, body_of_request(asked.frame))
    assert to_broker == StreamsGroupDescribeRequest(group_ids=ids)
    return decode(StreamsGroupDescribeResponse, 1, body_of(await it.client.frame(), DESCRIBE, 1)).groups


def body_of_request(frame: bytes) -> bytes:
    """After size, key, version, correlation id, client id and the header's tags."""
    client_id = int.from_bytes(frame[12:14], "big", signed=True)
    return frame[14 + max(client_id, 0) + 1 :]


async def status(it: Scene, **more: Any) -> dict[str, Any]:
    [group] = await ask(it, described(**more))
    [(tag, encoded)] = group.unknown_tags
    assert tag == STATUS_TAG
    found: dict[str, Any] = json.loads(encoded)
    return found


async def test_a_group_that_is_stored() -> None:
    async with scene() as it:
        await it.join()
        assert await it.pushes() == 0
        found = await status(it)
        version, at = found.pop("version"), found["last_push"].pop("at")
        assert found == {
            "selected": True,
            "available": True,
            "pushed_by": "m",
            "unconfirmed": False,
            "failed_epoch": None,
            "backoff": None,
            "last_push": {"member": "m", "epoch": 0, "error_code": 0},
            "worker": 0,
        }
        incarnation, epoch, digits = version.split("/")
        assert (len(incarnation), epoch, len(digits)) == (12, "0", 12)
        assert at > 0


async def test_a_group_whose_member_was_asked_and_failed_is_in_back_off() -> None:
    async with scene(raising(TransientFailure(BREACH))) as it:
        assert await it.join()
        asked = await status(it)
        assert (asked["backoff"]["active"], asked["backoff"]["attempts"], asked["last_push"]) == (True, 1, None)
        assert it.service.samples()["headgate_topologies_backing_off_groups", ()] == 1
        assert await it.pushes() == UPDATE_FAILED
        failed = await status(it)
        assert failed["backoff"]["attempts"] == 2
        assert failed["backoff"]["epoch"] == 0
        assert failed["backoff"]["until"] > asked["backoff"]["until"]
        assert failed["last_push"]["error_code"] == UPDATE_FAILED
        assert failed["unconfirmed"] is True  # the store may have it
        assert BREACH not in json.dumps(failed)


async def test_a_push_that_failed_permanently_shows_its_epoch() -> None:
    async with scene(raising(PermanentFailure("no"))) as it:
        await it.join()
        await it.pushes()
        found = await status(it)
        assert (found["failed_epoch"], found["backoff"]) == (0, None)


async def test_a_description_that_another_process_put_in_doubt_is_unconfirmed() -> None:
    async with scene() as it:
        await it.join()
        await it.pushes()
        await it.heartbeat(joining("other", process="another"), fine())
        found = await status(it, members=("m", "other"))
        assert found["unconfirmed"] is True
        assert found["backoff"]["active"]  # the new member was asked


async def test_a_push_that_was_not_checked_is_not_the_last_one() -> None:
    async with scene() as it:
        await it.join()
        await it.pushes()
        await it.pushes(pushed(epoch=7))
        await it.heartbeat(beating())
        assert (await status(it))["last_push"]["epoch"] == 0


async def test_the_status_of_another_gateway_behind_this_one_is_replaced() -> None:
    async with scene() as it:
        [group] = await ask(it, replace(described(), unknown_tags=((STATUS_TAG, b"{}"), (10003, b"kept"))))
        assert [tag for tag, _ in group.unknown_tags] == [STATUS_TAG, 10003]
        assert decode_description_status(group.unknown_tags[0][1]) != decode_description_status(b"{}")


async def test_the_status_is_there_without_descriptions_too() -> None:
    async with scene() as it:
        [group] = await ask(it, described(), descriptions=False)
        assert group.topology_description_status == 0
        assert [tag for tag, _ in group.unknown_tags] == [STATUS_TAG]


async def test_clients_that_do_not_ask_for_it_do_not_get_it() -> None:
    async with scene() as it:
        await it.join()
        await it.pushes()
        [group] = await it.describe(described())
        assert group.unknown_tags == ()


@pytest.mark.parametrize("code", [14, 16, 29, 30, 69])
async def test_a_group_that_the_client_may_not_describe_has_no_status(code: int) -> None:
    async with scene() as it:
        await it.join()
        await it.pushes()
        denied, allowed = await ask(it, described(code=code), described(group="other"))
        assert denied == described(code=code)
        assert [tag for tag, _ in allowed.unknown_tags] == [STATUS_TAG]


async def test_a_group_that_is_not_selected_and_one_that_is_not_read_yet() -> None:
    async with scene(groups=allow("other-*")) as it:
        assert (await status(it))["selected"] is False
    async with scene(opens=asyncio.Event()) as it:
        found = await status(it)
        assert (found["selected"], found["available"]) == (True, False)
    async with scene(scheme="none") as it:
        assert (await status(it))["selected"] is False


async def test_the_windows_end_is_a_time_of_day() -> None:
    clock = FakeClock(1_100_000, started_ms=1_000_000)
    async with scene() as it:
        statuses = GroupStatuses(it.service, clock, worker=3)
        backoff = it.service.groups.backoff
        assert statuses.status("g").backoff is None
        backoff.arm_if_not_active("g", 4, 100.0, 1.0)
        clock.now += 10
        window = BackoffStatus(epoch=4, active=True, until=1_130_000, attempts=1)
        assert statuses.status("g").backoff == window
        clock.now += 20
        assert statuses.status("g").backoff == BackoffStatus(epoch=4, active=False, until=1_130_000, attempts=1)
        assert statuses.status("g").worker == 3
        backoff.arm_if_not_active("g", CLASSIC_JOIN_EPOCH, 130.0, 1.0)
        assert statuses.status("g").backoff == BackoffStatus(epoch=None, active=True, until=1_160_000, attempts=1)


async def test_a_store_without_hashes_has_a_version_without_one() -> None:
    async with scene() as it:
        epochs = TopologyEpochsSet(at=1, group="g", incarnation="9f2c", stored_epoch=0, failed_epoch=-1)
        it.service.groups.on_epochs_read(epochs, is_own=False)
        assert GroupStatuses(it.service, FakeClock()).status("g").version == "9f2c/0/-"


async def test_last_pushes_are_bounded() -> None:
    async with scene() as it:
        statuses = GroupStatuses(it.service, FakeClock(1_100_000), max_pushes=2)
        for group in ("a", "b", "a", "c"):
            statuses.record_push(Push(group=group, member="m" * 5000, topology_epoch=0), 0)
        assert statuses.status("b").last_push is None
        kept = statuses.status("a").last_push
        assert kept == LastPush(at=1_100_000, member="m" * 1024, epoch=0, error_code=0)


def test_a_status_is_read_as_it_was_written() -> None:
    whole = DescriptionStatus(
        selected=True,
        available=True,
        version="9f2c/0/ab12",
        pushed_by="m",
        unconfirmed=False,
        failed_epoch=1,
        backoff=BackoffStatus(epoch=0, active=True, until=5, attempts=2),
        last_push=LastPush(at=4, member="m", epoch=0, error_code=0),
        worker=1,
    )
    assert decode_description_status(whole.encode()) == whole
    assert decode_description_status(DescriptionStatus().encode()) == DescriptionStatus()


@pytest.mark.parametrize("encoded", [b"", b"[]", b"\xff", b"{", b"[" * 100_000])
def test_what_is_no_object_is_no_status(encoded: bytes) -> None:
    assert decode_description_status(encoded) is None


def test_values_of_other_types_are_not_known() -> None:
    odd: dict[str, Any] = {key: [] for key in DescriptionStatus().document()}
    assert decode_description_status(json.dumps(odd).encode()) == DescriptionStatus()
    nested = {"backoff": {"until": "soon", "active": 1, "attempts": True}, "last_push": {"member": 7}}
    found = decode_description_status(json.dumps(nested).encode())
    assert found == DescriptionStatus(backoff=BackoffStatus(), last_push=LastPush())


async def test_other_work_goes_on_while_statuses_are_added_to_many_streams_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = count_calls(monkeypatch, GroupStatuses, "status")
    async with scene() as it:
        found = await ask(it, *(described(group=f"g{number}") for number in range(300)), descriptions=False)
    assert calls.number == 300
    assert calls.before_other_work <= A_STEP
    assert all(tag == STATUS_TAG for one in found for tag, _ in one.unknown_tags)
