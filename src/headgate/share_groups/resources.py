"""Opening what share groups stand on: the topics that are replayed, those that are followed, and the writers.

One rule: opened in this order, closed in the opposite one, whatever failed in between (`stack`). When `open_parts`
returns, `state` and `trips` were read to their ends and told.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from headgate.base.errors import ClusterError
from headgate.config.model import Config
from headgate.facts import DispositionsCounted, EventHappened, decode
from headgate.facts.topics import message_limit
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.fact_tail import FactTail
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.topics import client_settings, ends, find_origin
from headgate.share_groups.dead_letter_writer import DeadLetterWriter
from headgate.share_groups.model.group_state import ShareGroupFact

STATE, TRIPS, LEADER = "state", "trips", "leader"
DISPOSITIONS, EVENTS = "dispositions", "events"
_LONGEST_REPLAY_S: Final = 300.0
_READ_BACK_S: Final = 10.0
F = TypeVar("F")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is told: all on the event loop, in the order of each topic."""

    on_event: Callable[[ShareGroupFact], None]
    on_forget: Callable[[], None]
    on_counted: Callable[[Sequence[DispositionsCounted]], None]
    on_happened: Callable[[Sequence[EventHappened]], None]


class Parts:
    """What the service works with once it is open."""

    def __init__(
        self, settings: Mapping[str, Any], prefix: str, writer: FactWriter, letters: DeadLetterWriter, told: Listeners
    ) -> None:
        self.settings = settings
        self.prefix = prefix
        self.writer = writer
        self.letters = letters
        self._told = told
        self._state = self._reader(STATE, committed=False)
        self._trips = self._reader(TRIPS, committed=True)
        self._tails: tuple[FactTail[Any], ...] = (
            FactTail(
                settings,
                topic=prefix + DISPOSITIONS,
                digest=lambda records: _only(DispositionsCounted, DISPOSITIONS, records),
                take=told.on_counted,
            ),
            FactTail(
                settings,
                topic=prefix + EVENTS,
                digest=lambda records: _only(EventHappened, EVENTS, records),
                take=told.on_happened,
            ),
        )

    def _reader(self, suffix: str, *, committed: bool) -> "FactReader[list[ShareGroupFact] | None]":
        return FactReader(
            self.settings,
            topic=self.prefix + suffix,
            digest=lambda records: share_group_facts(suffix, records),
            forget=lambda another: None if another else [],
            take=lambda found: self._take(found, of_trips=committed),
            committed=committed,
        )

    def _take(self, found: list[ShareGroupFact] | None, *, of_trips: bool) -> None:
        if found is None:  # the topic was replaced by an empty one: what the other says is all there is
            self._told.on_forget()
            (self._state if of_trips else self._trips).read_again()
            return
        for event in found:
            self._told.on_event(event)

    @property
    def problem(self) -> str | None:
        return self._state.problem or self._trips.problem

    async def open(self) -> None:
        for tail in self._tails:
            tail.start()
        self._state.start()
        self._trips.start()
        try:
            async with asyncio.timeout(_LONGEST_REPLAY_S):
                await self._state.replayed.wait()
                await self._trips.replayed.wait()
        except TimeoutError:
            raise ClusterError(f"not read to their ends in {_LONGEST_REPLAY_S:g} s: {self.problem}") from None

    async def close(self) -> None:
        await asyncio.gather(self._state.close(), self._trips.close(), *(tail.close() for tail in self._tails))

    async def decide(self, *events: ShareGroupFact) -> None:
        """Write what is decided and return when it was read back; `ClusterError` when that cannot be said."""
        offset = -1
        for event in events:
            offset = (await self.writer.write(event)).offset
        await self._read_back(self._state, offset)

    async def tripped(self, offset: int) -> None:
        """Return when the trip that was written there was read back."""
        await self._read_back(self._trips, offset)

    async def caught_up(self) -> None:
        """Return when all that was there when this was called was read."""
        found = await ends(self.settings, (self.prefix + STATE, self.prefix + TRIPS))
        await self._read_back(self._state, found[self.prefix + STATE] - 1)
        await self._read_back(self._trips, found[self.prefix + TRIPS] - 1)

    async def _read_back(self, reader: "FactReader[list[ShareGroupFact] | None]", offset: int) -> None:
        try:
            async with asyncio.timeout(_READ_BACK_S):
                await reader.reached(offset)
        except TimeoutError:
            raise ClusterError(f"not read back within {_READ_BACK_S:g} s") from None


async def open_parts(config: Config, worker: int, told: Listeners, stack: AsyncExitStack) -> Parts:
    settings = client_settings(config.upstream)
    prefix = config.facts.prefix
    writer = FactWriter(
        settings,
        prefix=prefix,
        origin=await find_origin(config, worker, settings, STATE),
        largest=message_limit(config.topologies.max_bytes),
    )
    stack.push_async_callback(writer.close)
    await writer.open(STATE, DISPOSITIONS, EVENTS)
    letters = DeadLetterWriter(
        settings, auto_create=config.share_groups.dlq_auto_create, replication=config.facts.replication
    )
    stack.push_async_callback(letters.close)
    parts = Parts(settings, prefix, writer, letters, told)
    stack.push_async_callback(parts.close)
    await parts.open()
    await letters.open()
    return parts


def share_group_facts(suffix: str, records: Sequence[ConsumedRecord]) -> list[ShareGroupFact]:
    """Decodes the records of a topic and drops all that is not about share groups."""
    facts = (decode(suffix, record.key, record.value) for record in records)
    return [fact for fact in facts if isinstance(fact, ShareGroupFact)]


def _only(kind: type[F], suffix: str, records: Sequence[ConsumedRecord]) -> list[F]:
    facts = (decode(suffix, record.key, record.value) for record in records)
    return [fact for fact in facts if isinstance(fact, kind)]
