"""Looking at the end offsets of all topics, so that it is known how much of what is written passes here.

What was appended is told as a fact of activity of nobody, with the rule `end-offsets` and no bytes (docs/facts.md). One
worker of a gateway does it. One rule: a look that fails is left out, and the next one covers its time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from headgate.activity.end_offsets import end_offsets
from headgate.activity.model.topic_growth import Appended, Coverage, Topic, next_look_ms
from headgate.activity.topic_names import text_of
from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.config.model import Config
from headgate.facts import Fact
from headgate.facts.observations import ActivityObserved, Actor
from headgate.kafka.connections import dialler_of

log = structlog.get_logger()

RULE: Final = "end-offsets"
_NOBODY: Final = Actor(kind="unattributed", name="unattributed", rule=RULE, confidence="certain")
_AGAIN_S: Final = 10.0

Look = Callable[[], Awaitable[Mapping[tuple[str, bytes], Mapping[int, int]]]]


class CoverageTask:
    """`run` for ever, as a task of the feature."""

    def __init__(self, look: Look, tell: Callable[[Sequence[Fact]], Awaitable[None]], clock: Clock) -> None:
        self._look = look
        self._tell = tell
        self._clock = clock
        self._coverage = Coverage()

    async def run(self) -> None:
        said = ""
        while True:
            try:
                await self.look_once()
            except ClusterError as failure:
                if str(failure) != said:
                    log.warning("end offsets could not be read, trying again", problem=str(failure))
                said = str(failure)
                await asyncio.sleep(_AGAIN_S)
            else:
                said = ""
                now_ms = self._clock.epoch_ms()
                await asyncio.sleep((next_look_ms(now_ms) - now_ms) / 1000)

    async def look_once(self) -> None:
        found = await self._look()
        now_ms = self._clock.epoch_ms()
        ends = {Topic(name, text_of(topic_id)): partitions for (name, topic_id), partitions in found.items()}
        appended = self._coverage.looked(ends, now_ms)
        for first in range(0, len(appended), 50):
            await self._tell([_fact(one) for one in appended[first : first + 50]])


def _fact(seen: Appended) -> ActivityObserved:
    return ActivityObserved(
        at=seen.until_ms,
        actor=_NOBODY,
        topic=seen.topic.name,
        topic_id=seen.topic.id,
        direction="write",
        since=seen.since_ms,
        until=seen.until_ms,
        bytes=0,
        records=seen.records,
        principal=None,
        client_id=None,
        group=None,
        transactional_id=None,
        software=None,
        host=None,
    )


def look_as_service(config: Config) -> Look:
    async def look() -> Mapping[tuple[str, bytes], Mapping[int, int]]:
        dialler = await asyncio.to_thread(dialler_of, config.upstream)
        return await end_offsets(dialler, without=config.facts.prefix)

    return look
