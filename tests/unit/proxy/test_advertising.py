"""Clients see the gateway's addresses and the versions that it carries, never the broker's own."""

import json
import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.base.ids import ApiKey, ApiVersion, CorrelationId, NodeId
from headgate.config.addresses import Address
from headgate.config.model import GatewayConfig
from headgate.proxy import advertising
from headgate.proxy.advertising import AddressMap
from headgate.proxy.interceptor import CloseCause, RequestFrame, Session
from headgate.wire.apis import APIS
from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import (
    ApiVersionRange,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    MetadataBroker,
    MetadataResponse,
    SupportedFeature,
)
from headgate.wire.splice import EncodedAddress
from tests.support.fake_upstream import (
    BROKER_VERSIONS,
    CLUSTER_ID,
    HOST,
    UNKNOWN_KEY,
    Broker,
    Client,
    FakeUpstream,
    body_of,
    request,
)
from tests.unit.proxy.stage import GATEWAY_HOST, Stage, base_port, stage, until
from tests.unit.proxy.test_order import heartbeat, metadata

NOBODY = 1
TOO_HIGH = 60_000


async def told(on: Stage, *brokers: MetadataBroker) -> dict[int, tuple[str, int]]:
    """What a client is told when a broker answers with these."""
    client, broker = await on.pair(0)
    await client.send(metadata(1))
    await broker.reply(MetadataResponse(brokers=brokers, cluster_id="c", controller_id=0))
    frame = await client.frame()
    client.close()
    assert HOST.encode() not in frame
    answer = decode(MetadataResponse, 12, body_of(frame, 3, 12))
    return {one.node_id: (one.host, one.port) for one in answer.brokers}


def broker(node: int) -> MetadataBroker:
    return MetadataBroker(node_id=node, host=HOST, port=19092)


async def look_again(on: Stage) -> None:
    """The gateway's monitor asks once more."""
    asked = on.upstream.times_asked
    on.gateway.cluster.refresh_soon()
    await until(lambda: on.upstream.times_asked > asked)
    await until(lambda: not on.gateway.cluster.is_refresh_due)


async def test_a_client_that_dials_a_node_reaches_that_node() -> None:
    async with stage(upstream=FakeUpstream(nodes=(0, 1))) as on:
        for node in (1, 0, 1):
            client, upstream = await on.pair(node)
            await client.send(heartbeat(node))
            assert (await upstream.request()).header.correlation_id == node
            connection = next(one for one in on.gateway.connections if one.node_id == node)
            assert connection.node_id == node


async def test_a_node_outside_the_range_gets_its_port_when_the_cluster_names_it() -> None:
    async with stage(upstream=FakeUpstream(nodes=(0, 7))) as on:
        client, upstream = await on.pair(7)
        await client.send(heartbeat(1))
        assert (await upstream.request()).key == 12
        assert (await on.page("/readyz"))[0] == 200


async def test_a_node_that_a_client_hears_of_first_gets_its_port_at_once() -> None:
    async with stage() as on:
        assert await told(on, broker(0), broker(9)) == {
            0: (GATEWAY_HOST, base_port() + 1),
            9: (GATEWAY_HOST, base_port() + 10),
        }
        visitor = await Client.connect(GATEWAY_HOST, base_port() + 10)
        visitor.close()


async def test_a_node_whose_port_cannot_be_has_an_address_where_nobody_listens() -> None:
    upstream = FakeUpstream()
    upstream.extra_brokers = (broker(TOO_HIGH),)
    async with stage(upstream=upstream, seen=False) as on:
        await until(lambda: on.gateway.cluster.problem is None)
        assert await told(on, broker(TOO_HIGH)) == {TOO_HIGH: (GATEWAY_HOST, NOBODY)}
        status, body = await on.page("/readyz")
        assert status == 503
        problem = json.loads(body)["problems"][f"node {TOO_HIGH}"]
        assert problem == f"node {TOO_HIGH} would need port {base_port() + 1 + TOO_HIGH}: choose a lower gateway.listen"
        upstream.extra_brokers = ()
        await look_again(on)
        assert (await on.page("/readyz"))[0] == 200


async def test_a_node_whose_port_is_taken_gets_it_when_it_is_free() -> None:
    with socket.create_server((GATEWAY_HOST, base_port() + 6)) as taken:
        upstream = FakeUpstream(nodes=(0, 5))
        async with stage(upstream=upstream) as on:
            assert await told(on, broker(5)) == {5: (GATEWAY_HOST, NOBODY)}
            status, body = await on.page("/readyz")
            assert status == 503
            problem = json.loads(body)["problems"]["node 5"]
            assert problem.startswith(f"cannot listen on {GATEWAY_HOST}:{base_port() + 6} for node 5: Address")
            await look_again(on)
            assert (await on.page("/readyz"))[0] == 503
            taken.close()
            await look_again(on)
            assert (await on.page("/readyz"))[0] == 200
            assert await told(on, broker(5)) == {5: (GATEWAY_HOST, base_port() + 6)}
            client, node = await on.pair(5)
            await client.send(heartbeat(1))
            assert (await node.request()).key == 12


async def test_no_node_is_no_node() -> None:
    async with stage() as on:
        client, upstream = await on.pair()
        await client.send(request(10, 2, b"\x00\x01g\x00"))
        nobody = (
            b"\x00\x00\x00\x00" + b"\x00\x0f" + b"\xff\xff" + b"\xff\xff\xff\xff" + b"\x00\x00" + b"\xff\xff\xff\xff"
        )
        await upstream.reply(nobody)
        assert body_of(await client.frame(), 10, 2) == nobody


def test_nodes_that_a_broker_makes_up_are_not_kept_for_ever() -> None:
    opened: list[int] = []
    config = GatewayConfig(listen=Address(GATEWAY_HOST, 9092), nodes=(NodeId(0),))
    addresses = AddressMap(config, lambda node: not opened.append(node))  # type: ignore[func-returns-value]
    for node in range(5000):
        addresses.lookup(NodeId(node))
    assert len(opened) == len(addresses) - 1 < 2000
    assert addresses.lookup(NodeId(0)) == EncodedAddress.of(GATEWAY_HOST, 9093)
    assert addresses.lookup(NodeId(4999)) == EncodedAddress.of(GATEWAY_HOST, NOBODY)


@pytest.mark.parametrize("node", [56_443, 2**31 - 1])
def test_a_port_over_65535_is_nobodys(node: int) -> None:
    config = GatewayConfig(listen=Address(GATEWAY_HOST, 9092), nodes=(NodeId(0),))
    addresses = AddressMap(config, lambda _: True)
    assert addresses.lookup(NodeId(56_442)) == EncodedAddress.of(GATEWAY_HOST, 65_535)
    assert addresses.lookup(NodeId(node)) == EncodedAddress.of(GATEWAY_HOST, NOBODY)


KEY = 18
ASKED = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
UNSUPPORTED_VERSION, INVALID_REQUEST, REBOOTSTRAP_REQUIRED = 35, 42, 129


def ranges(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def answered(frame: bytes, version: int) -> ApiVersionsResponse:
    return decode(ApiVersionsResponse, version, body_of(frame, KEY, version))


async def ask(client: Client, broker: Broker, version: int, answer: ApiVersionsResponse) -> ApiVersionsResponse:
    """One exchange: what the client gets when the broker answers so."""
    await client.send(request(KEY, version, ASKED))
    await broker.reply(answer)
    return answered(await client.frame(), version)


@pytest.mark.parametrize("version", range(6))
async def test_the_intersection_is_exact(version: int) -> None:
    async with stage() as on:
        client, broker = await on.pair()
        told = ranges(await ask(client, broker, version, on.upstream.api_versions()))
    expected = {
        key: (max(low, APIS[key].min_version), min(high, APIS[key].max_version))
        for key, (low, high) in BROKER_VERSIONS.items()
        if key in APIS
    }
    expected[0] = (0, 13)  # the broker's own lowest: old librdkafka looks for it
    expected[17] = (1, 1)  # behind version 0 come tokens without headers
    expected[18] = (0, 5)  # which the gateway answers itself
    assert told == expected
    assert UNKNOWN_KEY not in told
    assert not told.keys() & {93, 94}
    assert list(told) == sorted(told)


@pytest.mark.parametrize("version", range(5))
async def test_a_version_that_the_broker_has_is_forwarded_as_it_came(version: int) -> None:
    frame = request(KEY, version, ASKED, correlation_id=5)
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(frame)
        assert (await broker.request()).frame == frame


async def test_version_5_is_asked_in_the_highest_version_that_the_broker_has() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(request(KEY, 5, ASKED, correlation_id=9))
        asked = await broker.reply(on.upstream.api_versions())
        assert (asked.version, asked.header.correlation_id, asked.header.client_id) == (4, 9, b"test")
        assert decode(ApiVersionsRequest, 4, asked.body) == ASKED
        assert answered(await client.frame(), 5).error_code == 0


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
async def test_a_version_that_nobody_has_is_answered_in_the_form_of_version_0(version: int) -> None:
    async with stage() as on:
        client, broker = await on.pair()
        body = encode(ASKED, 5)
        await client.send(request(KEY, 5, body, correlation_id=3)[:6])
        await client.send(version.to_bytes(2, "big", signed=True), request(KEY, 5, body, correlation_id=3)[8:])
        answer = answered(await client.frame(), 0)
        assert answer.error_code == UNSUPPORTED_VERSION
        assert ranges(answer) == {KEY: (0, 5)}
        assert await broker.is_quiet()
        again = await ask(client, broker, 3, on.upstream.api_versions())  # as clients then do
        assert again.error_code == 0


BELIEFS = [
    # cluster id, node id, listener (None: bootstrap), is it right
    (None, -1, None, True),
    (None, -1, 0, True),
    (CLUSTER_ID, 0, 0, True),
    (CLUSTER_ID, 1, 1, True),
    (CLUSTER_ID, 1, 0, False),
    (CLUSTER_ID, 0, 1, False),
    ("another", 0, 0, False),
    (CLUSTER_ID, -1, 0, False),
    (None, 0, 0, False),
    (CLUSTER_ID, 0, None, False),  # the bootstrap port is no node's
    ("another", 0, None, False),
]


@pytest.mark.parametrize(("cluster_id", "node_id", "listener", "is_right"), BELIEFS)
async def test_a_client_that_dialled_wrong_is_told_to_bootstrap_again(
    cluster_id: str | None, node_id: int, listener: int | None, is_right: bool
) -> None:
    async with stage(upstream=FakeUpstream(nodes=(0, 1))) as on:
        client = await on.client(listener)
        await client.send(request(KEY, 5, replace(ASKED, cluster_id=cluster_id, node_id=node_id)))
        if is_right:
            await until(lambda: on.upstream.has_connection(0) or on.upstream.has_connection(1))
            broker = await on.upstream.accept(int(on.upstream.has_connection(1)))
            await broker.reply(on.upstream.api_versions())
            assert answered(await client.frame(), 5).error_code == 0
        else:
            answer = answered(await client.frame(), 5)
            assert answer.error_code == REBOOTSTRAP_REQUIRED
            assert answer.api_keys == ()


async def test_a_denied_call_is_hidden() -> None:
    async with stage(deny_api_keys=frozenset((ApiKey(12), ApiKey(88)))) as on:
        client, broker = await on.pair()
        told = ranges(await ask(client, broker, 4, on.upstream.api_versions()))
    assert told.keys() == (BROKER_VERSIONS.keys() & APIS.keys()) - {12, 88}


async def test_what_else_the_broker_says_stays() -> None:
    said = ApiVersionsResponse(
        throttle_time_ms=7,
        supported_features=(SupportedFeature(name="kraft.version", min_version=0, max_version=1),),
        finalized_features_epoch=3,
        finalized_features=(FinalizedFeature(name="share.version", max_version_level=1, min_version_level=1),),
        unknown_tags=((10_000, b"kept"),),
    )
    async with stage() as on:
        client, broker = await on.pair()
        answer = await ask(client, broker, 4, replace(said, api_keys=on.upstream.api_versions().api_keys))
    assert replace(answer, api_keys=()) == said


async def test_from_its_own_answer_on_a_connection_carries_what_its_own_broker_has() -> None:
    older = ApiVersionsResponse(api_keys=(ApiVersionRange(api_key=12, min_version=0, max_version=3),))
    async with stage() as on:
        client, broker = await on.pair()
        assert ranges(await ask(client, broker, 3, older)) == {12: (0, 3)}
        await client.send(heartbeat(1))  # version 4, which the other brokers have
        await on.ends_with(CloseCause.UNSUPPORTED_CALL)


async def test_an_answer_with_an_error_changes_nothing() -> None:
    async with stage() as on:
        client, broker = await on.pair()
        assert (await ask(client, broker, 3, ApiVersionsResponse(error_code=INVALID_REQUEST))).error_code == 42
        await client.send(heartbeat(1))
        assert (await broker.request()).key == 12


async def test_a_broker_that_refuses_the_version_is_passed_on_as_it_is() -> None:
    """A node that was replaced by an older one; it answers in the form of version 0, which every client reads."""
    only = ApiVersionRange(api_key=KEY, min_version=0, max_version=2)
    async with stage() as on:
        client, broker = await on.pair()
        await client.send(request(KEY, 4, ASKED))
        asked = await broker.request()
        await broker.send(asked.answer(encode(ApiVersionsResponse(error_code=35, api_keys=(only,)), 0)))
        answer = answered(await client.frame(), 0)
        assert (answer.error_code, ranges(answer)) == (35, {KEY: (0, 2)})


async def test_a_broker_that_only_has_the_old_sasl_handshake_is_told_without_it() -> None:
    versions = tuple(ApiVersionRange(api_key=key, min_version=0, max_version=0) for key in (17, 18))
    async with stage() as on:
        client, broker = await on.pair()
        assert ranges(await ask(client, broker, 3, ApiVersionsResponse(api_keys=versions))) == {18: (0, 5)}


async def test_requests_and_responses_with_known_bytes_are_decoded_once_and_each_reaches_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[type[object]] = []

    def count(message: type[Any], version: int, body: bytes) -> Any:
        decoded.append(message)
        return decode(message, version, body)

    monkeypatch.setattr(advertising, "decode", count)
    async with stage() as on:
        for software in ("java", "java", "java", "rust"):
            asked = request(18, 4, ApiVersionsRequest(client_software_name=software, client_software_version="1"))
            client = await on.client(0, first=asked)
            broker = await on.upstream.accept(0)
            assert (await broker.reply(on.upstream.api_versions())).frame == asked
            await client.frame()
            client.close()
            broker.close()
    assert decoded == [ApiVersionsRequest, ApiVersionsResponse, ApiVersionsRequest]


async def test_what_is_kept_of_api_versions_requests_is_bounded() -> None:
    interceptor = advertising.ApiVersionsInterceptor()
    session = cast("Session", SimpleNamespace(broker_versions=dict))

    def asked(body: bytes) -> RequestFrame:
        return RequestFrame(
            api_key=ApiKey.API_VERSIONS,
            api_version=ApiVersion(3),
            correlation_id=CorrelationId(1),
            client_id=None,
            body=body,
            size=len(body),
            is_opened=True,
        )

    for number in range(1000):
        body = encode(ApiVersionsRequest(client_software_name=f"x{number}", client_software_version="1"), 3)
        interceptor.on_request(asked(body), session)
        assert 0 < interceptor.kept_requests <= 256
    kept = interceptor.kept_requests
    long = encode(ApiVersionsRequest(client_software_name="x" * 300, client_software_version="1"), 3)
    interceptor.on_request(asked(long), session)
    assert interceptor.kept_requests == kept
