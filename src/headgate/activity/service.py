"""Writing down what was seen: one task that sets the times, one that writes the facts.

One rule: the data plane never waits for it. While the cluster takes no facts, uses go on being added up in the ledger,
which is bounded; only what a full queue of closed uses cannot hold, and what the cluster refuses, is lost and counted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol

import structlog

from headgate.activity import activity_metrics as meter
from headgate.activity.model.intervals import Interval, Observed
from headgate.activity.usage_tracker import Ledger
from headgate.activity.watchers import UseWatcher
from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.config.model import Config
from headgate.facts import Fact
from headgate.facts.observations import ActivityObserved, Actor, Software
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.topics import client_settings, find_origin

log = structlog.get_logger()

SUFFIX: Final = "activity"
_SWEEP_S: Final = 1.0
_AT_ONCE: Final = 50  # facts: encoding one takes some 20 microseconds of the event loop
_AGAIN_S: Final = 5.0
_NAMES_S: Final = 5.0
_LAST_WORDS_S: Final = 3.0
_CONNECTIONS_AT_ONCE: Final = 50
_GROUPS: Final = frozenset(("streams", "share_group", "consumer_group"))


class Writer(Protocol):
    """A `FactWriter`, as far as it is needed."""

    async def write(self, fact: Fact) -> object: ...

    async def close(self) -> None: ...


class ActivityService:
    """The life of the feature."""

    def __init__(
        self,
        ledger: Ledger,
        watcher: UseWatcher,
        clock: Clock,
        open_writer: "Callable[[], Any]",
    ) -> None:
        self._ledger = ledger
        self._watcher = watcher
        self._clock = clock
        self._open_writer = open_writer
        self.on_used: Callable[[Sequence[Interval]], None] = lambda _: None  # told every second what was used in it
        self._news = asyncio.Event()
        self._writer: Writer | None = None
        self._written = 0
        self._lost = 0
        self._said: str | None = None  # the problem that was last logged: it is not said again and again
        self._unnamed: str | None = None  # the same of topics
        ledger.on_news = self._news.set

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(forever(one)) for one in (self._sweep, self._write)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            await self._say_the_rest()

    async def tell(self, facts: Sequence[Fact]) -> None:
        """Write facts that others made; what cannot be written is counted."""
        writer = self._writer
        outcomes: Sequence[object] = [None] * len(facts)
        if writer is not None:
            outcomes = await asyncio.gather(*map(writer.write, facts), return_exceptions=True)
        failures = [one for one in outcomes if writer is None or isinstance(one, BaseException)]
        self._written += len(facts) - len(failures)
        self._lost += len(failures)
        problem = next((str(one) for one in failures if isinstance(one, BaseException)), None)
        if problem is not None and problem != self._said:
            log.warning("facts of activity were not written", problem=problem)
        self._said = problem

    @property
    def is_writing(self) -> bool:
        return self._writer is not None

    def samples(self, recorded: int = 0) -> dict[tuple[str, tuple[str, ...]], float]:
        intervals = self._ledger.intervals
        return meter.samples(
            intervals=len(intervals),
            overflows=intervals.overflows,
            unreadable=self._watcher.unreadable,
            written=self._written,
            lost=self._lost + intervals.lost,
            recorded=recorded,
        )

    # The tasks.

    async def _sweep(self) -> None:
        """Set the times of what was used; something new is not kept waiting for the second to pass."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_S):
                    await self._news.wait()
            self._news.clear()
            self.on_used(self._ledger.swept())
            while self._ledger.identify_again(_CONNECTIONS_AT_ONCE):  # noqa: ASYNC110 - the data plane has its turn
                await asyncio.sleep(0)
            await asyncio.sleep(_SWEEP_S / 20)  # a hundred clients may begin at once

    async def _write(self) -> None:
        while self._writer is None:
            try:
                self._writer = await self._open_writer()
            except ClusterError as failure:
                if str(failure) != self._said:
                    log.warning("activity is not written yet, trying again", problem=str(failure))
                self._said = str(failure)
                await asyncio.sleep(_AGAIN_S)
        while True:
            observed = self._ledger.intervals.take(self._clock.monotonic(), _AT_ONCE)
            if observed:
                await self._tell_observed(observed)
            else:
                await asyncio.sleep(_SWEEP_S / 10)

    async def _tell_observed(self, observed: Sequence[Observed]) -> None:
        try:
            async with asyncio.timeout(_NAMES_S):
                await self._ledger.topics.resolve([one.topic for one in observed])
        except (ClusterError, TimeoutError) as failure:
            problem = str(failure) or f"nobody answered within {_NAMES_S:g} s"
            if problem != self._unnamed:
                log.warning("topics could not be looked up", problem=problem)
            self._unnamed = problem
        at = self._clock.epoch_ms()
        await self.tell([fact_of(one, at) for one in observed])

    async def _say_the_rest(self) -> None:
        """The end: what has not been told is, as far as time allows."""
        self._ledger.swept()
        self._ledger.intervals.close_all(self._clock.epoch_ms())
        writer = self._writer
        if writer is None:
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    while observed := self._ledger.intervals.take(self._clock.monotonic(), _AT_ONCE):
                        await self._tell_observed(observed)
        finally:
            self._writer = None
            await writer.close()


async def forever(work: Callable[[], Coroutine[object, object, None]]) -> None:
    """A task of the feature: whatever it meets, it goes on."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("task of activity failed")
            await asyncio.sleep(_AGAIN_S)


def fact_of(seen: Observed, at: int) -> ActivityObserved:
    who = seen.who
    is_group = who.kind in _GROUPS
    return ActivityObserved(
        at=at,
        actor=Actor(kind=who.kind, name=who.name, rule=who.rule, confidence=who.confidence),
        topic=seen.topic.name,
        topic_id=seen.topic.id,
        direction=seen.direction,
        since=seen.since_ms,
        until=seen.until_ms,
        bytes=seen.bytes,
        records=seen.records,
        principal=seen.client.principal,
        client_id=seen.client.client_id,
        group=who.name if is_group else None,
        transactional_id=seen.named if seen.direction == "write" else None,
        software=None if seen.software is None else Software(name=seen.software[0], version=seen.software[1]),
        host=seen.client.host or None,
    )


def writer_of(config: Config, worker: int) -> "Callable[[], Any]":
    """Opens the topic of activity: makes it if it is absent, and a producer of our own for it."""

    async def open_writer() -> FactWriter:
        settings = await asyncio.to_thread(client_settings, config.upstream)
        origin = await find_origin(config, worker, settings, SUFFIX)
        writer = FactWriter(settings, prefix=config.facts.prefix, origin=origin)
        try:
            await writer.open(SUFFIX)
        except BaseException:
            await writer.close()
            raise
        return writer

    return open_writer
