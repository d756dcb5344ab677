"""The five outages of a dead-letter topic, each as long as in the document's example (KIP-1316, risk 2): 45 s."""

from collections.abc import Iterator

import pytest

from tests.integration.breaker.conftest import Report, java_431, java_440, logs
from tests.integration.breaker.test_outages import (
    guarded,
    test_a_right_that_is_revoked,
    test_a_topic_that_is_deleted,
    test_records_that_are_too_large,
)
from tests.integration.breaker.test_three_brokers import (
    before_three,
    test_a_broker_that_is_stopped_and_a_topic_that_has_too_few_replicas_left,
)
from tests.soak.page import table, write_section
from tests.support.cluster import Cluster
from tests.support.share_outages import PARTITIONS, REJECTS_PERCENT, TIMEOUT_MS, Endured
from tests.support.share_scene import ShareScene, share_scene

__all__ = [
    "before_three",
    "guarded",
    "java_431",
    "java_440",
    "logs",
    "test_a_broker_that_is_stopped_and_a_topic_that_has_too_few_replicas_left",
    "test_a_right_that_is_revoked",
    "test_a_topic_that_is_deleted",
    "test_records_that_are_too_large",
]
pytestmark = pytest.mark.timeout(600)
OUTAGE_S = 45.0


@pytest.fixture(scope="module")
def scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    with share_scene(cluster, tmp_path_factory.mktemp("outages")) as running:
        yield running


@pytest.fixture
def seconds() -> float:
    return OUTAGE_S


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    name = request.node.name.removeprefix("test_").replace("_", " ")

    def tell(figures: list[Endured]) -> None:
        head = ("group", "sent", "timed out", "written late", "longest silence s")
        rows = (
            (at + 1, one.sent, one.timed_out, one.written_late, f"{one.longest_silence_s:.1f}")
            for at, one in enumerate(figures)
        )
        what = (
            f"{OUTAGE_S:.0f} s without dead letters, {PARTITIONS} partitions, {REJECTS_PERCENT} % rejected, write "
            f"timeout {TIMEOUT_MS} ms. Everything that was sent was done with during the outage."
        )
        write_section(f"Dead-letter outage: {name}", [what, "", *table(head, rows)])

    return tell
