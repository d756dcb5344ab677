"""Random histories of a group, two workers and their applications, against what the broker's side knows to be true.

Three rules hold in all of them: a describe never shows a predecessor's topology; a worker asks once in a window; and
what a worker knows after a restart is what it knew before, as far as that must be kept. HEADGATE_TEST_HISTORIES is how
many are tried; a soak sets thousands.
"""

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.topologies.model.group_state import Bookkeeping, PushOutcome
from headgate.topologies.model.push_gate import Solicitation
from tests.unit.topologies.simulation import GROUP, Consumer, Worker, World

PROGRAMS = st.sampled_from(["one", "two", "three"])
PICK = st.integers(0, 10)
# Turns of the end, each a little shorter than a session: what failed often is left alone for an hour.
UNTIL_ANY_WINDOW_IS_OVER = 84


class Histories(RuleBasedStateMachine):
    world: World

    @initialize(bookkeeping=st.sampled_from(Bookkeeping))
    def begin(self, bookkeeping: Bookkeeping) -> None:
        self.world = World(bookkeeping)
        self.world.worker()
        self.world.worker()
        self.running: list[Consumer] = []
        # The oracle of the back-off, by worker: when the next request may go out, and how many went out in a row.
        self.next_ask = [0.0, 0.0]
        self.in_a_row = [0, 0]

    def _pick(self, index: int) -> Consumer:
        return self.running[index % len(self.running)]

    def _worker(self, index: int) -> Worker:
        return self.world.workers[index % 2]

    def _asked(self, decision: Solicitation, worker: Worker) -> None:
        number = worker.number
        if decision is Solicitation.SOLICIT:
            assert self.world.now >= self.next_ask[number], "asked inside a window"
            self.next_ask[number] = self.world.now + min(30.0 * 2 ** self.in_a_row[number], 3600.0)
            self.in_a_row[number] += 1

    def _cleared(self, worker: Worker) -> None:
        self.next_ask[worker.number] = 0.0
        self.in_a_row[worker.number] = 0

    def _join(self, consumer: Consumer, answers: bool) -> None:
        self.running.append(consumer)
        self._asked(self.world.join(consumer), consumer.worker)
        if consumer.asked and answers:
            self._push(consumer)

    @rule(program=PROGRAMS, worker=PICK, version=st.sampled_from([1, 1, 1, 0]), answers=st.booleans())
    def a_program_joins(self, program: str, worker: int, version: int, answers: bool) -> None:
        self._join(self.world.start(program, self._worker(worker), version=version), answers)

    @precondition(lambda self: self.running)
    @rule(index=PICK, answers=st.booleans())
    def another_thread_joins(self, index: int, answers: bool) -> None:
        other = self._pick(index)
        thread = self.world.start(other.program, other.worker, process=other.process, version=other.version)
        self._join(thread, answers)

    @precondition(lambda self: self.running)
    @rule(index=PICK, program=PROGRAMS, says_goodbye=st.booleans(), answers=st.booleans())
    def a_program_is_redeployed_under_its_process_id(
        self, index: int, program: str, says_goodbye: bool, answers: bool
    ) -> None:
        old = self._pick(index)
        for consumer in [one for one in self.running if one.process == old.process]:
            self.running.remove(consumer)
            if says_goodbye:
                self.world.leave(consumer)
            else:
                self.world.die(consumer)
        self._join(self.world.start(program, old.worker, process=old.process), answers)

    @precondition(lambda self: self.running)
    @rule(index=PICK, answers=st.booleans())
    def a_member_makes_itself_heard(self, index: int, answers: bool) -> None:
        consumer = self._pick(index)
        if consumer.member in self.world.members:
            self._asked(self.world.beat(consumer), consumer.worker)
        else:
            self.world.beat(consumer)
            self._asked(self.world.join(consumer), consumer.worker)
        if consumer.asked and answers:
            self._push(consumer)

    @precondition(lambda self: any(one.member in self.world.members and one.version for one in self.running))
    @rule(index=PICK)
    def a_push_comes_late_or_unasked(self, index: int) -> None:
        members = [one for one in self.running if one.member in self.world.members and one.version]
        self._push(members[index % len(members)])

    def _push(self, consumer: Consumer) -> None:
        self.world.turn()
        outcome = consumer.worker.push(consumer)
        if outcome is PushOutcome.TRANSIENT:
            number = consumer.worker.number
            self.next_ask[number] = self.world.now + min(30.0 * 2 ** self.in_a_row[number], 3600.0)
            self.in_a_row[number] += 1
        else:
            self._cleared(consumer.worker)

    @precondition(lambda self: self.running)
    @rule(index=PICK)
    def a_member_leaves(self, index: int) -> None:
        consumer = self._pick(index)
        self.running.remove(consumer)
        self.world.leave(consumer)

    @precondition(lambda self: self.running)
    @rule(index=PICK)
    def a_member_dies(self, index: int) -> None:
        consumer = self._pick(index)
        self.running.remove(consumer)
        self.world.die(consumer)

    @rule()
    def all_leave(self) -> None:
        for consumer in self.running:
            self.world.leave(consumer)
        self.running.clear()

    @rule(seconds=st.sampled_from([1.0, 5.0, 29.0, 31.0, 50.0, 3700.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule()
    def it_is_deleted_past_us(self) -> None:
        self.world.delete_past_us()

    @rule(worker=PICK)
    def it_is_deleted_through_us(self, worker: int) -> None:
        self.world.turn()
        if not self.world.members and self._worker(worker).delete():
            self._cleared(self._worker(worker))

    @rule(worker=PICK)
    def the_cleanup_runs(self, worker: int) -> None:
        if self._worker(worker).cycle():
            self._cleared(self._worker(worker))

    @rule(mood=st.sampled_from([PushOutcome.STORED, *PushOutcome]), lands=st.booleans())
    def the_store_changes_its_mood(self, mood: PushOutcome, lands: bool) -> None:
        self.world.mood, self.world.lands = mood, lands

    @precondition(lambda self: self.world.bookkeeping is Bookkeeping.STATE_TOPIC)
    @rule()
    def the_store_loses_everything(self) -> None:
        self.world.programs.clear()

    @rule(worker=PICK)
    def a_worker_is_killed_and_starts_again(self, worker: int) -> None:
        restarted = self._worker(worker)
        restarted.restart()
        self._cleared(restarted)
        for consumer in self.running:
            if consumer.worker is restarted:
                self.world.made += 1
                consumer.connection = self.world.made

    @invariant()
    def a_describe_never_shows_a_predecessors_topology(self) -> None:
        if not hasattr(self, "world"):
            return
        for worker in self.world.workers:
            shown = worker.describe()
            assert shown is None or not self.world.is_predecessors(shown), (worker.number, shown)

    @invariant()
    def a_restart_would_know_the_same_and_show_no_more(self) -> None:
        if not hasattr(self, "world"):
            return
        members = list(self.world.members)
        for worker in self.world.workers:
            worker.read()
            fresh = Worker(self.world, worker.number, boot=999)
            fresh.read()
            live, replayed = worker.groups.state(GROUP), fresh.groups.state(GROUP)
            assert (live.epochs, live.record) == (replayed.epochs, replayed.record)
            assert live.must_delete == replayed.must_delete
            if replayed.version_to_show(topology_epoch=0, members=members) is not None:
                assert live.version_to_show(topology_epoch=0, members=members) is not None

    def teardown(self) -> None:
        """In the end, with a store that works, one of those who run is shown, unless it was refused for good."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.mood = PushOutcome.STORED
        for turn in range(2 * UNTIL_ANY_WINDOW_IS_OVER):
            world.wait(1.0)
            if turn == UNTIL_ANY_WINDOW_IS_OVER:  # a store that lost everything is found out by a describe
                for worker in world.workers:
                    worker.describe()
            for consumer in self.running:
                if consumer.member in world.members:
                    world.beat(consumer)
                else:
                    world.join(consumer)
                if consumer.asked:
                    consumer.worker.push(consumer)
            world.wait(43.0)
        for worker in world.workers:
            can_push = any(consumer.version for consumer in self.running if consumer.worker is worker)
            shown = worker.describe()
            life = worker.groups.state(GROUP)
            # A store without a hash may have been filled through the other worker: then nobody here can tell by whom.
            if can_push and life.failed_epoch < 0 and life.confirmed_by:
                assert shown in {consumer.program for consumer in self.running}


TestRandomHistories: Any = Histories.TestCase
TestRandomHistories.settings = settings(
    max_examples=int(os.environ.get("HEADGATE_TEST_HISTORIES", "100")), stateful_step_count=40
)
