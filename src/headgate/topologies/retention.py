"""Removes records of topologies that are not needed any more, so that a start does not read every group that ever was.

| records | removed |
|---|---|
| the pushed and partial versions of a deleted group, and its deletion | `deleted_retention_ms` after the deletion |
| the epochs in `headgate.state` of a group of which nothing is stored | the same time after they were written |
| the pasted versions of a group that was deleted, or never was | the same time after the last of them |
| the versions of a group beyond the newest `versions_kept`: pushed, partial and pasted ones | by the next round |
| every record of a group | by `headgate topology forget GROUP --purge` |

Invariant: nothing is removed of a group that the broker has, except versions that were replaced long ago. The caller
describes the groups of `candidates` as the service account and removes only those that the broker does not find. The
current version of a group is never removed.

A record is removed by a tombstone. The versions of a group come first and its deletion last, so a round that is cut
short is continued by a later one. Two gateways may write tombstones for one record, which does no harm. Groups are
looked at in turn, some in each round. The tables of the pipeline keep their rows.

A group whose records were removed begins again: its next incarnation has the name of its first one.
"""

import heapq
from typing import Final

import structlog

from headgate.base.clock import Clock
from headgate.base.errors import ClusterError
from headgate.facts import TopologyEpochsRemoved
from headgate.topologies.older_clients.assignment_topology import ASSIGNMENT
from headgate.topologies.resources import TopologyResources
from headgate.topologies.service import TopologyService
from headgate.topologies.stores.kafka_cache import PASTED, PUSHED
from headgate.topologies.stores.kafka_store import KafkaStore

log = structlog.get_logger()

GROUPS_A_ROUND: Final = 500
RECORDS_A_ROUND: Final = 10_000
_RECORDS_OF_GROUP: Final = 1_000  # in one round: pushes of the group wait meanwhile


class Retention:
    """The rounds of one worker; its methods raise a `HeadgateError` when records cannot be read or written."""

    def __init__(
        self,
        service: TopologyService,
        *,
        deleted_retention_ms: int,
        versions_kept: int,
        clock: Clock,
        groups_a_round: int = GROUPS_A_ROUND,
        records_a_round: int = RECORDS_A_ROUND,
    ) -> None:
        self._groups_a_round = groups_a_round
        self._records_a_round = records_a_round
        self._service = service
        self._deleted_retention_ms = deleted_retention_ms
        self._versions_kept = versions_kept
        self._clock = clock
        self._after_offset = -1  # the last deletion that was looked at
        self._after_group: str | None = None  # the last group with ended epochs that was looked at
        self._after_pasted = ""  # the last group with nothing but pasted versions that was looked at
        self._left = self._records_a_round  # that this round may still remove

    def begin_round(self) -> None:
        self._left = self._records_a_round

    async def candidates(self) -> list[str]:
        """Groups whose records may be removed if the broker does not have the group."""
        resources = self._service.resources
        if resources is None:
            return []
        before = self._before()
        groups = self._ended_groups(before)
        if (store := resources.kafka_store) is not None:
            deleted = await store.deletions_before(before, after=self._after_offset, limit=self._groups_a_round)
            self._after_offset = deleted[-1].offset if len(deleted) == self._groups_a_round else -1
            groups += [one.group for one in deleted]
            pasted = await store.groups_only_pasted_before(before, after=self._after_pasted, limit=self._groups_a_round)
            self._after_pasted = pasted[-1] if len(pasted) == self._groups_a_round else ""
            groups += pasted
        return list(dict.fromkeys(groups))

    async def remove_deleted(self, group: str) -> None:
        """Remove the records of a group that the broker does not have, as far as this round may."""
        resources, before = self._service.resources, self._before()
        if resources is None or self._left <= 0:
            return
        async with self._service.lock(group):
            state = self._service.groups.state(group)
            if state.must_be_kept or (state.epochs is not None and state.epochs.at > before):
                return  # it came back
            # First the epochs: without the record of the deletion they could be taken for those of a new group.
            removed = await _remove_epochs(self._service, resources, group)
            if (store := resources.kafka_store) is not None:
                limit = min(self._left, _RECORDS_OF_GROUP)
                removed += await store.remove_deleted(group, before=before, limit=limit)
                removed += await store.remove_only_pasted(group, before=before, limit=limit)
        if removed:
            self._count("deleted", removed)
            log.info("topology records of a deleted group removed", group=group, records=removed)

    async def remove_oldest_versions(self) -> None:
        """Remove the versions beyond `versions_kept`, as far as this round may."""
        resources = self._service.resources
        if resources is None or (store := resources.kafka_store) is None:
            return
        for provenance in (PUSHED, ASSIGNMENT, PASTED):
            await self._remove_oldest_versions(store, provenance)

    async def _remove_oldest_versions(self, store: KafkaStore, provenance: str) -> None:
        kept = self._versions_kept
        for group in await store.groups_with_more_than(kept, limit=self._groups_a_round, provenance=provenance):
            if self._left <= 0:
                return
            async with self._service.lock(group):
                limit = min(self._left, _RECORDS_OF_GROUP)
                removed = await store.remove_oldest(group, kept=kept, limit=limit, provenance=provenance)
            if removed:
                self._count("versions", removed)
                log.info("oldest topology versions removed", group=group, records=removed)

    def _before(self) -> int:
        return self._clock.epoch_ms() - self._deleted_retention_ms

    def _ended_groups(self, before: int) -> list[str]:
        after = self._after_group
        ended = self._service.groups.groups_ended_before(before)
        groups = heapq.nsmallest(self._groups_a_round, (group for group in ended if after is None or group > after))
        self._after_group = groups[-1] if len(groups) == self._groups_a_round else None
        return groups

    def _count(self, reason: str, records: int) -> None:
        self._left -= records
        self._service.metrics.removed_records[reason] += records


async def purge(service: TopologyService, group: str) -> int:
    """Delete the description of a group and remove all its records from the topics; returns how many.

    Records that are written meanwhile stay: members of a running application push their topology again.
    """
    resources = service.resources
    if resources is None:
        raise ClusterError("topologies are not available")
    store = resources.kafka_store
    end = 0 if store is None else store.next_offset
    if service.is_stored_or_failed(group) and (failure := await service.delete(group)) is not None:
        raise ClusterError(failure.text)
    async with service.lock(group):
        removed = await _remove_epochs(service, resources, group)
        return removed if store is None else removed + await store.remove_all(group, before_offset=end)


async def _remove_epochs(service: TopologyService, resources: TopologyResources, group: str) -> int:
    state = service.groups.state(group)
    if state.epochs is None or state.must_be_kept:
        return 0
    await resources.write_epochs(TopologyEpochsRemoved(group=group))
    return 1
