"""Leaders that move under their clients: the address of the new leader, told by the old one, is the gateway's too."""

from collections.abc import Iterator, Sequence

import pytest

from tests.integration.equivalence.bench import Bench, running
from tests.support.clients.jvm import JavaClients
from tests.support.compare_calls import Conversation


@pytest.fixture(scope="module")
def bench_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with running(tmp_path_factory.mktemp("three-brokers"), brokers=3) as bench:
        yield bench


def calls_with_endpoints(conversations: Sequence[Conversation]) -> set[str]:
    """The calls in whose answers a broker named the new leader's address (KIP-951)."""
    return {
        call.api_name
        for conversation in conversations
        for call in conversation.calls
        if call.answer is not None and call.answer.body.get("nodeEndpoints")
    }


@pytest.mark.parametrize("version", ["java_43", "java_44"])
def test_a_new_leader_is_found_through_the_gateway(
    bench_of_three: Bench, request: pytest.FixtureRequest, name: str, version: str
) -> None:
    java: JavaClients = request.getfixturevalue(version)
    java.run("warm", bench_of_three.broker, "warm")
    through = bench_of_three.through(lambda bootstrap: java.run("leader-moves", bootstrap, name))
    bench_of_three.check_inside(through)
    assert calls_with_endpoints(through.broker) >= {"Produce", "Fetch", "ShareFetch"}
