"""`headgate share-groups` through a gateway and against a broker without one: answers, texts, exit codes."""

import json
from typing import Any

import pytest

from headgate.cli.main import main
from tests.support.share_consumers import LibrdkafkaMember
from tests.support.share_scene import BREAKER, DLQ_TOPIC, LIMIT, MINIMUM, TRIPPED, ShareScene, until

STRICT = "share.group.dlq.strict.isolation"
Capture = pytest.CaptureFixture[str]


class Command:
    """The command as a user runs it."""

    def __init__(self, bootstrap: str, capture: Capture) -> None:
        self._bootstrap = bootstrap
        self._capture = capture

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capture.readouterr()
        code = main(["share-groups", "--bootstrap-server", self._bootstrap, *arguments])
        said = self._capture.readouterr()
        return code, said.out, said.err

    def document(self, *arguments: str) -> dict[str, Any]:
        code, out, _ = self(*arguments, "--json")
        assert code == 0
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    def breaker(self, group: str) -> dict[str, Any]:
        return self.document("--describe", "--circuit-breaker", "--group", group)


@pytest.fixture
def gateway(scene: ShareScene, capsys: Capture) -> Command:
    return Command(scene.bootstrap, capsys)


@pytest.fixture
def broker(scene: ShareScene, capsys: Capture) -> Command:
    return Command(scene.cluster.bootstrap, capsys)


def test_a_group_is_paused_shown_and_resumed(scene: ShareScene, gateway: Command, broker: Command) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({BREAKER: "true", DLQ_TOPIC: dlq, LIMIT: "3"})
    with LibrdkafkaMember(scene.clients, group, [topic]) as member:
        scene.send(topic, ["A:"])
        until(lambda: len(member.deliveries) == 1)
        paused = gateway.document("--pause", "--group", group, "--reason", "deploy")
        assert (paused["group"], paused["paused"], paused["reason"]) == (group, True, "deploy")
        [reason] = paused["remaining_reasons"]
        assert (reason["code"], reason["text"]) == ("OPERATOR", "deploy")

        status = gateway.breaker(group)
        assert (status["enabled"], status["paused"], status["limit"], status["dlq_topic"]) == (True, True, 3, dlq)
        assert status["pause_reasons"] == [reason]
        code, out, err = gateway("--describe", "--circuit-breaker", "--group", group)
        assert (code, err) == (0, "")
        assert out.splitlines()[0].split()[:3] == ["GROUP", "ENABLED", "PAUSED"]
        assert out.splitlines()[1].split()[:3] == [group, "yes", "yes"]

        code, out, err = broker("--describe", "--circuit-breaker", "--group", group)
        assert (code, out) == (1, "")
        assert "is missing: the server is a broker without Headgate" in err

        resumed = gateway.document("--resume", "--group", group, "--reason", "deployed")
        assert resumed == {"group": group, "paused": False, "reason": "deployed", "remaining_reasons": []}
        # Another worker than the one that resumed the group reads the event a moment later.
        until(lambda: (gateway.breaker(group)["last_resume"] or {}).get("reason") == "deployed")
        scene.send(topic, ["A:"])
        until(lambda: len(member.deliveries) == 2)
    assert member.errors == []


def test_a_resume_ends_the_breakers_pause_too(scene: ShareScene, gateway: Command) -> None:
    topic, dlq = scene.new_topic(), scene.new_topic("dlq")
    group = scene.new_group({BREAKER: "true", DLQ_TOPIC: dlq, MINIMUM: "10"})
    with LibrdkafkaMember(scene.clients, group, [topic]) as member:
        scene.send(topic, ["R:"] * 10)
        until(lambda: gateway.breaker(group)["paused"] is True)
        tripped = gateway.breaker(group)
        assert [one["code"] for one in tripped["pause_reasons"]] == [TRIPPED]
        resumed = gateway.document("--resume", "--group", group, "--reason", "mended")
        assert (resumed["paused"], resumed["remaining_reasons"]) == (False, [])
        assert gateway.breaker(group)["generation"] == tripped["generation"] == 1
    assert member.errors == []


def test_groups_that_are_not_there_and_groups_without_members(scene: ShareScene, gateway: Command) -> None:
    code, out, err = gateway("--describe", "--circuit-breaker", "--group", "nobody")
    assert (code, out) == (1, "")
    assert "share group 'nobody' cannot be described: Group nobody not found." in err
    group = scene.new_group({BREAKER: "true"})
    code, out, err = gateway("--describe", "--circuit-breaker", "--group", group)
    assert code == 0
    assert out.splitlines()[1].split()[:3] == [group, "yes", "-"]
    assert "has no members yet" in err
    status = gateway.breaker(group)
    assert (status["enabled"], status["paused"]) == (True, None)
    paused = gateway.document("--pause", "--group", group, "--reason", "not yet")
    assert paused["paused"] is True
    gateway.document("--resume", "--group", group, "--reason", "now")


def test_a_pause_at_a_broker_without_headgate_says_what_is_missing(scene: ShareScene, broker: Command) -> None:
    code, out, err = broker("--pause", "--group", scene.new_group(), "--reason", "deploy")
    assert (code, out) == (1, "")
    assert "Unknown group config name: headgate.pause" in err
    assert "connect to the gateway" in err


def test_dead_letter_topics_are_shown_with_all_their_groups(
    scene: ShareScene, gateway: Command, broker: Command
) -> None:
    alone, shared = scene.new_topic("dlq"), scene.new_topic("dlq")
    one, two, three = (scene.new_group({DLQ_TOPIC: topic}) for topic in (alone, shared, shared))
    scene.configure(three, {STRICT: "true"})

    def described() -> dict[str, Any]:
        return {topic["topic"]: topic for topic in gateway.document("--describe", "--dlq-topology")["dlq_topics"]}

    until(lambda: {alone, shared} <= described().keys())
    found = described()
    assert found[alone] == {"topic": alone, "groups": [one], "shared": False, "conflict": False, "parked": []}
    both = sorted([two, three])
    assert found[shared] == {"topic": shared, "groups": both, "shared": True, "conflict": True, "parked": []}
    code, out, _ = gateway("--describe", "--dlq-topology")
    assert code == 0
    assert [shared, "yes", "yes", f"{min(two, three)},", max(two, three)] in [line.split() for line in out.splitlines()]
    code, out, err = broker("--describe", "--dlq-topology")
    assert (code, out) == (1, "")
    assert "dead-letter topics are unknown" in err
