"""Replays a plan: one plain process that writes what the plan lists, in its order, at the rate that was asked for.

Progress is read after the other replays of the group into the same topic are fenced, so that nothing can be added to it
meanwhile: a process that is killed at any moment neither loses nor doubles a record for readers of committed records.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.dead_letters.model.pacing import Pacer
from headgate.dead_letters.model.plans import ALREADY_REPLAYED, ORIGINAL, PlanRecord, ReplayPlan
from headgate.dead_letters.model.target_limits import TargetLimits, TimestampMode
from headgate.dead_letters.progress_topic import PastReplays, read_past
from headgate.dead_letters.read_ahead import ReadAhead
from headgate.dead_letters.record_reader import RecordReader
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replay_transactions import BATCH_BYTES, ReplayAttempt, ReplayMoment, ReplayTransactions
from headgate.facts.decisions import ReplayState
from headgate.facts.replays import MOST_OUTCOMES
from headgate.kafka.topics import TopicAdmin

_WAIT_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """`by` is the operator's principal; `rate` is in records a second, None for as fast as possible."""

    by: str
    rate: float | None = None
    timestamps: TimestampMode = "original"


@dataclass(slots=True, kw_only=True)
class ReplayResult:
    """What has been done of a plan, by this process and by earlier ones; `reasons` are those of this process."""

    plan: str
    state: ReplayState = "PLANNED"
    written: int = 0
    parked: int = 0
    skipped: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    stopped_by: str | None = None

    @property
    def done(self) -> int:
        return self.written + self.parked + self.skipped


class Replayer:
    """Used once, on one thread; what other threads and signals ask for comes through `control`."""

    def __init__(
        self,
        *,
        plan: ReplayPlan,
        limits: Mapping[str, TargetLimits],
        settings: Mapping[str, Any],
        admin: TopicAdmin,
        clock: Clock,
        options: ReplayOptions,
        control: ReplayControl,
        on_progress: Callable[[ReplayResult], None] = lambda _result: None,
        on_moment: Callable[[ReplayMoment], None] = lambda _moment: None,
    ) -> None:
        self._plan = plan
        self._limits = limits
        self._settings = settings
        self._admin = admin
        self._clock = clock
        self._options = options
        self._control = control
        self._on_progress = on_progress
        self._on_moment = on_moment
        self._past = PastReplays()
        self._result = ReplayResult(plan=plan.plan)
        self._reader = RecordReader(settings, admin)
        self._pacer = Pacer(options.rate, clock.monotonic(), most=MOST_OUTCOMES)

    def run(self, records: Iterable[PlanRecord]) -> ReplayResult:
        """Replay the records, which come in the order of the plan and without those that it leaves out."""
        try:
            last: ReplayTransactions | None = None
            for target, some in groupby(records, key=self._lane):
                last = self._begin(target)
                if not self._replay(last, some):
                    return self._result
            self._change_state(last or self._begin(self._plan.to), "DONE")
            return self._result
        finally:
            self._reader.close()

    def check(self, records: Iterable[PlanRecord]) -> ReplayResult:
        """Read every record that is left and count what would be done; nothing is written."""
        try:
            self._read_past()
            self._result = ReplayResult(plan=self._plan.plan)  # without what was done before
            for record in records:
                if self._control.stop_reason is not None:
                    self._result.stopped_by = self._control.stop_reason
                    break
                if record.position not in self._past.positions:
                    self._count(self._within_limits(self._read(record)))
                    self._on_progress(self._result)
            return self._result
        finally:
            self._reader.close()

    def abort(self) -> ReplayResult:
        """Fence a running replay of the plan, and end the plan for good."""
        try:
            lanes = sorted(self._plan.targets) if self._plan.to == ORIGINAL else [self._plan.to]
            fenced = [self._transactions(target) for target in lanes or [self._plan.to]]
            self._read_past()
            self._change_state(fenced[-1], "ABORTED")
            return self._result
        finally:
            self._reader.close()

    def _lane(self, record: PlanRecord) -> str:
        """The topic that the record goes to, or would go to if it were not parked."""
        return record.topic if self._plan.to == ORIGINAL else self._plan.to

    def _begin(self, target: str) -> ReplayTransactions:
        begun = self._transactions(target)
        self._read_past()
        self._pacer.restart(self._clock.monotonic())
        return begun

    def _transactions(self, target: str) -> ReplayTransactions:
        return ReplayTransactions(
            self._settings,
            self._plan,
            target,
            admin=self._admin,
            by=self._options.by,
            clock=self._clock,
            on_moment=self._on_moment,
        )

    def _read_past(self) -> None:
        self._past = read_past(self._settings, self._admin, group=self._plan.group, plan=self._plan.plan)
        if self._past.state == "ABORTED":
            raise ClusterError(f"plan {self._plan.plan} was aborted: make a new plan")
        self._result.written = self._past.outcomes.get("replayed", 0)
        self._result.parked = self._past.outcomes.get("parked", 0)
        self._result.skipped = self._past.outcomes.get("skipped", 0)

    def _replay(self, transactions: ReplayTransactions, records: Iterator[PlanRecord]) -> bool:
        """Whether all of these records are done; False when the replay was stopped."""
        past = self._past.positions
        held: list[ReplayAttempt] = []  # read, and too large for the transaction before
        with ReadAhead(self._read(record) for record in records if record.position not in past) as ahead:
            waiting = map(self._within_limits, ahead)
            while True:
                if not self._wait_for_turn(transactions):
                    self._change_state(transactions, "PAUSED")
                    return False
                batch = _batch(waiting, held, self._pacer.allowed(self._clock.monotonic()))
                if not batch:
                    return True
                transactions.write(batch, keep_timestamps=self._options.timestamps == "original")
                self._pacer.on_written(sum(one.read is not None for one in batch))
                for one in batch:
                    self._count(one)
                self._on_progress(self._result)

    def _change_state(self, transactions: ReplayTransactions, state: ReplayState) -> None:
        if self._result.state != state:
            transactions.change_state(state)
            self._result.state = state

    def _wait_for_turn(self, transactions: ReplayTransactions) -> bool:
        """Wait while the replay is paused or ahead of its rate; False when it has to stop."""
        while self._control.stop_reason is None:
            now = self._clock.monotonic()
            if self._control.is_paused:
                self._change_state(transactions, "PAUSED")
                self._on_progress(self._result)
                self._control.wait(_WAIT_S)
                self._pacer.restart(self._clock.monotonic())
            elif self._pacer.allowed(now):
                self._change_state(transactions, "RUNNING")
                return True
            else:
                self._control.wait(min(_WAIT_S, max(0.001, self._pacer.wait_s(now))))
        self._result.stopped_by = self._control.stop_reason
        return False

    def _read(self, record: PlanRecord) -> ReplayAttempt:
        other = self._past.other_plan(record)
        if other is not None:
            return ReplayAttempt(record, None, f"{ALREADY_REPLAYED} by plan {other}")
        read = self._reader.read(record)
        return ReplayAttempt(record, None, read) if isinstance(read, str) else ReplayAttempt(record, read, None)

    def _within_limits(self, attempt: ReplayAttempt) -> ReplayAttempt:
        """The attempt, skipped if the broker would reject its record now: one may have been read long ago."""
        read = attempt.read
        if read is not None:
            timestamp = read.timestamp_ms if self._options.timestamps == "original" else None
            limits = self._limits[attempt.record.target_topic]
            why = limits.skip_reason(size=read.size, timestamp_ms=timestamp, now_ms=self._clock.epoch_ms())
            if why is not None:
                return ReplayAttempt(attempt.record, None, why)
        return attempt

    def _count(self, attempt: ReplayAttempt) -> None:
        result = self._result
        if attempt.read is None:
            result.skipped += 1
            why = (attempt.why or "").partition(" ")[0]
            result.reasons[why] = result.reasons.get(why, 0) + 1
        elif attempt.record.action == "park":
            result.parked += 1
        else:
            result.written += 1


def _batch(waiting: Iterator[ReplayAttempt], held: list[ReplayAttempt], allowed: int) -> list[ReplayAttempt]:
    """The next attempts for one transaction: bounded in number and bytes, skipped ones beside those allowed."""
    batch: list[ReplayAttempt] = []
    written = size = 0
    while written < allowed and len(batch) < MOST_OUTCOMES:
        attempt = held.pop() if held else next(waiting, None)
        if attempt is None:
            break
        size += 0 if attempt.read is None else attempt.read.size
        if batch and size > BATCH_BYTES:
            held.append(attempt)
            break
        written += attempt.read is not None
        batch.append(attempt)
    return batch
