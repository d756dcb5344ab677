"""How many may come in: in all, from one address, over all rows of the shared table."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.config.model import GatewayConfig
from headgate.proxy.listeners import UNKNOWN_HOST, ConnectionLimits, table_bytes

ROWS, MOST, MOST_FROM_ONE = 3, 7, 3
HOSTS = ("192.0.2.1", "192.0.2.2", "2001:db8::1", UNKNOWN_HOST)


def config(most: int = MOST, most_from_one: int | None = MOST_FROM_ONE) -> GatewayConfig:
    return GatewayConfig(max_connections=most, max_connections_per_address=most_from_one)


def rows(count: int, limits: GatewayConfig) -> list[ConnectionLimits]:
    """The caps of several workers over one table."""
    memory = memoryview(bytearray(table_bytes(limits, rows=count)))
    return [ConnectionLimits(limits, memory=memory, row=row) for row in range(count)]


def test_one_more_than_the_cap_is_not_admitted_and_one_that_leaves_makes_room() -> None:
    caps = ConnectionLimits(config(2, None))
    assert [caps.admit("a"), caps.admit("b"), caps.admit("c")] == [True, True, False]
    caps.leave("a")
    assert caps.admit("c")


def test_workers_count_together() -> None:
    first, second = rows(2, config(3, 2))
    assert first.admit("a")
    assert second.admit("a")
    assert not first.admit("a")
    assert not second.admit("a")
    assert first.admit("b")
    assert not second.admit("c")


def test_a_worker_that_is_gone_counts_no_more() -> None:
    first, second = rows(2, config(2, 2))
    assert first.admit("a")
    assert first.admit("a")
    assert not second.admit("b")
    first.forget_all()
    assert second.admit("a")
    assert second.admit("b")


def test_without_a_cap_for_one_address_the_table_is_one_number_a_worker() -> None:
    assert table_bytes(config(10, None), rows=4) == 16
    caps = ConnectionLimits(config(10, None))
    assert all(caps.admit("a") for _ in range(10))
    assert not caps.admit("a")


def test_somebody_unknown_counts_for_all_and_for_no_address() -> None:
    caps = ConnectionLimits(config(3, 1))
    assert all(caps.admit(UNKNOWN_HOST) for _ in range(2))
    assert caps.admit("a")
    assert not caps.admit(UNKNOWN_HOST)


@pytest.mark.parametrize("row", range(ROWS))
def test_the_rows_do_not_touch_each_other(row: int) -> None:
    all_rows = rows(ROWS, config(100, 100))
    for number, caps in enumerate(all_rows):
        for _ in range(number + 1):
            assert caps.admit("a")
    all_rows[row].forget_all()
    others = sum(number + 1 for number in range(ROWS) if number != row)
    room = [all_rows[row].admit("b") for _ in range(100 - others + 1)]
    assert room == [True] * (100 - others) + [False]


class Crowd(RuleBasedStateMachine):
    """Workers that let in, let go and die, beside a list of who is in."""

    def __init__(self) -> None:
        super().__init__()
        self.caps = rows(ROWS, config())
        self.inside: list[tuple[int, str]] = []

    @rule(row=st.integers(0, ROWS - 1), host=st.sampled_from(HOSTS))
    def comes(self, row: int, host: str) -> None:
        room = len(self.inside) < MOST
        if host != UNKNOWN_HOST:
            room = room and sum(other == host for _, other in self.inside) < MOST_FROM_ONE
        assert self.caps[row].admit(host) is room
        if room:
            self.inside.append((row, host))

    @rule(which=st.integers(0, 100))
    def goes(self, which: int) -> None:
        if self.inside:
            row, host = self.inside.pop(which % len(self.inside))
            self.caps[row].leave(host)

    @rule(row=st.integers(0, ROWS - 1))
    def dies(self, row: int) -> None:
        self.caps[row].forget_all()
        self.inside = [one for one in self.inside if one[0] != row]

    @invariant()
    def nobody_is_counted_twice(self) -> None:
        assert self.caps[0]._sum(0) == len(self.inside)


Crowd.TestCase.settings = settings(max_examples=50, stateful_step_count=40)
test_the_table_agrees_with_a_list_of_who_is_in = Crowd.TestCase
