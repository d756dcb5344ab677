"""What goes to the client, in the order of its requests, although responses may be held.

While a response is held, what comes after it waits here. Output that waits for nothing is sent at once.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.wire.primitives import Buffer

if TYPE_CHECKING:
    from headgate.proxy.connection import Connection

_LARGEST_BEHIND: Final = 1024 * 1024  # then the broker is not read until the held response is decided


@dataclass(slots=True)
class Slot:
    """A place in the client's output whose bytes are still being decided; `size` is of what the broker sent.

    `reserved` is what it holds of the budget for gathered responses.
    """

    size: int
    frame: bytes | None = None
    reserved: int = 0


@dataclass(slots=True)
class HeldOutput:
    """A held response and the output that waits behind it."""

    pieces: deque[bytes | Slot] = field(default_factory=deque)
    size: int = 0


class ClientOutput:
    """The output of one connection; `unsent` is what decided responses hold of the budget until they are sent."""

    __slots__ = ("_behind", "_connection", "unsent")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._behind: HeldOutput | None = None
        self.unsent = 0

    @property
    def is_released(self) -> bool:
        """No response is held."""
        return self._behind is None

    @property
    def is_crowded(self) -> bool:
        """So much waits behind a held response that no more should come."""
        return self._behind is not None and self._behind.size > _LARGEST_BEHIND

    def emit(self, data: Buffer) -> None:
        if not len(data):
            return
        if self._behind is None:
            self._connection.client.write(data)
        else:
            self._behind.pieces.append(bytes(data))
            self._behind.size += len(data)

    def emit_decided(self, frame: Buffer, reserved: int) -> None:
        """Send a response that is decided, or let it wait with what it holds of the budget."""
        if reserved and self._behind is not None:
            self._behind.pieces.append(Slot(len(frame), bytes(frame), reserved))
            self._behind.size += len(frame)
        else:
            self.emit(frame)
            self.count_unsent(reserved)

    def hold(self, slot: Slot) -> None:
        """Keep a place for a response that is not decided; what comes after it waits for `release`."""
        if self._behind is None:
            self._behind = HeldOutput()
            self._connection.is_flowing = False
        self._behind.pieces.append(slot)
        self._behind.size += slot.size

    def release(self) -> None:
        """Send what is decided, up to the next response that is not."""
        behind = self._behind
        assert behind is not None
        client = self._connection.client
        while behind.pieces:
            piece = behind.pieces[0]
            if isinstance(piece, Slot):
                if piece.frame is None:
                    break
                client.write(piece.frame)
                behind.size -= piece.size
                self.count_unsent(piece.reserved)
            else:
                client.write(piece)
                behind.size -= len(piece)
            behind.pieces.popleft()
        else:
            self._behind = None
        self._connection.regulate()

    def count_unsent(self, reserved: int) -> None:
        if reserved:
            self.unsent += reserved
            self._connection.is_flowing = False  # `regulate` settles it
