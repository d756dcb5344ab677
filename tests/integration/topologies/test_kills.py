"""A gateway that is killed between any two steps: every group comes to show what its member pushed, and never less.

The supervisor starts another worker, which knows what the topics say and nothing else: windows are over with the worker
that opened them. So members are asked again at once, and no test waits for half a minute.
"""

import os
import random
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from headgate.facts import TopologyDescribed
from headgate.facts.topology import Description
from headgate.topologies.wire_descriptions import to_wire
from headgate.wire.codec import decode, encode
from headgate.wire.messages.streams import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.killing_store import ORDER, Point, file_of
from tests.support.streams_client import (
    GROUP_ID_NOT_FOUND,
    PUSH,
    Member,
    StreamsClient,
    application,
    make_topic,
    topology_records,
    wait_until_ready,
)

REPOSITORY = Path(__file__).parents[3]
PLUGIN, KAFKA = "plugin:tests.support.killing_store:KillingStore", "kafka:"
LOST = (EOFError, ConnectionError)
ROUNDS, GROUPS, LONGEST_S = 3, 10, 0.02
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A gateway whose worker is killed again and again."""

    cluster: Cluster
    gateway: GatewayProcess
    topic: str
    facts: str
    order: Path

    def client(self) -> StreamsClient:
        return StreamsClient(self.gateway.bootstrap)

    def new_group(self) -> str:
        group = f"{self.topic}-{next(_numbers)}"
        with StreamsClient(self.cluster.bootstrap) as direct:
            direct.lengthen_session(group)
        return group

    def member(self, client: StreamsClient, group: str) -> Member:
        return Member(client=client, group=group, topic=self.topic)

    def stored(self, group: str, description: Description) -> Member:
        """A member that was asked and has pushed; its connection is closed."""
        with self.client() as client:
            member = self.member(client, group)
            assert member.join().topology_description_required
            assert member.push(description).error_code == 0
        return member

    def end_past_the_gateway(self, member: Member) -> None:
        """It leaves and its group is deleted, and no gateway sees either."""
        with StreamsClient(self.cluster.bootstrap) as direct:
            member.client = direct
            member.leave(version=0)
            assert direct.delete(member.group, version=2) == {member.group: 0}

    @contextmanager
    def killed_at(self, point: Point) -> Iterator[None]:
        """The block makes the call that dies, and loses its connection; behind it another worker serves."""
        [worker] = self.gateway.workers()
        self.order.write_text(point, "utf-8")
        with pytest.raises(LOST):
            yield
        assert not self.order.exists(), "killed at the point that was named"
        self._wait_for_another(worker)

    def kill(self) -> None:
        [worker] = self.gateway.workers()
        os.kill(worker, signal.SIGKILL)
        self._wait_for_another(worker)

    def _wait_for_another(self, worker: int) -> None:
        until(lambda: len(self.gateway.workers()) == 1 and self.gateway.workers() != [worker])
        until(lambda: self.gateway.metric("headgate_topologies_ready") == 0 or self._serves())
        wait_until_ready(self.gateway)

    def _serves(self) -> bool:
        """The last worker's figures are gone when another has answered."""
        with self.client() as client:
            return client.describe("nobody").error_code == GROUP_ID_NOT_FOUND

    def converges(self, member: Member, description: Description) -> None:
        """Its member, on another connection, is asked again, and the same push is stored; then nobody is asked."""
        with self.client() as client:
            member.client = client
            shown: list[object] = []

            def is_asked() -> bool:
                shown.append(client.shown(member.group))
                answer = member.beat()
                assert answer.error_code == 0
                return answer.topology_description_required

            until(is_asked)
            assert set(map(repr, shown)) == {"None"}, "nothing half written, nothing of a predecessor"
            assert member.push(description).error_code == 0
            self.rests(member, description)

    def rests(self, member: Member, description: Description) -> None:
        assert member.client.shown(member.group) == to_wire(description)
        for _ in range(3):
            answer = member.beat()
            assert (answer.error_code, answer.topology_description_required) == (0, False)

    def comes_to_its_end(self, member: Member) -> None:
        """It can be deleted, and its next life is asked, and shows nothing of this one."""
        with self.client() as client:
            member.client = client
            member.leave()
            assert client.delete(member.group) == {member.group: 0}
            assert self.member(client, member.group).join().topology_description_required
            assert client.shown(member.group) is None


@contextmanager
def scene_with(store: str, cluster: Cluster, folder: Path) -> Iterator[Scene]:
    name = uuid.uuid4().hex[:8]
    topic, facts, order = f"kills-{name}", f"{name}.", folder / "order"
    make_topic(cluster, topic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
        patch.setenv(ORDER, str(order))
        with running_gateway(
            folder, cluster.bootstrap, topologies__owner="gateway", topologies__store=store, facts__prefix=facts
        ) as gateway:
            wait_until_ready(gateway)
            yield Scene(cluster=cluster, gateway=gateway, topic=topic, facts=facts, order=order)


@pytest.fixture(scope="module")
def dying(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Its store kills it."""
    with scene_with(PLUGIN, cluster, tmp_path_factory.mktemp("dying")) as scene:
        yield scene


@pytest.fixture(scope="module")
def kafka(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_with(KAFKA, cluster, tmp_path_factory.mktemp("kafka")) as scene:
        yield scene


# --- by its own store, between the steps of a call ------------------------------------------------------------------


@pytest.mark.parametrize("point", [Point.SET, Point.SET_DONE])
def test_a_first_push_that_was_killed_is_asked_for_again(dying: Scene, point: Point) -> None:
    group, description = dying.new_group(), application(dying.topic, "first")
    with dying.client() as client:
        member = dying.member(client, group)
        assert member.join().topology_description_required
        with dying.killed_at(point):
            member.push(description)
    dying.converges(member, description)
    dying.comes_to_its_end(member)


def test_what_a_killed_push_left_in_the_store_goes_with_its_group(dying: Scene) -> None:
    group = dying.new_group()
    with dying.client() as client:
        member = dying.member(client, group)
        assert member.join().topology_description_required
        with dying.killed_at(Point.SET_HALF):
            member.push(application(dying.topic, "half"))
    left = file_of(dying.gateway.setup.folder / "cache", group)
    assert left.exists()
    dying.comes_to_its_end(member)
    assert not left.exists()


@pytest.mark.parametrize("point", [Point.SET, Point.SET_HALF, Point.SET_DONE])
def test_a_push_over_a_predecessor_that_was_killed_shows_neither(dying: Scene, point: Point) -> None:
    group, before, after = dying.new_group(), application(dying.topic, "before"), application(dying.topic, "after")
    dying.end_past_the_gateway(dying.stored(group, before))
    with dying.client() as client:
        member = dying.member(client, group)
        assert member.join().topology_description_required
        with dying.killed_at(point):
            member.push(after)
    dying.converges(member, after)


@pytest.mark.parametrize("point", [Point.DELETE, Point.DELETE_DONE])
def test_a_deletion_that_was_killed_leaves_a_group_that_is_asked_and_can_be_deleted(dying: Scene, point: Point) -> None:
    group, description = dying.new_group(), application(dying.topic, "gone")
    member = dying.stored(group, description)
    with dying.client() as client:
        member.client = client
        member.leave()
        with dying.killed_at(point):
            client.delete(group)
    with dying.client() as client:
        assert client.shown(group) is None, "what may be gone is not shown"
        # Nobody deletes it again: who joins is asked. Somebody does: it is gone.
        another = dying.member(client, group)
        assert another.join().topology_description_required
        assert client.shown(group) is None
        another.leave()
        assert client.delete(group) == {group: 0}
        assert client.delete(group) == {group: GROUP_ID_NOT_FOUND}
        again = dying.member(client, group)
        assert again.join().topology_description_required
        assert client.shown(group) is None
        assert again.push(description).error_code == 0
        dying.rests(again, description)


# --- from outside, right behind an answer ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """Groups as a worker left them that was killed right behind the answers to a join and to a push."""

    scene: Scene
    asked: Member  # and had not pushed yet
    silent: Member  # likewise, and will not
    pushed: Member
    newcomer: Member  # joined a group of which a predecessor's topology is stored


BEFORE = "before"


@pytest.fixture(scope="module", params=["dying", "kafka"])
def aftermath(request: pytest.FixtureRequest) -> Aftermath:
    scene = request.getfixturevalue(request.param)
    assert isinstance(scene, Scene)
    recreated = scene.new_group()
    scene.end_past_the_gateway(scene.stored(recreated, application(scene.topic, BEFORE)))
    with ExitStack() as stack:
        groups = [scene.new_group() for _ in range(3)]
        members = [scene.member(stack.enter_context(scene.client()), group) for group in (*groups, recreated)]
        asked, silent, pushed, newcomer = members
        for member in (asked, silent, pushed):
            assert member.join().topology_description_required
        assert pushed.push(application(scene.topic, "answered")).error_code == 0
        assert newcomer.join().topology_description_required
        scene.kill()
    return Aftermath(scene=scene, asked=asked, silent=silent, pushed=pushed, newcomer=newcomer)


def test_a_member_that_was_asked_by_a_worker_that_died_is_asked_again(aftermath: Aftermath) -> None:
    aftermath.scene.converges(aftermath.asked, application(aftermath.scene.topic, "late"))


def test_another_process_is_asked_at_its_join(aftermath: Aftermath) -> None:
    scene, description = aftermath.scene, application(aftermath.scene.topic, "next")
    with scene.client() as client:
        another = scene.member(client, aftermath.silent.group)
        assert another.join().topology_description_required
        assert client.shown(another.group) is None
        assert another.push(description).error_code == 0
        scene.rests(another, description)


def test_an_acknowledged_push_is_shown_and_not_solicited_again(aftermath: Aftermath) -> None:
    scene = aftermath.scene
    with scene.client() as client:
        aftermath.pushed.client = client
        scene.rests(aftermath.pushed, application(scene.topic, "answered"))
    scene.comes_to_its_end(aftermath.pushed)


def test_unconfirmed_survives_a_worker_that_died_after_the_join_of_a_new_member(aftermath: Aftermath) -> None:
    aftermath.scene.converges(aftermath.newcomer, application(aftermath.scene.topic, "after"))


# --- from outside, at any moment ------------------------------------------------------------------------------------


def pushed_until_killed(scene: Scene, members: list[Member], description: Description, delay_s: float) -> list[bool]:
    """All of them push, the worker is killed so much later; whether each was answered NONE."""
    body = {
        member.group: encode(
            StreamsGroupTopologyDescriptionUpdateRequest(
                group_id=member.group,
                member_id=member.member,
                topology_epoch=0,
                topology_description=to_wire(description),
            ),
            0,
        )
        for member in members
    }
    for member in members:
        member.client.raw.send(PUSH, 0, body[member.group])
    time.sleep(delay_s)
    scene.kill()
    return [_is_answered(member) for member in members]


def _is_answered(member: Member) -> bool:
    try:
        answer = member.client.raw.receive(PUSH, 0)
    except LOST:
        return False
    assert decode(StreamsGroupTopologyDescriptionUpdateResponse, 0, answer).error_code == 0
    return True


def test_pushes_killed_at_any_moment_are_stored_whole_or_asked_for_again(kafka: Scene) -> None:
    """Each round is a redeployment of all groups by other processes on the same topics."""
    seed = random.randrange(1_000_000)
    chance = random.Random(seed)
    groups = [kafka.new_group() for _ in range(GROUPS)]
    before: list[Member] = []
    for number in range(ROUNDS):
        description, delay_s = application(kafka.topic, f"round {number}"), chance.uniform(0, LONGEST_S)
        for member in before:
            kafka.end_past_the_gateway(member)
        with ExitStack() as stack:
            members = [kafka.member(stack.enter_context(kafka.client()), group) for group in groups]
            for member in members:
                assert member.join().topology_description_required
            stored = pushed_until_killed(kafka, members, description, delay_s)
        print(f"seed {seed}, killed after {delay_s * 1000:.0f} ms: {sum(stored)} of {GROUPS} pushes were answered")
        for member, was_answered in zip(members, stored, strict=True):
            with kafka.client() as client:
                member.client = client
                shown = client.shown(member.group)
                assert shown in (None, to_wire(description)), f"seed {seed}: {member.group} shows another's"
                assert shown is not None or not was_answered, f"seed {seed}: {member.group} lost what was answered"
                if shown is not None:
                    kafka.rests(member, description)
            if shown is None:
                kafka.converges(member, description)
        before = members
    for group in groups:
        records = topology_records(kafka.cluster.client_config(), kafka.facts, group)
        hashes = [record.hash for record in records if isinstance(record, TopologyDescribed)]
        assert len(set(hashes)) == ROUNDS, f"seed {seed}: {group}"
