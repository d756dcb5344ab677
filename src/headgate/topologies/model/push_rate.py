"""Bounds how often a group's stored description is replaced.

Every member may push another description, and each one is a record of up to `max_bytes` in `headgate.topologies` that
stays there as history. A rolling upgrade replaces a description once, members that disagree a few times.
"""

from collections import OrderedDict
from typing import Final

AT_ONCE: Final = 10
REFILL_S: Final = 30.0  # the shortest back-off window: members that are solicited do not push more often
_MAX_GROUPS: Final = 10_000


class PushRate:
    """For each group `AT_ONCE` descriptions, and then one every `REFILL_S`; one for each worker."""

    def __init__(self, *, at_once: int = AT_ONCE, refill_s: float = REFILL_S, max_groups: int = _MAX_GROUPS) -> None:
        self._at_once = at_once
        self._refill_s = refill_s
        self._max_groups = max_groups
        # How many are left, and when that was so; the group that pushed longest ago first.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, group: str, now: float) -> bool:
        """Whether another description of the group may be stored now; it counts if so."""
        left, at = self._left.get(group, (float(self._at_once), now))
        left = min(self._at_once, left + (now - at) / self._refill_s)
        is_allowed = left >= 1
        self._left[group] = (left - 1 if is_allowed else left, now)
        self._left.move_to_end(group)
        if len(self._left) > self._max_groups:
            self._left.popitem(last=False)
        return is_allowed
