"""The epochs of KIP-1331 in `headgate.state`: written by whoever decides, counted when they are read back.

One rule: what is told (`on_event`) is what the topic says, in its order, and first when it was read to its end
(`kafka.replay`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headgate.base.clock import Clock
from headgate.facts import TopologyEpochsSet, decode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import CatchUp, FactReader
from headgate.kafka.fact_writer import FactWriter
from headgate.topologies.fact_mapping import epochs_fact, event_of
from headgate.topologies.model.group_events import Event, WriteEpochs

SUFFIX: Final = "state"


class EpochFacts:
    """`on_another` is called when the topic was replaced by an empty one: what was told is over."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        prefix: str,
        writer: FactWriter,
        clock: Clock,
        on_event: Callable[[str, Event], object],
        on_another: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._on_another = on_another
        self._replay: CatchUp[Event] = CatchUp(on_event)
        self._reader: FactReader[list[TopologyEpochsSet] | None] = FactReader(
            settings,
            topic=prefix + SUFFIX,
            start=0,
            digest=_digest,
            forget=lambda another: None if another else [],
            take=self._take,
        )

    @property
    def problem(self) -> str | None:
        return self._reader.problem

    async def open(self) -> None:
        """Return when the topic was read to its end and told."""
        self._reader.start()
        await self._reader.replayed.wait()
        await self._replay.catch_up()

    async def write(self, effect: WriteEpochs) -> None:
        """Write the fact and return when it was read back; `ClusterError` when it was not written."""
        position = await self._writer.write(epochs_fact(effect, at=self._clock.epoch_ms()))
        await self._reader.reached(position.offset)

    async def close(self) -> None:
        await self._reader.close()

    def _take(self, found: list[TopologyEpochsSet] | None) -> None:
        if found is None:
            self._replay.forget()
            self._on_another()
            return
        for fact in found:
            event = event_of(fact, own=self._writer.is_own(fact))
            if event is not None:
                self._replay.take(*event)


def _digest(records: Sequence[ConsumedRecord]) -> list[TopologyEpochsSet]:
    facts = (decode(SUFFIX, record.key, record.value) for record in records)
    return [fact for fact in facts if isinstance(fact, TopologyEpochsSet)]
