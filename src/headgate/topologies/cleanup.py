"""The periodic cleanup: what is stored of groups that are gone is deleted (KIP-1331, 6).

We are no coordinator and see no group end. So the service account describes the groups of which something is stored,
and one that is not found in two cycles running is gone. Whatever else a describe answers, that it may not be told
included, says nothing. One cycle at a time, and one worker does it for all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from headgate.base.errors import HeadgateError
from headgate.kafka.group_admin import GroupOutline
from headgate.topologies.service import TopologyService

log = structlog.get_logger()

EVERY_S: Final = 600.0  # offsets.retention.check.interval.ms as brokers ship it: sooner no group vanishes
_BATCH: Final = 100

DescribeGroups = Callable[[Sequence[str]], Awaitable[Mapping[str, GroupOutline]]]


class Cleanup:
    """`describe` answers for as many of the groups as it could ask about."""

    def __init__(self, service: TopologyService, describe: DescribeGroups, *, every_s: float = EVERY_S) -> None:
        self._service = service
        self._describe = describe
        self._every_s = every_s

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            if self._service.is_ready:
                await self.cycle()

    async def cycle(self) -> None:
        service = self._service
        stored = list(service.groups.stored_groups())
        service.meter.cleanup_cycles += 1
        for start in range(0, len(stored), _BATCH):
            batch = stored[start : start + _BATCH]
            try:
                found = await self._describe(batch)
            except (HeadgateError, OSError) as problem:  # a file of the service account, too
                log.warning("groups cannot be described, cleanup ends", problem=str(problem))
                return
            for group, seen in found.items():
                gone = service.groups.on_cycle(
                    group, error_code=seen.error_code, topology_epoch=seen.topology_epoch, members=seen.member_ids
                )
                if gone:
                    service.meter.cleanup_eligible += 1
                    await service.delete(group)  # a failure is told, and leaves it for the next cycle
