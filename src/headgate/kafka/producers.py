"""Producers with a thread that polls them, and the one that several writers share.

Invariant: writers that share a producer do not take each other's room in its queue. Each has a share, refuses what does
not fit into it, and the queue holds all shares. They have one thing in common: it is idempotent, so after a record that
was not delivered in time it waits for the answers to all requests that are under way before it sends more.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, Producer

from headgate.base.errors import ClusterError
from headgate.facts.topics import MIB
from headgate.kafka.topics import quiet

log = structlog.get_logger()

_POLL_S: Final = 0.1
SHARE_RECORDS: Final = 10_000
_SHARE_BYTES: Final = 128 * MIB


class PolledProducer:
    """A librdkafka producer and the thread that polls it, replaced after a fatal error and after a failed callback.

    Used on one event loop; `on_fatal` is called on the thread. Delivery callbacks come while the thread polls; for what
    a replaced producer still held, `give_up` is called. Once closed, `alive` raises an `error`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        thread: str,
        give_up: Callable[[], None],
        on_fatal: Callable[[KafkaError], None] | None = None,
        error: type[ClusterError] = ClusterError,
    ) -> None:
        self._settings = dict(settings)
        self._name = thread
        self._give_up = give_up
        self._on_fatal = on_fatal
        self._error = error
        self._broken = False
        self._stop = threading.Event()
        self._producer: Producer | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_closed(self) -> bool:
        return self._stop.is_set()

    def alive(self) -> Producer:
        """The producer; a new one after a failure."""
        if self._stop.is_set():
            raise self._error("the writer is closed")
        if self._broken:
            self._broken = False
            self._producer = None
            # The old one is not polled any more, so its delivery callbacks would never come.
            self._give_up()
        if self._producer is None:
            self._producer = Producer({**self._settings, "error_cb": self._on_error})
        if self._thread is None:
            self._thread = threading.Thread(target=self._poll, name=self._name, daemon=True)
            self._thread.start()
        return self._producer

    def replace_settings(self, settings: Mapping[str, Any]) -> None:
        """Go on with a new producer that has these settings; what the old one holds is given up."""
        self._settings = dict(settings)
        self._broken = self._producer is not None

    async def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    # --- on the thread

    def _poll(self) -> None:
        while not self._stop.is_set():
            producer = self._producer
            if producer is None:
                self._stop.wait(_POLL_S)
            else:
                try:
                    producer.poll(_POLL_S)
                except Exception:  # any: without this thread no record is ever reported
                    log.exception("callback of a producer failed", thread=self._name)
                    self._broken = True  # what it still holds is given up

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            if self._on_fatal is not None:
                self._on_fatal(error)
            self._broken = True


class RecordProducer:
    """An idempotent producer for the records of up to `shares` writers.

    Made on the event loop that it serves. `delivery_timeout_s` bounds how long a record is tried.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        largest: int = MIB,
        delivery_timeout_s: float = 5.0,
        shares: int = 1,
        error: type[ClusterError] = ClusterError,
    ) -> None:
        self.delivery_timeout_s: Final = delivery_timeout_s
        self.share_bytes: Final = max(_SHARE_BYTES, 2 * largest)
        self._options: dict[str, Any] = {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "compression.type": "zstd",
            "delivery.timeout.ms": int(delivery_timeout_s * 1000),
            "request.timeout.ms": int(delivery_timeout_s * 1000),
            # librdkafka counts a record before it is compressed, and its own overhead.
            "message.max.bytes": largest + 4096,
            "queue.buffering.max.messages": shares * SHARE_RECORDS,
            "queue.buffering.max.kbytes": shares * self.share_bytes // 1024,
        }
        self._give_ups: set[Callable[[], None]] = set()
        self._polled = PolledProducer(
            {**quiet(settings), **self._options}, thread="headgate-producer", give_up=self._give_up, error=error
        )

    def alive(self) -> Producer:
        return self._polled.alive()

    def add(self, give_up: Callable[[], None]) -> None:
        """`give_up` is called when the producer failed with all that it held."""
        self._give_ups.add(give_up)

    def remove(self, give_up: Callable[[], None]) -> None:
        self._give_ups.discard(give_up)

    def replace_settings(self, settings: Mapping[str, Any]) -> None:
        """Go on with a new producer that has these settings."""
        self._polled.replace_settings({**quiet(settings), **self._options})

    async def close(self) -> None:
        await self._polled.close()

    def _give_up(self) -> None:
        for give_up in tuple(self._give_ups):
            give_up()
