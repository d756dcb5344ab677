"""Two share groups with one dead-letter topic: what their members, the metric and the events say, strict and not."""

from tests.support.share_consumers import LibrdkafkaMember, ShareJvm
from tests.support.share_scene import DLQ_TOPIC, ShareScene, until

STRICT = "share.group.dlq.strict.isolation"
SHARED = "headgate_dlq_topic_shared_by_multiple_groups"


def two_groups(scene: ShareScene, dlq: str, strict: str) -> tuple[str, str]:
    """Groups with the topic, in this order."""
    first = scene.new_group({DLQ_TOPIC: dlq, STRICT: strict})
    second = scene.new_group({DLQ_TOPIC: dlq, STRICT: strict})
    until(lambda: scene.gateway.metric(SHARED, topic=dlq) == 2)
    return first, second


def test_a_strict_group_that_shares_a_topic_is_refused_when_it_starts(
    scene: ShareScene, java_431: ShareJvm, java_440: ShareJvm
) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    first, second = two_groups(scene, dlq, "true")
    with LibrdkafkaMember(scene.clients, first, [topic]) as owner:
        scene.send(topic, ["A:"])
        until(lambda: len(owner.deliveries) == 1)
        for number, jvm in enumerate((java_431, java_440)):
            refused = jvm.join(f"{second}-{number}", scene.bootstrap, second, [topic])
            text = refused.wait("error")["text"]
            assert f"Share group {second} has {STRICT}=true" in text
            assert f"dead-letter topic {dlq} is already registered by share group {first}." in text
            refused.close()
            assert refused.events("polled") == []
        # The first group is never refused, also not when another member joins it.
        joined = java_440.join(f"{first}-2", scene.bootstrap, first, [topic])
        scene.send(topic, ["A:"] * 10)
        scene.wait_for_end(first, topic, 11)
        joined.close()
        assert joined.errors == []
    assert owner.errors == []
    conflict = {"dlq_topic": dlq, "registered_by": first}
    until(lambda: [one["detail"] for one in scene.events(second, "isolation_conflict")] == [conflict])
    assert scene.events(first, "isolation_conflict") == []
    until(lambda: java_440.describe(scene.bootstrap, first)["state"] == "Empty")


def test_a_strict_group_starts_while_the_group_that_had_its_topic_first_does_not_exist(
    scene: ShareScene, java_440: ShareJvm
) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    _, second = two_groups(scene, dlq, "true")
    member = java_440.join(second, scene.bootstrap, second, [topic], commit="sync")
    scene.send(topic, ["R:", "A:"])
    scene.wait_for_end(second, topic, 2)
    member.close()
    assert member.errors == []
    until(lambda: len(scene.dead_letters(dlq)) == 1)
    assert scene.events(second, "isolation_conflict") == []


def test_groups_that_are_not_strict_share_a_topic_and_the_metric_shows_it(
    scene: ShareScene, java_440: ShareJvm
) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    first, second = two_groups(scene, dlq, "false")
    with LibrdkafkaMember(scene.clients, first, [topic]) as owner:
        member = java_440.join(second, scene.bootstrap, second, [topic], commit="sync")
        scene.send(topic, ["R:", "A:"])
        for group in (first, second):
            scene.wait_for_end(group, topic, 2)
        member.close()
        assert member.errors == []
    assert owner.errors == []
    until(
        lambda: sorted(one.headers["__dlq.errors.group"] for one in scene.dead_letters(dlq)) == sorted((first, second))
    )
    assert scene.gateway.metric(SHARED, topic=dlq) == 2
    assert scene.events(second, "isolation_conflict") == []
