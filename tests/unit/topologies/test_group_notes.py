"""What heartbeats and describes tell of a group, what they prove, and how much is kept."""

import pytest

from headgate.topologies.model.group_state import Bookkeeping, PushOutcome
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat, Solicitation
from headgate.topologies.model.streams_groups import StreamsGroups
from tests.unit.topologies.simulation import GROUP, Deploy, Worker, World


def test_after_a_restart_heartbeats_alone_cause_no_describe_and_no_request(world: World, deploy: Deploy) -> None:
    consumer = deploy("one")
    consumer.worker.restart()
    world.beat(consumer)
    assert world.beat(consumer) is Solicitation.EPOCH_UNKNOWN


def beat(
    groups: StreamsGroups, member: str, group: str = GROUP, *, error: int = 0, status: tuple[int, ...] = ()
) -> object:
    request = MemberHeartbeat(api_version=1, group=group, member=member, member_epoch=3)
    answer = HeartbeatResult(error_code=error, status_codes=status)
    return groups.on_heartbeat(1, request, answer, now=0.0, jitter=1.0)


def test_a_group_of_unknown_epoch_is_described_now_and_then() -> None:
    groups = StreamsGroups(Bookkeeping.STORE)
    request = MemberHeartbeat(api_version=1, group=GROUP, member="m", member_epoch=3)
    described = [
        groups.on_heartbeat(1, request, HeartbeatResult(), now=now, jitter=1.0).describe for now in (0.0, 5.0, 30.0)
    ]
    assert described == [True, False, True]


def test_a_stale_join_neither_sets_the_epoch_nor_makes_anything_unconfirmed(deploy: Deploy) -> None:
    groups = deploy("one").worker.groups
    request = MemberHeartbeat(api_version=1, group=GROUP, member="s", member_epoch=0, process="s", topology_epoch=7)
    decision = groups.on_heartbeat(9, request, HeartbeatResult(status_codes=(0,)), now=0.0, jitter=1.0)
    assert groups.state(GROUP).current_epoch == 0
    assert not groups.state(GROUP).is_unconfirmed
    assert decision.solicitation is Solicitation.STORED


def test_a_new_epoch_is_asked_for(world: World, worker: Worker, deploy: Deploy) -> None:
    deploy("one")
    world.epoch = 1
    assert world.join(world.start("two", worker)) is Solicitation.SOLICIT
    assert worker.describe() is None


def test_a_heartbeat_proves_its_member_until_it_is_refused(world: World, worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    is_proven = worker.groups.members.is_proven
    assert is_proven(consumer.connection, GROUP, consumer.member, world.now)
    world.members.clear()
    world.beat(consumer)
    assert not is_proven(consumer.connection, GROUP, consumer.member, world.now)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_on_the_move_takes_no_proof_away(code: int, world: World, worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    worker.heartbeat(consumer, member_epoch=3, error=code)
    assert worker.groups.members.is_proven(consumer.connection, GROUP, consumer.member, world.now)


def test_a_fenced_member_proves_nothing(world: World, worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    worker.heartbeat(consumer, member_epoch=3, error=110)
    assert not worker.groups.members.is_proven(consumer.connection, GROUP, consumer.member, world.now)


def test_groups_of_which_nothing_is_known_are_bounded() -> None:
    groups = StreamsGroups(Bookkeeping.STORE, max_groups=10)
    for number in range(50):
        beat(groups, "m", f"g{number}")
    assert len(groups) == 10


def test_groups_of_which_something_is_stored_are_never_dropped(worker: Worker, deploy: Deploy) -> None:
    worker.groups = StreamsGroups(worker.world.bookkeeping, max_groups=3)
    deploy("one")
    for number in range(20):
        beat(worker.groups, "m", f"g{number}")
    assert worker.describe() == "one"


def test_names_kept_of_a_group_are_bounded(worker: Worker, deploy: Deploy) -> None:
    deploy("one")
    for _ in range(200):
        worker.push(deploy("one", push=False))
    life = worker.groups.state(GROUP)
    assert len(life.confirmed_by) <= 64
    assert len(life.new_members) <= 64


def test_a_describe_with_an_error_shows_nothing(worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    shown = worker.groups.on_described(GROUP, error_code=16, topology_epoch=0, members=[consumer.member])
    assert shown is None


def test_a_describe_of_a_group_without_a_topology_shows_nothing(worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    assert worker.groups.on_described(GROUP, error_code=0, topology_epoch=None, members=[consumer.member]) is None


def test_a_describe_at_another_epoch_shows_nothing(worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    assert worker.groups.on_described(GROUP, error_code=0, topology_epoch=5, members=[consumer.member]) is None


def test_groups_that_failed_for_good_are_never_dropped(world: World, worker: Worker, deploy: Deploy) -> None:
    worker.groups = StreamsGroups(world.bookkeeping, max_groups=3)
    world.mood = PushOutcome.PERMANENT
    consumer = deploy("one")
    for number in range(20):
        beat(worker.groups, "m", f"g{number}")
    assert world.beat(consumer) is Solicitation.FAILED


def test_a_late_failure_of_an_older_epoch_does_not_hide_that_of_a_newer_one(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    consumer = deploy("one", push=False)
    old = worker.begin(consumer)
    world.epoch = 1
    world.mood = PushOutcome.PERMANENT
    world.join(consumer)
    worker.push(consumer)
    worker.settle(old, PushOutcome.PERMANENT)
    assert worker.groups.state(GROUP).failed_epoch == 1


def test_a_client_without_read_takes_no_proof_from_the_members(world: World, worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    request = MemberHeartbeat(api_version=1, group=GROUP, member=consumer.member, member_epoch=3)
    worker.groups.on_heartbeat(999, request, HeartbeatResult(error_code=30), now=world.now, jitter=1.0)
    assert worker.groups.members.is_proven(consumer.connection, GROUP, consumer.member, world.now)
    assert not worker.groups.state(GROUP).confirmers_left


def test_a_member_that_lost_read_proves_nothing_on_its_connection(world: World, worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    request = MemberHeartbeat(api_version=1, group=GROUP, member=consumer.member, member_epoch=3)
    refused = HeartbeatResult(error_code=30)
    worker.groups.on_heartbeat(consumer.connection, request, refused, now=world.now, jitter=1.0)
    assert not worker.groups.members.is_proven(consumer.connection, GROUP, consumer.member, world.now)


@pytest.mark.parametrize(
    ("version", "selected", "store"), [(0, True, True), (1, False, True), (1, True, False)], ids=str
)
def test_a_group_is_not_described_when_its_epoch_makes_no_difference(version: int, selected: bool, store: bool) -> None:
    groups = StreamsGroups(Bookkeeping.STORE)
    request = MemberHeartbeat(api_version=version, group=GROUP, member="m", member_epoch=3)
    decision = groups.on_heartbeat(
        1, request, HeartbeatResult(), now=0.0, jitter=1.0, is_selected=selected, has_store=store
    )
    assert (decision.write, decision.describe) == (None, False)
