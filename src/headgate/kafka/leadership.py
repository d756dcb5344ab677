"""Who leads among all workers of all gateways: whoever Kafka assigns the one partition of the leader's topic.

One rule: a leader that has not heard from the group's coordinator for a session stops, although nobody can tell it,
because by then another leads: librdkafka counts the session here too, and says after it that the partition is lost.
(For a moment two may believe that they lead; what the leader writes is fenced, see `trip_writer.py`.)

It is the classic protocol: with a session of six seconds another takes over in five to six (KIP-848's shortest session
is 45 s). It is cooperative: a worker that joins takes the lead from nobody.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, KafkaError, TopicPartition

from headgate.kafka.topics import quiet, reason

log = structlog.get_logger()

_POLL_S: Final = 0.1
_RETRY_S: Final = 1.0
_HAND_OVER_S: Final = 2.0
_SESSION_MS: Final = 6000
_HEARTBEAT_MS: Final = 1500

OnChange = Callable[[], Awaitable[None]]


class _Term:
    """From an assignment to its loss: `over` is set on the loop, `ended` when nothing is done in its name any more."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.ended = threading.Event()


class Leadership:
    """Made on the event loop; `on_gained` and `on_lost` are awaited there, one after the other.

    When the lead is lost while `on_gained` is still under way, that is cancelled first. If `on_gained` raises,
    `on_lost` is awaited, and then it is tried again every second for as long as the lead is ours.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        topic: str,
        on_gained: OnChange,
        on_lost: OnChange,
        session_ms: int = _SESSION_MS,
    ) -> None:
        self._settings = quiet(
            settings,
            group__id=topic,
            partition__assignment__strategy="cooperative-sticky",
            session__timeout__ms=session_ms,
            heartbeat__interval__ms=min(_HEARTBEAT_MS, session_ms // 4),
            enable__auto__commit=False,
            auto__offset__reset="latest",
            # The topic is empty, and one that was made a moment ago is to be led soon.
            fetch__wait__max__ms=5000,
            topic__metadata__refresh__interval__ms=5000,
            reconnect__backoff__max__ms=1000,
            error_cb=self._on_error,
        )
        self._topic = topic
        self._on_gained = on_gained
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._term: _Term | None = None
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.problem: str | None = "the leader's group was not joined yet"

    @property
    def is_leader(self) -> bool:
        """Whether Kafka has given us the lead, as far as we know."""
        return self._term is not None and not self._term.over.is_set()

    def start(self) -> None:
        self._following = asyncio.create_task(self._follow())
        self._thread = threading.Thread(target=self._run, name="headgate-leader", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Give the lead away, so that another need not wait for it; `on_lost` has returned when this does."""
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        if self._following is not None:
            self._lose()
            self._changed.set()
            await self._following
            self._following = None

    # --- on the event loop

    def _gain(self) -> None:
        self.problem = None
        if not self.is_leader:
            self._term = _Term()
            self._changed.set()

    def _lose(self) -> None:
        if self._term is not None:
            self._term.over.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            term = self._term
            if term is not None and not term.over.is_set():
                log.info("leading", topic=self._topic)
                await self._serve(term)
                log.info("not leading any more", topic=self._topic)
            if term is not None:
                term.ended.set()
            if self._stop.is_set() and not self.is_leader:
                return

    async def _serve(self, term: _Term) -> None:
        while not term.over.is_set():
            pause = None if await self._begun(term) else _RETRY_S
            if pause is None:
                await term.over.wait()
            try:
                await self._on_lost()
            except Exception as failure:  # noqa: BLE001 - whatever it was, this worker goes on
                log.warning("giving the lead up failed", topic=self._topic, error=repr(failure))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await term.over.wait()

    async def _begun(self, term: _Term) -> bool:
        """Whether `on_gained` came to its end while the lead was ours."""
        beginning = asyncio.ensure_future(self._on_gained())
        over = asyncio.create_task(term.over.wait())
        try:
            await asyncio.wait({beginning, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            beginning.cancel()
            over.cancel()
            await asyncio.wait({beginning, over})
        if beginning.cancelled():
            return False
        failure = beginning.exception()
        if failure is not None:
            self.problem = f"the lead cannot be taken: {failure}"
            log.warning("the lead cannot be taken", topic=self._topic, error=repr(failure))
            return False
        self.problem = None
        return True

    # --- on the thread

    def _run(self) -> None:
        while not self._stop.is_set():
            consumer = Consumer(self._settings)
            try:
                consumer.subscribe(
                    [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_away
                )
                while not self._stop.is_set():
                    self._step(consumer)
            except Exception as failure:  # noqa: BLE001 - the supervisor of this thread
                log.warning("following the leader's group failed", topic=self._topic, error=repr(failure))
                self.problem = f"following the group {self._topic} failed: {failure}"
                self._stop.wait(_RETRY_S)
            finally:
                self._tell(self._lose)
                consumer.close()

    def _step(self, consumer: Consumer) -> None:
        message = consumer.poll(_POLL_S)
        error = None if message is None else message.error()
        if error is not None:
            self.problem = reason(error)

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._tell(self._gain)
        else:
            self.problem = None  # another leads

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Another gets it when this returns: so not before nothing is done in our name."""
        term = self._term
        if partitions and term is not None:
            self._tell(self._lose)
            term.ended.wait(_HAND_OVER_S)

    def _on_away(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """Another may have it already."""
        self._tell(self._lose)

    def _tell(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(what)

    def _on_error(self, error: KafkaError) -> None:
        self.problem = reason(error)
