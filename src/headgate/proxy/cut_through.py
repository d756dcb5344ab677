"""Responses that may have broker addresses in their tail: walked up to there, and the tail changed.

A response that is here whole is changed freely. A large one passes while it is walked (`CutThrough`): its size has been
sent before its tail is here, so its tail must keep its length.

Invariant: no byte of a tail is sent before all of it has been looked at.
"""

from typing import Final

from headgate.base.errors import WireError
from headgate.proxy.routes import Route
from headgate.wire import frames
from headgate.wire.splice import Lookup
from headgate.wire.walk import Walker, plain_mask

_LARGEST_TAIL: Final = 1024 * 1024
_LARGEST_PLAIN: Final = 512  # bytes of a response whose mask is kept: comparing it costs less than walking it
# Of one route: what has these lengths depends on clients, who choose names. Under 100 KB.
MOST_PLAIN_LENGTHS: Final = 64


class CutThrough:
    """One large response that passes; `size` is what its frame says."""

    __slots__ = ("_lookup", "_route", "_tail", "_walker")

    def __init__(self, route: Route, size: int, lookup: Lookup) -> None:
        assert route.tail_program is not None
        self._walker = Walker(route.tail_program, size)
        self._route = route
        self._lookup = lookup
        self._tail: bytearray | None = None

    @property
    def unseen(self) -> int:
        """How many of the next bytes pass whatever they are: of records, whose length is known."""
        return self._walker.skip

    def jump(self, size: int) -> None:
        """So many of the unseen bytes have passed."""
        self._walker.jump(size)

    def walk(self, view: memoryview, pos: int, size: int) -> int:
        """Walk the bytes from `pos` on; up to where they may be sent on."""
        if self._tail is not None:
            return pos
        return self._walker.feed(view, pos, min(size, pos + self._walker.left))

    def plain_end(self, view: memoryview, at: int, size: int) -> int | None:
        """Where the response ends, if its tail begins at `at`, is here whole and holds nothing; else None."""
        walker, empty = self._walker, self._route.empty_tail
        end = at + len(empty)
        is_plain = walker.at_tail and self._tail is None and walker.left == len(empty) and end <= size
        return end if is_plain and view[at:end] == empty else None

    def take_tail(self, view: memoryview, at: int, size: int) -> int:
        """Keep bytes of the tail back; the result is how many. Nothing is kept before the walk has reached it."""
        walker = self._walker
        if not walker.at_tail:
            return 0
        if self._tail is None:
            if walker.left > _LARGEST_TAIL:
                raise WireError(f"a response whose last field has {walker.left} bytes")
            self._tail = bytearray()
        taken = min(walker.left - len(self._tail), size - at)
        self._tail += view[at : at + taken]
        return taken

    def whole_tail(self) -> tuple[bytearray, bytes] | None:
        """The tail as it came and as the client gets it, as soon as all of it is here: this ends the response."""
        tail = self._tail
        if tail is None or len(tail) < self._walker.left:
            return None
        changed = self._route.tail_splice(tail, self._lookup, keep_length=True)
        assert len(changed) == len(tail)
        if changed != tail:
            self._route.spliced_calls += 1
        return tail, changed


def with_own_addresses(frame: memoryview, route: Route, lookup: Lookup) -> bytes | None:
    """A whole response with the addresses in its tail replaced; None when there are none.

    Small responses repeat: of one without addresses `plain_mask` is kept, and the next of its kind is not walked.
    """
    size = len(frame)
    plain = route.plain_responses.get(size)
    if plain is not None:
        if int.from_bytes(frame) & plain[0] == plain[1]:
            return None
        del route.plain_responses[size]  # of other topics: the next response of this length takes its place
    assert route.tail_program is not None
    walker = Walker(route.tail_program, size - 4)
    if plain is None and size <= _LARGEST_PLAIN:
        walker.lengths = []
    at = walker.feed(frame, 4, size)
    if not walker.at_tail:
        raise WireError(f"a {route.name} response that ends before its last field")
    tail = frame[at:]
    changed = route.tail_splice(tail, lookup, keep_length=False)
    if changed == tail:
        if (learned := plain_mask(walker, frame, at)) is not None:
            if len(route.plain_responses) == MOST_PLAIN_LENGTHS:
                del route.plain_responses[next(iter(route.plain_responses))]  # the oldest
            route.plain_responses[size] = learned
        return None
    route.spliced_calls += 1
    return frames.frame(frame[4:at], changed)
