"""Delivery reports of a producer, handed from its poll thread to the event loop.

Records come by the hundred, so the thread wakes the loop once for all reports that it has. Records are known by
tickets: a producer that was replaced keeps its callbacks, which must not keep the records alive.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaError, Message, Producer

T = TypeVar("T")


class DeliveryReports(Generic[T]):
    """Made on the event loop, on which `on_report` is called: item, error (None: delivered), offset or -1."""

    def __init__(self, on_report: Callable[[T, KafkaError | str | None, int], None]) -> None:
        self._on_report = on_report
        self._loop = asyncio.get_running_loop()
        self._tickets = count()
        self._expected: dict[int, T] = {}
        self._reports: deque[tuple[int, KafkaError | None, int]] = deque()  # added by the poll thread
        self._is_woken = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def __len__(self) -> int:
        """The number of records in flight."""
        return len(self._expected)

    def produce(self, producer: Producer, item: T, topic: str, **record: Any) -> None:
        """Produce a record whose report is that of `item`; raises what `Producer.produce` raises."""
        ticket = next(self._tickets)
        producer.produce(topic, on_delivery=self._callback(ticket), **record)
        self._expected[ticket] = item
        self._is_idle.clear()

    async def wait_until_idle(self, timeout_s: float) -> None:
        """Return when no record is in flight, or after these seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._is_idle.wait()

    def fail_all(self, text: str) -> None:
        """Report all records in flight as failed; their own reports are then ignored."""
        self._read()
        for ticket in tuple(self._expected):
            self._report(ticket, text, -1)

    def _callback(self, ticket: int) -> Callable[[KafkaError | None, Message], None]:
        """Runs on the poll thread."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            offset = None if error is not None else message.offset()
            self._reports.append((ticket, error, -1 if offset is None else offset))
            if not self._is_woken:
                self._is_woken = True
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._read)

        return on_delivery

    def _read(self) -> None:
        self._is_woken = False  # first: a report that arrives now is read below, or wakes the loop again
        while self._reports:
            self._report(*self._reports.popleft())

    def _report(self, ticket: int, error: KafkaError | str | None, offset: int) -> None:
        item = self._expected.pop(ticket, None)
        if item is not None:
            if not self._expected:
                self._is_idle.set()
            self._on_report(item, error, offset)
