"""Log lines that clients can cause: about one group each is said once a minute, however often it happens."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_AGAIN_S: Final = 60.0
_MOST: Final = 1_000


class Said:
    """`said(event, group)` is False when it was said a moment ago."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: OrderedDict[tuple[str, str], float] = OrderedDict()

    def is_news(self, event: str, group: str) -> bool:
        now = self._now()
        last = self._last.get((event, group))
        if last is not None and now - last < _AGAIN_S:
            return False
        self._last[event, group] = now
        self._last.move_to_end((event, group))
        if len(self._last) > _MOST:
            self._last.popitem(last=False)
        return True
