"""Bounds of dead letters in flight, with a share for each group.

The one rule: a group may hold no more than it leaves free, in dead letters and in bytes. So a group that is alone uses
half of the bounds, and another one finds at least as much as the first holds: a dead-letter topic that hangs never
refuses the dead letters of other groups. With n groups whose topics hang, 1/2^n of the bounds is free at least.
"""

from dataclasses import dataclass
from typing import Final

from headgate.facts.topics import LARGEST_DEAD_LETTER

MAX_DEAD_LETTERS: Final = 10_000
MAX_BYTES: Final = 4 * LARGEST_DEAD_LETTER


@dataclass(slots=True)
class _Share:
    dead_letters: int = 0
    bytes: int = 0


class InFlightShares:
    """Counts the dead letters in flight and their bytes, in all and by group."""

    __slots__ = ("_groups", "_max_bytes", "_max_dead_letters", "bytes", "dead_letters")

    def __init__(self, max_dead_letters: int = MAX_DEAD_LETTERS, max_bytes: int = MAX_BYTES) -> None:
        self._max_dead_letters, self._max_bytes = max_dead_letters, max_bytes
        self._groups: dict[str, _Share] = {}
        self.dead_letters = 0
        self.bytes = 0

    def take(self, group: str, size: int) -> str | None:
        """Count one dead letter of the group; a text, and nothing is counted, when its share is used up.

        When nothing is in flight, a dead letter of any size is accepted.
        """
        share = self._groups.get(group) or _Share()
        if self.dead_letters and (
            share.dead_letters + 1 > self._max_dead_letters - self.dead_letters - 1
            or share.bytes + size > self._max_bytes - self.bytes - size
        ):
            return (
                f"{self.dead_letters} dead letters of {self.bytes} bytes are waiting, {share.dead_letters} of "
                f"{share.bytes} bytes of this group: no more are accepted"
            )
        self._groups[group] = share
        share.dead_letters += 1
        share.bytes += size
        self.dead_letters += 1
        self.bytes += size
        return None

    def release(self, group: str, size: int) -> None:
        share = self._groups[group]
        share.dead_letters -= 1
        share.bytes -= size
        self.dead_letters -= 1
        self.bytes -= size
        if not share.dead_letters:
            del self._groups[group]
