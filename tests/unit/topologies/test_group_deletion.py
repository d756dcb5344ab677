"""How a group ends: deleted through us, seen gone by the cleanup, or joined by classic members."""

import pytest

from headgate.topologies.model.group_state import PushOutcome
from headgate.topologies.model.push_gate import Solicitation
from headgate.topologies.model.streams_groups import ClassicJoin
from tests.unit.topologies.simulation import GROUP, Deploy, Worker, World


def test_after_a_deletion_another_incarnation_begins(world: World, worker: Worker, deploy: Deploy) -> None:
    world.leave(deploy("one"))
    first = worker.groups.state(GROUP).incarnation
    assert worker.delete()
    assert worker.incarnation_of_next_push("one") != first


def test_a_deleted_group_shows_nothing_and_is_asked_when_it_comes_back(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    assert worker.delete()
    assert worker.describe() is None
    successor = world.start("one", worker)
    assert world.join(successor) is Solicitation.SOLICIT
    worker.push(successor)
    assert worker.describe() == "one"


def test_a_deletion_that_the_store_failed_converges_by_a_retry(world: World, worker: Worker, deploy: Deploy) -> None:
    world.leave(deploy("one"))
    world.mood = PushOutcome.TRANSIENT
    assert not worker.delete()
    assert worker.groups.begin_deletion(GROUP) is not None
    world.mood = PushOutcome.STORED
    assert worker.delete()
    assert worker.groups.begin_deletion(GROUP) is None


def test_a_group_of_which_nothing_is_stored_needs_no_store_to_be_deleted(worker: Worker) -> None:
    assert worker.groups.begin_deletion("never heard of") is None


def test_a_deletion_forgets_what_failed(world: World, worker: Worker, deploy: Deploy) -> None:
    world.mood = PushOutcome.PERMANENT
    world.leave(deploy("one"))
    world.mood = PushOutcome.STORED
    assert worker.delete()
    assert worker.groups.state(GROUP).failed_epoch == -1


def test_a_group_is_gone_when_two_cycles_running_do_not_find_it(world: World, worker: Worker, deploy: Deploy) -> None:
    world.leave(deploy("one"))
    world.delete_past_us()
    assert not worker.cycle()
    assert worker.cycle()
    assert not worker.groups.state(GROUP).must_delete


@pytest.mark.parametrize("code", [0, 14, 15, 16, 29, 30])
def test_a_cycle_that_cannot_tell_ends_the_run(code: int, worker: Worker, deploy: Deploy) -> None:
    deploy("one")
    assert not worker.groups.on_cleanup_described(GROUP, error_code=69)
    assert not worker.groups.on_cleanup_described(GROUP, error_code=code)
    assert not worker.groups.on_cleanup_described(GROUP, error_code=69)


@pytest.mark.parametrize("code", [14, 15, 16, 29, 30])
def test_cycles_that_cannot_tell_never_count(code: int, worker: Worker, deploy: Deploy) -> None:
    deploy("one")
    assert not any(worker.groups.on_cleanup_described(GROUP, error_code=code) for _ in range(5))


def test_a_heartbeat_between_two_cycles_keeps_the_group(world: World, worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    worker.groups.on_cleanup_described(GROUP, error_code=69)
    world.beat(consumer)
    assert not worker.groups.on_cleanup_described(GROUP, error_code=69)


def test_a_client_that_describes_a_group_that_is_gone_counts_for_no_cycle(worker: Worker, deploy: Deploy) -> None:
    deploy("one")
    for _ in range(3):
        worker.groups.on_described(GROUP, error_code=69, topology_epoch=None, members=())
    assert not worker.groups.on_cleanup_described(GROUP, error_code=69)


def test_only_groups_of_which_something_is_stored_are_in_the_cycle(worker: Worker, deploy: Deploy) -> None:
    assert worker.groups.groups_to_clean_up() == []
    deploy("one")
    assert worker.groups.groups_to_clean_up() == [GROUP]


def test_groups_that_failed_for_good_end_in_the_cycle_too(world: World, worker: Worker, deploy: Deploy) -> None:
    """Otherwise they would be remembered for ever."""
    world.mood = PushOutcome.PERMANENT
    world.leave(deploy("one"))
    world.mood = PushOutcome.STORED
    world.delete_past_us()
    assert worker.groups.groups_to_clean_up() == [GROUP]
    assert not worker.cycle()
    assert worker.cycle()
    assert worker.groups.groups_to_clean_up() == []
    assert not worker.groups.state(GROUP).must_be_kept


def test_a_classic_join_deletes_what_is_stored_first(world: World, worker: Worker, deploy: Deploy) -> None:
    assert worker.groups.classic_join(GROUP, now=0.0) is ClassicJoin.FORWARD
    world.leave(deploy("one"))
    assert worker.groups.classic_join(GROUP, now=0.0) is ClassicJoin.DELETE_FIRST
    worker.delete()
    assert worker.groups.classic_join(GROUP, now=0.0) is ClassicJoin.FORWARD


def test_a_classic_client_that_retries_at_once_does_not_hammer_a_failing_store(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    worker.groups.on_classic_join_failed(GROUP, now=0.0, jitter=1.0)
    assert worker.groups.classic_join(GROUP, now=29.0) is ClassicJoin.REJECT
    assert worker.groups.classic_join(GROUP, now=30.0) is ClassicJoin.DELETE_FIRST
