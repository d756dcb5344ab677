"""On the way to a broker: what is wrong is said with the address, and only known versions are asked for."""

import asyncio

import pytest

from headgate.base.errors import ClusterError
from headgate.config.addresses import Address
from headgate.kafka.connections import Connections, Dialler, UnsupportedError
from headgate.wire.messages.cluster import SaslHandshakeResponse
from headgate.wire.messages.groups import ListGroupsRequest, ListGroupsResponse
from tests.support.scripted_cluster import Answer, ScriptedCluster

LIST_GROUPS = 16


async def ask(connections: Connections, *, lowest: int, highest: int) -> ListGroupsResponse:
    link = await connections.bootstrap()
    return await link.ask(ListGroupsRequest(), lowest=lowest, highest=highest)


@pytest.mark.parametrize(("theirs", "expected"), [((0, 2), 2), ((0, 3), 3), ((1, 9), 4)])
async def test_a_call_goes_out_in_the_highest_version_of_both(theirs: tuple[int, int], expected: int) -> None:
    versions = {**ScriptedCluster().versions, LIST_GROUPS: theirs}
    answers: dict[int, Answer] = {LIST_GROUPS: lambda _node, _request: ListGroupsResponse()}
    async with ScriptedCluster(answers, versions=versions) as cluster:
        async with Connections(cluster.dialler()) as connections:
            await ask(connections, lowest=1, highest=4)
        assert [one.version for one in cluster.requests(LIST_GROUPS)] == [expected]


@pytest.mark.parametrize("theirs", [(0, 3), (6, 7), None])
async def test_a_version_that_the_broker_lacks_is_never_sent(theirs: tuple[int, int] | None) -> None:
    versions = {**ScriptedCluster().versions}
    versions.pop(LIST_GROUPS)
    if theirs is not None:
        versions[LIST_GROUPS] = theirs
    async with ScriptedCluster(versions=versions) as cluster, Connections(cluster.dialler()) as connections:
        with pytest.raises(UnsupportedError, match="the server does not support ListGroups v4"):
            await ask(connections, lowest=4, highest=5)
        assert cluster.requests(LIST_GROUPS) == []


async def test_the_next_bootstrap_address_is_tried_when_one_does_not_answer() -> None:
    answers: dict[int, Answer] = {LIST_GROUPS: lambda _node, _request: ListGroupsResponse()}
    async with ScriptedCluster(answers, brokers=2, away={0}) as cluster:
        dialler = Dialler(bootstrap=(cluster.address(0), cluster.address(1)))
        async with Connections(dialler) as connections:
            await ask(connections, lowest=1, highest=4)


async def test_when_no_address_answers_each_is_named() -> None:
    async with ScriptedCluster(brokers=2, away={0, 1}) as cluster:
        dialler = Dialler(bootstrap=(cluster.address(0), cluster.address(1)))
        async with Connections(dialler) as connections:
            with pytest.raises(ClusterError) as failure:
                await connections.bootstrap()
    assert str(cluster.address(0)) in str(failure.value)
    assert str(cluster.address(1)) in str(failure.value)


async def test_a_connection_is_used_again_until_it_ends() -> None:
    answers = [ListGroupsResponse(), ListGroupsResponse(), None, ListGroupsResponse()]
    async with ScriptedCluster({LIST_GROUPS: lambda _node, _request: answers.pop(0)}) as cluster:
        async with Connections(cluster.dialler()) as connections:
            for _ in range(2):
                await ask(connections, lowest=1, highest=4)
            with pytest.raises(ClusterError, match="the connection was closed before the response to ListGroups"):
                await ask(connections, lowest=1, highest=4)
            await ask(connections, lowest=1, highest=4)
        assert len(cluster.requests(18)) == 2


async def test_a_listener_that_wants_a_login_says_how_one_can_log_in() -> None:
    wants = SaslHandshakeResponse(error_code=33, mechanisms=("PLAIN", "SCRAM-SHA-512"))
    async with (
        ScriptedCluster({17: lambda _node, _request: wants}) as cluster,
        Connections(cluster.dialler()) as connections,
    ):
        with pytest.raises(ClusterError) as failure:
            await connections.bootstrap()
    assert str(failure.value) == f"{cluster.address()} requires SASL (PLAIN, SCRAM-SHA-512), and no user is given"


async def test_what_is_no_broker_is_named_and_tls_is_thought_of() -> None:
    async with (
        ScriptedCluster({18: lambda _node, _request: None}) as cluster,
        Connections(cluster.dialler()) as connections,
    ):
        with pytest.raises(
            ClusterError, match=r"does not respond as a Kafka broker, or expects TLS \(security\.protocol\): "
        ):
            await connections.bootstrap()


async def test_a_refused_connection_takes_no_longer_than_it_takes() -> None:
    async with asyncio.timeout(5), Connections(Dialler(bootstrap=(Address("127.0.0.1", 1),))) as connections:
        with pytest.raises(ClusterError, match=r"no connection to 127\.0\.0\.1:1"):
            await connections.bootstrap()


async def test_patience_ends_with_the_time_of_the_errand() -> None:
    async with Connections(Dialler(bootstrap=(), timeout_s=1.0)) as connections:
        delay = connections.retry_delay()
        attempts = 1
        while await delay.wait():
            attempts += 1
    assert 2 <= attempts <= 4  # at 0, 0.1, 0.3 and 0.7 s, and fewer on a loaded machine
