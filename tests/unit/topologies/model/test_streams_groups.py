"""Stories of a group's life: each is one rule, told with a simulated broker, for stores that keep books and others."""

from headgate.topologies.model.group_events import AlreadyHeld, Effect, Outcome, StorePush, WriteFailed
from headgate.topologies.model.group_life import UNCERTAIN, Keeper
from headgate.topologies.model.push_gate import HeartbeatAnswer, HeartbeatRequest, Verdict
from tests.unit.topologies.model.conftest import Deploy
from tests.unit.topologies.model.worlds import GROUP, Consumer, Worker, World


def test_the_first_member_is_asked_at_its_join_and_its_topology_is_shown(world: World, worker: Worker) -> None:
    consumer = world.start("one", worker)
    assert world.join(consumer) is Verdict.ASK
    assert worker.describe() is None
    worker.push(consumer)
    assert worker.describe() == "one"


def test_of_two_members_that_join_together_one_is_asked(world: World, worker: Worker) -> None:
    first, second = world.start("one", worker), world.start("one", worker)
    assert [world.join(first), world.join(second)] == [Verdict.ASK, Verdict.BACKING_OFF]
    worker.push(first)
    assert world.beat(second) is Verdict.STORED


def test_a_member_whose_topology_is_stored_is_not_asked_again(world: World, deploy: Deploy) -> None:
    consumer = deploy("one")
    world.wait(40.0)
    assert world.beat(consumer) is Verdict.STORED


def test_another_thread_of_a_process_that_is_here_is_not_asked(world: World, worker: Worker, deploy: Deploy) -> None:
    consumer = deploy("one")
    thread = world.start("one", worker, process=consumer.process)
    assert world.join(thread) is Verdict.STORED


def test_a_newcomer_is_asked_and_an_equal_topology_writes_nothing(world: World, worker: Worker, deploy: Deploy) -> None:
    deploy("one")
    newcomer = world.start("one", worker)
    assert world.join(newcomer) is Verdict.ASK
    assert isinstance(worker.groups.begin_push(GROUP, newcomer.member, 0, "one", now=world.now), AlreadyHeld)
    worker.push(newcomer)
    assert world.store_calls == 1
    assert not worker.groups.life(GROUP).in_doubt


def test_while_a_newcomer_is_unheard_a_member_that_vouches_keeps_the_topology_shown(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    old = deploy("one")
    deploy("two", push=False)
    assert worker.describe() == "one"
    world.leave(old)
    assert worker.describe() is None


def test_a_group_that_was_deleted_past_us_never_shows_its_predecessor(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    world.delete_past_us()
    successor = world.start("two", worker)
    assert world.join(successor) is Verdict.ASK
    assert worker.describe() is None
    worker.push(successor)
    assert worker.describe() == "two"


def test_a_redeployed_application_is_asked_although_its_process_id_is_the_old_one(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    """Kafka Streams keeps the process id in the state directory."""
    old = deploy("one")
    world.leave(old)
    assert world.join(world.start("two", worker, process=old.process)) is Verdict.ASK
    assert worker.describe() is None


def test_a_redeployed_application_is_asked_although_the_old_one_never_said_goodbye(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    old = deploy("one")
    world.die(old)
    assert world.join(world.start("two", worker, process=old.process)) is Verdict.ASK


def test_an_empty_group_shows_what_it_computed_last(world: World, worker: Worker, deploy: Deploy) -> None:
    world.leave(deploy("one"))
    assert worker.describe() == "one"


def test_a_newcomer_that_cannot_be_asked_hides_the_topology_of_those_who_are_gone(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    assert world.join(world.start("two", worker, version=0)) is Verdict.OLD_VERSION
    assert worker.describe() is None


def test_a_newcomer_that_says_nothing_does_not_keep_others_from_vouching(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    first, second = deploy("one"), world.start("one", worker)
    world.join(second)
    worker.push(second)
    third = world.start("one", worker)
    world.join(third)
    world.wait(31.0)
    assert world.beat(first) is Verdict.VOUCHED
    assert world.beat(third) is Verdict.ASK


def test_nobody_is_asked_in_place_of_a_newcomer_that_is_here(world: World, deploy: Deploy, worker: Worker) -> None:
    first = world.start("one", worker)
    second = world.start("one", worker)
    world.join(first)
    world.join(second)
    worker.push(first)
    deploy("two", push=False)
    worker.groups.backoff.clear_group(GROUP)
    assert world.beat(second) is Verdict.ANOTHER_MEMBER


def test_a_newcomer_that_cannot_be_asked_keeps_nobody_from_being_asked(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    first, second = world.start("one", worker), world.start("one", worker)
    world.join(first)
    world.join(second)
    worker.push(first)
    deploy("two", version=0)
    assert world.beat(second) is Verdict.ASK


def test_a_member_that_vouches_says_nothing_about_a_newcomer_whose_push_failed_for_good(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    first, second = world.start("one", worker), world.start("one", worker)
    world.join(first)
    world.join(second)
    worker.push(first)
    world.mood = Outcome.PERMANENT
    deploy("two")
    world.mood = Outcome.STORED
    worker.push(second)
    if world.keeper is Keeper.STORE:  # others have been touched, and are given the topology again
        assert worker.groups.life(GROUP).in_doubt
        world.leave(first)
        world.leave(second)
        assert worker.describe() is None


def test_a_push_of_somebody_else_does_not_speak_for_a_newcomer_that_is_here(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    first, second = world.start("one", worker), world.start("one", worker)
    world.join(first)
    world.join(second)
    worker.push(first)
    newcomer = deploy("two", push=False)
    worker.push(second)
    assert worker.groups.life(GROUP).in_doubt
    worker.push(newcomer)
    assert worker.describe() == "two"


def test_when_everybody_who_vouched_has_left_somebody_else_is_asked_and_the_topology_stays(
    world: World, worker: Worker
) -> None:
    first, second = world.start("one", worker), world.start("two", worker)
    world.join(first)
    world.join(second)
    worker.push(first)
    world.leave(first)
    assert worker.describe() == "one"
    assert world.beat(second) is Verdict.ASK


def test_when_everybody_who_vouched_fell_silent_somebody_else_is_asked(world: World, worker: Worker) -> None:
    first, second = world.start("one", worker), world.start("two", worker)
    world.join(first)
    world.join(second)
    worker.push(first)
    for _ in range(3):
        world.wait(20.0)
        verdict = world.beat(second)
    assert verdict is Verdict.ASK


def test_a_permanent_failure_ends_the_asking_and_hides_what_was_stored(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    world.mood = Outcome.PERMANENT
    newcomer = deploy("two")
    world.wait(4000.0)
    world.join(newcomer)
    assert worker.describe() is None
    assert worker.groups.life(GROUP).stored_epoch == UNCERTAIN


def test_who_failed_for_good_is_not_asked_again_in_its_session(world: World, deploy: Deploy) -> None:
    world.mood = Outcome.PERMANENT
    consumer = deploy("one")
    world.wait(40.0)
    assert world.beat(consumer) is Verdict.FAILED


def test_a_newcomer_is_asked_although_its_predecessor_failed_for_good(world: World, deploy: Deploy) -> None:
    world.mood = Outcome.PERMANENT
    world.leave(deploy("too large"))
    world.mood = Outcome.STORED
    assert deploy("small").worker.describe() == "small"


def test_a_transient_failure_is_asked_again_when_its_window_is_over(world: World, deploy: Deploy) -> None:
    world.mood = Outcome.TRANSIENT
    consumer = deploy("one")
    world.wait(31.0)
    assert world.beat(consumer) is Verdict.BACKING_OFF
    world.wait(30.0)
    consumer.heard_at = world.now
    assert world.join(consumer) is Verdict.ASK


def test_after_a_failure_that_may_have_stored_something_nothing_is_shown() -> None:
    world = World(Keeper.EPOCHS)
    worker = world.worker()
    first, second = world.start("one", worker), world.start("two", worker)
    world.join(first)
    worker.push(first)
    world.join(second)
    world.mood, world.lands = Outcome.TRANSIENT, True
    worker.push(second)
    assert worker.describe() is None


def test_a_store_that_lost_the_topology_is_given_it_again() -> None:
    world = World(Keeper.EPOCHS)
    worker = world.worker()
    consumer = world.start("one", worker)
    world.join(consumer)
    worker.push(consumer)
    world.programs.clear()
    assert worker.describe() is None
    assert world.beat(consumer) is Verdict.ASK
    worker.push(consumer)
    assert worker.describe() == "one"


def test_a_late_answer_of_the_store_about_an_older_epoch_leaves_it_uncertain() -> None:
    world = World(Keeper.EPOCHS)
    worker = world.worker()
    consumer = world.start("one", worker)
    world.join(consumer)
    plan = worker.groups.begin_push(GROUP, consumer.member, 0, "one", now=world.now)
    assert isinstance(plan, StorePush)
    assert plan.barrier is not None
    worker.write(plan.barrier.epochs)
    world.epoch = 1
    world.join(consumer)
    worker.run(worker.groups.settle_push(plan, Outcome.STORED, now=world.now, jitter=1.0))
    assert worker.groups.life(GROUP).stored_epoch == UNCERTAIN


def test_before_a_store_is_touched_it_is_written_that_it_is_uncertain() -> None:
    world = World(Keeper.EPOCHS)
    worker = world.worker()
    consumer = world.start("one", worker)
    world.join(consumer)
    plan = worker.groups.begin_push(GROUP, consumer.member, 0, "one", now=world.now)
    assert isinstance(plan, StorePush)
    assert plan.barrier is not None
    assert plan.barrier.epochs.stored_epoch == UNCERTAIN


def test_the_barrier_is_written_even_if_it_was_uncertain_already() -> None:
    """Otherwise another gateway would still believe that the store holds what it put there itself."""
    world = World(Keeper.EPOCHS)
    worker, other = world.worker(), world.worker()
    first, second, third = (world.start(*one) for one in (("one", worker), ("one", worker), ("two", other)))
    world.join(first)
    worker.push(first)
    world.join(second)
    world.join(third)
    other.push(third)
    worker.read()
    assert worker.groups.life(GROUP).put is None


def test_a_kill_between_barrier_and_store_leaves_a_group_that_is_asked_again() -> None:
    world = World(Keeper.EPOCHS)
    worker = world.worker()
    consumer = world.start("one", worker)
    world.join(consumer)
    plan = worker.groups.begin_push(GROUP, consumer.member, 0, "one", now=world.now)
    assert isinstance(plan, StorePush)
    assert plan.barrier is not None
    worker.write(plan.barrier.epochs)
    worker.restart()
    assert worker.describe() is None
    assert world.beat(consumer) is Verdict.ASK


def test_a_kill_between_store_and_final_word_leaves_a_group_that_is_asked_again() -> None:
    world = World(Keeper.EPOCHS)
    worker = world.worker()
    consumer = world.start("one", worker)
    world.join(consumer)
    plan = worker.groups.begin_push(GROUP, consumer.member, 0, "one", now=world.now)
    assert isinstance(plan, StorePush)
    assert plan.barrier is not None
    worker.write(plan.barrier.epochs)
    world.programs[GROUP] = "one"
    worker.restart()
    assert world.beat(consumer) is Verdict.EPOCH_UNKNOWN
    assert world.beat(consumer) is Verdict.ASK


def test_after_a_restart_the_topology_is_shown_and_nobody_is_asked(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    consumer = deploy("one")
    worker.restart()
    assert worker.describe() == "one"
    assert world.beat(consumer) is Verdict.STORED


def test_a_doubt_outlives_a_restart(world: World, worker: Worker, deploy: Deploy) -> None:
    world.leave(deploy("one"))
    successor = deploy("two", push=False)
    worker.restart()
    assert worker.describe() is None
    assert world.beat(successor) is Verdict.ASK


def test_a_doubt_at_one_gateway_is_one_at_the_other(world: World, worker: Worker, deploy: Deploy) -> None:
    other = world.worker()
    world.leave(deploy("one"))
    successor = deploy("two", at=other, push=False)
    assert worker.describe() is None
    other.push(successor)
    assert [worker.describe(), other.describe()] == ["two", "two"]


def test_a_doubt_is_written_although_the_topics_say_so_already(world: World, worker: Worker, deploy: Deploy) -> None:
    """What ends the doubt that they know may be on its way, and has not heard this newcomer."""
    other = world.worker()
    world.leave(deploy("one"))
    first = deploy("one", push=False)
    other.read()
    behind = other.read_to
    worker.push(first)  # confirmed, and the other gateway has not read it yet
    world.leave(first)
    newcomer = world.start("two", other)
    decision = other.groups.on_heartbeat(
        newcomer.connection,
        HeartbeatRequest(api_version=1, group=GROUP, member="n", member_epoch=0, process="n", topology_epoch=0),
        HeartbeatAnswer(),
        now=world.now,
        jitter=1.0,
    )
    assert other.read_to == behind
    other.run(decision.effects)
    assert [worker.describe(), other.describe()] == [None, None]


def beat_of(world: World, consumer: Consumer) -> tuple[Effect, ...]:
    request = HeartbeatRequest(api_version=1, group=GROUP, member=consumer.member, member_epoch=3)
    groups = consumer.worker.groups
    return groups.on_heartbeat(consumer.connection, request, HeartbeatAnswer(), now=world.now, jitter=1.0).effects


def test_a_doubt_that_could_not_be_written_is_written_with_a_later_heartbeat(
    world: World, worker: Worker, deploy: Deploy
) -> None:
    world.leave(deploy("one"))
    newcomer = world.start("two", worker)
    request = HeartbeatRequest(
        api_version=1, group=GROUP, member=newcomer.member, member_epoch=0, process="p", topology_epoch=0
    )
    groups = worker.groups
    lost = groups.on_heartbeat(newcomer.connection, request, HeartbeatAnswer(), now=world.now, jitter=1.0).effects
    assert lost
    groups.handle(GROUP, WriteFailed())
    assert groups.life(GROUP).in_doubt
    assert beat_of(world, newcomer) == lost
    assert beat_of(world, newcomer) == ()
    groups.handle(GROUP, WriteFailed())
    assert beat_of(world, newcomer) == (), "not at every heartbeat"
    world.now += 5.0
    worker.run(beat_of(world, newcomer))
    worker.restart()
    assert worker.groups.life(GROUP).in_doubt


def test_stored_but_the_final_word_was_lost_it_is_asked_for_again() -> None:
    world = World(Keeper.EPOCHS)
    worker = world.worker()
    consumer = world.start("one", worker)
    world.join(consumer)
    plan = worker.groups.begin_push(GROUP, consumer.member, 0, "one", now=world.now)
    assert isinstance(plan, StorePush)
    assert plan.barrier is not None
    worker.write(plan.barrier.epochs)
    world.programs[GROUP] = "one"
    assert worker.groups.settle_push(plan, Outcome.STORED, now=world.now, jitter=1.0)
    worker.groups.handle(GROUP, WriteFailed())
    assert worker.describe() is None
    assert world.beat(consumer) is Verdict.ASK
    worker.push(consumer)
    assert worker.describe() == "one"


def test_two_gateways_that_store_the_same_at_once_write_one_version(world: World, worker: Worker) -> None:
    other = world.worker()
    first, second = world.start("one", worker), world.start("one", other)
    world.join(first)
    world.join(second)
    one = worker.groups.begin_push(GROUP, first.member, 0, "one", now=world.now)
    two = other.groups.begin_push(GROUP, second.member, 0, "one", now=world.now)
    assert isinstance(one, StorePush)
    assert isinstance(two, StorePush)
    assert one.incarnation == two.incarnation


def incarnation_of_next_push(worker: Worker, program: str) -> str:
    plan = worker.groups.begin_push(GROUP, "somebody", 0, program, now=worker.world.now)
    assert isinstance(plan, StorePush)
    return plan.incarnation


def test_another_topology_beside_one_that_vouches_is_the_same_life(worker: Worker, deploy: Deploy) -> None:
    deploy("one")
    first = worker.groups.life(GROUP).incarnation
    deploy("two", push=False)
    assert incarnation_of_next_push(worker, "two") == first


def test_another_topology_after_everybody_is_gone_is_another_life(world: World, worker: Worker, deploy: Deploy) -> None:
    world.leave(deploy("one"))
    first = worker.groups.life(GROUP).incarnation
    deploy("two", push=False)
    assert incarnation_of_next_push(worker, "two") != first
