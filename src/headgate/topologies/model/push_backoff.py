"""How long a group is left alone between two requests for its topology: 30 s, doubling up to 1 h (KIP-1331).

One rule: whoever is told that it may ask has armed the window by that very call, so of any number of heartbeats one is
asked in a window. A window belongs to a group and a topology epoch; another epoch begins afresh. The times are seconds
of whatever clock the caller has, and the jitter is the caller's too.

Only what reached the store arms it (`arm_or_extend`): if a refused push did, anybody could silence a group.
"""

from collections import OrderedDict
from dataclasses import dataclass

INITIAL_S = 30.0
LONGEST_S = 3600.0
JITTER = 0.2

# The epoch under which shipped brokers keep the window of failing deletes at a classic join: never a pushed epoch.
CLASSIC_JOIN_EPOCH = -2

# An entry takes about 250 bytes, its key not counted. Past the bound the entry that was armed longest ago is dropped;
# what that costs is one request too early for its group, and a window that begins at 30 s again.
MOST_GROUPS = 50_000
# 2^7 x 30 s is over an hour: more attempts change nothing.
_ATTEMPTS_TO_LONGEST = 7


@dataclass(frozen=True, slots=True)
class Window:
    """`attempts` counts the arms at this epoch before the last one; `until` is when the next request may go out."""

    epoch: int
    attempts: int
    until: float


def jitter_factor(chance: float) -> float:
    """From a random number between 0 and 1 to the factor that the methods take: 1 less or more `JITTER`."""
    return 1.0 - JITTER + 2.0 * JITTER * chance


def delay_s(attempts: int, jitter: float) -> float:
    """The length of a window; as shipped, jitter never makes it longer than the longest."""
    return min(min(INITIAL_S * 2.0 ** min(attempts, _ATTEMPTS_TO_LONGEST), LONGEST_S) * jitter, LONGEST_S)


class PushBackoff:
    """The windows of all groups of one worker. They are not kept over a restart, as a broker does not keep them."""

    __slots__ = ("_most", "_windows")

    def __init__(self, *, most_groups: int = MOST_GROUPS) -> None:
        self._most = most_groups
        self._windows: OrderedDict[str, Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def window(self, group: str) -> Window | None:
        return self._windows.get(group)

    def is_active(self, group: str, epoch: int, now: float) -> bool:
        """Whether a window of this very epoch has not ended."""
        window = self._windows.get(group)
        return window is not None and window.epoch == epoch and now < window.until

    def arm_if_not_active(self, group: str, epoch: int, now: float, jitter: float) -> bool:
        """True, and the window is armed, unless one of this epoch is active: then it stays as it is."""
        if self.is_active(group, epoch, now):
            return False
        self._arm(group, epoch, now, jitter)
        return True

    def arm_or_extend(self, group: str, epoch: int, now: float, jitter: float) -> None:
        """After a transient failure: the next longer window from now; nothing if the window is of a newer epoch."""
        window = self._windows.get(group)
        if window is None or window.epoch <= epoch:
            self._arm(group, epoch, now, jitter)

    def clear(self, group: str, epoch: int) -> None:
        """After a success or a permanent failure at this epoch; a late one leaves another epoch's window alone."""
        window = self._windows.get(group)
        if window is not None and window.epoch == epoch:
            del self._windows[group]

    def clear_group(self, group: str) -> None:
        """The group is gone."""
        self._windows.pop(group, None)

    def _arm(self, group: str, epoch: int, now: float, jitter: float) -> None:
        window = self._windows.get(group)
        attempts = window.attempts + 1 if window is not None and window.epoch == epoch else 0
        self._windows[group] = Window(epoch, attempts, now + delay_s(attempts, jitter))
        self._windows.move_to_end(group)
        if len(self._windows) > self._most:
            self._windows.popitem(last=False)
