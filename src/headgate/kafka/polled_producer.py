"""A producer and the thread that polls it: made when it is first needed, and made anew when it broke.

One rule: whoever waits hears of it. What a producer took, librdkafka tells by its call-back for as long as somebody
polls; for what an old producer took with it, `give_up` is called. What is written, and whether it is tried again, is
never decided here.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from headgate.base.errors import ClusterError

_POLL_S: Final = 0.1


class PolledProducer:
    """Used on one event loop; `on_fatal` is called on the thread. Once closed, `alive` raises an `error`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        thread: str,
        give_up: Callable[[], None],
        on_fatal: Callable[[KafkaError], None] | None = None,
        error: type[ClusterError] = ClusterError,
    ) -> None:
        self._settings = {**settings, "error_cb": self._on_error}
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
        """The producer; a new one when the last met an error that it cannot get over."""
        if self._stop.is_set():
            raise self._error("the writer is closed")
        if self._broken:
            self._broken = False
            self._producer = None
            # Nobody polls the old one any more, so nobody would tell what became of what it took.
            self._give_up()
        if self._producer is None:
            self._producer = Producer(self._settings)
        if self._thread is None:
            self._thread = threading.Thread(target=self._poll, name=self._name, daemon=True)
            self._thread.start()
        return self._producer

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
                producer.poll(_POLL_S)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            if self._on_fatal is not None:
                self._on_fatal(error)
            self._broken = True
