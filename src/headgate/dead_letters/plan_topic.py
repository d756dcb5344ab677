"""Requests for plans and their answers in `headgate-replay.progress`, with the credentials that the caller has.

They are in no transaction, and are read uncommitted: a replay that was killed keeps readers of committed records
waiting for a minute, and a request must not wait for that.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headgate.base.errors import ClusterError
from headgate.facts.codec import Rejected
from headgate.facts.plan_requests import (
    FINAL,
    MAX_REQUEST_BYTES,
    PlanAnswered,
    PlanRequested,
    decode_plan_record,
    encode_plan_record,
)
from headgate.facts.replays import PROGRESS_TOPIC
from headgate.kafka.topics import TopicAdmin, quiet, reason

# How often a pipeline repeats the state of a request that is not done, and when one that is silent counts as ended.
HEARTBEAT_S: Final = 5.0
SILENCE_S: Final = 30.0
_CALL_S: Final = 30.0
_POLL_S: Final = 0.5
_AT_ONCE: Final = 500
_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own codes begin so


class PlanRecordWriter:
    """Writes requests or answers one by one; each is confirmed before the call returns. `close` it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._producer = Producer(
            quiet(settings, acks="all", linger__ms=0, allow__auto__create__topics=False, message__timeout__ms=30_000)
        )

    def write(self, record: PlanRequested | PlanAnswered) -> None:
        """`ClusterError` when the record was not confirmed."""
        key, value = encode_plan_record(record)
        if len(key) + len(value) > MAX_REQUEST_BYTES:
            raise ClusterError(f"the request has more than {MAX_REQUEST_BYTES} bytes")
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        try:
            self._producer.produce(PROGRESS_TOPIC, key=key, value=value, partition=0, on_delivery=on_delivery)
            left = self._producer.flush(_CALL_S + 1)
        except (KafkaException, BufferError) as failure:
            words = reason(failure) if isinstance(failure, KafkaException) else str(failure)
            raise ClusterError(f"{PROGRESS_TOPIC} cannot be written: {words}") from None
        if failures or left:
            words = reason(failures[0]) if failures else f"not confirmed within {_CALL_S:.0f} s"
            raise ClusterError(f"{PROGRESS_TOPIC} cannot be written: {words}")

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(0)


class PlanRecordReader:
    """Reads requests and answers, from the beginning of the topic or from its end; used on one thread. `close` it."""

    def __init__(self, settings: Mapping[str, Any], admin: TopicAdmin, *, from_end: bool = False) -> None:
        try:
            first, self._end = admin.bounds(PROGRESS_TOPIC, [0], timeout_s=_CALL_S)[0]
        except KafkaException as failure:
            raise ClusterError(f"{PROGRESS_TOPIC} cannot be read: {reason(failure)}") from None
        self._consumer = Consumer(
            quiet(
                settings,
                group__id="headgate-replay",  # never joined: the partition is assigned by hand
                enable__auto__commit=False,
                enable__partition__eof=True,
                auto__offset__reset="error",
                isolation__level="read_uncommitted",
            )
        )
        self._next = self._end if from_end else first
        self._consumer.assign([TopicPartition(PROGRESS_TOPIC, 0, self._next)])

    @property
    def is_at_end(self) -> bool:
        """Whether everything was read that was there when the reader was made."""
        return self._next >= self._end

    def poll(self, timeout_s: float) -> list[PlanRequested | PlanAnswered]:
        """The next records, none when none came in time; `ClusterError` when the topic cannot be read."""
        found: list[PlanRequested | PlanAnswered] = []
        for message in self._consumer.consume(_AT_ONCE, timeout_s):
            error, offset = message.error(), message.offset()
            if error is None and offset is not None:
                self._next = offset + 1
                key: Any = message.key()
                value: Any = message.value()
                record = decode_plan_record(key, value)
                if record is not None and not isinstance(record, Rejected):
                    found.append(record)
            elif error is not None and error.code() == _END:
                self._next = max(self._next, offset or 0)
            elif error is not None and message.topic() is not None and not error.retriable():
                raise ClusterError(f"{PROGRESS_TOPIC} cannot be read: {reason(error)}")
        return found

    def close(self) -> None:
        self._consumer.close()


def request_plan(
    settings: Mapping[str, Any], admin: TopicAdmin, request: PlanRequested, tell: Callable[[str], None]
) -> PlanAnswered:
    """Write the request, and wait for its final answer; `ClusterError` when no pipeline answers.

    `tell` is called with each new step.
    """
    reader = PlanRecordReader(settings, admin, from_end=True)
    writer = PlanRecordWriter(settings)
    try:
        writer.write(request)
        shown_text, is_taken = None, False
        until = time.monotonic() + SILENCE_S
        while time.monotonic() < until:
            for answer in reader.poll(_POLL_S):
                if not isinstance(answer, PlanAnswered) or answer.request != request.request:
                    continue
                if answer.state in FINAL:
                    return answer
                until, is_taken = time.monotonic() + SILENCE_S, True
                if answer.text is not None and answer.text != shown_text:
                    shown_text = answer.text
                    tell(shown_text)
    finally:
        reader.close()
        writer.close()
    if is_taken:
        raise ClusterError(
            f"the pipeline has not answered for {SILENCE_S:.0f} s: it ended, or cannot reach the cluster. See its "
            "messages, then ask again; `headgate tables show replay_plans` lists the plans"
        )
    raise ClusterError(
        f"no pipeline answered within {SILENCE_S:.0f} s: start `headgate pipeline run --config FILE`, or see its "
        "messages; --local runs Spark in this process instead"
    )
