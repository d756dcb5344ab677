"""Log throttle: clients can cause a log line as often as they like, so each is written at most once a minute."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_INTERVAL_S: Final = 60.0
_MAX_KEYS: Final = 1_000


class LogThrottle:
    """Remembers when each event was last logged for each subject, for the last thousand of them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: OrderedDict[tuple[str, str], float] = OrderedDict()

    def allows(self, event: str, subject: str) -> bool:
        """Whether this event about this subject (such as a group) was not logged in the last minute."""
        now = self._now()
        last = self._last.get((event, subject))
        if last is not None and now - last < _INTERVAL_S:
            return False
        self._last[event, subject] = now
        self._last.move_to_end((event, subject))
        if len(self._last) > _MAX_KEYS:
            self._last.popitem(last=False)
        return True
