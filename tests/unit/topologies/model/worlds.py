"""A cluster, its gateways' workers and Streams applications in one small simulation, for stories and random histories.

The broker's side is the truth: who is in the group, since when, and which program each member runs. A program is a
text; it stands for a topology and for its content hash at once. Facts lie in one log that every worker reads to its end
before it does anything, so what is tested holds but for the topics' latency.
"""

from dataclasses import dataclass, field

from headgate.topologies.model.group_events import (
    AlreadyHeld,
    DeletionRead,
    Described,
    DescribeGroup,
    DescriptionRead,
    Effect,
    EpochsRead,
    Outcome,
    WriteEpochs,
)
from headgate.topologies.model.group_life import Epochs, Held, Keeper
from headgate.topologies.model.push_gate import HeartbeatAnswer, HeartbeatRequest, Verdict
from headgate.topologies.model.streams_groups import StreamsGroups

GROUP = "g"
SESSION_S = 45.0
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


@dataclass
class Fact:
    writer: int
    content: Epochs | Held | str  # a text is the incarnation that was deleted


@dataclass
class World:
    keeper: Keeper
    now: float = 0.0
    epoch: int = 0
    exists: bool = False
    members: dict[str, Consumer] = field(default_factory=dict)
    log: list[Fact] = field(default_factory=list)
    programs: dict[str, str] = field(default_factory=dict)  # what a store that is not kafka: has, by group
    mood: Outcome = Outcome.STORED
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

    def join(self, consumer: Consumer) -> Verdict:
        self.turn()
        self.exists = True
        if not any(one.process == consumer.process and one.running for one in self.members.values()):
            self.joined_at = self.step  # a thread of a program that is there brings nothing new
        self.members[consumer.member] = consumer
        consumer.heard_at = self.now
        self.ran_at[consumer.program] = self.step
        return consumer.worker.heartbeat(consumer, member_epoch=0, error=0)

    def beat(self, consumer: Consumer) -> Verdict:
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
        consumer.worker.groups.roster.closed(consumer.connection)

    def die(self, consumer: Consumer) -> None:
        """The program ends without a word: its connection ends, its session goes on."""
        self.turn()
        consumer.running = False
        consumer.worker.groups.roster.closed(consumer.connection)

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
        self.groups = StreamsGroups(self.world.keeper, session_s=SESSION_S)

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
            own = fact.writer == self.identity
            match fact.content:
                case Epochs() as epochs:
                    self.groups.handle(GROUP, EpochsRead(epochs=epochs, own=own))
                case Held() as held:
                    self.groups.handle(GROUP, DescriptionRead(held=held))
                case incarnation:
                    self.groups.handle(GROUP, DeletionRead(incarnation=incarnation))
        self.read_to = len(self.world.log)

    def write(self, content: Epochs | Held | str) -> None:
        self.world.log.append(Fact(self.identity, content))
        self.read()

    def run(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case WriteEpochs(epochs=epochs):
                    self.write(epochs)
                case DescribeGroup():
                    found = self.world.exists
                    code = 0 if found else NOT_FOUND
                    event = Described(
                        error_code=code,
                        topology_epoch=self.world.epoch if found else None,
                        members=list(self.world.members),
                    )
                    self.groups.handle(GROUP, event)

    def heartbeat(self, consumer: Consumer, *, member_epoch: int, error: int) -> Verdict:
        self.read()
        joins = member_epoch == 0
        request = HeartbeatRequest(
            api_version=consumer.version,
            group=GROUP,
            member=consumer.member,
            member_epoch=member_epoch,
            process=consumer.process if joins else None,
            topology_epoch=self.world.epoch if joins else None,
        )
        answer = HeartbeatAnswer(error_code=error)
        decision = self.groups.on_heartbeat(consumer.connection, request, answer, now=self.world.now, jitter=1.0)
        self.run(decision.effects)
        if decision.verdict is Verdict.ASK:
            consumer.asked = True
            self.world.asks.append((self.number, self.world.now))
        return decision.verdict

    def push(self, consumer: Consumer) -> Outcome:
        """A push that passed all checks."""
        world = self.world
        self.read()
        consumer.asked = False
        plan = self.groups.begin_push(GROUP, consumer.member, world.epoch, consumer.program, now=world.now)
        if isinstance(plan, AlreadyHeld):
            self.run(self.groups.confirm_push(GROUP, consumer.member, world.epoch, now=world.now))
            return Outcome.STORED
        if plan.barrier is not None:
            self.write(plan.barrier.epochs)
        world.store_calls += 1
        if world.mood is Outcome.STORED or (world.mood is Outcome.TRANSIENT and world.lands):
            world.programs[GROUP] = consumer.program
            if world.keeper is Keeper.STORE:
                self.write(
                    Held(incarnation=plan.incarnation, epoch=plan.epoch, hash=consumer.program, member=consumer.member)
                )
        self.run(self.groups.settle_push(plan, world.mood, now=world.now, jitter=1.0))
        return world.mood

    def describe(self) -> str | None:
        """The program that a describe through this worker shows, None for NOT_STORED or no group."""
        world = self.world
        world.turn()
        self.read()
        code = 0 if world.exists else NOT_FOUND
        held = self.groups.on_described(
            GROUP,
            error_code=code,
            topology_epoch=world.epoch if world.exists else None,
            members=list(world.members),
        )
        if held is None:
            return None
        if world.keeper is Keeper.STORE:
            return held.hash
        if GROUP not in world.programs:
            self.run(self.groups.on_lost(GROUP))
            return None
        return world.programs[GROUP]

    def delete(self) -> bool:
        """DeleteGroups, or the cleanup, of a group that is empty or gone; False: the store failed."""
        world = self.world
        world.turn()
        self.read()
        plan = self.groups.begin_deletion(GROUP)
        if plan.barrier is not None:
            self.write(plan.barrier.epochs)
        if plan.call_store:
            world.store_calls += 1
            if world.mood is not Outcome.STORED:
                return False
            world.programs.pop(GROUP, None)
            if world.keeper is Keeper.STORE:
                self.write(self.groups.life(GROUP).incarnation)
        self.run(self.groups.settle_deletion(GROUP))
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
            for group in list(self.groups.stored_groups())
            if self.groups.on_cycle(group, error_code=code, topology_epoch=world.epoch, members=members)
        ]
        return bool(gone) and self.delete()
