"""DeleteGroups and classic joins through the gateway: the store is touched only when the broker would delete."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headgate.base.errors import ClusterError
from headgate.plugin import TransientFailure
from headgate.topologies import delete_interceptor
from headgate.wire.codec import decode, encode
from headgate.wire.messages.groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tests.support.call_counts import count_calls
from tests.support.fake_upstream import body_of, request
from tests.unit.proxy.stage import turns, until
from tests.unit.topologies.fake_stores import ControlledStore
from tests.unit.topologies.scene import (
    DELETE,
    DENIED,
    HEARTBEAT,
    JOIN_GROUP,
    NOT_FOUND,
    OFFSET_DELETE,
    UNKNOWN_MEMBER,
    Scene,
    beating,
    pushed,
    scene,
)

UNKNOWN_SERVER_ERROR, REBALANCE, TOPIC_DENIED, DELETION_FAILED = -1, 27, 29, 134
LIST_GROUPS = 16


def failing() -> ControlledStore:
    """Its deletes fail until `on_delete` is None."""

    async def fail(_: str) -> None:
        raise TransientFailure("not today")

    store = ControlledStore()
    store.on_delete = fail
    return store


async def stored(it: Scene, *groups: str) -> None:
    """Groups with a description, whose member has left."""
    for group in groups:
        await it.join(group=group)
        assert await it.pushes(pushed(group=group)) == 0
        await it.heartbeat(beating(group=group, member_epoch=-1))


async def deleted(it: Scene, *groups: str) -> None:
    """The broker deletes exactly these."""
    asked = await it.broker.request()
    assert (asked.key, asked.version) == (DELETE, 2)
    assert decode(DeleteGroupsRequest, 2, asked.body).groups_names == groups
    await it.broker.send(
        asked.answer(DeleteGroupsResponse(results=tuple(DeletedGroup(group_id=group) for group in groups)))
    )


@pytest.mark.parametrize("described", [(), ("b",)], ids=["plain", "with a description"])
async def test_version_3_of_groups_of_which_one_is_reserved_is_answered_whole(described: tuple[str, ...]) -> None:
    async with scene(failing()) as it:
        await stored(it, *described)
        call = it.delete("a", "headgate.leader", *described)
        for group in described:
            await it.proves_right(OFFSET_DELETE)
            await it.describes(group=group, state="Empty", members=())
        await deleted(it, "a")
        results = {one.group_id: one.error_code for one in await call}
        assert results == {"a": 0, "headgate.leader": DENIED, **dict.fromkeys(described, DELETION_FAILED)}


async def test_version_2_of_groups_without_a_description_passes_byte_for_byte() -> None:
    async with scene() as it:
        sent = request(DELETE, 2, DeleteGroupsRequest(groups_names=("a", "b")))
        await it.client.send(sent)
        assert (await it.broker.reply()).frame == sent
        await it.client.frame()


async def test_version_3_is_carried_to_a_broker_of_version_2_and_back() -> None:
    async with scene() as it:
        results = it.delete("a", "b")
        await deleted(it, "a", "b")
        assert [(one.group_id, one.error_code, one.error_message) for one in await results] == [
            ("a", 0, None),
            ("b", 0, None),
        ]


@pytest.mark.parametrize("version", [2, 3])
async def test_a_group_that_was_asked_in_vain_and_deleted_begins_afresh(version: int) -> None:
    async with scene() as it:
        assert await it.join("a")
        await it.heartbeat(beating("a", member_epoch=-1))
        assert not await it.join("b", process="b")
        results = it.delete("g", version=version)
        await deleted(it, "g")
        assert [one.error_code for one in await results] == [0]
        assert await it.join("c", process="c")


async def test_a_group_that_the_broker_did_not_delete_goes_on() -> None:
    async with scene() as it:
        assert await it.join("a")
        results = it.delete("g", version=2)
        asked = await it.broker.request()
        await it.broker.send(asked.answer(DeleteGroupsResponse(results=(DeletedGroup(group_id="g", error_code=68),))))
        assert [one.error_code for one in await results] == [68]
        assert not await it.join("b", process="b")


async def test_a_group_that_the_broker_deletes_against_expectation_takes_its_description_with_it() -> None:
    async with scene() as it:
        await stored(it, "g")
        results = it.delete("g")
        await it.proves_right(OFFSET_DELETE)
        await it.describes(state="Stable")
        await deleted(it, "g")
        await results
        await until(lambda: not it.service.must_delete("g"))


@pytest.mark.parametrize("said", [{"state": "Empty", "members": ()}, {"code": NOT_FOUND}])
async def test_the_store_first_and_the_group_after(said: dict[str, object]) -> None:
    async with scene() as it:
        await stored(it, "g")
        results = it.delete("g")
        await it.proves_right(OFFSET_DELETE)
        await it.describes(**said)
        await until(lambda: not it.service.must_delete("g"))
        await deleted(it, "g")
        assert [one.error_code for one in await results] == [0]
        assert await it.status() == 1
        assert await it.join("new", process="new")


async def test_without_the_right_the_store_is_not_touched() -> None:
    async with scene() as it:
        await stored(it, "g")
        results = it.delete("g")
        await it.proves_right(OFFSET_DELETE, DENIED)
        asked = await it.broker.request()
        refused = DeleteGroupsResponse(results=(DeletedGroup(group_id="g", error_code=DENIED),))
        await it.broker.send(asked.answer(refused))
        assert [one.error_code for one in await results] == [DENIED]
        assert it.service.must_delete("g")


async def lists(it: Scene, *groups: str, code: int = 0) -> None:
    """The broker lists these as its empty Streams groups."""
    asked = await it.broker.request()
    assert (asked.key, asked.version) == (LIST_GROUPS, 5)
    wanted = decode(ListGroupsRequest, 5, asked.body)
    assert (wanted.states_filter, wanted.types_filter) == (("Empty",), ("Streams",))
    listed = tuple(ListedGroup(group_id=group, protocol_type="streams") for group in groups)
    await it.broker.send(asked.answer(ListGroupsResponse(error_code=code, groups=listed)))


async def test_an_empty_group_whose_topics_the_client_may_not_describe_is_deleted_after_its_description() -> None:
    async with scene() as it:
        await stored(it, "g")
        results = it.delete("g")
        await it.proves_right(OFFSET_DELETE)
        await it.describes(code=TOPIC_DENIED)
        await lists(it, "a", "g")
        await until(lambda: not it.service.must_delete("g"))
        await deleted(it, "g")
        assert [one.error_code for one in await results] == [0]


async def test_such_a_group_stays_when_its_description_cannot_be_deleted() -> None:
    async with scene(failing()) as it:
        await stored(it, "g")
        results = it.delete("g")
        await it.proves_right(OFFSET_DELETE)
        await it.describes(code=TOPIC_DENIED)
        await lists(it, "g")
        assert [(one.error_code, one.error_message) for one in await results] == [(DELETION_FAILED, "not today")]
        assert await it.broker.is_quiet()


@pytest.mark.parametrize(
    ("version", "code", "answered", "text"),
    [
        (3, 16, 16, None),
        (2, 14, 14, None),
        (3, 30, DELETION_FAILED, "The state of the group is unknown: Group authorization failed."),
        (3, -1, DELETION_FAILED, "The state of the group is unknown: The server experienced"),
        (2, -1, UNKNOWN_SERVER_ERROR, None),
    ],
)
async def test_a_group_of_unknown_state_is_not_deleted(
    version: int, code: int, answered: int, text: str | None
) -> None:
    async with scene() as it:
        await stored(it, "g")
        results = it.delete("g", version=version)
        await it.proves_right(OFFSET_DELETE)
        await it.describes(code=code)
        [result] = await results
        assert result.error_code == answered
        assert (result.error_message or "").startswith(text or "")
        assert bool(result.error_message) == bool(text)
        assert await it.broker.is_quiet()
        assert it.service.must_delete("g")


async def test_a_group_whose_state_cannot_be_listed_either_is_not_deleted() -> None:
    async with scene() as it:
        await stored(it, "g")
        results = it.delete("g")
        await it.proves_right(OFFSET_DELETE)
        await it.describes(code=TOPIC_DENIED)
        await lists(it, code=15)
        assert [one.error_code for one in await results] == [15]
        assert await it.broker.is_quiet()


async def test_a_group_that_waits_too_long_behind_others_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as it:
        await stored(it, "g")
        monkeypatch.setattr("headgate.topologies.delete_interceptor._BEGIN_S", -1.0)
        assert [one.error_code for one in await it.delete("g")] == [14]
        assert await it.broker.is_quiet()
        assert it.service.must_delete("g")


@pytest.mark.parametrize(("version", "code"), [(3, DELETION_FAILED), (2, UNKNOWN_SERVER_ERROR)])
async def test_no_streams_group_is_deleted_before_the_store_was_opened(version: int, code: int) -> None:
    opens = asyncio.Event()
    async with scene(opens=opens) as it:
        results = it.delete("g", version=version)
        await it.proves_right(OFFSET_DELETE)
        await it.describes(state="Empty", members=())
        [result] = await results
        text = "Topology descriptions are not available yet." if version == 3 else None
        assert (result.error_code, result.error_message) == (code, text)
        assert await it.broker.is_quiet()


async def test_other_groups_are_deleted_before_the_store_was_opened() -> None:
    async with scene(opens=asyncio.Event()) as it:
        results = it.delete("consumers")
        await it.proves_right(OFFSET_DELETE)
        await it.describes(group="consumers", code=NOT_FOUND)
        await deleted(it, "consumers")
        assert [one.error_code for one in await results] == [0]


async def test_thousands_of_groups_do_not_take_a_task_each() -> None:
    """Before the store was opened every group may have a description; 65,000 tasks kept the event loop for 0.6 s."""
    groups = tuple(f"g{number}" for number in range(5_000))
    async with scene(opens=asyncio.Event()) as it:
        before = len(asyncio.all_tasks())
        await it.client.send(request(DELETE, 2, DeleteGroupsRequest(groups_names=groups)))
        await it.broker.request()
        assert len(asyncio.all_tasks()) < before + 100


@pytest.mark.parametrize("said", [{"state": "Stable"}, {"state": "NotReady"}, {"code": TOPIC_DENIED}])
async def test_a_group_that_is_not_empty_is_the_brokers_to_refuse(said: dict[str, object]) -> None:
    async with scene() as it:
        await stored(it, "g")
        results = it.delete("g")
        await it.proves_right(OFFSET_DELETE)
        await it.describes(**said)
        if "code" in said:
            await lists(it, "a")
        asked = await it.broker.request()
        await it.broker.send(asked.answer(DeleteGroupsResponse(results=(DeletedGroup(group_id="g", error_code=68),))))
        assert [one.error_code for one in await results] == [68]
        assert it.service.must_delete("g")


@pytest.mark.parametrize(
    ("version", "code", "text"), [(3, DELETION_FAILED, "not today"), (2, UNKNOWN_SERVER_ERROR, None)]
)
async def test_a_store_that_fails_keeps_its_group_and_no_other(version: int, code: int, text: str | None) -> None:
    store = failing()
    async with scene(store) as it:
        await stored(it, "g")
        results = it.delete("a", "g", "b", version=version)
        await it.proves_right(OFFSET_DELETE)
        await it.describes(state="Empty", members=())
        await deleted(it, "a", "b")
        found = {one.group_id: (one.error_code, one.error_message) for one in await results}
        assert found == {"a": (0, None), "b": (0, None), "g": (code, text)}
        assert it.service.must_delete("g")
        # A retry converges.
        store.on_delete = None
        again = it.delete("g", version=version)
        await it.describes(state="Empty", members=())
        await deleted(it, "g")
        assert [one.error_code for one in await again] == [0]


async def test_without_the_barrier_the_store_deletes_nothing() -> None:
    store = ControlledStore()
    async with scene(store) as it:
        await stored(it, "g")
        it.epochs.away = True
        results = it.delete("g")
        await it.proves_right(OFFSET_DELETE)
        await it.describes(state="Empty", members=())
        [result] = await results
        assert (result.error_code, result.error_message) == (DELETION_FAILED, "the topic is away")
    assert store.deletes == 0


async def test_when_all_of_them_fail_the_broker_is_not_asked() -> None:
    async with scene(failing()) as it:
        await stored(it, "g")
        results = it.delete("g")
        await it.proves_right(OFFSET_DELETE)
        await it.describes(state="Empty", members=())
        assert [one.error_code for one in await results] == [DELETION_FAILED]
        assert await it.broker.is_quiet()


# Classic joins.


def classic(it: Scene, version: int = 9) -> "asyncio.Task[JoinGroupResponse]":
    async def call() -> JoinGroupResponse:
        message = JoinGroupRequest(group_id="g", member_id="c", protocol_type="consumer")
        frame = await it.client.call(JOIN_GROUP, version, message)
        return decode(JoinGroupResponse, version, body_of(frame, JOIN_GROUP, version))

    return asyncio.create_task(call())


async def joins(it: Scene) -> None:
    asked = await it.broker.request()
    assert asked.key == JOIN_GROUP
    await it.broker.send(asked.answer(JoinGroupResponse(protocol_name="", member_id="c")))


@pytest.mark.parametrize("version", [0, 5, 6, 9])
async def test_a_classic_join_of_any_other_group_passes(version: int) -> None:
    async with scene() as it:
        answer = classic(it, version)
        await joins(it)
        assert (await answer).error_code == 0


async def test_a_classic_join_of_an_empty_group_deletes_what_is_stored_first() -> None:
    async with scene() as it:
        await stored(it, "g")
        answer = classic(it)
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        await it.describes(state="Empty", members=())
        await joins(it)
        assert (await answer).error_code == 0
        assert not it.service.must_delete("g")


@pytest.mark.parametrize("version", [0, 9])
async def test_a_classic_join_that_arrives_in_two_parts_deletes_what_is_stored_first(version: int) -> None:
    """Wherever the first part ends: the group may not have been received whole."""
    sent = request(JOIN_GROUP, version, JoinGroupRequest(group_id="group", member_id="c", protocol_type="consumer"))
    for split in range(1, len(sent)):
        async with scene() as it:
            await stored(it, "group")
            await it.client.send(sent[:split])
            await turns()
            await it.client.send(sent[split:])
            await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
            await it.describes(group="group", state="Empty", members=())
            await joins(it)
            await it.client.frame()
            assert not it.service.must_delete("group")


@pytest.mark.parametrize("version", [0, 5, 9])
async def test_while_that_fails_the_join_gets_rebalance_in_progress_and_the_store_is_left_alone(version: int) -> None:
    store = failing()
    async with scene(store) as it:
        await stored(it, "g")
        for number in (1, 2):
            answer = classic(it, version)
            if number == 1:
                await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
            await it.describes(state="Empty", members=())
            assert (await answer).error_code == REBALANCE
    assert store.deletes == 1


async def test_a_classic_join_without_rights_on_the_groups_topics_deletes_what_is_stored_first() -> None:
    async with scene() as it:
        await stored(it, "g")
        answer = classic(it)
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        await it.describes(code=TOPIC_DENIED)
        await lists(it, "g")
        await joins(it)
        assert (await answer).error_code == 0
        assert not it.service.must_delete("g")


@pytest.mark.parametrize(("code", "answered"), [(15, 15), (16, 16), (-1, REBALANCE)])
async def test_a_classic_join_of_a_group_of_unknown_state_is_to_be_repeated(code: int, answered: int) -> None:
    async with scene() as it:
        await stored(it, "g")
        answer = classic(it)
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        await it.describes(code=code)
        assert (await answer).error_code == answered
        assert await it.broker.is_quiet()
        assert it.service.must_delete("g")


@pytest.mark.parametrize("said", [{"state": "Stable"}, {"code": NOT_FOUND}])
async def test_a_classic_join_of_a_group_that_is_not_empty_is_the_brokers(said: dict[str, object]) -> None:
    async with scene() as it:
        await stored(it, "g")
        answer = classic(it)
        await it.proves_right(HEARTBEAT, UNKNOWN_MEMBER)
        await it.describes(**said)
        await joins(it)
        assert (await answer).error_code == 0
        assert it.service.must_delete("g")


async def test_a_classic_join_without_read_deletes_nothing() -> None:
    async with scene() as it:
        await stored(it, "g")
        answer = classic(it)
        await it.proves_right(HEARTBEAT, DENIED)
        await joins(it)
        await answer
        assert it.service.must_delete("g")


@pytest.mark.parametrize("split", [0, 4, 14, 20, 40])
async def test_a_classic_join_of_whatever_size_passes_as_the_first_call_of_its_connection(split: int) -> None:
    message = JoinGroupRequest(
        group_id="g",
        member_id="c",
        protocol_type="consumer",
        protocols=(JoinGroupProtocol(name="p", metadata=bytes(900_000)),),
    )
    async with scene() as it:
        client, broker = await it.stage.pair(proved=False)
        sent = request(JOIN_GROUP, 9, message)
        await client.send(sent[:split])
        await turns()
        sending = asyncio.create_task(client.send(sent[split:]))
        proof = await broker.reply(it.stage.upstream.metadata())
        assert proof.header.client_id == b"headgate"
        assert (await broker.reply(JoinGroupResponse(protocol_name="", member_id="c"))).frame == sent
        await sending
        await client.frame()


async def test_a_group_of_which_the_broker_says_nothing_is_kept_for_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    async def says_nothing(*_: object) -> int:
        raise ClusterError("no answer")

    async with scene() as it:
        await stored(it, "g")
        monkeypatch.setattr("headgate.proxy.rights.Rights.ask", says_nothing)
        [result] = await it.delete("g")
        assert result.error_code == 15
        assert it.service.must_delete("g")


MANY = tuple(f"group-{number}" for number in range(2_000))


@pytest.fixture
def decoded_off_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the messages that are decoded and encoded on another thread than the event loop's."""
    found: list[str] = []

    def watched(work: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                found.append(name(*args))
            return work(*args)

        return call

    monkeypatch.setattr(delete_interceptor, "decode", watched(decode, lambda kind, *_: f"decode {kind.__name__}"))
    monkeypatch.setattr(delete_interceptor, "encode", watched(encode, lambda one, *_: f"encode {type(one).__name__}"))
    return found


@pytest.mark.parametrize("version", [2, 3])
async def test_a_large_request_and_its_response_are_read_off_the_event_loop(
    version: int, decoded_off_loop: list[str]
) -> None:
    """Any client may name 60,000 groups: to look at them and at their results took 0.1 and 0.3 s."""
    async with scene() as it:
        await stored(it, "g")
        results = it.delete(*MANY, "g", version=version)
        await it.proves_right(OFFSET_DELETE)
        await it.describes(state="Empty", members=())
        await deleted(it, *MANY, "g")
        assert [one.group_id for one in await results] == [*MANY, "g"]
        assert not it.service.must_delete("g")
    answer = ["encode DeleteGroupsResponse"] if version == 3 else []
    both = ["decode DeleteGroupsRequest", "encode DeleteGroupsRequest", "decode DeleteGroupsResponse"]
    assert decoded_off_loop == [*both, *answer]


async def test_a_large_request_of_groups_without_a_description_passes_byte_for_byte(
    decoded_off_loop: list[str],
) -> None:
    async with scene() as it:
        sent = request(DELETE, 2, DeleteGroupsRequest(groups_names=MANY))
        await it.client.send(sent)
        assert (await it.broker.reply()).frame == sent
        await it.client.frame()
        await it.client.send(request(DELETE, 3, DeleteGroupsRequest(groups_names=MANY)))
        asked = await it.broker.request()
        assert decode(DeleteGroupsRequest, 2, asked.body).groups_names == MANY
    assert decoded_off_loop == ["decode DeleteGroupsRequest"] * 2 + ["encode DeleteGroupsRequest"]


async def test_other_work_goes_on_while_many_groups_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as it:
        calls = count_calls(monkeypatch, it.service, "is_known")
        sent = request(DELETE, 2, DeleteGroupsRequest(groups_names=MANY))
        await it.client.send(sent)
        assert (await it.broker.request()).frame == sent
    assert calls.number == len(MANY)
    assert calls.before_other_work <= 500
