"""Facts that nobody waits for, on their way to their topics: counted, events told.

One rule: putting one in never waits and never fails; what there is no room for, or what the cluster does not take, is
lost and counted. Nothing that is decided goes this way.
"""

import asyncio
from collections import deque
from typing import Final

import structlog

from headgate.facts import Fact
from headgate.kafka.fact_writer import FactWriter

log = structlog.get_logger()

_MOST: Final = 50_000
_AT_ONCE: Final = 500
_LAST_WORDS_S: Final = 2.0


class Outbox:
    def __init__(self) -> None:
        self._facts: deque[Fact] = deque()
        self._filled = asyncio.Event()
        self.lost = 0

    def put(self, fact: Fact) -> None:
        if len(self._facts) >= _MOST:
            self.lost += 1
            return
        self._facts.append(fact)
        self._filled.set()

    async def run(self, writer: FactWriter) -> None:
        """Write what is put in, until it is cancelled."""
        while True:
            await self._filled.wait()
            await self._write_some(writer)
            if not self._facts:
                self._filled.clear()

    async def flush(self, writer: FactWriter) -> None:
        """The rest, at the end."""
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                while self._facts:
                    await self._write_some(writer)
        except TimeoutError:
            self.lost += len(self._facts)

    async def _write_some(self, writer: FactWriter) -> None:
        some = [self._facts.popleft() for _ in range(min(_AT_ONCE, len(self._facts)))]
        outcomes = await asyncio.gather(*(writer.write(fact) for fact in some), return_exceptions=True)
        failures = [one for one in outcomes if isinstance(one, BaseException)]
        if failures:
            self.lost += len(failures)
            # Whatever it was: those that come are to be written all the same.
            log.warning("facts of share groups were lost", number=len(failures), problem=repr(failures[0]))
