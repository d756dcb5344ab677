"""What a group is promised outlives the gateway and its leader: no loss, and no false trip.

One kill of the campaign of twenty that `make soak` runs.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.share_blows import campaign
from tests.support.share_consumers import ShareJvm
from tests.support.share_scene import (
    BREAKER,
    DLQ_TOPIC,
    MINIMUM,
    PAUSE,
    RESUME,
    TRIPPED,
    ShareScene,
    share_scene,
    until,
)


@pytest.fixture(scope="module")
def scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    """A gateway to kill."""
    with share_scene(cluster, tmp_path_factory.mktemp("killed")) as running:
        yield running


def test_a_gateway_that_is_killed_under_load_loses_nothing_and_trips_nothing(
    scene: ShareScene, java_431: ShareJvm, java_440: ShareJvm
) -> None:
    def kill(_group: str) -> None:
        [worker] = scene.gateway.workers()
        os.kill(worker, signal.SIGKILL)

    aftermath = campaign(scene, [java_431, java_440], [kill])
    print(aftermath)
    assert aftermath.delivered > aftermath.sent, "the kill met records that were held"
    assert aftermath.dead_letters > 0
    assert aftermath.problems == ()


def test_a_pause_outlives_the_gateway(scene: ShareScene, java_440: ShareJvm) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq})
    scene.configure(group, {PAUSE: "deploy"})
    one = java_440.join(group, scene.bootstrap, group, [topic])
    scene.send(topic, ["A:"] * 5)
    scene.gateway.stop()
    scene.gateway.start()
    until(lambda: scene.gateway.problems() == {})
    seen = scene.wait_for_status(group, lambda status: status["paused"])
    assert [reason["text"] for reason in seen["pause_reasons"]] == ["deploy"]
    assert one.events("polled") == []
    scene.configure(group, {RESUME: "deployed"})
    scene.wait_for_end(group, topic, 5)
    one.close()
    assert {count for _, count, _ in one.deliveries()} == {1}


def test_the_last_resume_is_known_after_a_restart(scene: ShareScene, java_440: ShareJvm) -> None:
    topic = scene.new_topic()
    group = scene.new_group({DLQ_TOPIC: scene.new_topic("dlq")})
    one = java_440.join(group, scene.bootstrap, group, [topic])
    scene.configure(group, {PAUSE: "deploy"})
    scene.configure(group, {RESUME: "deployed"})
    before = scene.wait_for_status(group, lambda status: status["last_resume"] is not None)["last_resume"]
    scene.gateway.stop()
    scene.gateway.start()
    until(lambda: scene.gateway.problems() == {})
    after = scene.wait_for_status(group, lambda status: status["last_resume"] is not None)["last_resume"]
    assert after == before
    assert after["reason"] == "deployed"
    one.close()


def test_another_gateway_evaluates_the_breakers_when_the_leader_is_gone(
    scene: ShareScene, cluster: Cluster, java_440: ShareJvm, tmp_path: Path
) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    until(lambda: scene.gateway.metric("headgate_share_groups_leading") == 1)  # it may have been started just now
    with share_scene(cluster, tmp_path, facts__prefix=scene.facts) as other:
        group = other.new_group({DLQ_TOPIC: dlq, BREAKER: "true", MINIMUM: "20"})
        one = java_440.join(group, other.bootstrap, group, [topic])
        # Counted by the leader that is then gone: the next one begins with empty windows.
        scene.send(topic, ["R:"] * 15)
        other.wait_for_end(group, topic, 15)
        other.wait_for_status(group, lambda status: status["dlq_written"] == 15)
        scene.gateway.kill()
        until(lambda: other.gateway.metric("headgate_share_groups_leading") == 1)
        assert other.status(group)["dlq_written"] == 0, "what it counted before it led is not in its window"
        scene.send(topic, ["R:"] * 15)
        other.wait_for_end(group, topic, 30)
        assert not other.status(group)["paused"], "fifteen and fifteen of two leaders are not thirty"
        scene.send(topic, ["R:"] * 30)
        seen = other.wait_for_status(group, lambda status: status["paused"])
        assert [reason["code"] for reason in seen["pause_reasons"]] == [TRIPPED]
        one.close()
    scene.gateway.start()
    until(lambda: scene.gateway.problems() == {})
