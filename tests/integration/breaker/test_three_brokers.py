"""Brokers that are stopped: the one of the dead-letter topic, one of too few replicas, the group's coordinator.

In one file, so that one cluster of three serves all of it; a test that stops a broker starts it again.
"""

from collections.abc import Iterator

import pytest

from tests.integration.breaker.conftest import Report
from tests.support.cluster import start_test_cluster
from tests.support.raw_client import is_served
from tests.support.share_blows import PARTITIONS as LOADED
from tests.support.share_blows import campaign
from tests.support.share_consumers import ShareJvm
from tests.support.share_outages import PARTITIONS, Ordeal, endure
from tests.support.share_scene import ShareScene, share_scene, until


@pytest.fixture(scope="module")
def before_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    with (
        start_test_cluster(tmp_path_factory, brokers=3) as cluster,
        share_scene(cluster, tmp_path_factory.mktemp("three"), gateway__nodes="0-2") as scene,
    ):
        yield scene


def start(scene: ShareScene, node: int) -> None:
    scene.cluster.kafka.nodes[node].start()
    scene.cluster.kafka.wait_ready()
    until(lambda: all(is_served(scene.gateway.address(one)) for one in range(3)))


def test_a_broker_that_is_stopped_and_a_topic_that_has_too_few_replicas_left(
    before_three: ShareScene, java_431: ShareJvm, java_440: ShareJvm, seconds: float, report: Report
) -> None:
    scene = before_three
    alone = scene.new_topic("dlq", replicas=[[2]])
    in_sync = scene.new_topic("dlq", replicas=[[1, 2]], configs={"min.insync.replicas": "2"})
    replicas = [[partition % 2] for partition in range(PARTITIONS)]  # the primary stream is elsewhere
    ordeals = [
        Ordeal(scene, java_431, alone, replicas=replicas),
        Ordeal(scene, java_440, in_sync, replicas=replicas),
    ]
    report(endure(ordeals, scene.cluster.kafka.nodes[2].stop, lambda: start(scene, 2), seconds=seconds))


def test_a_coordinator_that_moves_in_mid_window_loses_nothing_and_trips_nothing(
    before_three: ShareScene, java_431: ShareJvm, java_440: ShareJvm
) -> None:
    scene = before_three
    everywhere = [[(first + more) % 3 for more in range(3)] for first in range(LOADED)]
    topic, dlq = scene.new_topic(replicas=everywhere), scene.new_topic("dlq", replicas=everywhere[:2])
    stopped: list[int] = []

    def stop(group: str) -> None:
        stopped.append(scene.coordinator(group))
        scene.cluster.kafka.nodes[stopped[0]].stop()

    def restart() -> None:
        for node in stopped:
            start(scene, node)

    try:
        aftermath = campaign(scene, [java_431, java_440], [stop], topic=topic, dlq=dlq, mend=restart)
    finally:
        restart()
    print(aftermath)
    assert aftermath.letters > 0
    assert aftermath.problems == ()
