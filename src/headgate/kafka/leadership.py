"""Leader election among all workers of all gateways: the leader is the consumer of the leader topic's one partition.

Invariant: a leader that has not heard from the group's coordinator for a session stops by itself, because by then
another leads: librdkafka counts the session here too, and then reports the partition as lost. (For a moment two may
believe that they lead; what the leader writes is fenced, see `TripWriter`.)

It is the classic protocol: with a session of six seconds another takes over in five to six (KIP-848's shortest session
is 45 s). It is cooperative: a worker that joins takes the lead from no other.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, TopicPartition

from headgate.kafka.consumer_thread import POLL_S, ConsumerThread, failure_text
from headgate.kafka.leader_group import candidate_client_id
from headgate.kafka.topics import reason

log = structlog.get_logger()

_HAND_OVER_S: Final = 2.0
_SESSION_MS: Final = 6000
_HEARTBEAT_MS: Final = 1500

LEADER: Final = "leader"  # of the topic and of the group, behind the prefix
# The group of gateways without share groups, which elect a worker that polls lags. In the group of those with share
# groups one of these would be a leader that trips nothing.
LAGS_LEADER: Final = "lags-leader"
OnChange = Callable[[], Awaitable[None]]


class _Term:
    """One leadership from assignment to loss: `over` is set on the loop, `ended` when `on_lost` has returned."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.ended = threading.Event()


class Leadership(ConsumerThread):
    """Awaits `on_gained` and `on_lost` on the event loop, one after the other.

    When the lead is lost while `on_gained` is still under way, that is cancelled first. If `on_gained` raises,
    `on_lost` is awaited, and then it is tried again every second for as long as this worker has the lead. `group` is
    the consumer group, by default of the topic's name: an election of its own. `worker` is its name for those who
    describe the group.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        topic: str,
        group: str | None = None,
        worker: str = "",
        on_gained: OnChange,
        on_lost: OnChange,
        session_ms: int = _SESSION_MS,
    ) -> None:
        super().__init__(
            settings,
            topic=topic,
            problem="the leader's group was not joined yet",
            group__id=group or topic,
            client__id=candidate_client_id(worker),
            partition__assignment__strategy="cooperative-sticky",
            session__timeout__ms=session_ms,
            heartbeat__interval__ms=min(_HEARTBEAT_MS, session_ms // 4),
            auto__offset__reset="latest",
            # The topic is empty, and one that was created a moment ago is to be led soon.
            fetch__wait__max__ms=5000,
            topic__metadata__refresh__interval__ms=5000,
            reconnect__backoff__max__ms=1000,
        )
        self._on_gained = on_gained
        self._on_lost = on_lost
        self._term: _Term | None = None
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    @property
    def is_leader(self) -> bool:
        """Whether Kafka has assigned the lead to this worker, as far as it knows."""
        return self._term is not None and not self._term.over.is_set()

    def start(self) -> None:
        self._following = asyncio.create_task(self._follow())
        super().start()

    async def close(self) -> None:
        """Give the lead away, so that another need not wait for it; `on_lost` has returned when this does."""
        await super().close()
        if self._following is not None:
            self.lose()
            self._changed.set()
            await self._following
            self._following = None

    # --- on the event loop

    def gain(self) -> None:
        """Kafka has assigned the lead to this worker."""
        self.problem = None
        if not self.is_leader:
            self._term = _Term()
            self._changed.set()

    def lose(self) -> None:
        """Kafka takes the lead away, or another may have it."""
        if self._term is not None:
            self._term.over.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            term = self._term
            if term is not None and not term.over.is_set():
                log.info("this worker became the leader", topic=self._topic)
                await self._serve(term)
                log.info("this worker is no longer the leader", topic=self._topic)
            if term is not None:
                term.ended.set()
            if self._stop.is_set() and not self.is_leader:
                return

    async def _serve(self, term: _Term) -> None:
        while not term.over.is_set():
            pause = None if await self._begin(term) else self.retry_s
            if pause is None:
                await term.over.wait()
            try:
                await self._on_lost()
            except Exception as failure:  # noqa: BLE001 - the worker goes on without the lead
                log.warning("giving up the lead failed", topic=self._topic, error=repr(failure))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await term.over.wait()

    async def _begin(self, term: _Term) -> bool:
        """Await `on_gained`; False when it failed, or when the lead was lost before it returned."""
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
            self.problem = f"taking the lead failed: {failure_text(failure)}"
            log.warning("taking the lead failed", topic=self._topic, error=repr(failure))
            return False
        self.problem = None
        return True

    # --- on the thread

    def _consume(self, consumer: Consumer) -> None:
        consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_assignment_lost
        )
        while not self._stop.is_set():
            message = consumer.poll(POLL_S)
            error = None if message is None else message.error()
            if error is not None:
                self.problem = reason(error)

    def _before_close(self) -> None:
        self._call_on_loop(self.lose)

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._call_on_loop(self.gain)
        else:
            self.problem = None  # another leads

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Wait until this worker does nothing as the leader any more: the partition is given away when this returns."""
        term = self._term
        if partitions and term is not None:
            self._call_on_loop(self.lose)
            term.ended.wait(_HAND_OVER_S)

    def _on_assignment_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """Another may have it already."""
        self._call_on_loop(self.lose)
