"""Three brokers, and groups whose coordinator goes away, comes back, or is another: descriptions stay where groups are.

What a broker says of itself (14, 15, 16) reaches the client as it is, so that it looks for the coordinator and comes
again: that is how kafka-clients 4.4 keep what they were asked for.
"""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count

import pytest

from headgate.facts.topology import Description
from headgate.topologies.wire_descriptions import to_wire
from headgate.wire.messages.cluster import FindCoordinatorRequest
from headgate.wire.messages.streams import TopologyDescription
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster, start_test_cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.raw_client import RawClient, is_served
from tests.support.streams_client import (
    AVAILABLE,
    NOT_REQUESTED,
    Member,
    StreamsClient,
    application,
    make_topic,
    wait_until_ready,
)

FIND_COORDINATOR = 10
ABOUT_ITSELF = {14, 15, 16}  # loading, not available, not the coordinator
NOT_COORDINATOR = 16
LOST = (EOFError, OSError)
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Three brokers behind one gateway."""

    cluster: Cluster
    gateway: GatewayProcess
    topic: str

    def new_group(self) -> str:
        group = f"{self.topic}-{next(_numbers)}"
        with StreamsClient(self.gateway.bootstrap) as client:
            client.lengthen_session(group)
        return group

    def coordinator_of(self, group: str) -> int:
        """Its node id, or -1 while there is none."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))
        try:
            with RawClient(self.gateway.bootstrap) as client:
                [found] = client.call(request, 4).coordinators
        except LOST:
            return -1  # the broker that the gateway took for any is the one that has just gone
        return found.node_id

    def wait_for_coordinator(self, group: str, *, other_than: int = -1) -> int:
        """The node that leads the group's partition; under load it may move on before it has loaded the group."""
        found = -1

        def is_found() -> bool:
            nonlocal found
            found = self.coordinator_of(group)
            return found not in {-1, other_than} and (other_than < 0 or self.is_served_at(found, group))

        until(is_found)
        return found

    def client(self, node: int) -> StreamsClient:
        return StreamsClient(self.gateway.address(node))

    @contextmanager
    def joined(self) -> Iterator[tuple[Member, int]]:
        """A member that was asked for its topology, at its group's coordinator."""
        group = self.new_group()
        node = self.wait_for_coordinator(group)
        with self.client(node) as client:
            member = Member(client=client, group=group, topic=self.topic)
            assert member.join().topology_description_required
            yield member, node

    def is_served_at(self, node: int, group: str) -> bool:
        """Whether this node has loaded the group."""
        try:
            with self.client(node) as client:
                return client.describe(group).error_code == 0
        except LOST:
            return False

    def bring_back(self, node: int) -> None:
        self.cluster.kafka.nodes[node].start()
        self.cluster.kafka.wait_ready()
        until(lambda: is_served(self.gateway.address(node)))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    topic = f"moves-{uuid.uuid4().hex[:8]}"
    with start_test_cluster(tmp_path_factory, brokers=3) as cluster:
        make_topic(cluster, topic, replication=3)
        with running_gateway(
            tmp_path_factory.mktemp("moves"),
            cluster.bootstrap,
            gateway__nodes="0-2",
            topologies__owner="gateway",
            topologies__store="kafka:",
        ) as gateway:
            wait_until_ready(gateway)
            yield Scene(cluster=cluster, gateway=gateway, topic=topic)


@pytest.fixture
def scene(running: Scene) -> Scene:
    """All three brokers, whatever the test before has done to them."""
    for node in running.cluster.kafka.nodes:
        node.start()
    running.cluster.kafka.wait_ready()
    until(lambda: all(is_served(running.gateway.address(number)) for number in range(3)))
    return running


class Asking:
    """Pushes and describes at one node, again and again, until its connection ends; what was answered."""

    def __init__(self, scene: Scene, node: int, member: Member, description: Description) -> None:
        self._client = scene.client(node)
        self._member = member
        self._description = description
        self.answers: set[tuple[str, int, int]] = set()
        self.topologies: list[TopologyDescription | None] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        member = self._member
        with self._client, suppress(*LOST):
            while True:
                pushed = self._client.push(member.group, member.member, self._description)
                self.answers.add(("push", pushed.error_code, NOT_REQUESTED))
                found = self._client.describe(member.group)
                self.answers.add(("describe", found.error_code, found.topology_description_status))
                if found.topology_description not in self.topologies:
                    self.topologies.append(found.topology_description)

    def wait(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive(), "its connection did not end with the broker"


def rests(member: Member, description: Description) -> None:
    """It is in the group, its topology is shown, and it is left alone."""
    found = member.client.describe(member.group)
    assert (found.error_code, found.topology_description_status) == (0, AVAILABLE)
    assert found.topology_description == to_wire(description)
    assert member.member in [one.member_id for one in found.members]
    for _ in range(3):
        answer = member.beat()
        assert (answer.error_code, answer.topology_description_required) == (0, False)


def is_refused(member: Member, description: Description) -> bool:
    """Whether its connection has ended; until then the coordinator says nothing but what it must of itself."""
    try:
        assert member.push(description).error_code in ABOUT_ITSELF
    except LOST:
        return True
    return False


def test_a_coordinator_that_is_stopped_takes_no_topology_and_no_member_along(scene: Scene) -> None:
    description = application(scene.topic, "kept")
    with scene.joined() as (member, old):
        assert member.push(description).error_code == 0
        rests(member, description)
        asking = Asking(scene, old, member, description)
        scene.cluster.wait_until_in_sync()
        scene.cluster.kafka.nodes[old].stop()
        asking.wait()
        with pytest.raises(LOST):
            member.beat()
    for call, code, status in asking.answers:
        if code == 0:
            assert status == (AVAILABLE if call == "describe" else NOT_REQUESTED)
        else:
            assert (code in ABOUT_ITSELF, status) == (True, NOT_REQUESTED), (call, code, status)
    assert [one for one in asking.topologies if one is not None] == [to_wire(description)]
    assert not is_served(scene.gateway.address(old))
    new = scene.wait_for_coordinator(member.group, other_than=old)
    with scene.client(new) as client:
        member.client = client
        rests(member, description)
        # It pushes what is stored, on a connection that is new to the gateway: nothing to do.
        assert member.push(description).error_code == 0
        # As a member does whose coordinator does not have it any more: it joins again, and is no newcomer.
        answer = member.join()
        assert (answer.error_code, answer.topology_description_required) == (0, False)
        rests(member, description)

    # The old one is back, and is not the coordinator: it says so, and shows nothing.
    scene.bring_back(old)
    if scene.coordinator_of(member.group) == old:  # it was quick to lead again
        old, new = new, old
    with scene.client(old) as client:
        until(lambda: client.describe(member.group).error_code == NOT_COORDINATOR)
        found = client.describe(member.group)
        assert (found.topology_description, found.topology_description_status) == (None, NOT_REQUESTED)
        assert client.push(member.group, member.member, description).error_code == NOT_COORDINATOR
        assert client.delete(member.group) == {member.group: NOT_COORDINATOR}
        strange = Member(client=client, group=member.group, topic=scene.topic, member=member.member, epoch=member.epoch)
        assert strange.beat().error_code == NOT_COORDINATOR
    with scene.client(new) as client:
        member.client = client
        rests(member, description)


def test_what_a_member_was_asked_for_by_a_coordinator_that_was_killed_is_taken_by_the_next(scene: Scene) -> None:
    description = application(scene.topic, "moved")
    with scene.joined() as (member, old):
        scene.cluster.wait_until_in_sync()
        scene.cluster.kafka.nodes[old].kill()
        until(lambda: is_refused(member, description))
    new = scene.wait_for_coordinator(member.group, other_than=old)
    with scene.client(new) as client:
        assert client.shown(member.group) is None
        member.client = client
        assert member.push(description).error_code == 0
        rests(member, description)
        member.leave()
        assert client.delete(member.group) == {member.group: 0}
        assert Member(client=client, group=member.group, topic=scene.topic).join().topology_description_required
        assert client.shown(member.group) is None
    scene.bring_back(old)
