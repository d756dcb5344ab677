"""The one receive buffer of a process, which all links share.

Invariant: its bytes stay as they are until the next link receives, and no longer, unless they are kept (`kept_view`).
"""

from typing import Final

BUFFER_BYTES: Final = 256 * 1024
# Behind spliced bytes so much is read: the start of the next frame is to be seen, its records are to be spliced.
BRIEF_BYTES: Final = 16 * 1024
_WORTH_SWAPPING: Final = BUFFER_BYTES // 2  # a smaller rest is copied: it would keep a whole buffer in memory


class SharedBuffer:
    """The one buffer of the process: a wake-up reads, walks and sends before the next one begins.

    Its bytes stay as they are until the next link receives. To keep many of them, the buffer is given away and
    another takes its place (`renew`), which costs less than a copy.
    """

    __slots__ = ("content", "start", "view")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.content = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.content)
        self.start = self.view[:BRIEF_BYTES]


SHARED: Final = SharedBuffer()


def kept_view(view: memoryview) -> memoryview:
    """The same bytes, which stay when the shared buffer is used again."""
    if view.obj is not SHARED.content:
        return view
    if len(view) < _WORTH_SWAPPING:
        return memoryview(bytes(view))
    SHARED.renew()
    return view
