"""A cluster, its gateways' workers and Streams applications in one small simulation, for examples and random histories.

The broker's side is the truth: the members of the group, and which program each runs. A program is a text that stands
for a topology and for its content hash at once. Facts lie in one log that every worker reads to its end before it does
anything, so the tests hold but for the topics' latency.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.facts import TopologyEpochsSet
from headgate.topologies.model.group_state import (
    Bookkeeping,
    DeletedVersion,
    PushOutcome,
    StoredVersion,
    StorePush,
)
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat, Solicitation
from headgate.topologies.model.streams_groups import HeartbeatDecision, StreamsGroups

GROUP = "g"
SESSION_S = 45.0
Deploy = Callable[..., "Consumer"]
NOT_FOUND = 69


@dataclass
class Consumer:
    """One consumer of an application: `asked` is the flag that the client keeps until it has pushed."""

    member: str
    process: str
    program: str
    worker: "Worker"
    connection: int
    version: int = 1
    heard_at: float = 0.0
    asked: bool = False
    running: bool = True


Record = TopologyEpochsSet | StoredVersion | DeletedVersion


@dataclass
class Fact:
    writer: int
    record: Record


@dataclass
class World:
    bookkeeping: Bookkeeping
    now: float = 0.0
    epoch: int = 0
    exists: bool = False
    members: dict[str, Consumer] = field(default_factory=dict)
    log: list[Fact] = field(default_factory=list)
    programs: dict[str, str] = field(default_factory=dict)  # what a store that is not kafka: has, by group
    mood: PushOutcome = PushOutcome.STORED
    lands: bool = False  # whether a push that failed for now was stored all the same
    workers: list["Worker"] = field(default_factory=list)
    made: int = 0
    # The oracle's: the last moment at which each program ran, and at which one was started, in steps.
    step: int = 0
    ran_at: dict[str, int] = field(default_factory=dict)
    joined_at: int = -1
    asks: list[tuple[int, float]] = field(default_factory=list)
    store_calls: int = 0

    def worker(self) -> "Worker":
        worker = Worker(self, len(self.workers))
        self.workers.append(worker)
        return worker

    def turn(self) -> None:
        """One step of the world's time, which orders what happens."""
        for member, consumer in list(self.members.items()):
            if self.now - consumer.heard_at > SESSION_S:
                del self.members[member]
        self.step += 1
        for consumer in self.members.values():
            self.ran_at[consumer.program] = self.step

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    def is_predecessors(self, program: str) -> bool:
        """Whether everybody who ran this program was gone before the last join of a program."""
        return self.ran_at.get(program, -1) < self.joined_at

    def start(self, program: str, worker: "Worker", *, process: str = "", version: int = 1) -> Consumer:
        """A new consumer, not joined yet."""
        self.made += 1
        return Consumer(f"m{self.made}", process or f"p{self.made}", program, worker, self.made, version)

    def join(self, consumer: Consumer) -> Solicitation:
        self.turn()
        self.exists = True
        if not any(one.process == consumer.process and one.running for one in self.members.values()):
            self.joined_at = self.step  # a thread of a program that is there brings nothing new
        self.members[consumer.member] = consumer
        consumer.heard_at = self.now
        self.ran_at[consumer.program] = self.step
        return consumer.worker.heartbeat(consumer, member_epoch=0, error=0)

    def beat(self, consumer: Consumer) -> Solicitation:
        self.turn()
        if consumer.member not in self.members:
            return consumer.worker.heartbeat(consumer, member_epoch=3, error=25)
        consumer.heard_at = self.now
        return consumer.worker.heartbeat(consumer, member_epoch=3, error=0)

    def leave(self, consumer: Consumer) -> None:
        self.turn()
        consumer.running = False
        self.members.pop(consumer.member, None)
        consumer.worker.heartbeat(consumer, member_epoch=-1, error=0)
        consumer.worker.groups.members.close_connection(consumer.connection)

    def die(self, consumer: Consumer) -> None:
        """The program ends without a word: its connection ends, its session goes on."""
        self.turn()
        consumer.running = False
        consumer.worker.groups.members.close_connection(consumer.connection)

    def delete_past_us(self) -> None:
        """By an administrator at the broker, or because it was empty and had no offsets."""
        self.turn()
        if not self.members:
            self.exists = False


@dataclass
class Worker:
    world: World
    number: int
    boot: int = 0
    groups: StreamsGroups = field(init=False)
    read_to: int = 0

    def __post_init__(self) -> None:
        self.groups = StreamsGroups(self.world.bookkeeping, session_s=SESSION_S)

    @property
    def identity(self) -> int:
        return self.number * 1000 + self.boot

    def restart(self) -> None:
        """Killed and started again: what it knows is what the log says."""
        self.boot += 1
        self.read_to = 0
        self.__post_init__()
        self.read()

    def read(self) -> None:
        for fact in self.world.log[self.read_to :]:
            if isinstance(fact.record, TopologyEpochsSet):
                self.groups.on_epochs_read(fact.record, is_own=fact.writer == self.identity)
            else:
                self.groups.on_record_read(GROUP, fact.record)
        self.read_to = len(self.world.log)

    def write(self, record: Record | None) -> None:
        if record is not None:
            self.world.log.append(Fact(self.identity, record))
            self.read()

    def run(self, decision: HeartbeatDecision) -> None:
        self.write(decision.write)
        if decision.describe:
            self._described()

    def _described(self) -> StoredVersion | None:
        found = self.world.exists
        return self.groups.on_described(
            GROUP,
            error_code=0 if found else NOT_FOUND,
            topology_epoch=self.world.epoch if found else None,
            members=list(self.world.members),
        )

    def heartbeat(self, consumer: Consumer, *, member_epoch: int, error: int) -> Solicitation:
        self.read()
        joins = member_epoch == 0
        request = MemberHeartbeat(
            api_version=consumer.version,
            group=GROUP,
            member=consumer.member,
            member_epoch=member_epoch,
            process=consumer.process if joins else None,
            topology_epoch=self.world.epoch if joins else None,
        )
        answer = HeartbeatResult(error_code=error)
        decision = self.groups.on_heartbeat(consumer.connection, request, answer, now=self.world.now, jitter=1.0)
        self.run(decision)
        if decision.solicitation is Solicitation.SOLICIT:
            consumer.asked = True
            self.world.asks.append((self.number, self.world.now))
        return decision.solicitation

    def push(self, consumer: Consumer) -> PushOutcome:
        """A push that passed all checks."""
        world = self.world
        self.read()
        consumer.asked = False
        plan = self.groups.begin_push(GROUP, consumer.member, world.epoch, consumer.program, now=world.now)
        if plan is None:
            self.write(self.groups.confirm_push(GROUP, consumer.member, world.epoch, now=world.now))
            return PushOutcome.STORED
        self.write(plan.barrier)
        world.store_calls += 1
        if world.mood is PushOutcome.STORED or (world.mood is PushOutcome.TRANSIENT and world.lands):
            world.programs[GROUP] = consumer.program
            if world.bookkeeping is Bookkeeping.STORE:
                self.write(
                    StoredVersion(
                        incarnation=plan.incarnation, epoch=plan.epoch, hash=consumer.program, member=consumer.member
                    )
                )
        self.settle(plan, world.mood)
        return world.mood

    def begin(self, consumer: Consumer) -> StorePush:
        """Begin a push that the store is called for."""
        plan = self.groups.begin_push(GROUP, consumer.member, self.world.epoch, consumer.program, now=self.world.now)
        assert plan is not None
        return plan

    def incarnation_of_next_push(self, program: str) -> str:
        plan = self.groups.begin_push(GROUP, "another", 0, program, now=self.world.now)
        assert plan is not None
        return plan.incarnation

    def settle(self, plan: StorePush, outcome: PushOutcome) -> None:
        self.write(self.groups.settle_push(plan, outcome, now=self.world.now, jitter=1.0))

    def describe(self) -> str | None:
        """The program that a describe through this worker shows, None for NOT_STORED or no group."""
        world = self.world
        world.turn()
        self.read()
        version = self._described()
        if version is None:
            return None
        if world.bookkeeping is Bookkeeping.STORE:
            return version.hash
        if GROUP not in world.programs:
            self.write(self.groups.on_missing(GROUP))
            return None
        return world.programs[GROUP]

    def delete(self) -> bool:
        """DeleteGroups, or the cleanup, of a group that is empty or gone; False: the store failed."""
        world = self.world
        world.turn()
        self.read()
        plan = self.groups.begin_deletion(GROUP)
        if plan is not None:
            self.write(plan.barrier)
            world.store_calls += 1
            if world.mood is not PushOutcome.STORED:
                return False
            world.programs.pop(GROUP, None)
            if world.bookkeeping is Bookkeeping.STORE:
                self.write(DeletedVersion(self.groups.state(GROUP).incarnation))
        self.write(self.groups.settle_deletion(GROUP))
        world.exists = False
        return True

    def cycle(self) -> bool:
        """One run of the periodic cleanup; True when it deleted."""
        self.world.turn()
        self.read()
        world = self.world
        code, members = (0, list(world.members)) if world.exists else (NOT_FOUND, [])
        gone = [
            group
            for group in self.groups.groups_to_clean_up()
            if self.groups.on_cleanup_described(group, error_code=code, topology_epoch=world.epoch, members=members)
        ]
        return bool(gone) and self.delete()
