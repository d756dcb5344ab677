"""Every node has the gateway's address, or one where nobody listens; its real address stays unknown."""

import json
import socket

import pytest

from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.config.model import GatewayConfig
from headgate.proxy.advertising import AddressMap
from headgate.wire.codec import decode
from headgate.wire.messages.cluster import MetadataBroker, MetadataResponse
from headgate.wire.splice import EncodedAddress
from tests.support.fake_upstream import HOST, Client, FakeUpstream, body_of, request
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
    await until(lambda: not on.gateway.cluster._wanted.is_set())


async def test_a_client_that_dials_a_node_reaches_that_node() -> None:
    async with stage(upstream=FakeUpstream(nodes=(0, 1))) as on:
        for node in (1, 0, 1):
            client, upstream = await on.pair(node)
            await client.send(heartbeat(node))
            assert (await upstream.request()).header.correlation_id == node
            connection = next(one for one in on.gateway._connections if one.node_id == node)
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
    assert len(opened) == len(addresses._addresses) - 1 < 2000
    assert addresses.lookup(NodeId(0)) == EncodedAddress.of(GATEWAY_HOST, 9093)
    assert addresses.lookup(NodeId(4999)) == EncodedAddress.of(GATEWAY_HOST, NOBODY)


@pytest.mark.parametrize("node", [56_443, 2**31 - 1])
def test_a_port_over_65535_is_nobodys(node: int) -> None:
    config = GatewayConfig(listen=Address(GATEWAY_HOST, 9092), nodes=(NodeId(0),))
    addresses = AddressMap(config, lambda _: True)
    assert addresses.lookup(NodeId(56_442)) == EncodedAddress.of(GATEWAY_HOST, 65_535)
    assert addresses.lookup(NodeId(node)) == EncodedAddress.of(GATEWAY_HOST, NOBODY)
