"""The base of what has a librdkafka consumer and a thread for itself, and records as consumers return them.

Invariant: the thread ends only with `close` or with the event loop, and a consumer that fails is replaced.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVarTuple

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from headgate.kafka.topics import quiet, reason

log = structlog.get_logger()

POLL_S: Final = 0.1
CALL_S: Final = 3.0  # as long as closing may have to wait
_BATCH: Final = 500
Ts = TypeVarTuple("Ts")
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    offset: int
    key: bytes | None
    value: bytes | None
    partition: int = 0
    headers: Headers | None = None  # only where they were requested


class ConsumerThread(ABC):
    """Runs `_consume` on a thread until `close`, and again with a new consumer a second after it raised.

    `problem` says why it does not work now, or is None. Made on the event loop that it serves.
    """

    retry_s = 1.0

    def __init__(self, settings: Mapping[str, Any], *, topic: str, problem: str, **options: Any) -> None:
        self._settings = quiet(settings, enable__auto__commit=False, error_cb=self._on_error, **options)
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.problem: str | None = problem

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"headgate-{self._topic}", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    # --- on the thread

    @abstractmethod
    def _consume(self, consumer: Consumer) -> None:
        """Work until `_stop` is set; whatever is raised is reported and tried again."""

    def _before_close(self) -> None:  # noqa: B027 - most have nothing to do
        """Called before a consumer is closed, whether it failed or not."""

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                consumer = Consumer(self._settings)  # fails for a certificate that cannot be read
                try:
                    self._consume(consumer)
                finally:
                    self._before_close()
                    consumer.close()
            except Exception as failure:  # noqa: BLE001 - the supervisor of this thread
                self._report(failure)
                self._stop.wait(self.retry_s)

    def _report(self, failure: Exception) -> None:
        text = consuming_failed(self._topic, failure)
        if text != self.problem:  # a topic that does not exist yet may be waited for all day
            log.warning("consuming a topic failed", topic=self._topic, error=repr(failure))
        self.problem = text

    def _call_on_loop(self, function: Callable[[*Ts], None], *arguments: *Ts) -> bool:
        """Call it on the event loop; False, and the end of this thread, when the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            self._stop.set()
            return False
        return True

    def _on_error(self, error: KafkaError) -> None:
        self.problem = reason(error)


def consuming_failed(topic: str, failure: Exception) -> str:
    """The problem as one sentence, for the page, `/readyz` and commands."""
    return f"consuming {topic} failed: {failure_text(failure)}"


def failure_text(failure: BaseException) -> str:
    """The text of a failure; of Kafka's errors the text and the name, and not the object that their own text is."""
    return reason(failure) if isinstance(failure, KafkaException) else str(failure) or type(failure).__name__


def next_batch(consumer: Consumer, wait_s: float = POLL_S) -> list[Message]:
    """The messages that are there, without waiting for a full batch as `consume` alone would."""
    first = consumer.poll(wait_s)
    return [] if first is None else [first, *consumer.consume(num_messages=_BATCH - 1, timeout=0)]


def record_of(message: Message, *, with_headers: bool = False) -> ConsumedRecord:
    offset, key, value = message.offset(), message.key(), message.value()
    if offset is None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN, "a record without an offset"))
    headers = _headers(message) if with_headers else None
    return ConsumedRecord(offset, _bytes(key), _bytes(value), message.partition() or 0, headers)


def _headers(message: Message) -> Headers | None:
    """The headers; None for names that are not UTF-8, which only another producer writes."""
    try:
        found: Any = message.headers()
    except UnicodeDecodeError:
        return None
    return [(name, _bytes(value)) for name, value in (found or ())]


def _bytes(part: str | bytes | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part
