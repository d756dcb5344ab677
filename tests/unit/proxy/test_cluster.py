"""The gateway keeps asking for the cluster: whatever the brokers do, it says why it waits, and goes on when it can."""

import asyncio
import json
import socket
from struct import pack

import pytest
from structlog.typing import EventDict

from headgate.base.errors import ClusterError
from headgate.base.ids import NodeId
from headgate.config.addresses import Address
from headgate.kafka.connections import BrokerConnection
from headgate.proxy.endpoints import PeerSockets
from headgate.proxy.interceptor import CloseCause
from headgate.proxy.names import AddressInfo
from headgate.wire.messages.cluster import MetadataBroker, MetadataRequest
from tests.support.fake_upstream import CLUSTER_ID, HOST, FakeUpstream
from tests.unit.proxy.stage import Stage, config, stage, turns, until
from tests.unit.proxy.test_advertising import look_again
from tests.unit.proxy.test_order import heartbeat


async def reason(on: Stage) -> str:
    """Why the gateway is not ready."""
    status, body = await on.page("/readyz")
    assert status == 503
    assert json.loads(body)["ready"] is False
    text: str = json.loads(body)["problems"]["upstream"]
    return text


async def test_a_cluster_that_comes_later_is_waited_for_with_its_clients() -> None:
    upstream = FakeUpstream()
    async with stage(upstream=upstream, seen=False) as on:
        await upstream.stop_listening(None)
        client = await on.client()
        await client.send(heartbeat(1))
        await until(lambda: "refused" in str(on.gateway.cluster.problem))
        assert await reason(on) == f"no connection to {HOST}:{upstream.port}: Connection refused"
        assert (await on.page("/healthz"))[0] == 200
        upstream.listen_again(None)
        broker = await upstream.accept()
        await broker.reply()
        assert await client.frame()
        assert (await on.page("/readyz"))[0] == 200


async def test_a_client_that_waits_too_long_is_let_go() -> None:
    upstream = FakeUpstream()
    upstream.answers_metadata.clear()
    async with stage(upstream=upstream, seen=False, connect_timeout_ms=50) as on:
        client = await on.client(first=b"\x00")
        assert await client.rest() == b""
        assert on.ended == {"upstream_unreachable": 1}
        node = await on.client(1, first=b"\x00")
        assert await node.rest() == b""
        assert on.ended == {"upstream_unreachable": 2}


async def test_a_node_that_cannot_be_reached_lets_its_client_go() -> None:
    async with stage() as on:
        await on.upstream.stop_listening(0)
        client = await on.client(0, first=b"\x00")
        assert await client.rest() == b""
        await on.ends_with(CloseCause.UPSTREAM_UNREACHABLE)


async def test_another_cluster_gets_no_clients() -> None:
    async with stage() as on:
        before, broker = await on.pair()
        on.upstream.cluster_id = "another"
        await look_again(on)
        await (await on.upstream.accept()).reply(on.upstream.metadata())  # the node itself is asked too
        await until(lambda: on.gateway.cluster.problem is not None)
        assert (await reason(on)).startswith(
            f"{HOST}:{on.upstream.port} is cluster 'another', but this gateway stands before '{CLUSTER_ID}': correct "
            "upstream.bootstrap, or restart the gateway if the cluster was replaced on purpose"
        )
        client = await on.client(first=b"\x00")
        assert await client.rest() == b""
        assert on.ended == {"wrong_cluster": 1}
        await before.send(heartbeat(1))  # who is connected already stays so
        assert (await broker.request()).key == 12
        on.upstream.cluster_id = CLUSTER_ID
        await look_again(on)
        await until(lambda: not on.gateway.cluster.is_wrong)
        assert (await on.page("/readyz"))[0] == 200


async def test_a_cluster_without_brokers_is_no_cluster(logs: list[EventDict]) -> None:
    upstream = FakeUpstream(nodes=())
    async with stage(upstream=upstream, seen=False, connect_timeout_ms=100) as on:
        await until(lambda: "names no brokers" in str(on.gateway.cluster.problem))
        client = await on.client(first=b"\x00")
        assert await client.rest() == b""
        assert on.ended == {"upstream_unreachable": 1}
    assert not [event for event in logs if event["log_level"] == "error"]


async def test_a_client_that_comes_while_the_versions_are_asked_waits(logs: list[EventDict]) -> None:
    upstream = FakeUpstream()
    upstream.answers_versions.clear()
    async with stage(upstream=upstream, seen=False) as on:
        await until(lambda: on.gateway.cluster.cluster_id is not None)
        client = await on.client()
        await client.send(heartbeat(1))
        await turns(50)
        upstream.answers_versions.set()
        broker = await upstream.accept()
        assert (await broker.request()).key == 12
    assert not [event for event in logs if event["log_level"] == "error"]


@pytest.mark.parametrize(
    ("host", "port"), [("a..b", 1), ("x" * 300, 1), ("", 1), (HOST, 0), (HOST, -1), (HOST, 65536), (HOST, 2**31 - 1)]
)
async def test_a_node_with_an_impossible_address_does_not_hide_the_others(
    host: str, port: int, logs: list[EventDict]
) -> None:
    upstream = FakeUpstream()
    upstream.extra_brokers = (MetadataBroker(node_id=1, host=host, port=port), MetadataBroker(node_id=-3, host="x"))
    async with stage(upstream=upstream) as on:
        client, broker = await on.pair(0)
        await client.send(heartbeat(1))
        assert (await broker.request()).key == 12
        lost = await on.client(1, first=b"\x00")
        assert await lost.rest() == b""
        assert on.ended == {"upstream_unreachable": 1}
        assert NodeId(-3) not in on.gateway.cluster.nodes
        await look_again(on)
    assert not [event for event in logs if event["log_level"] == "error"]


HOSTILE = {
    "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a negative size": pack(">i", -5),
    "a size of 2 GiB": pack(">i", 2**31 - 1),
    "a size of 0": pack(">i", 0),
    "another correlation id": pack(">ii", 10, 77) + bytes(6),
    "an answer that is none": pack(">ii", 10, 1) + b"\xff" * 6,
    "an end": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_caller_turns_every_answer_that_is_none_into_an_error(name: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(HOSTILE[name])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        caller = await BrokerConnection.connect(*server.sockets[0].getsockname(), timeout=5)
        with pytest.raises(ClusterError):
            await caller.call(MetadataRequest(), 12)
        caller.close()
        await turns()


async def test_a_caller_has_a_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        caller = await BrokerConnection.connect(*silent.getsockname(), timeout=0.05)
        with pytest.raises(ClusterError, match=r"no response to Metadata within 0\.05 s"):
            await caller.call(MetadataRequest(), 12)


async def test_the_monitor_survives_a_hostile_broker() -> None:
    upstream = FakeUpstream()
    upstream.replies = pack(">ii", 10, 1) + b"\xff" * 6
    async with stage(upstream=upstream, seen=False) as on:
        await until(lambda: "not a Kafka response" in str(on.gateway.cluster.problem))
        upstream.replies = None
        await until(lambda: on.gateway.cluster.problem is None)
        client, broker = await on.pair()
        await client.send(heartbeat(1))
        assert (await broker.request()).key == 12


async def test_a_name_with_several_addresses_is_dialled_at_each() -> None:
    """As `localhost` often is: ::1 first, and the broker listens on 127.0.0.1."""
    loop = asyncio.get_running_loop()

    async def look_up(host: str, port: int) -> list[AddressInfo]:
        assert host == "localhost"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("127.0.0.78", "127.0.0.79")]

    with socket.create_server(("127.0.0.79", 0)) as listener:
        ends = PeerSockets(config(1), loop, look_up=look_up)
        port = listener.getsockname()[1]
        end = await ends.dial([Address("localhost", port)], lambda: None)
        assert end is not None
        assert end.sock.getpeername() == ("127.0.0.79", port)
        end.sock.close()
    failures: list[int] = []
    assert await ends.dial([Address("localhost", port)] * 2, lambda: failures.append(1)) is None
    assert len(failures) == 2
