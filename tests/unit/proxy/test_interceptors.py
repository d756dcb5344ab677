"""What an interceptor may do with a call and its answer, and that one that fails does not stop the stream."""

import asyncio
from collections.abc import Callable
from typing import Any

from headgate.base.ids import ApiVersion
from headgate.proxy.interceptor import Answer, Forward, Hold, RequestFrame, ResponseFrame, Rewritten, Session
from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import MetadataRequest
from headgate.wire.messages.data import ProduceRequest
from headgate.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from tests.support.fake_upstream import HOST, Broker, Client, Request, answer, body_of, request
from tests.unit.proxy.scripted import HEARTBEAT, Scripted, after
from tests.unit.proxy.stage import stage, turns
from tests.unit.proxy.test_order import heartbeat, metadata, numbers, produce

OURS = HeartbeatResponse(error_code=27)
THEIRS = HeartbeatResponse(error_code=25)


def sends(outcome: Any) -> Callable[[RequestFrame, Session], Any]:
    return lambda _request, _session: outcome


def code(frame: bytes, version: int = 4) -> int:
    """The error code of a Heartbeat's answer."""
    return decode(HeartbeatResponse, version, body_of(frame, HEARTBEAT, version)).error_code


async def exchange(
    client: Client, broker: Broker, body: HeartbeatResponse = THEIRS, number: int = 1
) -> tuple[Request, bytes]:
    """A Heartbeat that reaches the broker: what came there, and what came back."""
    await client.send(heartbeat(number))
    asked = await broker.reply(body)
    return asked, await client.frame()


# Forward and Rewritten.


async def test_what_is_forwarded_without_a_context_is_not_asked_about_again() -> None:
    it = Scripted(request=sends(Forward()))
    async with stage(it) as on:
        asked, answered = await exchange(*await on.pair())
        assert asked.frame == heartbeat(1)
        assert answered == asked.answer(THEIRS)
    assert it.events == ["it request 1"]


async def test_what_is_forwarded_with_a_context_comes_back_with_it() -> None:
    seen: list[bytes] = []

    def look(response: ResponseFrame, _: object) -> Forward[Any]:
        seen.append(bytes(response.body))
        return Forward()

    it = Scripted(request=lambda request, _: Forward(context=bytes(request.body)), response=look)
    async with stage(it) as on:
        asked, answered = await exchange(*await on.pair())
        assert answered == asked.answer(THEIRS)
    assert it.events == ["it request 1", f"it response {asked.body!r}"]
    assert seen == [encode(THEIRS, 4)]


async def test_an_interceptor_sees_who_asks_what() -> None:
    seen: list[RequestFrame] = []

    def look(request: RequestFrame, _: Session) -> Forward[Any]:
        seen.append(request)
        return Forward()

    it = Scripted(request=look)
    async with stage(it) as on:
        client, broker = await on.pair(0)
        await client.send(request(12, 3, HeartbeatRequest(group_id="g"), correlation_id=77, client_id=b"\xff\n"))
        await broker.request()
        [session] = it.sessions
        assert (session.node_id, session.cluster_id, session.peer) == (0, "fake-cluster", "127.0.0.1")
        assert session.broker_versions()[12] == (0, 4)
    [asked] = seen
    assert (asked.api_key, asked.api_version, asked.correlation_id) == (12, 3, 77)
    assert asked.client_id == "\\xff\n"
    assert decode(HeartbeatRequest, 3, asked.body).group_id == "g"


async def test_a_request_may_be_rewritten_with_another_body_and_version() -> None:
    body = encode(HeartbeatRequest(group_id="another"), 3)
    it = Scripted(
        request=sends(Rewritten(body, context="c", api_version=ApiVersion(3))),
        response=lambda response, _: Rewritten(
            encode(decode(HeartbeatResponse, response.api_version, response.body), 4), api_version=ApiVersion(4)
        ),
    )
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(request(12, 4, HeartbeatRequest(), correlation_id=8, tags=b"\x01\x90\x4e\x01x"))
        asked = await broker.reply(THEIRS)
        assert (asked.version, asked.body, asked.header.correlation_id) == (3, body, 8)
        assert (asked.header.client_id, asked.header.tags) == (b"test", b"")
        assert await client.frame() == answer(12, 4, 8, THEIRS)  # and its header is that of version 4


async def test_each_interceptor_sees_the_response_in_the_version_in_which_it_was_shown_the_request() -> None:
    seen: list[tuple[str, int]] = []

    def one(name: str, outcome: Callable[[int], Any]) -> Scripted:
        def on_response(response: ResponseFrame, context: object) -> Rewritten[Any]:
            seen.append((name, response.api_version))
            return Rewritten(encode(decode(HeartbeatResponse, response.api_version, response.body), int(str(context))))

        return Scripted(name, request=lambda request, _: outcome(request.api_version), response=on_response)

    def lower(version: int) -> Rewritten[Any]:
        body = encode(HeartbeatRequest(group_id="g"), version - 1)
        return Rewritten(body, context=version, api_version=ApiVersion(version - 1))

    stages = (one("1", Forward), one("2", lower), one("3", Forward), one("4", lower))
    async with stage(*stages) as on:
        client, broker = await on.pair()
        await client.send(request(12, 4, HeartbeatRequest(group_id="g"), correlation_id=8))
        assert (await broker.reply(THEIRS)).version == 2
        assert await client.frame() == answer(12, 4, 8, THEIRS)
    assert seen == [("4", 2), ("3", 3), ("2", 3), ("1", 4)]


async def test_an_answer_of_an_interceptor_has_the_version_in_which_it_was_shown_the_request() -> None:
    body = encode(HeartbeatRequest(group_id="g"), 3)
    first = Scripted(
        request=sends(Rewritten(body, context="c", api_version=ApiVersion(3))),
        response=lambda response, _: Rewritten(
            encode(decode(HeartbeatResponse, response.api_version, response.body), 4)
        ),
    )
    second = Scripted(request=lambda request, _: Answer(encode(OURS, request.api_version)))
    async with stage(first, second) as on:
        client, _ = await on.pair()
        await client.send(request(12, 4, HeartbeatRequest(), correlation_id=8))
        assert await client.frame() == answer(12, 4, 8, OURS)


async def test_an_answer_may_be_rewritten() -> None:
    it = Scripted(request=sends(Forward("c")), response=lambda *_: Rewritten(encode(OURS, 4)))
    async with stage(it) as on:
        _, answered = await exchange(*await on.pair())
        assert code(answered) == OURS.error_code


async def test_interceptors_are_asked_in_their_order_and_answers_in_the_opposite_one() -> None:
    events: list[str] = []

    def one(name: str) -> Scripted:
        def on_request(request: RequestFrame, _: Session) -> Rewritten[Any]:
            asked = decode(HeartbeatRequest, 4, request.body)
            return Rewritten(encode(HeartbeatRequest(group_id=asked.group_id + name), 4), context=name)

        def on_response(response: Any, context: object) -> Rewritten[Any]:
            answered = decode(HeartbeatResponse, 4, response.body)
            return Rewritten(encode(HeartbeatResponse(error_code=answered.error_code * 10 + int(str(context))), 4))

        return Scripted(name, events=events, request=on_request, response=on_response)

    async with stage(one("1"), one("2"), one("3")) as on:
        client, broker = await on.pair()
        await client.send(request(12, 4, HeartbeatRequest(group_id="g"), correlation_id=5))
        asked = await broker.reply(HeartbeatResponse())
        assert decode(HeartbeatRequest, 4, asked.body).group_id == "g123"
        assert code(await client.frame()) == 321
    assert events == ["1 request 5", "2 request 5", "3 request 5", "3 response 3", "2 response 2", "1 response 1"]


async def test_what_one_interceptor_rewrote_is_not_lost_when_the_next_one_waits() -> None:
    go = asyncio.Event()
    body = encode(HeartbeatRequest(group_id="rewritten"), 4)
    first = Scripted("first", request=sends(Rewritten(body)))
    second = Scripted("second", request=lambda *_: Hold(after(go, Forward()), deadline=10))
    async with stage(first, second) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        await turns()
        go.set()
        assert (await broker.request()).body == body


async def test_answers_of_metadata_that_an_interceptor_gives_have_the_gateways_addresses() -> None:
    async with stage(Scripted(keys=(3,), request=lambda *_: Answer(encode(on.upstream.metadata(), 12)))) as on:
        client, broker = await on.pair()
        await client.send(metadata(1))
        assert HOST.encode() not in await client.frame()
        assert await broker.is_quiet()


async def test_an_opened_produce_without_an_answer_takes_no_place_in_the_order() -> None:
    it = Scripted(keys=(0,), request=sends(Forward("c")))
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(produce(0, 1), produce(1, 2), produce(0, 3), metadata(4))
        for _ in range(3):
            asked = await broker.request()
            if asked.header.correlation_id == 2:
                await broker.send(asked.answer())
        await broker.reply(on.upstream.metadata())
        assert await numbers(client, 2) == [2, 4]


async def test_an_opened_produce_without_an_answer_gets_none_from_an_interceptor_either() -> None:
    it = Scripted(keys=(0,), request=lambda *_: Answer(b"an answer"))
    async with stage(it) as on:
        client, _ = await on.pair()
        await client.send(request(0, 13, ProduceRequest(acks=0)), produce(1, 2))
        assert await numbers(client, 1) == [2]


# Answer.


async def test_an_interceptor_may_answer_at_once() -> None:
    async with stage(Scripted(request=lambda *_: Answer(encode(OURS, 4)))) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        assert await client.frame() == answer(12, 4, 1, OURS)
        assert await broker.is_quiet()


async def test_requests_behind_a_slow_answer_wait_for_it() -> None:
    go = asyncio.Event()
    async with stage(Scripted(request=lambda *_: Answer(after(go, encode(OURS, 4))))) as on:
        client, broker = await on.pair()
        await client.send(heartbeat(1), metadata(2))
        assert await broker.is_quiet()
        assert await client.is_quiet()
        go.set()
        assert code(await client.frame()) == OURS.error_code
        await broker.reply(on.upstream.metadata())
        assert await numbers(client, 1) == [2]


async def test_interceptors_in_front_of_the_one_that_answers_see_the_answer() -> None:
    events: list[str] = []
    first = Scripted("first", events=events, request=sends(Forward("c")))
    second = Scripted("second", events=events, request=lambda *_: Answer(encode(OURS, 4)))
    third = Scripted("third", events=events)
    async with stage(first, second, third) as on:
        client, _ = await on.pair()
        await client.send(heartbeat(1))
        assert code(await client.frame()) == OURS.error_code
    assert events == ["first request 1", "second request 1", "first response c"]


async def test_an_added_call_is_announced_and_answered_by_its_interceptor() -> None:
    it = Scripted(keys=(93,), adds={93: (0, 0)}, request=lambda *_: Answer(b"stored"))
    async with stage(it) as on:
        assert on.gateway.routes.announce(on.upstream.versions)[93] == (0, 0)
        client, broker = await on.pair()
        await client.send(request(93, 0, b""))
        assert body_of(await client.frame(), 93, 0) == b"stored"
        assert await broker.is_quiet()


async def test_a_call_that_nobody_opens_is_not_opened() -> None:
    it = Scripted(keys=(12,))
    async with stage(it) as on:
        client, broker = await on.pair()
        await client.send(request(8, 8, b"\x00"), request(3, 12, MetadataRequest()))
        await broker.request()
        await broker.request()
        used = {(route.name, route.opened_calls) for route in on.gateway.routes.used()}
        assert used == {("ListGroups", 0), ("OffsetCommit", 0), ("Metadata", 1)}
    assert it.events == []
