"""The budget of gathered bytes: bounded, fair between addresses, never stuck, and empty at the end."""

import random

import pytest

from headgate.proxy.gather_budget import PATIENCE_S, BudgetShare, GatherBudget


class Bench:
    """A budget of 100 bytes, and connections by name: `a1` and `a2` are of address `a`."""

    def __init__(self, limit: int = 100) -> None:
        self.now = 0.0
        self.budget = GatherBudget(limit, lambda: self.now)
        self.granted: list[str] = []
        self.ended: list[str] = []
        self._shares: dict[str, BudgetShare] = {}

    def __getitem__(self, name: str) -> BudgetShare:
        if name not in self._shares:
            self._shares[name] = BudgetShare(
                self.budget, name[0], lambda: self.granted.append(name), lambda: self.ended.append(name)
            )
        return self._shares[name]


def test_frames_wait_for_bytes_and_go_on_in_their_order() -> None:
    bench = Bench()
    assert bench["a1"].reserve(50)
    assert bench["b1"].reserve(50)
    assert not bench["c1"].reserve(30)
    assert not bench["d1"].reserve(30)
    assert bench.budget.waits == 2
    bench["a1"].give_back(50)
    assert bench.granted == ["c1"]  # for d only 20 are left
    assert bench.budget.used == 80
    assert bench["c1"].reserve(30)
    bench["b1"].give_back(50)
    assert bench.granted == ["c1", "d1"]


def test_a_frame_that_is_larger_than_the_budget_goes_alone() -> None:
    bench = Bench()
    assert bench["a1"].reserve(500)
    assert not bench["b1"].reserve(700)
    assert not bench["c1"].reserve(1)
    bench.now = PATIENCE_S / 2
    bench["a1"].give_back(500)
    assert bench.granted == ["b1"]
    bench["b1"].give_back(700)
    assert bench.granted == ["b1", "c1"]


def test_a_large_frame_is_overtaken_for_a_while_and_not_for_ever() -> None:
    bench = Bench()
    assert bench["a1"].reserve(20)
    assert not bench["b1"].reserve(90)
    assert bench["c1"].reserve(1)
    bench.now = PATIENCE_S / 2
    assert not bench["d1"].reserve(1)
    bench["a1"].give_back(20)
    assert bench.granted == ["b1", "d1"]


def test_one_address_gets_half_and_others_do_not_wait() -> None:
    bench = Bench()
    taken = sum(bench[f"a{number}"].reserve(10) for number in range(100))
    assert taken == 5
    assert bench["b1"].reserve(20)
    assert bench["c1"].reserve(10)
    assert not bench.granted


def test_addresses_take_turns() -> None:
    bench = Bench()
    assert bench["z1"].reserve(100)
    for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
        assert not bench[name].reserve(10)
    bench["z1"].give_back(100)
    assert bench.granted == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_the_work_of_a_grant_does_not_grow_with_the_addresses_that_wait() -> None:
    bench = Bench()
    assert bench["z1"].reserve(90)
    others = [BudgetShare(bench.budget, f"{number}", lambda: None, lambda: None) for number in range(20_000)]
    assert not any(share.reserve(60) for share in others)
    for share in others:
        share.close()
    bench["z1"].give_back(90)
    assert bench.budget.used == 0


def test_frames_of_one_address_do_not_overtake_each_other() -> None:
    bench = Bench()
    assert bench["a1"].reserve(40)
    assert not bench["a2"].reserve(50)
    assert not bench["a3"].reserve(5)
    bench["a1"].give_back(40)
    assert bench.granted == ["a2"]
    assert bench["b1"].reserve(40)  # and another address does not wait for them
    bench["a2"].give_back(50)
    assert bench.granted == ["a2", "a3"]


def test_a_connection_that_ends_gives_everything_back_and_wants_nothing() -> None:
    bench = Bench()
    assert bench["a1"].reserve(90)
    assert not bench["b1"].reserve(50)
    bench.now = PATIENCE_S / 2
    assert not bench["c1"].reserve(5)
    bench["b1"].close()
    assert bench.granted == ["c1"]
    bench["a1"].close()
    bench["a1"].close()
    bench["c1"].close()  # granted, and not used yet
    assert bench.budget.used == 0
    assert bench["d1"].reserve(100)


def test_a_frame_that_cannot_wait_is_counted_beyond_the_limit() -> None:
    bench = Bench()
    assert bench["a1"].reserve(90)
    bench["b1"].take(50)
    assert bench.budget.used == 140
    assert not bench["c1"].reserve(20)
    bench["b1"].give_back(50)
    assert not bench.granted
    bench["a1"].give_back(90)
    assert bench.granted == ["c1"]


def test_a_connection_that_holds_bytes_for_long_is_named_while_another_waits_for_long() -> None:
    bench = Bench()
    assert bench["a1"].reserve(20)
    assert bench["b1"].reserve(30)
    bench.now = 2 * PATIENCE_S
    assert bench.budget.overdue() is None  # nothing waits
    assert not bench["c1"].reserve(60)
    bench.now += PATIENCE_S - 1
    assert bench.budget.overdue() is None
    bench.now += 1
    assert bench.budget.overdue() is bench["b1"]  # its address holds the most
    bench["b1"].close()
    assert bench.granted == ["c1"]
    assert bench.budget.overdue() is None


def test_a_connection_that_makes_progress_is_not_overdue() -> None:
    bench = Bench()
    assert bench["a1"].reserve(30)
    assert bench["a1"].reserve(20)
    assert not bench["b1"].reserve(60)
    bench.now = PATIENCE_S
    bench["a1"].give_back(5)
    assert bench.budget.overdue() is None
    bench.now = 2 * PATIENCE_S
    assert bench.budget.overdue() is bench["a1"]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_order_of_frames_and_ends_the_bound_holds_and_all_bytes_come_free(seed: int) -> None:
    """Connections reserve, wait, give back in parts and end, at random; then each that holds bytes gives them back."""
    chance = random.Random(seed)
    limit = chance.choice([50, 100, 1000])
    bench = Bench(limit)
    names = [f"{address}{number}" for address in "abcd"[: chance.randrange(1, 5)] for number in range(5)]
    waiting: dict[str, int] = {}
    held: dict[str, int] = dict.fromkeys(names, 0)

    def check() -> None:
        for name in list(bench.granted):
            assert bench[name].reserve(waiting[name])
            held[name] += waiting.pop(name)
        bench.granted.clear()
        assert {name: bench[name].held for name in names} == held
        assert bench.budget.used == sum(held.values())
        biggest = max(held.values())
        assert bench.budget.used <= limit or bench.budget.used == biggest
        assert not waiting or bench.budget.used  # never stuck: with nothing held, a frame goes on

    for _ in range(2_000):
        bench.now += chance.random()
        name = chance.choice(names)
        step = chance.random()
        if step < 0.1:
            bench[name].close()
            waiting.pop(name, None)
            held[name] = 0
            if name in bench.granted:
                bench.granted.remove(name)
        elif step < 0.55 and name not in waiting:
            size = chance.choice([1, 5, limit // 3, limit, limit * 2])
            if bench[name].reserve(size):
                held[name] += size
            else:
                waiting[name] = size
        elif held[name]:
            size = chance.randint(1, held[name])
            bench[name].give_back(size)
            held[name] -= size
        check()
    order: list[str] = []
    while any(held.values()):
        name = chance.choice([name for name in names if held[name]])
        order.append(name)
        bench[name].give_back(held[name])
        held[name] = 0
        check()
    assert not waiting
    assert bench.budget.used == 0
    assert bench.budget.is_idle
