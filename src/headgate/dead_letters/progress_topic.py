"""Reads and creates `headgate-replay.progress`, with the credentials that its caller has.

Invariant: `read_progress` returns everything that was committed before it was called. Other replays may have open
transactions in the topic, and a reader of committed records waits behind them: it goes on until it has passed the end
that the topic had at the beginning, instead of stopping at the first record that is not committed yet. It reads no
further, however much is written meanwhile.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.cimpl import NewTopic

from headgate.base.errors import ClusterError
from headgate.dead_letters.model.plans import PlanRecord
from headgate.facts import Rejected, ReplayStateChanged, decode
from headgate.facts.replays import PROGRESS_TOPIC, ReplayProgressed, decode_progress, plan_of_key
from headgate.facts.topics import replication_of
from headgate.kafka.topics import TopicAdmin, quiet, reason

log = structlog.get_logger()

_CALL_S: Final = 30.0
# Longer than the transaction of a replay that was killed stays open.
_SILENCE_S: Final = 90.0
_POLL_S: Final = 0.1
_AT_ONCE: Final = 500
_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own codes begin so
_TWO_IN_SYNC_FROM: Final = 3
_NOT_SERVED_YET: Final = frozenset(
    {
        KafkaError._NOENT,  # noqa: SLF001 - librdkafka's own code, where a partition has no leader
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)


@dataclass(slots=True)
class PastReplays:
    """What a group's replays have done: positions of one plan, and records that other plans wrote."""

    positions: set[int] = field(default_factory=set)
    outcomes: dict[str, int] = field(default_factory=dict)
    state: str | None = None
    # By topic too: dead letters without the id of their topic have "" as the id.
    _written: dict[tuple[str, str, int], dict[int, str]] = field(default_factory=dict)

    def add(self, progress: ReplayProgressed, plan: str) -> None:
        if progress.plan == plan:
            new = [one for one in progress.positions if one not in self.positions]
            self.positions.update(new)
            self.outcomes[progress.outcome] = self.outcomes.get(progress.outcome, 0) + len(new)
        elif progress.outcome != "skipped":
            for partition, offset in zip(progress.partitions, progress.offsets, strict=True):
                place = progress.topic, progress.topic_id, partition
                self._written.setdefault(place, {})[offset] = progress.plan

    def other_plan(self, record: PlanRecord) -> str | None:
        """The other plan that wrote this record; None without one."""
        return self._written.get((record.topic, record.topic_id, record.partition), {}).get(record.offset)


def ensure_progress_topic(admin: TopicAdmin) -> None:
    """Create the topic when it is absent, and wait until it is served; `ClusterError` when that is not possible."""
    try:
        metadata = admin.client.list_topics(timeout=_CALL_S)
        if PROGRESS_TOPIC in metadata.topics:
            _wait_until_served(admin)  # another process may have created it a moment ago
            return
        factor = replication_of(len(metadata.brokers))
        configs = {"cleanup.policy": "compact"} | ({"min.insync.replicas": "2"} if factor >= _TWO_IN_SYNC_FROM else {})
        wanted = NewTopic(PROGRESS_TOPIC, num_partitions=1, replication_factor=factor, config=configs)
        admin.client.create_topics([wanted], operation_timeout=_CALL_S)[PROGRESS_TOPIC].result(_CALL_S)
        _wait_until_served(admin)
    except KafkaException as failure:
        error = failure.args[0] if failure.args else None
        if not isinstance(error, KafkaError) or error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise ClusterError(
                f"the topic {PROGRESS_TOPIC} cannot be created: {reason(failure)}. Create it with one partition and "
                "cleanup.policy=compact, and grant the operator READ and WRITE on it"
            ) from None
        _wait_until_served(admin)


def _wait_until_served(admin: TopicAdmin) -> None:
    """The controller has created the topic before its leader serves it. What else is wrong, the next call reports."""
    until = time.monotonic() + _CALL_S
    while time.monotonic() < until:
        try:
            admin.bounds(PROGRESS_TOPIC, [0], timeout_s=_CALL_S)
        except KafkaException as failure:
            error = failure.args[0] if failure.args else None
            if not isinstance(error, KafkaError) or error.code() not in _NOT_SERVED_YET:
                return
            time.sleep(_POLL_S)
        else:
            return


def has_progress_topic(admin: TopicAdmin) -> bool:
    try:
        return PROGRESS_TOPIC in admin.client.list_topics(timeout=_CALL_S).topics
    except KafkaException as failure:
        raise ClusterError(f"the topics cannot be listed: {reason(failure)}") from None


def read_past(settings: Mapping[str, Any], admin: TopicAdmin, *, group: str, plan: str) -> PastReplays:
    """All that replays of the group have committed.

    A progress of this plan that cannot be read is a `ClusterError`: records could be replayed twice. One of another
    plan is skipped with a warning, because everyone who replays may write the topic, and must not stop all replays.
    """
    past = PastReplays()
    skipped = 0
    first: dict[str, Any] = {}  # of the skipped ones
    for message in read_progress(settings, admin):
        progress = decode_progress(message.key(), message.value())
        if isinstance(progress, ReplayProgressed):
            if progress.group == group:
                past.add(progress, plan)
        elif isinstance(progress, Rejected):
            named = plan_of_key(message.key())
            if named == plan:
                raise ClusterError(
                    f"{PROGRESS_TOPIC} has a record of plan {plan} at offset {message.offset()} that cannot be read: "
                    f"{progress.reason}. Without it, records may be replayed twice: see `headgate dlq audit --plan "
                    f"{plan}`, and make a new plan for the others"
                )
            first = first or {"offset": message.offset(), "plan": named, "reason": progress.reason}
            skipped += 1
        else:
            fact = decode("state", message.key(), message.value())
            if isinstance(fact, ReplayStateChanged) and fact.plan == plan:
                past.state = fact.state
    if skipped:
        log.warning("progress of other plans cannot be read", topic=PROGRESS_TOPIC, records=skipped, **first)
    return past


def read_progress(
    settings: Mapping[str, Any],
    admin: TopicAdmin,
    *,
    start: int = 0,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Message]:
    """The committed records from this offset on; `ClusterError` when they cannot be read, or reading was stopped."""
    try:
        first, end = admin.bounds(PROGRESS_TOPIC, [0], timeout_s=_CALL_S)[0]
    except KafkaException as failure:
        raise ClusterError(f"{PROGRESS_TOPIC} cannot be read: {reason(failure)}") from None
    if max(first, start) >= end:
        return
    consumer = Consumer(
        quiet(
            settings,
            group__id="headgate-replay",  # never joined: the partition is assigned by hand
            enable__auto__commit=False,
            enable__partition__eof=True,
            auto__offset__reset="error",
            isolation__level="read_committed",
        )
    )
    try:
        consumer.assign([TopicPartition(PROGRESS_TOPIC, 0, max(first, start))])
        until = time.monotonic() + _SILENCE_S
        while True:
            for message in consumer.consume(_AT_ONCE, _POLL_S):
                error, offset = message.error(), message.offset()
                if error is None:
                    if offset is not None and offset >= end:  # others go on writing, so the end may never be reached
                        return
                    yield message
                    until = time.monotonic() + _SILENCE_S
                elif error.code() == _END:
                    if offset is not None and offset >= end:
                        return
                elif message.topic() is not None and not error.retriable():  # else it is about the unused group
                    raise ClusterError(f"{PROGRESS_TOPIC} cannot be read: {reason(error)}")
            if is_stopped():
                raise ClusterError(f"reading {PROGRESS_TOPIC} was stopped")
            if time.monotonic() > until:
                raise ClusterError(
                    f"{PROGRESS_TOPIC} could not be read to its end within {_SILENCE_S:.0f} s: a transaction in it is "
                    "still open"
                )
    finally:
        consumer.close()
