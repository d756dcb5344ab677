"""What members owe: ranges that were taken out of their answers, and are to be REJECTed in their name.

One rule: a debt ends with the lock of its records. By then the broker has made them available again, and whoever gets
them next finds them over the limit again; so nothing is lost when a debt is, and its number can be bounded.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from headgate.share_groups.dead_letter_delivery import Fate, Wanted

MOST_MEMBERS: Final = 20_000
MOST_RANGES: Final = 2_000  # of one member; a broker lets it hold 2,000 records of a partition unless told otherwise


@dataclass(frozen=True, slots=True)
class Debt:
    """`letter` is done when the dead letters of an answer are written, or given up; this one's fate is at `at`."""

    wanted: Wanted
    until: float
    letter: "asyncio.Task[list[Fate]]"
    at: int


class Debts:
    """By (group, member), as share sessions are."""

    def __init__(self) -> None:
        self._debts: OrderedDict[tuple[str, str], list[Debt]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._debts)

    def add(self, debt: Debt) -> None:
        member = debt.wanted.key[:2]
        mine = self._debts.setdefault(member, [])
        mine.append(debt)
        if len(mine) > MOST_RANGES:
            del mine[0]
        if len(self._debts) > MOST_MEMBERS:
            self._debts.popitem(last=False)

    def take(self, group: str, member: str, now: float, *, is_last: bool) -> list[Debt]:
        """Those that can be paid now: one whose letter is still on its way waits for a later request, if one will come.

        So a dead-letter topic that is away does not hold the fetches of its group.
        """
        mine = [debt for debt in self._debts.pop((group, member), ()) if debt.until > now]
        if is_last:
            return mine
        waiting = [debt for debt in mine if not debt.letter.done()]
        if waiting:
            self._debts[group, member] = waiting
        return [debt for debt in mine if debt.letter.done()]
