"""The breaker's state in a description, tagged field 10001: who does not know it is not hurt by it."""

from collections.abc import Iterator

import pytest

from tests.support.share_consumers import ShareJvm, share_groups_tool
from tests.support.share_scene import BREAKER, DLQ_TOPIC, PAUSE, RESUME, ShareScene


@pytest.fixture(scope="module")
def described(scene: ShareScene, java_440: ShareJvm) -> Iterator[str]:
    """A paused group with a member, whose description says so."""
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({DLQ_TOPIC: dlq, BREAKER: "true"})
    scene.send(topic, ["A:"])
    member = java_440.join(group, scene.bootstrap, group, [topic], commit="sync")
    member.wait_for_records(1)
    scene.wait_for_end(group, topic, 1)
    scene.configure(group, {PAUSE: "looked at"})
    seen = scene.status(group)
    assert (seen["group"], seen["paused"], seen["enabled"], seen["dlq_topic"]) == (group, True, True, dlq)
    yield group
    member.close()


def test_java_admin_clients_read_the_description_past_it(
    scene: ShareScene, described: str, java_431: ShareJvm, java_440: ShareJvm
) -> None:
    for jvm in (java_431, java_440):
        found = jvm.describe(scene.bootstrap, described)
        assert (found["group"], found["state"], found["members"]) == (described, "Stable", 1)


def test_kafkas_own_tool_reads_the_description_past_it(scene: ShareScene, described: str) -> None:
    told = share_groups_tool(scene.bootstrap, "--describe", "--group", described, "--state")
    assert "Stable" in told, told
    assert "rror" not in told, told


def test_a_group_that_is_not_managed_has_no_such_field(scene: ShareScene, java_440: ShareJvm) -> None:
    topic, group = scene.new_topic(), scene.new_group()
    scene.send(topic, ["A:"])
    one = java_440.join(group, scene.bootstrap, group, [topic], commit="sync")
    one.wait_for_records(1)
    assert scene.status(group) == {}
    one.close()


def test_a_resume_is_shown_with_its_principal_and_reason(scene: ShareScene, described: str) -> None:
    scene.configure(described, {RESUME: "seen enough"})
    # A worker that did not resume the group itself reads the reason a moment after the state.
    seen = scene.wait_for_status(described, lambda status: not status["paused"] and status["last_resume"] is not None)
    assert seen["last_resume"]["reason"] == "seen enough"
    assert seen["pause_reasons"] == []
    scene.configure(described, {PAUSE: "looked at"})
