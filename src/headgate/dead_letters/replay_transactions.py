"""The transactions of a replay into one topic: records, their progress and the state of the plan.

Invariants: a record and the progress that names it are committed together or not at all. All replays of a group into a
topic have one transactional id, so Kafka fences all but the last one that starts. The progress names the topics that
have the records: their ids are read after the records are written, and a target that was created again ends the replay.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.dead_letters.model.plans import PlanRecord, ReplayPlan, transactional_id
from headgate.dead_letters.record_reader import ReadRecord
from headgate.facts import ReplayStateChanged, encode
from headgate.facts.decisions import ReplayState
from headgate.facts.replays import (
    MOST_OUTCOMES,
    PROGRESS_TOPIC,
    TRANSACTIONAL_ID_PREFIX,
    ReplayOutcome,
    ReplayProgressed,
    encode_progress,
)
from headgate.kafka.topics import TopicAdmin, quiet, reason

log = structlog.get_logger()

BATCH_BYTES: Final = 16 * 1024 * 1024
_CALL_S: Final = 60.0
_TRANSACTION_MS: Final = 60_000
_LARGEST_RECORD: Final = 64 * 1024 * 1024
_FULL_S: Final = 0.1
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - librdkafka's own codes begin so
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)

# Where a test kills the process: records are written and not committed, and after the commit.
ReplayMoment = Literal["written", "committed"]


class ReplayFencedError(ClusterError):
    """Another replay of the same group into the same topic has started."""


@dataclass(slots=True)
class ReplayAttempt:
    """A record of one transaction: what to write, or why it is skipped. The broker's confirmation sets the offset."""

    record: PlanRecord
    read: ReadRecord | None
    why: str | None
    offset: int | None = None
    error: KafkaError | None = None

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self.error = error
        if error is None:
            self.offset = message.offset()


class ReplayTransactions:
    """Made, it has fenced all other replays of the group into the topic. Used on one thread; its calls block."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        plan: ReplayPlan,
        target: str,
        *,
        admin: TopicAdmin,
        by: str,
        clock: Clock,
        on_moment: Callable[[ReplayMoment], None],
    ) -> None:
        self._plan = plan
        self._target = target
        self._admin = admin
        self._by = by
        self._clock = clock
        self._on_moment = on_moment
        self._producer = Producer(
            quiet(
                settings,
                transactional__id=transactional_id(TRANSACTIONAL_ID_PREFIX, plan.group, target),
                transaction__timeout__ms=_TRANSACTION_MS,
                linger__ms=5,
                compression__type="zstd",
                message__max__bytes=_LARGEST_RECORD,
                queue__buffering__max__messages=2 * MOST_OUTCOMES,
                queue__buffering__max__kbytes=8 * BATCH_BYTES // 1024,
                allow__auto__create__topics=False,
            )
        )
        try:
            self._producer.init_transactions(_CALL_S)
        except KafkaException as failure:
            if _is_fenced(failure):
                raise self._fenced() from None
            raise ClusterError(
                f"the replay cannot begin: {reason(failure)}. The operator needs WRITE on transactional ids that begin "
                f"with {TRANSACTIONAL_ID_PREFIX}"
            ) from None

    def change_state(self, state: ReplayState) -> None:
        changed = ReplayStateChanged(plan=self._plan.plan, at=self._clock.epoch_ms(), state=state, by=self._by)
        _, key, value = encode(changed)
        self._commit(lambda: self._produce(PROGRESS_TOPIC, key=key, value=value, partition=0))

    def write(self, attempts: Sequence[ReplayAttempt], *, keep_timestamps: bool) -> None:
        """Write these records and their progress in one transaction."""

        def produce() -> None:
            for attempt in attempts:
                if attempt.read is not None:
                    self._produce_record(attempt, attempt.read, keep_timestamp=keep_timestamps)
            self._flush()
            for attempt in attempts:
                if attempt.error is not None:
                    raise KafkaException(attempt.error)
            self._check_targets({one.record.target_topic for one in attempts if one.read is not None})
            for progress in self._progress(attempts):
                key, value = encode_progress(progress)
                self._produce(PROGRESS_TOPIC, key=key, value=value, partition=0)

        self._commit(produce)

    def _commit(self, produce: Callable[[], None]) -> None:
        try:
            self._producer.begin_transaction()
            produce()
            self._flush()
            self._on_moment("written")
            self._producer.commit_transaction(_CALL_S)
        except (KafkaException, BufferError, ClusterError) as failure:
            raise self._failure(failure) from None
        self._on_moment("committed")

    def _check_targets(self, topics: Collection[str]) -> None:
        """`ClusterError` when one of these is not the topic of the plan any more."""
        ids = self._admin.ids(topics, timeout_s=_CALL_S)
        changed = sorted(topic for topic in topics if ids.get(topic) != self._plan.targets[topic])
        if changed:
            raise ClusterError(f"the topic {changed[0]} was deleted or created again meanwhile: make a new plan")

    def _failure(self, failure: KafkaException | BufferError | ClusterError) -> ClusterError:
        if _is_fenced(failure):
            return self._fenced()
        try:
            self._producer.abort_transaction(_CALL_S)
        except KafkaException as also:
            if _is_fenced(also):
                return self._fenced()
            log.warning("a transaction could not be aborted", error=reason(also))
        if isinstance(failure, ClusterError):
            return failure
        words = reason(failure) if isinstance(failure, KafkaException) else str(failure)
        return ClusterError(
            f"the replay into {self._target} failed: {words}. The records of its last transaction are not visible: run "
            "the command again to go on"
        )

    def _fenced(self) -> ReplayFencedError:
        return ReplayFencedError(
            f"another replay of group {self._plan.group} into {self._target} has started, so this one stopped: only "
            "the one that started last goes on"
        )

    def _produce_record(self, attempt: ReplayAttempt, read: ReadRecord, *, keep_timestamp: bool) -> None:
        kept = read.timestamp_ms if keep_timestamp else None
        self._produce(
            attempt.record.target_topic,
            key=read.key,
            value=read.value,
            headers=read.headers,
            partition=attempt.record.target_partition,
            timestamp=self._clock.epoch_ms() if kept is None else kept,
            on_delivery=attempt.on_delivery,
        )

    def _produce(self, topic: str, **record: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, **record)
            except BufferError:
                self._serve(lambda: self._producer.poll(_FULL_S))
            else:
                return

    def _flush(self) -> None:
        left = self._serve(lambda: self._producer.flush(_CALL_S))
        if left:
            raise BufferError(f"{left} records were not confirmed within {_CALL_S:.0f} s")

    @staticmethod
    def _serve(call: Callable[[], int]) -> int:
        """Call what runs delivery callbacks; `KafkaException` for a fatal error.

        confluent-kafka raises a fatal error and goes on with the next callback, which Python reports as a SystemError.
        """
        try:
            return call()
        except SystemError as failure:
            if isinstance(failure.__cause__, KafkaException):
                raise failure.__cause__ from None
            raise

    def _progress(self, attempts: Sequence[ReplayAttempt]) -> Iterator[ReplayProgressed]:
        """One record for each topic, target and outcome, which its lists have in common."""
        alike: dict[tuple[str, str, str | None, ReplayOutcome, str | None], list[ReplayAttempt]] = {}
        for one in attempts:
            target, outcome, why = _outcome(one)
            alike.setdefault((one.record.topic, one.record.topic_id, target, outcome, why), []).append(one)
        for (topic, topic_id, target, outcome, why), some in alike.items():
            written = [(one.record.target_partition, one.offset) for one in some if one.offset is not None]
            yield ReplayProgressed(
                at=self._clock.epoch_ms(),
                plan=self._plan.plan,
                by=self._by,
                group=self._plan.group,
                outcome=outcome,
                why=why,
                topic=topic,
                topic_id=topic_id,
                target=target,
                target_id=None if target is None else self._plan.targets[target],
                positions=tuple(one.record.position for one in some),
                partitions=tuple(one.record.partition for one in some),
                offsets=tuple(one.record.offset for one in some),
                to_partitions=tuple(partition for partition, _ in written),
                to_offsets=tuple(offset for _, offset in written),
            )


def _outcome(attempt: ReplayAttempt) -> tuple[str | None, ReplayOutcome, str | None]:
    if attempt.read is None:
        return None, "skipped", attempt.why
    record = attempt.record
    return record.target_topic, "parked" if record.action == "park" else "replayed", record.why


def _is_fenced(failure: Exception) -> bool:
    error = failure.args[0] if failure.args else None
    return isinstance(error, KafkaError) and error.code() in _FENCED
