"""What the share ledger costs: a range acquired, looked at and settled, and the memory of many consumers' locks.

The limit is that of the gateway's budget: 3 microseconds a range.
"""

import random
import tracemalloc
from collections.abc import Callable

from bench.codec import microseconds
from headgate.share_groups.model.delivery_ledger import DeliveryLedger, HeldKey, Holder

CONSUMERS = 200
LOCKS = 2_000
PARTITIONS = 20
MOST_RANGES = 1_000_000


def keys(consumers: int = 1) -> list[HeldKey]:
    """Each consumer has its locks in one of the partitions."""
    topic = bytes(range(16))
    return [
        ("orders-workers", Holder(f"member-{one:018d}", "User:orders"), topic, one % PARTITIONS)
        for one in range(consumers)
    ]


def one_by_one() -> Callable[[], object]:
    """The usual case: a fetch gives one range, and its acknowledgement names the same."""
    ledger, (key,) = DeliveryLedger(MOST_RANGES), keys()
    offset = 0

    def call() -> None:
        nonlocal offset
        first, last = offset, offset + 499
        ledger.acquire(key, first, last, 1, 0)
        ledger.lookup(key, first, last)
        ledger.settle(key, first, last)
        offset += 500

    return call


def many_held(order: str) -> Callable[[], object]:
    """A partition full of locks, each a range by itself; one more comes and one goes, first or wherever."""
    ledger, (key,) = DeliveryLedger(MOST_RANGES), keys()
    held = list(range(0, 2 * LOCKS, 2))
    for offset in held:
        ledger.acquire(key, offset, offset, 1, 0)
    rng = random.Random(1)
    picks = [0 if order == "first" else rng.randrange(LOCKS) for _ in range(10_000)]
    turn = 0

    def call() -> None:
        nonlocal turn
        pick = picks[turn % len(picks)]
        offset = held.pop(pick)
        newest = held[-1] + 2
        held.append(newest)
        ledger.acquire(key, newest, newest, 1, 0)
        ledger.lookup(key, offset, offset)
        ledger.settle(key, offset, offset)
        turn += 1

    return call


def split() -> Callable[[], object]:
    """A range of which one record is rejected and the rest accepted: three ranges looked at and settled."""
    ledger, (key,) = DeliveryLedger(MOST_RANGES), keys()
    offset = 0

    def call() -> None:
        nonlocal offset
        first, middle, last = offset, offset + 250, offset + 499
        ledger.acquire(key, first, last, 1, 0)
        for begin, end in ((first, middle - 1), (middle, middle), (middle + 1, last)):
            ledger.lookup(key, begin, end)
        for begin, end in ((middle, middle), (first, middle - 1), (middle + 1, last)):
            ledger.settle(key, begin, end)
        offset += 500

    return call


def megabytes(range_length: int) -> tuple[int, float]:
    """How many ranges all locks of all consumers are, and what they take."""
    members = keys(CONSUMERS)
    tracemalloc.start()
    ledger = DeliveryLedger(MOST_RANGES)
    for number, key in enumerate(members):
        for first in range(number * LOCKS, (number + 1) * LOCKS, range_length):
            ledger.acquire(key, first, first + range_length - 1, 1, 0)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return len(ledger), taken / 1e6


def main() -> dict[str, float]:
    """Print a line for each figure and give the medians by name, in microseconds and megabytes."""
    figures = {}
    for name, call in (
        ("one range acquired, looked at, settled", one_by_one()),
        (f"the same with {LOCKS} ranges held, the first one settled", many_held("first")),
        (f"the same with {LOCKS} ranges held, any one settled", many_held("any")),
        ("one range acquired, settled in three", split()),
    ):
        best, median = microseconds(call, 5_000)
        figures[name] = median
        print(f"{name}: best {best:.2f} us, median {median:.2f} us")
    for length in (500, 1):
        ranges, taken = megabytes(length)
        name = f"{CONSUMERS} consumers x {LOCKS} locks in ranges of {length}"
        figures[name] = taken
        print(f"{name}: {ranges} ranges, {taken:.2f} MB")
    return figures


if __name__ == "__main__":
    main()
