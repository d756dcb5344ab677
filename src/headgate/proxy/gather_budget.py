"""A bound on the bytes of all requests, or all responses, that a worker gathers at the same time.

A frame over `FREE_BYTES` that interceptors open reserves its whole size before it is gathered, and gives it back when
its bytes have been sent on. A frame that does not fit waits: its connection is not read (back-pressure).

Fairness is by the client's address. An address may hold as many bytes as it leaves free, so that one address gets at
most half of the budget and others rarely wait. Addresses that wait take turns, and frames of one address come in their
order. A frame that does not fit yet is overtaken by others that do, until it has waited for half of `PATIENCE_S` and
its address holds nothing.

No deadlock: what a gathered frame itself waits for, the responses to the gateway's own requests, is counted and never
waits; a frame reserves everything at once, so that no frame waits for more while it holds a part; and any frame
may go on when nothing is reserved, however large it is. A connection that holds bytes for long while another has waited
for long is named by `overdue`, to be closed.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Final

FREE_BYTES: Final = 64 * 1024  # a frame up to here costs no more than a connection does, and never waits
PATIENCE_S: Final = 10.0
_LOOK_AHEAD: Final = 32  # of so many addresses the first that fits goes on: the work does not grow with their number

MIB: Final = 1024 * 1024
RESPONSE_BYTES: Final = 128 * MIB
REQUEST_BYTES: Final = 64 * MIB
UNPROVED_REQUEST_BYTES: Final = 16 * MIB  # of clients that have not proved who they are: they cost no other client


class GatherBudget:
    """`limit` bytes for all connections of a worker; `clock` is monotonic."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self.limit = limit
        self.used = 0
        self.waits = 0  # how often a frame had to wait
        self._clock = clock
        self._held: dict[str, int] = {}  # bytes by address
        # By address, the one whose turn it is first; the frames of an address in the order in which they came.
        self._waiting: OrderedDict[str, OrderedDict[BudgetShare, None]] = OrderedDict()
        self._holders: dict[BudgetShare, float] = {}  # and since when, the longest first

    @property
    def has_waiting(self) -> bool:
        """Frames wait for their bytes."""
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Nothing is held and nothing waits: no connection is known here."""
        return not (self.used or self._held or self._waiting or self._holders)

    def overdue(self) -> "BudgetShare | None":
        """The share to be taken back: of the address that holds the most, while a frame has waited too long."""
        latest = self._clock() - PATIENCE_S
        if not any(self._first(address).since <= latest for address in self._waiting):
            return None
        old = [share for share, since in self._holders.items() if since <= latest]
        return max(old, key=lambda share: self._held[share.address], default=None)

    # For shares.

    def reserve(self, share: "BudgetShare", size: int) -> bool:
        if not self._waiting and self._fits(share.address, size):
            self.count(share, size)
            return True
        share.wanted, share.since = size, self._clock()
        self._waiting.setdefault(share.address, OrderedDict())[share] = None
        self._grant(asking=share)
        self.waits += share.wanted > 0
        return not share.wanted

    def give_back(self, share: "BudgetShare", size: int) -> None:
        self.used -= size
        share.held -= size
        self._held[share.address] -= size
        if not self._held[share.address]:
            del self._held[share.address]
        del self._holders[share]
        if share.held:
            self._holders[share] = self._clock()
        self._grant()

    def withdraw(self, share: "BudgetShare") -> None:
        """A share that waits does not want its bytes any more."""
        self._remove(share)
        share.wanted = 0
        self._grant()

    def count(self, share: "BudgetShare", size: int) -> None:
        self.used += size
        share.held += size
        self._held[share.address] = self._held.get(share.address, 0) + size
        self._holders.setdefault(share, self._clock())

    def _fits(self, address: str, size: int) -> bool:
        return not self.used or self._held.get(address, 0) + size <= self.limit - self.used

    def _grant(self, asking: "BudgetShare | None" = None) -> None:
        """Let those go on that fit; `asking` sees for itself that it may."""
        latest = self._clock() - PATIENCE_S / 2
        while self._waiting:
            for address in islice(self._waiting, _LOOK_AHEAD):
                share = self._first(address)
                if self._fits(address, share.wanted):
                    break
                if address not in self._held and share.since <= latest:
                    return  # smaller ones have overtaken it for long enough: the next free bytes are for it
            else:
                return
            self._remove(share)
            if address in self._waiting:
                self._waiting.move_to_end(address)
            self.count(share, share.wanted)
            share.wanted = 0
            if share is not asking:
                share.granted = True
                share.on_granted()

    def _first(self, address: str) -> "BudgetShare":
        return next(iter(self._waiting[address]))

    def _remove(self, share: "BudgetShare") -> None:
        queue = self._waiting[share.address]
        del queue[share]
        if not queue:
            del self._waiting[share.address]


class GatherBudgets:
    """The budgets of one worker."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.responses = GatherBudget(RESPONSE_BYTES, clock)
        self.proved_requests = GatherBudget(REQUEST_BYTES, clock)
        self.unproved_requests = GatherBudget(UNPROVED_REQUEST_BYTES, clock)

    def requests(self, *, is_proved: bool) -> GatherBudget:
        return self.proved_requests if is_proved else self.unproved_requests

    def by_name(self) -> tuple[tuple[str, GatherBudget], ...]:
        """For metrics."""
        return (
            ("response", self.responses),
            ("request", self.proved_requests),
            ("unproved_request", self.unproved_requests),
        )

    def end_overdue(self) -> None:
        """End connections that keep others waiting, one for each budget at a time."""
        for _, budget in self.by_name():
            if (share := budget.overdue()) is not None:
                share.on_overdue()


class BudgetShare:
    """What one connection holds of a budget, for its requests or for its responses.

    `on_granted` is called when a frame that waited may go on: `reserve` is then to be called again, from a fresh stack.
    `on_overdue` is to end the connection.
    """

    __slots__ = ("address", "budget", "granted", "held", "on_granted", "on_overdue", "since", "wanted")

    def __init__(
        self, budget: GatherBudget, address: str, on_granted: Callable[[], None], on_overdue: Callable[[], None]
    ) -> None:
        self.budget = budget
        self.address = address
        self.on_granted = on_granted
        self.on_overdue = on_overdue
        self.held = 0
        self.wanted = 0  # bytes that it waits for
        self.since = 0.0  # when it began to wait
        self.granted = False  # the bytes that it waited for are its own now

    @property
    def is_free(self) -> bool:
        """Nothing is held, and nothing is waited for."""
        return not self.held and not self.wanted

    def reserve(self, size: int) -> bool:
        """Reserve the bytes of a frame; False: it must wait for `on_granted`."""
        if self.wanted:
            return False
        if self.granted:
            self.granted = False
            return True
        return self.budget.reserve(self, size)

    def take(self, size: int) -> None:
        """Count the bytes of a frame that cannot wait, also beyond the limit: then others wait."""
        self.budget.count(self, size)

    def give_back(self, size: int) -> None:
        if size:
            self.budget.give_back(self, size)

    def close(self) -> None:
        """The connection has ended: nothing is held and nothing is wanted any more."""
        if self.wanted:
            self.budget.withdraw(self)
        self.granted = False
        self.give_back(self.held)
