"""Two workers that know nothing of each other, in two gateways or in one: what one is told, both hold to."""

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headgate.facts import TopologyDeleted, TopologyDescribed
from headgate.facts.topology import Description, content_hash
from headgate.topologies.wire_descriptions import to_wire
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.streams_client import (
    GROUP_ID_NOT_FOUND,
    Member,
    StreamsClient,
    application,
    make_topic,
    topology_records,
    wait_until_ready,
)

OURS: dict[str, Any] = {"topologies__owner": "gateway", "topologies__store": "kafka:"}
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Two workers in front of one cluster, `ends` by name; `client` says which of them a connection is with."""

    cluster: Cluster
    gateways: tuple[GatewayProcess, ...]
    topic: str
    facts: str

    ends = (0, 1)

    def client(self, end: int) -> StreamsClient:
        if len(self.gateways) == 2:
            return StreamsClient(self.gateways[end].address(0))
        # Both accept on the bootstrap port: while one sleeps it is the other.
        [gateway] = self.gateways
        asleep = sorted(gateway.workers())[1 - end]
        os.kill(asleep, signal.SIGSTOP)
        try:
            client = StreamsClient(gateway.bootstrap)
            client.raw.api_versions()
        finally:
            os.kill(asleep, signal.SIGCONT)
        return client

    @contextmanager
    def clients(self) -> Iterator[tuple[StreamsClient, StreamsClient]]:
        with self.client(0) as one, self.client(1) as other:
            yield one, other

    def new_group(self) -> str:
        group = f"{self.topic}-{next(_numbers)}"
        with self.direct() as direct:
            direct.lengthen_session(group)
        return group

    def direct(self) -> StreamsClient:
        """Past all gateways."""
        return StreamsClient(self.cluster.bootstrap)

    def member(self, client: StreamsClient, group: str) -> Member:
        return Member(client=client, group=group, topic=self.topic)

    def stored(self, client: StreamsClient, group: str, description: Description) -> Member:
        """A member that was asked, and what it pushed is stored."""
        member = self.member(client, group)
        assert member.join().topology_description_required
        assert member.push(description).error_code == 0
        return member

    def records(self, group: str) -> list[TopologyDescribed | TopologyDeleted]:
        return topology_records(self.cluster.client_config(), self.facts, group)

    def versions(self, group: str) -> set[tuple[str, int, str]]:
        return {
            (record.incarnation, record.epoch, record.hash)
            for record in self.records(group)
            if isinstance(record, TopologyDescribed)
        }


@pytest.fixture(scope="module", params=["two gateways", "two workers"])
def front(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    name = uuid.uuid4().hex[:8]
    topic, facts, folder = f"both-{name}", f"{name}.", tmp_path_factory.mktemp("both")
    make_topic(cluster, topic)
    workers = [1, 1] if request.param == "two gateways" else [2]
    with ExitStack() as stack:
        gateways = tuple(
            stack.enter_context(
                running_gateway(folder, cluster.bootstrap, facts__prefix=facts, gateway__workers=number, **OURS)
            )
            for number in workers
        )
        for gateway in gateways:
            wait_until_ready(gateway)
        yield Front(cluster=cluster, gateways=gateways, topic=topic, facts=facts)


def at_once(*actions: Callable[[], object]) -> list[object]:
    """All of them at the same moment; what they returned."""
    barrier, results = threading.Barrier(len(actions)), [None] * len(actions)

    def run(place: int, action: Callable[[], object]) -> None:
        barrier.wait(60)
        results[place] = action()  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(place, action)) for place, action in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results  # type: ignore[return-value]


# --- asked, stored, shown -------------------------------------------------------------------------------------------


def test_each_worker_asks_one_member_and_one_version_is_stored(front: Front) -> None:
    group, description = front.new_group(), application(front.topic, "same")
    with ExitStack() as stack:
        members = {
            end: [front.member(stack.enter_context(front.client(end)), group) for _ in range(3)] for end in front.ends
        }
        asked = {
            end: [one for one in here if one.join().topology_description_required] for end, here in members.items()
        }
        assert [len(asked[end]) for end in front.ends] == [1, 1]
        pushes = at_once(*(lambda one=one: one.push(description).error_code for [one] in asked.values()))
        assert pushes == [0, 0]
        for here in members.values():
            for one in here:
                for _ in range(3):
                    answer = one.beat()
                    assert (answer.error_code, answer.topology_description_required) == (0, False)
                assert one.client.shown(group) == to_wire(description)
    assert len(front.versions(group)) == 1
    assert all(isinstance(record, TopologyDescribed) for record in front.records(group))


def test_what_is_pushed_through_one_is_shown_by_the_other(front: Front) -> None:
    for here, there in (front.ends, front.ends[::-1]):
        group, description = front.new_group(), application(front.topic, "shared")
        with front.client(here) as one, front.client(there) as other:
            front.stored(one, group, description)
            took = until(lambda: other.shown(group) == to_wire(description))  # noqa: B023
            print(f"shown by the other after {took * 1000:.0f} ms")
            assert one.shown(group) == to_wire(description)


def test_a_second_push_through_the_other_is_shown_by_both(front: Front) -> None:
    group, before, after = front.new_group(), application(front.topic, "one"), application(front.topic, "two")
    with front.clients() as (one, other):
        member = front.stored(one, group, before)
        until(lambda: other.shown(group) == to_wire(before))
        assert other.push(group, member.member, after).error_code == 0
        assert other.shown(group) == to_wire(after)
        until(lambda: one.shown(group) == to_wire(after))
    hashes = [record.hash for record in front.records(group) if isinstance(record, TopologyDescribed)]
    assert hashes == [content_hash(before), content_hash(after)]


# --- deleted --------------------------------------------------------------------------------------------------------


def test_what_is_deleted_through_one_is_gone_at_the_other(front: Front) -> None:
    group = front.new_group()
    with front.clients() as (one, other):
        member = front.stored(one, group, application(front.topic, "gone"))
        until(lambda: other.shown(group) is not None)
        member.leave()
        assert other.delete(group) == {group: 0}
        assert [one.describe(group).error_code, other.describe(group).error_code] == [GROUP_ID_NOT_FOUND] * 2
        assert isinstance(front.records(group)[-1], TopologyDeleted)
        # The group comes back with a member that cannot be asked: neither shows what was.
        old = front.member(one, group)
        assert old.join(version=0).error_code == 0
        assert [one.shown(group), other.shown(group)] == [None, None]
        for client in (one, other):
            assert front.member(client, group).join().topology_description_required


def test_a_group_deleted_past_both_and_re_created_shows_nothing_of_its_predecessor_and_is_asked(front: Front) -> None:
    before, after = application(front.topic, "before"), application(front.topic, "after")
    for here, there in (front.ends, front.ends[::-1]):
        group = front.new_group()
        with front.client(here) as one, front.client(there) as other, front.direct() as direct:
            member = front.stored(one, group, before)
            until(lambda: other.shown(group) == to_wire(before))  # noqa: B023
            member.leave()
            assert direct.delete(group, version=2) == {group: 0}
            # It is re-created through the one that did not see its end and did not store it.
            again = front.member(other, group)
            assert again.join().topology_description_required
            assert other.shown(group) is None
            # The doubt is a fact: the other gateway has it when it has read it, and not before.
            took = until(lambda: one.shown(group) is None)  # noqa: B023
            print(f"in doubt at the other after {took * 1000:.0f} ms")
            for _ in range(20):
                assert other.shown(group) is None
                assert one.shown(group) is None
            assert again.push(after).error_code == 0
            assert other.shown(group) == to_wire(after)
            until(lambda: one.shown(group) == to_wire(after))  # noqa: B023
        assert len({version[0] for version in front.versions(group)}) == 2, "two lives"


def test_a_group_deleted_past_both_and_re_created_past_both_is_asked_and_shows_nothing(front: Front) -> None:
    """By a member that no worker sees, then one that both see: its doubt counts at both."""
    group = front.new_group()
    with front.clients() as (one, other), front.direct() as direct:
        member = front.stored(one, group, application(front.topic, "before"))
        until(lambda: other.shown(group) is not None)
        member.leave()
        assert direct.delete(group, version=2) == {group: 0}
        assert front.member(direct, group).join(version=0).error_code == 0
        seen = front.member(other, group)
        assert seen.join().topology_description_required
        assert other.shown(group) is None
        until(lambda: one.shown(group) is None)


# --- replaced, restarted --------------------------------------------------------------------------------------------


def test_workers_that_are_replaced_keep_what_is_stored_and_ask_nobody_again(front: Front) -> None:
    group, description = front.new_group(), application(front.topic, "kept")
    with front.clients() as (one, other):
        member = front.stored(one, group, description)
        second = front.member(other, group)
        until(lambda: other.shown(group) == to_wire(description))
        second.process = member.process
        second.join()
        assert second.push(description).error_code == 0
    for gateway in front.gateways:
        before, number = set(gateway.workers()), len(gateway.workers())
        gateway.replace_workers()
        until(lambda: before.isdisjoint(gateway.workers()) and len(gateway.workers()) == number, 60)  # noqa: B023
        wait_until_ready(gateway)
    with front.clients() as (one, other):
        assert [one.shown(group), other.shown(group)] == [to_wire(description)] * 2
        member.client, second.client = one, other
        for _ in range(3):
            for here in (member, second):
                answer = here.beat()
                assert (answer.error_code, answer.topology_description_required) == (0, False)
        assert [one.shown(group), other.shown(group)] == [to_wire(description)] * 2
    assert len(front.versions(group)) == 1


def lose(cache: Path) -> None:
    cache.unlink()


def corrupt(cache: Path) -> None:
    cache.write_bytes(os.urandom(50_000))


@pytest.fixture(scope="module")
def single(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A gateway that tests may stop."""
    name = uuid.uuid4().hex[:8]
    make_topic(cluster, f"single-{name}")
    folder = tmp_path_factory.mktemp("single")
    with running_gateway(folder, cluster.bootstrap, facts__prefix=f"{name}.", **OURS) as gateway:
        wait_until_ready(gateway)
        yield Front(cluster=cluster, gateways=(gateway,), topic=f"single-{name}", facts=f"{name}.")


@pytest.mark.parametrize("harm", [lose, corrupt])
def test_a_cache_that_came_to_harm_is_rebuilt_at_the_start(single: Front, harm: Callable[[Path], None]) -> None:
    [gateway] = single.gateways
    group, description = single.new_group(), application(single.topic, "kept")
    deleted = single.new_group()
    with StreamsClient(gateway.bootstrap) as client:
        member = single.stored(client, group, description)
        single.stored(client, deleted, description).leave()
        assert client.delete(deleted) == {deleted: 0}
    assert gateway.stop() == 0
    caches = list((gateway.setup.folder / "cache").glob("topologies-*.db"))
    assert caches
    for cache in caches:
        harm(cache)
    gateway.start()
    wait_until_ready(gateway)
    with StreamsClient(gateway.bootstrap) as client:
        assert client.shown(group) == to_wire(description)
        member.client = client
        for _ in range(2):
            answer = member.beat()
            assert (answer.error_code, answer.topology_description_required) == (0, False)
        assert single.member(client, deleted).join(version=0).error_code == 0
        assert client.shown(deleted) is None
