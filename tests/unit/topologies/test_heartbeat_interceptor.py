"""StreamsGroupHeartbeat through the gateway: versions, the question, and that nothing costs a heartbeat."""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import pytest

from headgate.config.model import Config
from headgate.proxy.interceptor import CloseCause
from headgate.topologies.feature import HideInterceptor
from headgate.topologies.model.push_gate import Solicitation
from headgate.topologies.model.streams_groups import StreamsGroups
from headgate.topologies.resources import TopologyResources
from headgate.topologies.service import TopologyService
from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headgate.wire.messages.streams import (
    HeartbeatSubtopology,
    HeartbeatTopology,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from tests.support.fake_upstream import BROKER_VERSIONS, FakeUpstream, body_of, request
from tests.unit.proxy.stage import stage, turns, until
from tests.unit.topologies.scene import (
    DESCRIBE,
    HEARTBEAT,
    STREAMS_HEARTBEAT,
    Scene,
    allow,
    beating,
    described,
    fine,
    joining,
    pushed,
    scene,
)

METADATA = 3


async def test_a_join_reaches_a_4_3_broker_as_the_4_4_client_would_send_it_there() -> None:
    async with scene() as it:
        asked, _ = await it.heartbeat(replace(joining(), warmup_tasks=()))
        message = decode(StreamsGroupHeartbeatRequest, 0, asked.body)
    assert asked.version == 0
    assert (message.task_offsets, message.task_end_offsets, message.warmup_tasks) == (None, None, ())
    assert message == replace(joining(), task_offsets=None, task_end_offsets=None)


@pytest.mark.parametrize("tasks", [None, (TaskIds(subtopology_id="0", partitions=(0, 1)),)])
async def test_its_answer_is_the_brokers_with_the_fields_of_version_1(tasks: tuple[TaskIds, ...] | None) -> None:
    """A response without tasks is spliced, one with tasks is decoded."""
    theirs = replace(fine(), acceptable_recovery_lag_legacy=10, heartbeat_interval_ms=5000, throttle_time_ms=3)
    theirs = replace(theirs, active_tasks=tasks)
    async with scene() as it:
        _, answer = await it.heartbeat(joining(), theirs)
    assert answer == replace(
        theirs,
        acceptable_recovery_lag_legacy=0,
        acceptable_recovery_lag=-1,
        topology_description_required=True,
    )


@pytest.mark.parametrize("message", [joining(), beating(), beating(member_epoch=-1)])
async def test_version_0_passes_byte_for_byte(message: StreamsGroupHeartbeatRequest) -> None:
    message = replace(message, task_offsets=None, task_end_offsets=None)
    async with scene() as it:
        sent = request(STREAMS_HEARTBEAT, 0, message, correlation_id=9)
        await it.client.send(sent)
        asked = await it.broker.reply(fine())
        assert asked.frame == sent
        assert await it.client.frame() == asked.answer(fine())


@pytest.mark.parametrize("piece", [1, 7, 40])
@pytest.mark.parametrize("tags", [b"\x00", b"\x01\x05\x01x"])
async def test_version_0_passes_in_whatever_pieces_it_comes_and_whatever_its_header_holds(
    piece: int, tags: bytes
) -> None:
    async with scene() as it:
        frames = [
            request(STREAMS_HEARTBEAT, 0, beating(), correlation_id=1, tags=tags),
            request(STREAMS_HEARTBEAT, 0, replace(joining(), task_offsets=None, task_end_offsets=None), tags=tags),
            request(STREAMS_HEARTBEAT, 0, beating(member_epoch=-1), correlation_id=3, client_id=None, tags=tags),
        ]
        sent = b"".join(frames)
        for at in range(0, len(sent), piece):
            await it.client.send(sent[at : at + piece])
            await asyncio.sleep(0)
        for frame in frames:
            asked = await it.broker.reply(fine())
            assert asked.frame == frame
            assert await it.client.frame() == asked.answer(fine())
    assert it.service.groups.state("g").current_epoch == 0  # the join was seen


async def test_the_first_member_is_solicited_and_no_other_in_its_window() -> None:
    async with scene() as it:
        assert await it.join("a")
        assert not (await it.heartbeat(beating("a")))[1].topology_description_required
        assert not await (await it.another()).join("b")
    assert it.service.metrics.heartbeats[Solicitation.SOLICIT] == 1
    assert it.service.metrics.heartbeats[Solicitation.BACKING_OFF] == 2


@pytest.mark.parametrize("statuses", [(0,), (1, 0)])
async def test_a_stale_member_is_not_asked(statuses: tuple[int, ...]) -> None:
    async with scene() as it:
        _, answer = await it.heartbeat(joining(), fine(statuses=statuses))
    assert not answer.topology_description_required
    assert [one.status_code for one in answer.status or ()] == list(statuses)


async def test_a_rejected_heartbeat_is_passed_on_and_not_solicited() -> None:
    async with scene() as it:
        _, answer = await it.heartbeat(joining(), replace(fine(42), error_message="no"))
    assert (answer.error_code, answer.error_message, answer.topology_description_required) == (42, "no", False)


async def test_a_member_of_a_group_that_is_not_selected_is_not_solicited() -> None:
    async with scene(groups=allow("orders-*")) as it:
        assert not await it.join(group="g")
        assert await it.join(group="orders-1")


async def test_until_the_topics_are_read_no_member_is_solicited_and_joins_are_recorded_afterwards() -> None:
    opens = asyncio.Event()
    async with scene(opens=opens) as it:
        assert not await it.join("a")
        opens.set()
        await until(lambda: it.service.is_ready)
        assert it.service.groups.state("g").current_epoch == 0  # of the join, which came too early
        assert (await it.heartbeat(beating("a")))[1].topology_description_required


async def test_a_gate_that_raises_costs_no_member_its_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as it:
        monkeypatch.setattr(it.service.groups, "on_heartbeat", None)
        _, answer = await it.heartbeat(joining())
        _, again = await it.heartbeat(beating())
    assert not answer.topology_description_required
    assert answer.member_epoch == again.member_epoch == 2
    assert it.service.metrics.gate_failures == 2


async def test_a_broker_that_has_version_1_gets_version_1_and_the_question_is_still_ours() -> None:
    versions = {**BROKER_VERSIONS, STREAMS_HEARTBEAT: (0, 1), DESCRIBE: (0, 1), 93: (0, 0)}
    async with scene(upstream=FakeUpstream(versions=versions)) as it:
        asked, answer = await it.heartbeat(joining(), replace(fine(), acceptable_recovery_lag=77))
        assert (asked.version, asked.body) == (1, encode(joining(), 1))
        assert (answer.acceptable_recovery_lag, answer.topology_description_required) == (77, True)
        # Were it to ask itself, we would be asked to store what we have: its question is ours to put.
        _, answer = await it.heartbeat(beating(), replace(fine(), topology_description_required=True))
        assert not answer.topology_description_required


async def test_an_unknown_epoch_is_asked_for_on_the_members_own_connection() -> None:
    async with scene() as it:
        _, answer = await it.heartbeat(beating())
        assert not answer.topology_description_required
        await it.describes()
        assert (await it.heartbeat(beating()))[1].topology_description_required


async def test_a_connection_that_ended_proves_nothing_any_more() -> None:
    async with scene() as it:
        other = await it.another()
        await other.join("m")
        other.client.close()
        push = it.push(pushed("m"))
        await it.proves_right(HEARTBEAT, 25)
        await it.describes()
        assert (await push).error_code == 0


async def announced(it: object) -> dict[int, tuple[int, int]]:
    frame = await it.client.call(18, 3, ApiVersionsRequest())  # type: ignore[attr-defined]
    answer = decode(ApiVersionsResponse, 3, body_of(frame, 18, 3))
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


async def test_what_the_gateway_adds_is_announced() -> None:
    async with scene() as it:
        asking = asyncio.create_task(announced(it))
        await it.broker.reply(it.stage.upstream.api_versions())
        told = await asking
    assert {key: told[key] for key in (42, 88, 89, 93)} == {42: (0, 3), 88: (0, 1), 89: (0, 1), 93: (0, 0)}


async def test_off_hides_it_from_clients_even_if_the_broker_has_it() -> None:
    versions = {**BROKER_VERSIONS, 88: (0, 1), 89: (0, 1), 42: (0, 3), 93: (0, 0)}
    async with stage(HideInterceptor(), upstream=FakeUpstream(versions=versions)) as on:
        client, broker = await on.pair()
        frame = asyncio.create_task(client.call(18, 3, ApiVersionsRequest()))
        await broker.reply(on.upstream.api_versions())
        answer = decode(ApiVersionsResponse, 3, body_of(await frame, 18, 3))
    told = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert {key: told.get(key) for key in (42, 88, 89, 93)} == {42: (0, 2), 88: (0, 0), 89: (0, 0), 93: None}


async def test_a_broker_without_streams_groups_is_left_alone() -> None:
    versions = {key: one for key, one in BROKER_VERSIONS.items() if key not in {88, 89}}
    async with scene(upstream=FakeUpstream(versions=versions)) as it:
        asking = asyncio.create_task(announced(it))
        await it.broker.reply(it.stage.upstream.api_versions())
        told = await asking
    assert told[42] == (0, 2)
    assert not {88, 89, 93} & told.keys()


async def test_a_stored_topology_is_not_solicited_until_a_new_member_joins() -> None:
    async with scene() as it:
        assert await it.join("a", process="one")
        assert await it.pushes(pushed("a")) == 0
        assert not (await it.heartbeat(beating("a")))[1].topology_description_required
        other = await it.another()
        assert await other.join("b", process="two")
        assert (await it.describe(described(members=("a", "b"))))[0].topology_description_status == 3
        assert (await it.describe(described(members=("b",))))[0].topology_description_status == 1
        assert await other.pushes(pushed("b")) == 0
        assert (await it.describe(described(members=("b",))))[0].topology_description_status == 3


async def test_a_join_of_many_sub_topologies_is_read_beside_the_loop_and_carried_alike() -> None:
    many = tuple(HeartbeatSubtopology(subtopology_id=str(i), source_topics=(f"topic-{i}",)) for i in range(2000))
    message = replace(joining(), topology=HeartbeatTopology(epoch=0, subtopologies=many))
    async with scene() as it:
        asked, answer = await it.heartbeat(message)
        assert asked.body == encode(replace(message, task_offsets=None, task_end_offsets=None), 0)
        assert answer.topology_description_required


async def test_an_answer_of_many_tasks_is_carried_alike() -> None:
    tasks = tuple(TaskIds(subtopology_id=str(i), partitions=tuple(range(20))) for i in range(500))
    async with scene() as it:
        _, answer = await it.heartbeat(joining(), replace(fine(), active_tasks=tasks))
        assert answer.active_tasks == tasks
        assert answer.topology_description_required


def large_join(kib: int) -> StreamsGroupHeartbeatRequest:
    """A join of about so many KiB."""
    many = tuple(HeartbeatSubtopology(subtopology_id=f"{i:01000}") for i in range(kib))
    return replace(joining(), topology=HeartbeatTopology(epoch=0, subtopologies=many))


@pytest.mark.parametrize("kib", [600, 2500])
async def test_a_large_join_of_version_1_joins_as_the_first_request_of_its_connection(kib: int) -> None:
    """It waits for the proof that the broker knows its client, and is decoded off the loop."""
    message = large_join(kib)
    async with scene() as it:
        it.client, it.broker = await it.stage.pair(proved=False)
        sending = asyncio.create_task(it.client.send(request(STREAMS_HEARTBEAT, 1, message)))
        probe = await it.broker.request()
        assert probe.key == METADATA
        await it.broker.send(probe.answer(it.stage.upstream.metadata()))
        asked = await it.broker.reply(fine())
        await sending
        assert asked.body == encode(replace(message, task_offsets=None, task_end_offsets=None), 0)
        answer = decode(StreamsGroupHeartbeatResponse, 1, body_of(await it.client.frame(), STREAMS_HEARTBEAT, 1))
        assert answer.topology_description_required


async def test_a_large_join_of_version_0_passes_as_it_came() -> None:
    message = replace(large_join(5000), task_offsets=None, task_end_offsets=None)
    async with scene() as it:
        it.client, it.broker = await it.stage.pair(proved=False)
        sent = request(STREAMS_HEARTBEAT, 0, message)
        sending = asyncio.create_task(it.client.send(sent))
        probe = await it.broker.request()
        assert probe.key == METADATA
        await it.broker.send(probe.answer(it.stage.upstream.metadata()))
        assert (await it.broker.reply(fine())).frame == sent
        await sending
        await it.client.frame()


@pytest.mark.parametrize("split", [0, 4, 14, 20, 24, 60])
async def test_a_large_join_of_a_reserved_group_does_not_pass(split: int) -> None:
    """Wherever what is received first ends: before the group, in the middle of it, or behind it."""
    message = replace(large_join(5000), group_id="headgate.leader", task_offsets=None, task_end_offsets=None)
    async with scene() as it:
        await it.join("first")
        sent = request(STREAMS_HEARTBEAT, 0, message)
        with suppress(ConnectionError):
            await it.client.send(sent[:split])
            await turns()
            await it.client.send(sent[split:])
        await until(lambda: it.stage.ended == {CloseCause.FRAME_TOO_LARGE.value: 1})


@pytest.mark.parametrize("split", [4, 14, 20, 24, 60])
async def test_a_large_join_passes_wherever_what_is_received_first_ends(split: int) -> None:
    message = replace(large_join(5000), group_id="headgate.leaders", task_offsets=None, task_end_offsets=None)
    async with scene() as it:
        await it.join("first")
        sent = request(STREAMS_HEARTBEAT, 0, message)

        async def send() -> None:
            await it.client.send(sent[:split])
            await turns()
            await it.client.send(sent[split:])

        sending = asyncio.create_task(send())
        assert (await it.broker.reply(fine())).frame == sent
        await sending


async def test_a_heartbeat_of_version_1_that_is_too_large_ends_its_connection() -> None:
    async with scene() as it:
        await it.join("first")  # the broker knows who this is
        with suppress(ConnectionError):
            await it.client.send(request(STREAMS_HEARTBEAT, 1, large_join(5000)))
        await until(lambda: it.stage.ended == {CloseCause.FRAME_TOO_LARGE.value: 1})


async def test_opening_is_retried_also_when_closing_after_a_failure_fails() -> None:
    attempts = 0

    async def fails(_: StreamsGroups, stack: AsyncExitStack) -> TopologyResources:
        nonlocal attempts
        attempts += 1
        stack.push_async_callback(explode)
        raise OSError("away")

    async def explode() -> None:
        raise RuntimeError("closing failed, too")

    service = TopologyService(Config(), fails, retry_s=0.01)
    async with service.running():
        await until(lambda: attempts > 1)
        assert service.problem == "closing failed, too"
    assert not service.is_ready


# The response to a join that makes the stored description unconfirmed waits until that is written.


async def stored(it: Scene) -> None:
    assert await it.join()
    assert await it.pushes() == 0


async def begin_heartbeat(it: Scene, message: StreamsGroupHeartbeatRequest, version: int = 1) -> "asyncio.Task[bytes]":
    """The frame that will come; the broker has answered."""
    await it.client.send(request(STREAMS_HEARTBEAT, version, message, correlation_id=1))
    await it.broker.reply(fine())
    return asyncio.create_task(it.client.frame())


def is_solicited(frame: bytes, version: int = 1) -> bool:
    body = body_of(frame, STREAMS_HEARTBEAT, version)
    return decode(StreamsGroupHeartbeatResponse, version, body).topology_description_required


@pytest.mark.parametrize("version", [0, 1])
async def test_the_join_of_a_new_member_is_answered_when_unconfirmed_is_written(version: int) -> None:
    async with scene() as it:
        await stored(it)
        it.epochs.takes_writes.clear()
        new_member = await it.another()
        message = joining("n", process="another")
        if version == 0:
            message = StreamsGroupHeartbeatRequest(group_id="g", member_id="n", process_id="another")
        coming = await begin_heartbeat(new_member, message, version)
        await until(lambda: it.epochs.waiting == 1)
        await it.heartbeat(beating())  # a response that did not wait would have come by now
        assert not coming.done()
        it.epochs.takes_writes.set()
        assert is_solicited(await coming, version) is (version == 1)
        assert it.service.groups.state("g").is_unconfirmed
        assert it.epochs.written[-1].stored_epoch == -2


async def test_no_other_response_waits_for_it() -> None:
    async with scene() as it:
        await stored(it)
        it.epochs.takes_writes.clear()
        waiting = await begin_heartbeat(await it.another(), joining("n", process="another"))
        assert not is_solicited(await (await begin_heartbeat(it, joining("t"))))
        assert not is_solicited(await (await begin_heartbeat(it, joining("first", group="h"), 0)), 0)
        assert not waiting.done()
        waiting.cancel()


async def test_a_topic_that_hangs_costs_no_heartbeat() -> None:
    async with scene(write_timeout_s=0.01) as it:
        await stored(it)
        it.epochs.takes_writes.clear()
        assert is_solicited(await (await begin_heartbeat(await it.another(), joining("n", process="another"))))
        written = len(it.epochs.written)
        it.epochs.takes_writes.set()
        await until(lambda: len(it.epochs.written) == written + 1)  # it is written all the same


async def test_a_topic_that_is_away_delays_no_response() -> None:
    async with scene() as it:
        await stored(it)
        it.epochs.away = True
        assert is_solicited(await (await begin_heartbeat(await it.another(), joining("n", process="another"))))
        assert it.service.groups.state("g").is_unconfirmed
