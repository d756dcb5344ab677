"""The limit of deliveries of a group with a dead-letter topic: over it there is a letter, and no delivery."""

from pathlib import Path

import pytest

from tests.integration.breaker.conftest import Consuming
from tests.integration.breaker.test_spool import spooled
from tests.integration.breaker.test_spool_moves import create, delete
from tests.support.cluster import Cluster
from tests.support.gateway import running_gateway
from tests.support.share_consumers import LibrdkafkaMember, ShareJvm
from tests.support.share_scene import COPY, DLQ_TOPIC, LIMIT, ShareScene, share_scene, until

OVER = "Offset delivery count exceeded the threshold."
BROKERS_MOST = "10"  # group.share.max.delivery.count.limit, as it is unless told otherwise


@pytest.mark.parametrize("library", ["4.3.1", "4.4.0", "librdkafka"])
def test_what_is_released_at_its_limit_is_dead_lettered_and_not_delivered_again(
    scene: ShareScene, request: pytest.FixtureRequest, library: str
) -> None:
    topic, dlq = scene.new_topic(partitions=2), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, LIMIT: "2"})
    for codec in ("none", "lz4"):
        scene.send(topic, ["A:", "A:", "L:", "L:", "A:", "A:"], partitions=2, codec=codec)
    poison = {(partition, offset) for partition in (0, 1) for offset in (1, 4)}
    if library == "librdkafka":
        with LibrdkafkaMember(scene.clients, group, [topic]) as member:
            fate = scene.wait_for_end(group, topic, 12)
        deliveries, errors = member.deliveries, member.errors
    else:
        jvm: ShareJvm = request.getfixturevalue("java_" + library.replace(".", ""))
        one = jvm.join(group, scene.bootstrap, group, [topic], commit="sync")
        fate = scene.wait_for_end(group, topic, 12)
        one.close()
        deliveries, errors = one.deliveries(), one.errors
    assert errors == []
    assert fate.archived == poison
    counts = sorted(count for (_, *spot), count, _ in deliveries if tuple(spot) in poison)
    assert counts == [1] * 4 + [2] * 4, "twice each, never more"
    found = scene.dead_letters(dlq, len(poison))
    assert sorted(dead_letter.spot for dead_letter in found) == sorted(poison)
    assert {dead_letter.headers["__dlq.errors.message"] for dead_letter in found} == {OVER}
    assert {dead_letter.headers["__dlq.errors.delivery.count"] for dead_letter in found} <= {"2", "3"}


def test_records_of_members_that_crashed_are_dead_lettered_when_they_come_over_the_limit(
    scene: ShareScene, java_440: ShareJvm, tmp_path: Path
) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, LIMIT: "2"})
    scene.send(topic, ["H:", "H:", "H:"])
    for life in (1, 2):
        with ShareJvm("broker", tmp_path / f"crash-{life}.log") as jvm:
            dying = jvm.join("dying", scene.bootstrap, group, [topic])
            dying.wait("hanging")
            assert {count for _, count, _ in dying.deliveries()} == {life}
            jvm.crash()
    # Nothing but what is stripped is there to be fetched: to this member the topic is empty.
    one = java_440.join(group, scene.bootstrap, group, [topic], commit="sync")
    fate = scene.wait_for_end(group, topic, 3)
    scene.send(topic, ["A:"])
    scene.wait_for_end(group, topic, 4)
    one.close()
    assert one.errors == []
    assert [place[2] for place, _, _ in one.deliveries()] == [3]
    assert fate.archived == {(0, 0), (0, 1), (0, 2)}
    assert sorted(dead_letter.spot for dead_letter in scene.dead_letters(dlq, 3)) == [(0, 0), (0, 1), (0, 2)]
    assert max(fate.highest.values()) <= 3


def test_what_comes_over_its_limit_while_the_dead_letter_topic_is_deleted_is_archived_and_waits_in_the_spool(
    scene: ShareScene, java_440: ShareJvm
) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, COPY: "true", LIMIT: "2"})
    scene.send(topic, ["A:", "L:", "L:", "A:"])
    delete(scene, dlq)
    one = java_440.join(group, scene.bootstrap, group, [topic], commit="sync")
    fate = scene.wait_for_end(group, topic, 4)
    one.close()
    assert one.errors == []
    assert fate.archived == {(0, 1), (0, 2)}
    waiting = [dead_letter for _, dead_letter in spooled(scene, group)]
    assert [dead_letter.offset for dead_letter in waiting] == [1, 2]
    assert {dict(dead_letter.headers)["__dlq.errors.message"] for dead_letter in waiting} == {OVER.encode()}
    create(scene, dlq)
    scene.wait_for_status(group, lambda status: status["spooled"] == 0)
    found = scene.dead_letters(dlq, 2)
    assert [(dead_letter.spot, dead_letter.value) for dead_letter in found] == [((0, 1), b"L:"), ((0, 2), b"L:")]
    assert {dead_letter.headers["__dlq.errors.message"] for dead_letter in found} == {OVER}
    assert spooled(scene, group) == []


def test_the_users_limit_is_shown_while_the_broker_has_its_largest(scene: ShareScene) -> None:
    dlq, group = scene.new_topic("dlq"), scene.new_group()
    scene.configure(group, {LIMIT: "3"})
    # Without a topic it is the broker's business, which has it a little after its answer.
    until(lambda: scene.described(group, LIMIT, through=False) == "3")
    scene.configure(group, {DLQ_TOPIC: dlq})
    until(lambda: scene.described(group, LIMIT, through=False) == BROKERS_MOST)
    assert scene.described(group, LIMIT) == "3"
    scene.configure(group, {LIMIT: "4"})
    assert scene.described(group, LIMIT) == "4"
    assert scene.described(group, LIMIT, through=False) == BROKERS_MOST
    scene.configure(group, {DLQ_TOPIC: None})
    until(lambda: scene.described(group, LIMIT, through=False) == "4")
    assert scene.described(group, LIMIT) == "4"


def test_limits_are_restored_when_share_groups_are_disabled(cluster: Cluster, tmp_path: Path) -> None:
    with share_scene(cluster, tmp_path / "on") as scene:
        mine, default = scene.new_group(), scene.new_group()
        scene.configure(mine, {LIMIT: "3"})
        for group in (mine, default):
            scene.configure(group, {DLQ_TOPIC: scene.new_topic("dlq")})
            until(lambda group=group: scene.described(group, LIMIT, through=False) == BROKERS_MOST)  # type: ignore[misc]
        with running_gateway(tmp_path / "off", cluster.bootstrap, facts__prefix=scene.facts):
            until(lambda: scene.described(mine, LIMIT, through=False) == "3")
            until(lambda: scene.described(default, LIMIT, through=False) == "5")


def test_a_limit_that_is_not_set_is_the_brokers_default(scene: ShareScene, consuming: Consuming) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq})
    before = scene.described(scene.new_group(), LIMIT, through=False)
    assert before == "5"
    assert scene.described(group, LIMIT) == before
    scene.send(topic, ["L:"])
    with consuming("4.3.1 none", group, topic):
        fate = scene.wait_for_end(group, topic, 1)
    assert fate.archived == {(0, 0)}
    [dead_letter] = scene.dead_letters(dlq, 1)
    assert dead_letter.headers["__dlq.errors.message"] == OVER
    scene.configure(group, {DLQ_TOPIC: None})
    until(lambda: scene.described(group, LIMIT, through=False) == before)
