"""What one ShareFetch or ShareAcknowledge acknowledges, from the request to the broker's answer.

One rule: a disposition exists when the broker answered 0 for its partition, and not before. A dead letter is written
before its REJECT goes on; if the broker then refuses it, the letter is withdrawn by an event, for its record will come
again. A 4.3.1 broker names every partition whose acknowledgements it looked at (seen): one that it does not name is not
acknowledged.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.base.clock import Clock
from headgate.share_groups.dead_letter_delivery import MOST_OFFSETS, Fate, Ranges, Tell, Wanted
from headgate.share_groups.deferred_acks import Debt
from headgate.share_groups.model.acknowledgements import AckType, runs
from headgate.share_groups.model.dead_letter_records import Cause, topic_id_text
from headgate.share_groups.model.delivery_ledger import Held, Ledger, PartitionKey
from headgate.share_groups.model.dispositions import Dispositions, Kind
from headgate.share_groups.share_metrics import ShareMeter
from headgate.wire.share_calls import ShareRequest

_KINDS: Final = {AckType.ACCEPT: Kind.ACCEPTED, AckType.RELEASE: Kind.RELEASED, AckType.REJECT: Kind.REJECTED}
# An acknowledgement whose record was acquired where we did not see it counts only before the first trip of its group.
UNSEEN_GENERATION: Final = 0
_TOO_MANY: Final = f"more than {MOST_OFFSETS} records were rejected at once"


@dataclass(slots=True, eq=False)
class PartitionWork:
    """One partition: what the client acknowledges, what we do for it, and what became of the dead letters.

    `beyond` is what is rejected and not dead-lettered: too much for one request. `is_ours`: the client itself
    acknowledges nothing here.
    """

    key: PartitionKey
    runs: tuple[tuple[int, int, AckType], ...] = ()
    debts: list[Debt] = field(default_factory=list)
    fates: list[tuple[Wanted, Fate]] = field(default_factory=list)
    beyond: list[Wanted] = field(default_factory=list)
    is_ours: bool = False


@dataclass(slots=True, eq=False)
class Work:
    """All that one request acknowledges, by (topic id, partition)."""

    group: str
    member: str
    partitions: dict[tuple[bytes, int], PartitionWork]

    @property
    def letters(self) -> Iterable[tuple[Wanted, Fate]]:
        for one in self.partitions.values():
            yield from one.fates


class Acks:
    """Shared by the two calls of one worker."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        dispositions: Dispositions,
        clock: Clock,
        meter: ShareMeter,
        tell: Tell,
        give_up: Callable[[Wanted, str], None],
    ) -> None:
        self._give_up = give_up
        self._ledger = ledger
        self._dispositions = dispositions
        self._clock = clock
        self._meter = meter
        self._tell = tell

    def read(self, share: ShareRequest, debts: Sequence[Debt] = ()) -> Work:
        """What the client acknowledges, and what it owes."""
        group, member = share.group or "", share.member or ""
        partitions: dict[tuple[bytes, int], PartitionWork] = {}
        for acks in share.acks:
            key = (group, member, acks.topic_id, acks.partition)
            found = [run for batch in acks.batches for run in runs(batch.first, batch.last, batch.types)]
            partitions[acks.topic_id, acks.partition] = PartitionWork(key, tuple(found))
        for debt in debts:
            key = debt.wanted.key
            place = key[2:]
            if place not in partitions:
                partitions[place] = PartitionWork(key, is_ours=True)
            partitions[place].debts.append(debt)
        return Work(group, member, partitions)

    def rejected(self, work: Work) -> list[Wanted]:
        """What is to be dead-lettered because the client rejects it."""
        wanted: list[Wanted] = []
        left = MOST_OFFSETS
        for one in work.partitions.values():
            for first, last, ack in one.runs:
                if ack is not AckType.REJECT:
                    continue
                for held in _joined(self._ledger.look(one.key, first, last)):
                    end = min(held.last, held.first + left - 1)
                    if end >= held.first:
                        wanted.append(_rejected(one.key, held._replace(last=end)))
                        left -= end - held.first + 1
                    if end < held.last:
                        one.beyond.append(_rejected(one.key, held._replace(first=end + 1)))
        return wanted

    def settle(self, work: Work, codes: Mapping[tuple[bytes, int], int], error_code: int) -> None:
        """The broker has answered: `codes` by partition; `error_code` is that of the whole."""
        second = self._clock.epoch_ms() // 1000
        for place, one in work.partitions.items():
            code = error_code or codes.get(place)
            if code is None:
                self.withdraw(work.group, one.fates, {"outcome": "not answered"})
            elif code:
                self.withdraw(work.group, one.fates, {"outcome": "refused", "error_code": code})
            else:
                self._count(one, second)

    def _count(self, one: PartitionWork, second: int) -> None:
        ledger, key = self._ledger, one.key
        for first, last, ack in one.runs:
            if ack is AckType.RENEW:
                continue
            kind = _KINDS.get(ack)
            if kind is not None:
                for held in ledger.look(key, first, last):
                    self._add(key, second, kind, held)
            ledger.settle(key, first, last)
        for debt in one.debts:
            some = debt.wanted
            number = some.last - some.first + 1
            self._dispositions.count(key, some.generation, second, Kind.OVER_LIMIT, number, some.delivery_count)
        for wanted in one.beyond:
            self._give_up(wanted, _TOO_MANY)
        lost = [(wanted, Fate((), ((wanted.first, wanted.last),))) for wanted in one.beyond]
        for wanted, fate in (*one.fates, *lost):
            for kind, found in ((Kind.DEAD_LETTERED, fate.written), (Kind.WRITE_TIMEOUT, fate.failed)):
                number = sum(last - first + 1 for first, last in found)
                if number:
                    self._dispositions.count(key, wanted.generation, second, kind, number, wanted.delivery_count)

    def _add(self, key: PartitionKey, second: int, kind: Kind, held: Held) -> None:
        generation = UNSEEN_GENERATION if held.generation is None else held.generation
        self._dispositions.count(key, generation, second, kind, held.last - held.first + 1, held.delivery_count)

    def withdraw(self, group: str, fates: Iterable[tuple[Wanted, Fate]], why: Mapping[str, object]) -> None:
        """Dead letters whose records were not archived, or of which nobody knows, are said to be void."""
        for wanted, fate in fates:
            if not fate.written:
                continue
            self._meter.withdrawn += _size(fate.written)
            _, member, topic_id, partition = wanted.key
            detail = {
                "topic_id": topic_id_text(topic_id),
                "partition": partition,
                "offsets": [list(found) for found in fate.written],
                "member": member,
                **why,
            }
            self._tell("dead_letter_withdrawn", group, detail)


def _rejected(key: PartitionKey, held: Held) -> Wanted:
    return Wanted(
        key=key,
        first=held.first,
        last=held.last,
        delivery_count=held.delivery_count,
        generation=UNSEEN_GENERATION if held.generation is None else held.generation,
        cause=Cause.REJECTED,
    )


def _joined(found: Sequence[Held]) -> Iterable[Held]:
    """Neighbours with one past as one: a broker acquires by batches, and a batch is often one record."""
    last: Held | None = None
    for one in found:
        if last is not None and last[2:] == one[2:]:
            last = last._replace(last=one.last)
        else:
            if last is not None:
                yield last
            last = one
    if last is not None:
        yield last


def _size(found: Ranges) -> int:
    return sum(last - first + 1 for first, last in found)
