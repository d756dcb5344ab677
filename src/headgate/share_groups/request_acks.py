"""The acknowledgements of one ShareFetch or ShareAcknowledge, and what became of them.

Data that `acknowledgements.py` fills in on the request's way to the broker and back.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.share_groups.deferred_acks import DeferredAck, TopicPartitionKey
from headgate.share_groups.model.dead_letter_records import Cause, DeadLetterOutcome, DeadLetterRange
from headgate.share_groups.model.delivery_ledger import AcquiredRange, HeldKey, Holder, PartitionKey
from headgate.share_groups.model.dispositions import AckRun
from headgate.share_groups.model.group_configs import GroupSettings

# A record acquired through another gateway or before a restart counts only before the first trip of its group.
UNKNOWN_GENERATION: Final = 0


@dataclass(slots=True, eq=False)
class PartitionAcknowledgements:
    """The acknowledgements of one partition, and what became of its dead letters.

    `rejected` gets dead letters; `unwritten` is rejected too, and gets none for the reason that stands with it.
    `unlisted` is what is rejected beyond all bounds: it is looked up only if the broker accepts it.
    `is_added`: the client itself acknowledges nothing in this partition.
    """

    key: PartitionKey
    held: HeldKey
    runs: tuple[AckRun, ...] = ()
    deferred: list[DeferredAck] = field(default_factory=list)
    rejected: list[DeadLetterRange] = field(default_factory=list)
    unwritten: list[tuple[DeadLetterRange, str]] = field(default_factory=list)
    unlisted: list[tuple[int, int]] = field(default_factory=list)
    outcomes: list[tuple[DeadLetterRange, DeadLetterOutcome]] = field(default_factory=list)
    is_added: bool = False

    @property
    def ascending_runs(self) -> list[list[AckRun]]:
        """The runs in sequences that ascend: a single one, unless the client mixes up its offsets."""
        found: list[list[AckRun]] = []
        end: float = math.inf
        for run in self.runs:
            if run[0] <= end:
                found.append([])
            found[-1].append(run)
            end = run[1]
        return found


@dataclass(slots=True, eq=False)
class RequestAcks:
    """All acknowledgements of one ShareFetch or ShareAcknowledge, with the group's settings when it arrived.

    `forget`: partitions that are in it only for deferred acknowledgements and are not in the member's session any more.
    """

    group: str
    holder: Holder
    settings: GroupSettings
    partitions: dict[TopicPartitionKey, PartitionAcknowledgements]
    forget: frozenset[TopicPartitionKey] = frozenset()

    @property
    def member(self) -> str:
        return self.holder.member

    @property
    def rejected(self) -> list[DeadLetterRange]:
        return [one for partition in self.partitions.values() for one in partition.rejected]

    @property
    def deferred_ranges(self) -> dict[TopicPartitionKey, list[tuple[int, int]]]:
        return {
            key: [(one.range.first, one.range.last) for one in partition.deferred]
            for key, partition in self.partitions.items()
            if partition.deferred
        }

    @property
    def added(self) -> set[TopicPartitionKey]:
        return {key for key, partition in self.partitions.items() if partition.is_added}

    @property
    def outcomes(self) -> Iterable[tuple[DeadLetterRange, DeadLetterOutcome]]:
        for partition in self.partitions.values():
            yield from partition.outcomes


def of_partition(
    group: str, holder: Holder, place: TopicPartitionKey, runs: tuple[AckRun, ...], *, is_added: bool = False
) -> PartitionAcknowledgements:
    key, held = (group, holder.member, *place), (group, holder, *place)
    return PartitionAcknowledgements(key=key, held=held, runs=runs, is_added=is_added)


def is_unknown(some: DeadLetterRange) -> bool:
    """Whether the client is not known to hold the records."""
    return some.delivery_count is None


def add_outcome(request: RequestAcks, some: DeadLetterRange, outcome: DeadLetterOutcome) -> None:
    request.partitions[some.key[2:]].outcomes.append((some, outcome))


def fail_missing(request: RequestAcks, why: str) -> None:
    """Whatever has no outcome has no dead letter, as far as is known."""
    for one in request.partitions.values():
        known = [some for some, _ in one.outcomes]
        missing = (
            some for some in (*one.rejected, *(deferred.range for deferred in one.deferred)) if some not in known
        )
        one.outcomes += [(some, some.failed(why)) for some in missing]


def dead_letter_range(key: PartitionKey, known: AcquiredRange) -> DeadLetterRange:
    first, last, delivery_count, generation, _ = known
    return DeadLetterRange(key, first, last, delivery_count, generation or UNKNOWN_GENERATION, Cause.REJECTED)


def joined(found: Sequence[AcquiredRange]) -> Sequence[AcquiredRange]:
    """Neighbours with the same history as one range: a broker acquires by batches, often of one record."""
    if len(found) <= 1:
        return found
    ranges = [found[0]]
    for one in found[1:]:
        if ranges[-1][2:4] == one[2:4]:
            ranges[-1] = ranges[-1]._replace(last=one.last)
        else:
            ranges.append(one)
    return ranges
