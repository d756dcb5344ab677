"""The Java clients of both versions see no difference: their scenarios direct and through the gateway."""

import pytest

from tests.integration.equivalence.bench import Bench
from tests.support.clients.jvm import JavaClients

SCENARIOS = (
    "topics",
    "partitions",
    "configs",
    "cluster",
    "security",
    "groups",
    "share-groups",
    "produce",
    "idempotent",
    "transactions",
    "offsets-in-transaction",
    "fencing",
    "classic-consumer",
    "consumer",
    "assigned",
    "classic-pattern",
    "pattern",
    "classic-rebalance",
    "rebalance",
    "share-implicit",
    "share-explicit",
)
LARGE_BYTES = 2_400_000  # of the records of the scenario "large"; 2.3 MB of them were spliced
# The members of a rebalancing group are driven by each other's heartbeats, not by the script.
FREE = {"classic-rebalance": ("first", "second"), "rebalance": ("first", "second")}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_java_4_3_1_clients_see_no_difference(bench: Bench, java_43: JavaClients, name: str, scenario: str) -> None:
    bench.check(lambda bootstrap: java_43.run(scenario, bootstrap, name), free=FREE.get(scenario, ()))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_java_4_4_0_clients_see_no_difference(bench: Bench, java_44: JavaClients, name: str, scenario: str) -> None:
    bench.check(lambda bootstrap: java_44.run(scenario, bootstrap, name), free=FREE.get(scenario, ()))


@pytest.mark.parametrize("version", ["java_43", "java_44"])
def test_java_clients_see_no_difference_in_large_fetches_that_are_spliced(
    bench: Bench, request: pytest.FixtureRequest, name: str, version: str
) -> None:
    java: JavaClients = request.getfixturevalue(version)
    bench.check_spliced(lambda bootstrap: java.run("large", bootstrap, name), at_least=LARGE_BYTES // 2)
