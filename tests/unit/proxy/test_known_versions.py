"""ApiVersions that is byte for byte as on an earlier connection: the same bytes on both sides, and no message made."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.base.ids import ApiKey, ApiVersion, CorrelationId
from headgate.proxy.advertising import ApiVersionsInterceptor
from headgate.proxy.interceptor import CloseCause, Forward, RequestFrame
from headgate.proxy.principals import ClientSoftware, Principals
from headgate.wire import frames
from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headgate.wire.messages.groups import HeartbeatResponse
from tests.support.fake_upstream import BROKER_VERSIONS, CLUSTER_ID, FakeUpstream, request
from tests.unit.proxy.scripted import Scripted
from tests.unit.proxy.stage import Stage, stage
from tests.unit.proxy.test_order import heartbeat
from tests.unit.proxy.test_split import reach, send_cut

KEY = 18
ASKED = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
NEWER = {**BROKER_VERSIONS, KEY: (0, 5)}  # as a broker of 4.4, which has every version of ApiVersions


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which requests and responses the interceptor was asked about."""
    made: list[str] = []
    on_request, on_response = ApiVersionsInterceptor.on_request, ApiVersionsInterceptor.on_response

    def note_request(self: ApiVersionsInterceptor, *arguments: Any) -> Any:
        made.append("request")
        return on_request(self, *arguments)

    def note_response(self: ApiVersionsInterceptor, *arguments: Any) -> Any:
        made.append("response")
        return on_response(self, *arguments)

    monkeypatch.setattr(ApiVersionsInterceptor, "on_request", note_request)
    monkeypatch.setattr(ApiVersionsInterceptor, "on_response", note_response)
    return made


def frame(version: int, number: int, *, client_id: bytes | None = b"test", asked: Any = ASKED, **more: Any) -> bytes:
    return request(KEY, version, asked, correlation_id=number, client_id=client_id, **more)


async def converse(on: Stage, sent: bytes, answered: Any = None) -> tuple[bytes, bytes]:
    """What the broker and the client of a new connection get."""
    client = await on.client(0, first=sent)
    broker = await on.upstream.accept()
    asked = await broker.reply(on.upstream.api_versions() if answered is None else answered)
    received = await client.frame()
    client.close()
    await broker.rest()
    return asked.frame, received


def without_number(pair: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    return pair[0][:8] + pair[0][12:], pair[1][:4] + pair[1][8:]


@pytest.mark.parametrize("version", range(6))
async def test_a_known_request_and_its_response_are_as_the_first_ones_were(version: int, looks: list[str]) -> None:
    async with stage(upstream=FakeUpstream(versions=NEWER)) as on:
        first = await converse(on, frame(version, 1))
        assert first[0] == frame(version, 1)
        assert len(decode(ApiVersionsResponse, version, first[1][8:]).api_keys) > 50
        looks.clear()
        for number in (7, -1, 2**31 - 1):
            again = await converse(on, frame(version, number))
            assert again[0] == frame(version, number)
            assert again[1][4:8] == number.to_bytes(4, "big", signed=True)
            assert without_number(again) == without_number(first)
        for client_id in (None, b"", b"another-client", b"\xff" * 900):
            sent, received = await converse(on, frame(version, 1, client_id=client_id))
            assert (sent, received) == (frame(version, 1, client_id=client_id), first[1])
        assert looks == []
        route = next(one for one in on.gateway.routes.used() if (one.api_key, one.api_version) == (KEY, version))
        assert (route.calls, route.opened_calls) == (8, 8)


async def test_a_known_request_is_the_same_wherever_it_and_its_response_are_cut(looks: list[str]) -> None:
    async with stage() as on:
        client, broker = await on.pair()
        meter = on.gateway.metrics.client_meter
        await client.send(frame(4, 5))
        asked = await broker.reply(on.upstream.api_versions())
        whole = await client.frame()
        looks.clear()
        for cut in range(1, len(asked.frame)):
            before = meter.received_bytes
            await client.send(asked.frame[:cut])
            await reach(meter, before + cut)
            await client.send(asked.frame[cut:])
            assert (await broker.reply(on.upstream.api_versions())).frame == asked.frame
            assert await client.frame() == whole
        response = asked.answer(on.upstream.api_versions())
        for cut in range(1, len(response)):
            await client.send(asked.frame)
            await broker.request()
            await send_cut(on, broker, response, cut)
            assert await client.frame() == whole
        assert looks == []


async def test_known_requests_keep_their_place_among_others(looks: list[str]) -> None:
    async with stage() as on:
        client, broker = await on.pair()
        for numbers in ((1, 2, 3), (11, 12, 13)):
            await client.send(heartbeat(numbers[0]), frame(3, numbers[1]), heartbeat(numbers[2]))
            asked = [await broker.request() for _ in numbers]
            assert [one.key for one in asked] == [12, KEY, 12]
            answers = (HeartbeatResponse(), on.upstream.api_versions(), HeartbeatResponse())
            await broker.send(*(one.answer(body) for one, body in zip(asked, answers, strict=True)))
            received = [await client.frame() for _ in numbers]
            assert [int.from_bytes(one[4:8], "big") for one in received] == list(numbers)
        assert looks == ["request", "response"]


async def test_a_known_response_sets_the_versions_of_its_connection() -> None:
    async with stage() as on:
        ranges = on.upstream.api_versions().api_keys
        older = ApiVersionsResponse(api_keys=tuple(one for one in ranges if one.api_key != 12))
        await converse(on, frame(3, 1), older)
        client = await on.client(0, first=frame(3, 1))
        await (await on.upstream.accept()).reply(older)
        await client.frame()
        await client.send(heartbeat(2))
        assert await client.rest() == b""
        assert on.ended[CloseCause.UNSUPPORTED_CALL.value] == 1


async def test_a_response_with_another_byte_is_looked_at(looks: list[str]) -> None:
    async with stage() as on:
        known = on.upstream.api_versions()
        changed = replace(known, throttle_time_ms=9)
        await converse(on, frame(3, 1))
        looks.clear()
        _, received = await converse(on, frame(3, 1), changed)
        assert decode(ApiVersionsResponse, 3, received[8:]).throttle_time_ms == 9
        assert looks == ["response"]
        unsupported = encode(ApiVersionsResponse(error_code=35), 0)
        assert (await converse(on, frame(3, 1), unsupported))[1][8:] == unsupported


async def test_requests_that_take_a_look_are_never_taken_for_known_ones(looks: list[str]) -> None:
    naming = replace(ASKED, cluster_id=CLUSTER_ID, node_id=0)
    async with stage(upstream=FakeUpstream(versions=NEWER)) as on:
        for version in (0, 3, 5):
            await converse(on, frame(version, 1))
        for sent in (frame(3, 1, tags=b"\x01\x63\x01x"), frame(5, 1, asked=naming)) * 2:
            looks.clear()
            assert (await converse(on, sent))[0] == sent
            assert looks == ["request", "response"]
        wrong = replace(naming, node_id=1)
        client = await on.client(0, first=frame(5, 1))
        broker = await on.upstream.accept()
        await broker.reply(on.upstream.api_versions())
        await client.frame()
        for _ in range(2):
            await client.send(frame(5, 2, asked=wrong))
            assert decode(ApiVersionsResponse, 5, (await client.frame())[8:]).error_code == 129
        refused = await client.call(KEY, 9, encode(ASKED, 5))  # the body is known, the version is not
        assert decode(ApiVersionsResponse, 0, refused[8:]).error_code == 35


@pytest.mark.parametrize("size", [-2, 1, 32767])
async def test_a_client_id_that_is_none_is_refused_although_the_rest_is_known(size: int) -> None:
    async with stage() as on:
        await converse(on, frame(0, 1))
        broken = bytearray(frame(0, 2, client_id=None))
        broken[12:14] = size.to_bytes(2, "big", signed=True)
        client = await on.client(0, first=bytes(broken))
        assert await client.rest() == b""
        assert on.ended[CloseCause.BAD_REQUEST.value] == 1


async def test_a_broker_without_the_version_gets_one_that_it_has_although_the_request_is_known() -> None:
    async with stage(upstream=FakeUpstream(versions=NEWER)) as on:
        await converse(on, frame(5, 1))
        client = await on.client(0, first=frame(5, 1))
        broker = await on.upstream.accept()
        ranges = on.upstream.api_versions().api_keys
        only_four = tuple(replace(one, max_version=4) if one.api_key == KEY else one for one in ranges)
        await broker.reply(ApiVersionsResponse(api_keys=only_four))
        await client.frame()
        await client.send(frame(5, 2))
        assert (await broker.reply(on.upstream.api_versions())).version == 4
        assert decode(ApiVersionsResponse, 5, (await client.frame())[8:]).error_code == 0


async def test_what_watches_the_requests_sees_known_ones_too(looks: list[str]) -> None:
    principals = Principals()
    async with stage(principals) as on:
        for _ in range(3):
            client = await on.client(0, first=frame(3, 1))
            await (await on.upstream.accept()).reply(on.upstream.api_versions())
            await client.frame()
        assert len(on.gateway.connections) == 3
        for connection in on.gateway.connections:
            assert principals.software_of(connection) == ClientSoftware("test", "1.0")
    assert looks == ["request", "response"]


async def test_what_watches_the_responses_sees_known_ones_too() -> None:
    watcher = Scripted(keys=(), stream_keys=(KEY,), request=lambda *_: Forward(context="it"))
    async with stage(watcher) as on:
        received = [(await converse(on, frame(3, 1)))[1] for _ in range(2)]
        assert received[0] == received[1]
        seen = frames.frame(b"\0\0\0\1", encode(on.upstream.api_versions(), 3))
        assert watcher.chunks == [seen] * 2


async def test_another_interceptor_of_the_api_is_asked_each_time() -> None:
    other = Scripted(keys=(KEY,), request=lambda *_: Forward(context="it"))
    async with stage(other) as on:
        for number in (1, 2):
            await converse(on, frame(3, number))
    assert other.events == ["it request 1", "it response it", "it request 2", "it response it"]


def test_a_known_request_keeps_neither_client_id_nor_frame() -> None:
    interceptor = ApiVersionsInterceptor()
    session = SimpleNamespace(broker_versions=lambda: BROKER_VERSIONS)
    body = encode(ASKED, 3)
    sent = frame(3, 77, client_id=b"x" * 1000)
    opened = RequestFrame(
        api_key=ApiKey.API_VERSIONS,
        api_version=ApiVersion(3),
        correlation_id=CorrelationId(77),
        client_id="x" * 1000,
        body=memoryview(sent)[-len(body) :],
    )
    interceptor.on_request(opened, session)
    known = interceptor.known_request(sent, session)
    assert known is not None
    assert (known.client_id, known.correlation_id, known.body) == (None, 0, body)
    assert type(known.body) is bytes
