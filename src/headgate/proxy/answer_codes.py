"""The error code at the beginning of an answer that passes: whether the broker did what it was asked.

One rule: a few bytes are kept, however the answer is cut into pieces; what lies behind them is never looked at.
"""

from typing import Final

_SIZE_AND_CORRELATION_ID: Final = 8


class AnswerCode:
    """Fed with the pieces of one answer, its size and header included.

    `skipped` is how many bytes of the body stand before the code: 4 where ThrottleTimeMs does.
    """

    __slots__ = ("_at", "_flexible", "_kept")

    def __init__(self, *, flexible: bool, skipped: int = 0) -> None:
        self._flexible = flexible
        self._at = _SIZE_AND_CORRELATION_ID + flexible + skipped
        self._kept: bytes | None = b""

    def feed(self, piece: memoryview) -> int | None:
        """The code, once, with the piece that ends it; None before and after, and if tags stand before it."""
        if self._kept is None or not len(piece):
            return None
        needed = self._at + 2
        start = self._kept + bytes(piece[: needed - len(self._kept)])
        if len(start) < needed:
            self._kept = start
            return None
        self._kept = None
        if self._flexible and start[_SIZE_AND_CORRELATION_ID]:
            return None
        return int.from_bytes(start[self._at :], "big", signed=True)
