"""Brokers that are stopped: the one of the dead-letter topic, one of too few replicas, the group's coordinator.

In one file, so that one cluster of three serves all of it; a test that stops a broker starts it again.
"""

from collections.abc import Iterator

import pytest

from tests.integration.breaker.test_outages import LETTERS_S, WIDE
from tests.support.cluster import start_test_cluster
from tests.support.outage_kinds import start_broker, stopped_and_too_few
from tests.support.share_blows import PARTITIONS as LOADED
from tests.support.share_blows import campaign
from tests.support.share_consumers import ShareJvm
from tests.support.share_outages import endure
from tests.support.share_scene import ShareScene, share_scene


@pytest.fixture(scope="module")
def before_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    with (
        start_test_cluster(tmp_path_factory, brokers=3) as cluster,
        share_scene(cluster, tmp_path_factory.mktemp("three"), gateway__nodes="0-2") as scene,
    ):
        yield scene


def test_a_broker_that_is_stopped_and_too_few_replicas_are_not_felt_and_lose_no_dead_letter(
    before_three: ShareScene, java_431: ShareJvm, java_440: ShareJvm
) -> None:
    scene = before_three
    found = endure(
        scene,
        stopped_and_too_few(scene, 1),
        [java_431, java_440],
        healthy_s=4.0,
        outage_s=8.0,
        rate=200,
        limits=WIDE,
        letters_s=LETTERS_S,
    )
    print(*found, sep="\n")
    assert [one.problems for one in found] == [(), ()]


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
            start_broker(scene, node)

    try:
        aftermath = campaign(scene, [java_431, java_440], [stop], topic=topic, dlq=dlq, mend=restart)
    finally:
        restart()
    print(aftermath)
    assert aftermath.letters > 0
    assert aftermath.problems == ()
