"""One rule of the state machine each, with a simulated broker, for both kinds of bookkeeping."""

from typing import Any

from headgate.topologies.model.group_state import NONE, UNCERTAIN, Bookkeeping, PushOutcome, StorePush
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat, Solicitation
from headgate.topologies.model.streams_groups import HeartbeatDecision
from tests.unit.topologies.simulation import GROUP, Consumer, Deploy, Worker, World


def two_members(world: World, worker: Worker, second: str = "one") -> tuple[Consumer, Consumer]:
    """Two members that joined before anything was stored; the first has pushed."""
    members = world.start("one", worker), world.start(second, worker)
    for member in members:
        world.join(member)
    worker.push(members[0])
    return members


def begun_push() -> tuple[World, Worker, Consumer, StorePush]:
    """A push to a store without bookkeeping of its own, up to the barrier."""
    world = World(Bookkeeping.STATE_TOPIC)
    worker = world.worker()
    consumer = world.start("one", worker)
    world.join(consumer)
    plan = worker.begin(consumer)
    worker.write(plan.barrier)
    return world, worker, consumer, plan


def test_the_first_member_is_asked_at_its_join_and_its_topology_is_shown(world: World, worker: Worker) -> None:
    consumer = world.start("one", worker)
    assert world.join(consumer) is Solicitation.SOLICIT
    assert worker.describe() is None
    worker.push(consumer)
    assert worker.describe() == "one"


def test_of_two_members_that_join_together_one_is_asked(world: World, worker: Worker) -> None:
    first, second = world.start("one", worker), world.start("one", worker)
    assert [world.join(first), world.join(second)] == [Solicitation.SOLICIT, Solicitation.BACKING_OFF]
    worker.push(first)
    assert world.beat(second) is Solicitation.STORED


def test_members_at_two_workers_are_solicited_once_by_each_and_a_stored_push_ends_it(world: World) -> None:
    """The back-off is a worker's own."""
    workers = world.worker(), world.worker()
    members = [world.start("one", worker) for worker in workers for _ in range(2)]
    asked = [world.join(member) for member in members]
    assert asked == [Solicitation.SOLICIT, Solicitation.BACKING_OFF] * 2
    workers[0].push(members[0])
    assert {world.beat(member) for member in members} == {Solicitation.STORED}


def test_a_member_whose_topology_is_stored_is_not_asked_again(world: World, deploy: Deploy) -> None:
    consumer = deploy("one")
    world.wait(40.0)
    assert world.beat(consumer) is Solicitation.STORED


def test_another_thread_of_a_process_that_is_here_is_not_asked(world: World, worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    thread = world.start("one", worker, process=consumer.process)
    assert world.join(thread) is Solicitation.STORED


def test_a_new_member_is_solicited_and_an_equal_topology_is_not_stored_again(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    deploy("one")
    new_member = world.start("one", worker)
    assert world.join(new_member) is Solicitation.SOLICIT
    assert worker.groups.begin_push(GROUP, new_member.member, 0, "one", now=world.now) is None
    worker.push(new_member)
    assert world.store_calls == 1
    assert not worker.groups.state(GROUP).is_unconfirmed


def test_until_a_new_member_pushed_the_topology_is_shown_while_a_member_that_confirmed_it_is_there(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    old = deploy("one")
    deploy("two", push=False)
    assert worker.describe() == "one"
    world.leave(old)
    assert worker.describe() is None


def test_a_group_that_was_deleted_at_the_broker_never_shows_its_predecessor(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    world.delete_past_us()
    successor = world.start("two", worker)
    assert world.join(successor) is Solicitation.SOLICIT
    assert worker.describe() is None
    worker.push(successor)
    assert worker.describe() == "two"


def test_a_redeployed_application_is_asked_although_its_process_id_is_the_old_one(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    """Kafka Streams keeps the process id in the state directory."""
    old = deploy("one")
    world.leave(old)
    assert world.join(world.start("two", worker, process=old.process)) is Solicitation.SOLICIT
    assert worker.describe() is None


def test_a_redeployed_application_is_asked_although_the_old_one_never_said_goodbye(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    old = deploy("one")
    world.die(old)
    assert world.join(world.start("two", worker, process=old.process)) is Solicitation.SOLICIT


def test_an_empty_group_shows_what_it_computed_last(world: World, worker: Worker, deploy: Deploy) -> None:
    world.leave(deploy("one"))
    assert worker.describe() == "one"


def test_a_new_member_that_cannot_push_hides_the_topology_of_members_that_are_gone(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    assert world.join(world.start("two", worker, version=0)) is Solicitation.OLD_VERSION
    assert worker.describe() is None


def test_a_new_member_that_never_pushes_does_not_keep_others_from_confirming(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    first, second = deploy("one"), world.start("one", worker)
    world.join(second)
    worker.push(second)
    third = world.start("one", worker)
    world.join(third)
    world.wait(31.0)
    assert world.beat(first) is Solicitation.CONFIRMED
    assert world.beat(third) is Solicitation.SOLICIT


def test_no_member_is_solicited_in_place_of_a_new_member_that_is_alive(
    world: World, deploy: Deploy, worker: Worker
) -> None:
    _, second = two_members(world, worker)
    deploy("two", push=False)
    worker.groups.backoff.clear_group(GROUP)
    assert world.beat(second) is Solicitation.ANOTHER_MEMBER


def test_a_new_member_that_cannot_push_does_not_keep_others_from_being_solicited(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    _first, second = two_members(world, worker)
    deploy("two", version=0)
    assert world.beat(second) is Solicitation.SOLICIT


def test_a_confirmation_does_not_speak_for_a_new_member_whose_push_failed_permanently(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    first, second = two_members(world, worker)
    world.mood = PushOutcome.PERMANENT
    deploy("two")
    world.mood = PushOutcome.STORED
    worker.push(second)
    if world.bookkeeping is Bookkeeping.STORE:  # others have been touched, and are given the topology again
        assert worker.groups.state(GROUP).is_unconfirmed
        world.leave(first)
        world.leave(second)
        assert worker.describe() is None


def test_a_push_of_another_member_does_not_confirm_for_a_new_member_that_is_alive(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    _first, second = two_members(world, worker)
    new_member = deploy("two", push=False)
    worker.push(second)
    assert worker.groups.state(GROUP).is_unconfirmed
    worker.push(new_member)
    assert worker.describe() == "two"


def test_when_all_members_that_confirmed_left_another_is_solicited_and_the_topology_stays_shown(
    world: World, worker: Worker
) -> None:
    first, second = two_members(world, worker, "two")
    world.leave(first)
    assert world.beat(second) is Solicitation.SOLICIT  # without a describe, which would show that it has left
    assert worker.describe() == "one"


def test_when_all_members_that_confirmed_expired_another_is_solicited(world: World, worker: Worker) -> None:
    _first, second = two_members(world, worker, "two")
    for _ in range(3):
        world.wait(20.0)
        verdict = world.beat(second)
    assert verdict is Solicitation.SOLICIT


def test_after_a_permanent_failure_the_member_is_not_solicited_and_the_stored_topology_hidden(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    world.mood = PushOutcome.PERMANENT
    new_member = deploy("two")
    world.wait(4000.0)
    world.join(new_member)
    assert worker.describe() is None
    assert worker.groups.state(GROUP).stored_epoch == UNCERTAIN


def test_a_member_whose_push_failed_permanently_is_not_solicited_again_in_its_session(
    world: World, deploy: Deploy
) -> None:
    world.mood = PushOutcome.PERMANENT
    consumer = deploy("one")
    world.wait(40.0)
    assert world.beat(consumer) is Solicitation.FAILED


def test_a_new_member_is_solicited_although_its_predecessor_failed_permanently(world: World, deploy: Deploy) -> None:
    world.mood = PushOutcome.PERMANENT
    world.leave(deploy("too large"))
    world.mood = PushOutcome.STORED
    assert deploy("small").worker.describe() == "small"


def test_a_transient_failure_is_asked_again_when_its_window_is_over(world: World, deploy: Deploy) -> None:
    world.mood = PushOutcome.TRANSIENT
    consumer = deploy("one")
    world.wait(31.0)
    assert world.beat(consumer) is Solicitation.BACKING_OFF
    world.wait(30.0)
    consumer.heard_at = world.now
    assert world.join(consumer) is Solicitation.SOLICIT


def test_after_a_failure_that_may_have_stored_something_nothing_is_shown() -> None:
    world = World(Bookkeeping.STATE_TOPIC)
    worker = world.worker()
    first, second = world.start("one", worker), world.start("two", worker)
    world.join(first)
    worker.push(first)
    world.join(second)
    world.mood, world.lands = PushOutcome.TRANSIENT, True
    worker.push(second)
    assert worker.describe() is None


def test_a_store_that_lost_the_topology_is_given_it_again() -> None:
    world = World(Bookkeeping.STATE_TOPIC)
    worker = world.worker()
    consumer = world.start("one", worker)
    world.join(consumer)
    worker.push(consumer)
    world.programs.clear()
    assert worker.describe() is None
    assert world.beat(consumer) is Solicitation.SOLICIT
    worker.push(consumer)
    assert worker.describe() == "one"


def test_a_state_topic_that_was_replaced_by_an_empty_one_says_nothing_of_what_was_stored() -> None:
    world = World(Bookkeeping.STATE_TOPIC)
    worker = world.worker()
    consumer = world.start("one", worker)
    world.join(consumer)
    worker.push(consumer)
    before = worker.groups.state(GROUP).incarnation
    worker.groups.on_state_topic_replaced()
    state = worker.groups.state(GROUP)
    assert (state.stored_epoch, state.must_delete) == (NONE, False)
    assert state.incarnation != before
    assert worker.describe() is None
    assert world.beat(consumer) is Solicitation.SOLICIT


def test_a_late_answer_of_the_store_about_an_older_epoch_leaves_it_uncertain() -> None:
    world, worker, consumer, plan = begun_push()
    world.epoch = 1
    world.join(consumer)
    worker.settle(plan, PushOutcome.STORED)
    assert worker.groups.state(GROUP).stored_epoch == UNCERTAIN


def test_before_a_store_is_touched_it_is_written_that_it_is_uncertain() -> None:
    *_, plan = begun_push()
    assert plan.barrier is not None
    assert plan.barrier.stored_epoch == UNCERTAIN


def test_the_barrier_is_written_even_if_it_was_uncertain_already() -> None:
    """Otherwise another gateway would still believe that the store holds what it put there itself."""
    world = World(Bookkeeping.STATE_TOPIC)
    worker, other = world.worker(), world.worker()
    first, second, third = (world.start(*one) for one in (("one", worker), ("one", worker), ("two", other)))
    world.join(first)
    worker.push(first)
    world.join(second)
    world.join(third)
    other.push(third)
    worker.read()
    assert worker.groups.state(GROUP).last_set is None


def test_a_kill_between_barrier_and_store_leaves_a_group_that_is_solicited_again() -> None:
    world, worker, consumer, _plan = begun_push()
    worker.restart()
    assert worker.describe() is None
    assert world.beat(consumer) is Solicitation.SOLICIT


def test_a_kill_between_store_and_final_write_leaves_a_group_that_is_solicited_again() -> None:
    world, worker, consumer, _plan = begun_push()
    world.programs[GROUP] = "one"
    worker.restart()
    assert world.beat(consumer) is Solicitation.EPOCH_UNKNOWN
    assert world.beat(consumer) is Solicitation.SOLICIT


def test_after_a_restart_the_topology_is_shown_and_no_member_is_solicited(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    consumer = deploy("one")
    worker.restart()
    assert worker.describe() == "one"
    assert world.beat(consumer) is Solicitation.STORED


def test_an_unconfirmed_description_stays_so_over_a_restart(world: World, worker: Worker, deploy: Deploy) -> None:
    world.leave(deploy("one"))
    successor = deploy("two", push=False)
    worker.restart()
    assert worker.describe() is None
    assert world.beat(successor) is Solicitation.SOLICIT


def test_a_description_unconfirmed_at_one_gateway_is_so_at_the_other(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    other = world.worker()
    world.leave(deploy("one"))
    successor = deploy("two", at=other, push=False)
    assert worker.describe() is None
    other.push(successor)
    assert [worker.describe(), other.describe()] == ["two", "two"]


def test_unconfirmed_is_written_although_the_topic_says_so_already(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    """The fact that ends it may be about to be read, and was written before this member joined."""
    other = world.worker()
    world.leave(deploy("one"))
    first = deploy("one", push=False)
    other.read()
    behind = other.read_to
    worker.push(first)  # confirmed, and the other gateway has not read it yet
    world.leave(first)
    decision = heartbeat(world, world.start("two", other), member_epoch=0, process="n", topology_epoch=0)
    assert other.read_to == behind
    other.run(decision)
    assert [worker.describe(), other.describe()] == [None, None]


def heartbeat(world: World, consumer: Consumer, **join: Any) -> HeartbeatDecision:
    """A heartbeat of the consumer, or its join; the facts that it asks for are not written."""
    message = MemberHeartbeat(
        **{"api_version": 1, "group": GROUP, "member": consumer.member, "member_epoch": 3, **join}
    )
    groups = consumer.worker.groups
    return groups.on_heartbeat(consumer.connection, message, HeartbeatResult(), now=world.now, jitter=1.0)


def test_unconfirmed_that_could_not_be_written_is_written_at_a_later_heartbeat(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    new_member, groups = world.start("two", worker), worker.groups
    lost = heartbeat(world, new_member, member_epoch=0, process="p", topology_epoch=0).write
    assert lost
    groups.on_write_failed(GROUP)
    assert groups.state(GROUP).is_unconfirmed
    assert heartbeat(world, new_member).write == lost
    assert heartbeat(world, new_member).write is None
    groups.on_write_failed(GROUP)
    assert heartbeat(world, new_member).write is None, "not at every heartbeat"
    world.now += 5.0
    worker.run(heartbeat(world, new_member))
    worker.restart()
    assert worker.groups.state(GROUP).is_unconfirmed


def test_a_stored_description_whose_final_write_was_lost_is_solicited_again() -> None:
    world, worker, consumer, plan = begun_push()
    world.programs[GROUP] = "one"
    assert worker.groups.settle_push(plan, PushOutcome.STORED, now=world.now, jitter=1.0)
    worker.groups.on_write_failed(GROUP)
    assert worker.describe() is None
    assert world.beat(consumer) is Solicitation.SOLICIT
    worker.push(consumer)
    assert worker.describe() == "one"


def test_two_gateways_that_store_the_same_at_once_write_one_version(world: World, worker: Worker) -> None:
    other = world.worker()
    first, second = world.start("one", worker), world.start("one", other)
    world.join(first)
    world.join(second)
    assert worker.begin(first).incarnation == other.begin(second).incarnation


def test_another_topology_beside_a_confirmed_one_is_the_same_incarnation(worker: Worker, deploy: Deploy) -> None:
    deploy("one")
    first = worker.groups.state(GROUP).incarnation
    deploy("two", push=False)
    assert worker.incarnation_of_next_push("two") == first


def test_another_topology_after_all_members_left_is_another_incarnation(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    first = worker.groups.state(GROUP).incarnation
    deploy("two", push=False)
    assert worker.incarnation_of_next_push("two") != first
