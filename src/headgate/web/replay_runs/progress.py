"""Follows replays and requests for plans in `headgate-replay.progress`, as the service account.

It is the only truth about replays, those of commands and of other servers too. A topic that does not exist yet is no
problem: nothing was ever replayed.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from headgate.facts import ReplayStateChanged, decode
from headgate.facts.plan_requests import FINAL, PlanAnswered, PlanRequested, PlanRequestState, decode_plan_record
from headgate.facts.replays import PROGRESS_TOPIC, ReplayProgressed, decode_progress
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactTail
from headgate.kafka.topic_consumer import Next, TopicConsumer

_MOST_PLANS: Final = 10_000
_MOST_REQUESTS: Final = 1_000
_LONGEST_PLAN: Final = 64  # characters, as of names: every operator may write the topic
_LONGEST_NAME: Final = 4_096
_ALL: Final = 2**62
_LOOK_AGAIN_S: Final = 5.0
ReplayRecord = ReplayProgressed | ReplayStateChanged | PlanRequested | PlanAnswered


@dataclass(slots=True, kw_only=True)
class ReplayTotals:
    """The progress of one plan's replays; `state` is None before the first change of it was read."""

    plan: str
    group: str | None = None
    state: str | None = None
    at: int = 0
    by: str | None = None
    written: int = 0
    parked: int = 0
    skipped: int = 0

    def add(self, record: ReplayProgressed | ReplayStateChanged) -> None:
        self.at, self.by = record.at, record.by[:_LONGEST_NAME]
        if isinstance(record, ReplayStateChanged):
            self.state = record.state
            return
        self.group = record.group
        match record.outcome:
            case "replayed":
                self.written += len(record.positions)
            case "parked":
                self.parked += len(record.positions)
            case "skipped":
                self.skipped += len(record.positions)


@dataclass(slots=True, kw_only=True)
class PlanRequestStatus:
    """A request and its last answer; `taken_at` is when the first answer came."""

    request: PlanRequested
    state: PlanRequestState = "WAITING"
    taken_at: int | None = None
    plan: str | None = None
    text: str | None = None

    def take(self, answer: PlanAnswered) -> None:
        if self.state not in FINAL:
            self.state, self.plan, self.text = answer.state, answer.plan, answer.text
            self.taken_at = self.taken_at or answer.at


class ReplayRecords:
    """The totals of the last plans and the last requests; used on the event loop."""

    def __init__(self) -> None:
        self.changes = 0
        self._totals: OrderedDict[str, ReplayTotals] = OrderedDict()
        self._requests: OrderedDict[str, PlanRequestStatus] = OrderedDict()

    def take(self, records: Sequence[ReplayRecord]) -> None:
        for record in records:
            match record:
                case PlanRequested():
                    self.add_request(record)
                case PlanAnswered():
                    found = self._requests.get(record.request)
                    if found is not None:
                        found.take(record)
                case _:
                    totals = self._totals.setdefault(record.plan, ReplayTotals(plan=record.plan))
                    totals.add(record)
                    self._totals.move_to_end(record.plan)
                    if len(self._totals) > _MOST_PLANS:
                        self._totals.popitem(last=False)
        self.changes += bool(records)

    def add_request(self, request: PlanRequested) -> None:
        self._requests.setdefault(request.request, PlanRequestStatus(request=request))
        if len(self._requests) > _MOST_REQUESTS:
            self._requests.popitem(last=False)

    def totals(self, plan: str) -> ReplayTotals | None:
        return self._totals.get(plan)

    def all_totals(self) -> list[ReplayTotals]:
        """The totals of all plans, the one with the newest change first."""
        return list(reversed(self._totals.values()))

    def request(self, request: str) -> PlanRequestStatus | None:
        return self._requests.get(request)


class ReplayTail(FactTail[list[ReplayRecord]]):
    """Reads the topic from its beginning, committed."""

    retry_s = _LOOK_AGAIN_S

    def __init__(self, source: TopicConsumer, records: ReplayRecords) -> None:
        super().__init__(source, topic=PROGRESS_TOPIC, digest=replay_records, take=records.take, history=_ALL)
        self._has_read = False

    @property
    def not_read(self) -> str | None:
        """Why what is known may not be everything; None when it is."""
        return self.problem or (None if self._has_read else f"{PROGRESS_TOPIC} is being read")

    def on_messages(self, messages: Sequence[Message]) -> Next:
        needed = super().on_messages(messages)
        ends = (one.error() for one in messages)
        if any(error is not None and error.code() == KafkaError._PARTITION_EOF for error in ends):  # noqa: SLF001
            self._has_read = True
        return needed

    def is_expected(self, failure: Exception) -> bool:
        error = failure.args[0] if isinstance(failure, KafkaException) and failure.args else None
        if isinstance(error, KafkaError) and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self.problem, self._has_read = None, True
            return True
        return super().is_expected(failure)


def replay_records(records: Sequence[ConsumedRecord]) -> list[ReplayRecord]:
    """The facts of these records; those that cannot be read are skipped."""
    found: list[ReplayRecord] = []
    for record in records:
        one = decode_progress(record.key, record.value) or decode_plan_record(record.key, record.value)
        fact = decode("state", record.key, record.value) if one is None else one
        if isinstance(fact, ReplayRecord) and _is_short(fact):
            found.append(fact)
    return found


def _is_short(record: ReplayRecord) -> bool:
    if isinstance(record, PlanRequested | PlanAnswered):
        return True  # bounded where they are decoded
    group = record.group if isinstance(record, ReplayProgressed) else ""
    return len(record.plan) <= _LONGEST_PLAN and len(group) <= _LONGEST_NAME
