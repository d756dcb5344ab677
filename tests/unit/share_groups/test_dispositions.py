"""What became of records, added up by second, member and partition, and never more rows than there is room for."""

from headgate.facts import DispositionsCounted
from headgate.share_groups.model.dead_letter_records import PartitionKey, topic_id_text
from headgate.share_groups.model.delivery_ledger import OTHER, DispositionKind, Dispositions

TOPIC = bytes(range(16))
KEY: PartitionKey = ("sg", "m", TOPIC, 3)


def drain(counts: Dispositions, before_second: int) -> list[DispositionsCounted]:
    return counts.drain(before_second, at=7, topic_name={TOPIC: "orders"}.get)


def test_a_second_of_a_partition_is_one_row() -> None:
    counts = Dispositions()
    counts.count(KEY, 4, 100, DispositionKind.ACCEPTED, 10, 1)
    counts.count(KEY, 4, 100, DispositionKind.RELEASED, 1, 1)
    counts.count(KEY, 4, 100, DispositionKind.REJECTED, 2, 2)
    counts.count(KEY, 4, 100, DispositionKind.DEAD_LETTERED, 2, 2)
    assert drain(counts, 101) == [
        DispositionsCounted(
            at=7,
            group="sg",
            member="m",
            topic="orders",
            topic_id=topic_id_text(TOPIC),
            partition=3,
            second=100,
            generation=4,
            accepted=10,
            released=1,
            rejected=2,
            over_limit=0,
            dead_lettered=2,
            write_timeouts=0,
            by_delivery_count=((1, 11), (2, 2)),
        )
    ]
    assert drain(counts, 101) == []
    assert len(counts) == 0


def test_a_record_is_in_the_delivery_counts_once() -> None:
    """Over the limit, and then dead-lettered or timed out: one record."""
    counts = Dispositions()
    counts.count(KEY, 0, 1, DispositionKind.OVER_LIMIT, 3, 6)
    counts.count(KEY, 0, 1, DispositionKind.DEAD_LETTERED, 2, 6)
    counts.count(KEY, 0, 1, DispositionKind.WRITE_TIMEOUT, 1, 6)
    (row,) = drain(counts, 2)
    assert (row.over_limit, row.dead_lettered, row.write_timeouts) == (3, 2, 1)
    assert row.by_delivery_count == ((6, 3),)


def test_an_unknown_delivery_count_is_0() -> None:
    counts = Dispositions()
    counts.count(KEY, 0, 1, DispositionKind.REJECTED, 2, None)
    assert drain(counts, 2)[0].by_delivery_count == ((0, 2),)


def test_only_seconds_that_are_over_are_taken_out_and_in_order() -> None:
    counts = Dispositions()
    for second in (7, 5, 6):
        counts.count(KEY, 0, second, DispositionKind.ACCEPTED, second, 1)
    assert [(row.second, row.accepted) for row in drain(counts, 7)] == [(5, 5), (6, 6)]
    assert [row.second for row in drain(counts, 8)] == [7]


def test_generations_partitions_and_members_have_rows_of_their_own() -> None:
    counts = Dispositions()
    for key in (KEY, ("sg", "n", TOPIC, 3), ("sg", "m", TOPIC, 4), ("sg", "m", bytes(16), 3), ("sg2", "m", TOPIC, 3)):
        for generation in (4, 5):
            counts.count(key, generation, 1, DispositionKind.ACCEPTED, 1, 1)
    assert len(counts) == 10
    assert all(row.accepted == 1 for row in drain(counts, 2))


def test_beyond_the_bound_a_group_has_one_row_for_all_else() -> None:
    counts = Dispositions(max_rows=2)
    for partition in range(5):
        counts.count(("sg", "m", TOPIC, partition), 4, 1, DispositionKind.ACCEPTED, 1, 1)
        counts.count(("sg", "m", TOPIC, partition), 4, 1, DispositionKind.DEAD_LETTERED, 1, 1)
    counts.count(("sg", "m", TOPIC, 0), 4, 1, DispositionKind.ACCEPTED, 7, 1)
    rows = drain(counts, 2)
    assert [(row.member, row.topic, row.partition, row.accepted) for row in rows] == [
        ("m", "orders", 0, 8),
        ("m", "orders", 1, 1),
        (OTHER, None, 0, 3),
    ]
    assert sum(row.dead_lettered for row in rows) == 5, "the breaker's numbers are whole"
    assert counts.lost == 0


def test_beyond_twice_the_bound_it_is_lost_and_counted() -> None:
    counts = Dispositions(max_rows=2)
    for number in range(10):
        counts.count((f"sg{number}", "m", TOPIC, 0), 0, number, DispositionKind.ACCEPTED, 3, 1)
    assert len(counts) == 4
    assert counts.lost == 18
    assert sum(row.accepted for row in drain(counts, 99)) == 12
    counts.count(KEY, 0, 100, DispositionKind.ACCEPTED, 1, 1)
    assert counts.lost == 18
    assert len(counts._seconds) == 1
