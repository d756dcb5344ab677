"""Copies of records are bounded, and go only to who may have them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headgate.share_groups import record_lookup
from headgate.share_groups.dead_letter_delivery import _SLOW_S
from headgate.share_groups.model.dead_letter_records import RecordCopy, offset_ranges, ranges_text
from headgate.share_groups.record_lookup import TOO_LARGE, RecordCopies, UnpackCache, unpack
from headgate.wire.compression import Compression
from headgate.wire.messages.cluster import MetadataResponse, MetadataTopic
from headgate.wire.messages.data import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from headgate.wire.records import WireRecord
from tests.support.clock import FakeClock
from tests.support.record_batches import write_batch
from tests.unit.proxy.stage import turns, until
from tests.unit.share_groups.scene import (
    ACCEPT,
    REJECT,
    TOPIC,
    acknowledged,
    acknowledging,
    fetched,
    fetching,
    scene,
)


def batch(first: int, values: Sequence[bytes], packed: Compression = Compression.NONE) -> bytes:
    records = [WireRecord(offset=first + at, timestamp=1, key=None, value=value) for at, value in enumerate(values)]
    return write_batch(records, compression=packed)


def test_copies_are_bounded_also_when_their_batches_are_tiny() -> None:
    copies = RecordCopies(max_bytes=40_000)
    for offset in range(1_000):
        copies.keep("g", TOPIC, 0, batch(offset, [b"x"]))
    assert copies.bytes <= 40_000
    assert len(copies._groups["g"].batches) < 120, "what a batch costs beside its bytes counts too"
    assert copies.of("g", TOPIC, 0, [0]) == ()
    assert len(copies.of("g", TOPIC, 0, [999, 998])) == 2


def test_a_group_keeps_its_share_of_the_copies_whatever_another_fetches() -> None:
    copies = RecordCopies(max_bytes=40_000)
    for offset in range(30):
        copies.keep("quiet", TOPIC, 0, batch(offset, [b"x"]))
    for offset in range(1_000):
        copies.keep("noisy", TOPIC, 0, batch(offset, [b"x"]))
    assert copies.bytes <= 40_000
    assert len(copies.of("quiet", TOPIC, 0, range(30))) == 30
    assert len(copies.of("noisy", TOPIC, 0, [999, 998])) == 2
    assert copies.of("another", TOPIC, 0, [999]) == (), "copies are not shared between groups"


def test_one_response_that_exceeds_the_copies_of_all_groups_leaves_its_last_batches() -> None:
    copies = RecordCopies(max_bytes=40_000)
    copies.keep("g", TOPIC, 0, b"".join(batch(offset, [b"x" * 900]) for offset in range(100)))
    assert copies.bytes <= 40_000
    assert len(copies.of("g", TOPIC, 0, [99])) == 1


class CountedOffsets(list[int]):
    """Counts its changes: each moves all that lies behind it."""

    changes = 0

    def remove(self, value: int, /) -> None:
        self.changes += 1
        super().remove(value)

    def __delitem__(self, at: Any, /) -> None:
        self.changes += 1
        super().__delitem__(at)

    def __setitem__(self, at: Any, value: Any, /) -> None:
        self.changes += 1
        super().__setitem__(at, value)


@pytest.mark.parametrize("step", [1, 7, 1008])
def test_the_offsets_of_a_partition_are_moved_once_for_all_copies_that_are_dropped(step: int) -> None:
    """A worker keeps 150,000 tiny batches: to move their offsets for each of 2,300 took 76 ms of the event loop."""
    tiny = len(batch(0, [b""])) + 300
    copies = RecordCopies(max_bytes=1000 * tiny)
    firsts = [step * number % 1009 for number in range(1001)]  # in the order of the log, and in other ones
    for first in firsts[:1000]:
        copies.keep("g", TOPIC, 0, batch(first, [b""]))
    kept = copies._groups["g"]
    offsets = kept.bases[TOPIC, 0] = CountedOffsets(kept.bases[TOPIC, 0])
    assert len(offsets) == 1000
    copies.keep("g", TOPIC, 0, batch(firsts[1000], [b""]))
    assert [base for _, _, base in kept.batches] == firsts[17:]
    assert (offsets, offsets.changes) == (sorted(firsts[17:]), 1)
    assert copies.bytes == kept.bytes == 984 * tiny


def test_a_packed_batch_that_is_too_large_says_so_and_one_that_is_not_packed_is_here_already() -> None:
    many = [b"v" * 500, b"w"]
    packed = unpack(batch(10, many, Compression.GZIP), 100)
    assert (packed.copy_of(11), packed.problem) == (RecordCopy(problem=TOO_LARGE), TOO_LARGE)
    plain = unpack(batch(10, many), 100)
    assert (plain.copy_of(11), plain.copy_of(12), plain.problem) == (RecordCopy(None, b"w"), None, None)


async def test_a_batch_is_unpacked_once_for_all_that_are_wanted_of_it_and_not_kept_for_ever() -> None:
    kept = UnpackCache(max_bytes=4_000)
    raw = batch(0, [b"v"] * 3, Compression.ZSTD)
    first = await kept.of(raw, 1_000)
    assert await kept.of(bytes(raw), 1_000) is first
    for number in range(1, 20):
        await kept.of(batch(10 * number, [b"v"] * 3), 1_000)
    assert await kept.of(raw, 1_000) is not first
    assert kept._bytes <= 4_000


@pytest.mark.parametrize(
    ("raw", "is_off_loop"),
    [
        (batch(0, [b"v" * 500] * 500), False),
        (batch(0, [b"v"] * 1_001), True),
        (batch(0, [b"v"] * 3, Compression.ZSTD), True),
        (b"".join(batch(offset, [b"v"]) for offset in range(100)), False),
        (b"".join(batch(offset, [b"v"]) for offset in range(1_000)), True),
    ],
    ids=["large records", "many records", "compressed", "some batches", "many batches"],
)
async def test_what_takes_long_to_unpack_is_unpacked_off_the_loop(
    raw: bytes, is_off_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[object] = []

    async def run_off_loop(work: Callable[[], object]) -> object:
        threads.append(work)
        return work()

    monkeypatch.setattr(record_lookup, "run_off_loop", run_off_loop)
    found = await UnpackCache().of(raw, 100_000)
    assert found.copy_of(2) is not None
    assert bool(threads) == is_off_loop


async def test_a_dead_letter_has_a_copy_of_the_record_that_its_member_got() -> None:
    async with scene() as on:
        on.configure(errors__deadletterqueue__copy__record__enable="true")
        await on.fetch(fetching(), fetched({0: [(10, 11, 1)]}, records=batch(10, [b"a", b"b"])))
        await on.rejects({0: [(10, 11, [ACCEPT, REJECT])]})
        assert [(one.offset, one.value, one.copy_problem) for one in on.dead_letters.written] == [(11, b"b", None)]


async def test_a_copy_that_is_too_large_for_its_topic_is_left_out() -> None:
    async with scene() as on:
        on.configure(errors__deadletterqueue__copy__record__enable="true")
        on.dead_letters.max_bytes = 1
        await on.fetch(fetching(), fetched({0: [(10, 11, 1)]}, records=batch(10, [b"a", b"large"])))
        await on.rejects({0: [(10, 11, [REJECT])]})
        copies = [(one.value, one.copy_problem) for one in on.dead_letters.written]
        assert copies == [(b"a", None), (None, "larger than the topic takes")]
        assert on.counted() == {"rejected": 2, "dead_lettered": 2}


async def test_a_member_that_does_not_hold_a_record_gets_no_copy_of_it() -> None:
    async with scene() as on:
        on.configure(errors__deadletterqueue__copy__record__enable="true")
        await on.fetch(fetching(member="n"), fetched({0: [(10, 10, 1)]}, records=batch(10, [b"secret"])))
        await on.send(fetching({0: [(10, 10, [REJECT])]}, member="n"))
        asked = await on.broker.request()
        named = MetadataTopic(topic_id=TOPIC, name="secret-topic")
        await on.broker.send(asked.answer(MetadataResponse(topics=(named,))))
        await on.goes_on_fetching(fetched({}, codes={0: 0}))
        await on.send(acknowledging({0: [(10, 10, [REJECT])]}))
        await on.names_topic()
        asked = await on.broker.request()
        assert asked.key == 1, "a Fetch, with the client's own right"
        await on.broker.send(asked.answer())
        await on.goes_on_acknowledging(acknowledged({0: 121}))
        held, dead_letter = on.dead_letters.written
        assert (held.value, held.source.topic) == (b"secret", "secret-topic")
        assert dead_letter.value is None
        assert dead_letter.copy_problem is not None


@pytest.mark.parametrize(("size", "at_once"), [(1, 40), (210_000, 20)])
async def test_large_copies_are_written_a_few_at_a_time(size: int, at_once: int) -> None:
    # A clock that stands still: no look-up is slow, however busy the machine is.
    async with scene(clock=FakeClock(), hold_max_ms=5_000) as on:
        on.configure(errors__deadletterqueue__copy__record__enable="true")
        on.dead_letters.open.clear()
        await on.fetch(fetching(), fetched({0: [(0, 39, 1)]}, records=batch(0, [bytes(size)] * 40)))
        await on.send(acknowledging({0: [(0, 39, [REJECT])]}))
        await on.names_topic()
        await until(lambda: bool(on.dead_letters.begun))
        await turns(50)
        assert len(on.dead_letters.begun) == at_once
        on.dead_letters.open.set()
        await on.goes_on_acknowledging(acknowledged({0: 0}))
        assert [len(one.value or b"") for one in on.dead_letters.written] == [size] * 40


async def test_what_is_ready_does_not_wait_for_copies_that_come_slowly() -> None:
    async with scene() as on:
        on.configure(errors__deadletterqueue__copy__record__enable="true")
        await on.send(acknowledging({0: [(0, 59, [REJECT])]}))
        await on.names_topic()
        for ready in (0, 20, 40):
            asked = await on.broker.request()
            assert asked.key == 1
            assert [one.offset for one in on.dead_letters.written] == list(range(ready))
            await asyncio.sleep(2 * _SLOW_S)
            wanted = FetchPartitionResponse(records=batch(ready, [b"v"] * 20))
            topics = (FetchTopicResponse(topic_id=TOPIC, partitions=(wanted,)),)
            await on.broker.send(asked.answer(FetchResponse(responses=topics)))
        await on.goes_on_acknowledging(acknowledged({0: 0}))
        assert [(one.offset, one.value) for one in on.dead_letters.written] == [(offset, b"v") for offset in range(60)]


async def test_a_record_that_cannot_be_read_in_time_has_a_dead_letter_without_a_copy() -> None:
    async with scene() as on:
        on.configure(errors__deadletterqueue__copy__record__enable="true")
        await on.fetch(fetching(), fetched({0: [(5, 5, 1)]}, lock_ms=4_000))  # 2 s without the margin
        await on.send(acknowledging({0: [(5, 5, [REJECT])]}))
        await on.names_topic()
        asked = await on.broker.request()
        assert asked.key == 1, "a Fetch"
        await until(lambda: bool(on.dead_letters.written))
        [dead_letter] = on.dead_letters.written
        assert (dead_letter.value, dead_letter.copy_problem) == (None, "the record could not be read in time")
        await on.broker.send(asked.answer())
        await on.goes_on_acknowledging(acknowledged({0: 0}))
        assert on.counted() == {"rejected": 1, "dead_lettered": 1}


async def test_a_name_that_comes_slowly_does_not_part_the_dead_letters_of_a_request() -> None:
    async with scene() as on:
        on.configure()
        on.dead_letters.open.clear()
        await on.acquires((0, 4, 1))
        await on.send(acknowledging({0: [(0, 4, [REJECT, ACCEPT, REJECT, ACCEPT, REJECT])]}))
        await asyncio.sleep(2 * _SLOW_S)
        await on.names_topic()
        await until(lambda: len(on.dead_letters.begun) == 3)
        on.dead_letters.open.set()
        await on.goes_on_acknowledging(acknowledged({0: 0}))
        assert on.dead_letters.offsets == [(0, 0), (0, 2), (0, 4)]


@pytest.mark.parametrize(
    ("offsets", "found"), [([], ()), ([1], ((1, 1),)), ([1, 2, 3, 7, 9, 10], ((1, 3), (7, 7), (9, 10)))]
)
def test_offsets_as_ranges(offsets: list[int], found: tuple[tuple[int, int], ...]) -> None:
    assert offset_ranges(offsets) == found


def test_a_log_line_has_only_the_first_ranges() -> None:
    assert ranges_text(tuple((one, one) for one in range(0, 100, 2)), limit=2) == "0,2 and 48 more ranges"
