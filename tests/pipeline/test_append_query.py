"""Large facts to tables that only grow: each fact is read once, whatever stopped the query on the way."""

from dataclasses import replace
from functools import partial

import pytest

from headgate.facts import ActivityObserved, DispositionsCounted, Ended, Fact, GroupLagsObserved, encode
from headgate.facts.observations import Actor, Software
from headgate.pipeline.append_query import AppendBatches
from headgate.pipeline.batches import Moment
from headgate.pipeline.queries import APPEND, FACTS, QUERIES
from tests.pipeline import oracle
from tests.pipeline.estate import Estate
from tests.pipeline.histories import ODD_NAMES, POOL, described
from tests.pipeline.oracle import APPENDED
from tests.pipeline.test_facts_query import assert_tables_are_right, cluster_of, killing_at

LARGE = APPEND.suffixes
BY_SPARK = replace(APPEND, batches=partial(AppendBatches, collect_up_to=0))  # as batches of many records are written


def activity(number: int) -> ActivityObserved:
    name = ODD_NAMES[number % len(ODD_NAMES)]
    return ActivityObserved(
        at=1_794_731_900_000 + number,
        actor=Actor(kind="connector", name=name, rule="connector-client-id", confidence="certain"),
        topic=None if number % 5 == 0 else f"t\udc80 {name}",
        topic_id=f"id-{number}",
        direction="write" if number % 2 else "read",
        since=number,
        until=number + 60_000,
        bytes=2**40 + number,
        records=None if number % 3 else number,
        principal=None,
        client_id=name,
        group=name or None,
        transactional_id=None,
        software=None if number % 4 == 0 else Software(name="apache-kafka-java", version=None),
        host="10.0.0.7",
    )


def dispositions(number: int) -> DispositionsCounted:
    return DispositionsCounted(
        at=1_794_731_900_000 + number,
        group=ODD_NAMES[number % len(ODD_NAMES)],
        member="m",
        topic="orders",
        topic_id=None,
        partition=number % 8,
        second=1_794_731_900 + number,
        generation=4,
        accepted=10,
        released=1,
        rejected=2,
        over_limit=0,
        dead_lettered=2,
        write_timeouts=0,
        by_delivery_count=((1, 11), (2, 2)) if number % 2 else (),
    )


def lags(number: int) -> GroupLagsObserved:
    """Lists of one length, and as no gateway writes them: shorter ones, and none at all."""
    partitions = tuple(range(number % 4))
    return GroupLagsObserved(
        at=1_794_731_900_000 + number,
        group=ODD_NAMES[number % len(ODD_NAMES)],
        topic="orders",
        kind="share" if number % 2 else "streams",
        topic_id=None if number % 3 else "id",
        partitions=partitions,
        committed=tuple(None if number % 5 == 0 else 2**40 + one for one in partitions),
        ends=tuple(2**41 + one for one in partitions)[: number % 7],
        lags=(1, 2, 3, 4, 5),
    )


def write_copy(estate: Estate, fact: Fact | Ended) -> None:
    """One that its writer sent twice, to the letter."""
    suffix, key, value = encode(fact)
    estate.write_raw(suffix, key, value)


def assert_appended_are_right(estate: Estate) -> None:
    wanted = oracle.tables(
        estate.records(LARGE), prefix=estate.prefix, own_cluster=cluster_of(estate), ids=estate.topic_ids()
    )
    for name in (*APPENDED, "rejected_facts"):
        assert estate.rows(name) == wanted[name], name


def test_each_fact_is_a_row_once(estate: Estate) -> None:
    """Both queries side by side, copies within a batch and in a later one, facts of an unknown writer, and garbage."""
    one = replace(activity(1), cluster="c", writer="gw/9", boot="b", seq=7)
    estate.write(*(activity(number) for number in range(20)), *(dispositions(number) for number in range(20)))
    estate.write(*(lags(number) for number in range(20)))
    estate.write(described("g", POOL[1], at=1))
    write_copy(estate, one)
    write_copy(estate, one)
    write_copy(estate, dispositions(3))
    write_copy(estate, replace(lags(3), cluster="c"))
    write_copy(estate, dispositions(3))  # without a writer nobody can tell that it is a copy
    estate.write_raw("activity", b"no key", b"{}")
    estate.write_raw("dispositions", b'["sg"]', b'{"v":2}')
    assert estate.run(*QUERIES)
    assert estate.health.problems().keys() <= {query.name for query in QUERIES}
    assert len(estate.rows("rejected_facts")) == 2
    assert len(estate.rows("applications")) == 1
    assert_appended_are_right(estate)
    assert stored_rows(estate, "activity_intervals") == 22, "a copy stays, and the reader leaves it out"

    write_copy(estate, one)
    estate.write(activity(99))
    assert estate.run(BY_SPARK)
    assert_appended_are_right(estate)
    assert stored_rows(estate, "activity_intervals") == 24, "in a later batch too"

    versions = estate.versions(APPENDED)
    assert estate.run(APPEND)
    assert estate.versions(APPENDED) == versions, "nothing new is no commit"

    assert (stored_rows(estate, "group_lags"), len(estate.rows("group_lags"))) == (33, 30), "a row for each partition"
    estate.forget("dispositions")
    estate.rebuild("activity_intervals")
    estate.rebuild("dispositions")
    assert stored_rows(estate, "activity_intervals") == 22, "a rebuild drops copies"
    assert {row["is_historic"] for row in estate.rows("dispositions").values()} == {True}
    assert len(estate.rows("dispositions")) == 22


def stored_rows(estate: Estate, name: str) -> int:
    """With the copies."""
    return estate.summary(name).rows


POINTS: list[tuple[Moment, str]] = [
    ("after", "activity_intervals"),
    ("after", "group_lags"),
    ("after", "rejected_facts"),
    ("end", ""),
]


def write_some(estate: Estate) -> None:
    estate.write(*(activity(number) for number in range(5)), *(dispositions(number) for number in range(5)))
    estate.write(*(lags(number) for number in range(5)))
    estate.write_raw("activity", b"no key", b"{}")


def assert_some_are_there_once(estate: Estate) -> None:
    assert_appended_are_right(estate)
    assert [stored_rows(estate, name) for name in (*APPENDED, "rejected_facts")] == [5, 5, 6, 1]


def test_a_killed_batch_comes_again_and_appends_nothing_twice(estate: Estate) -> None:
    """Killed between two tables, after the last write, and before the checkpoint; at every point in `tests/soak`."""
    write_some(estate)
    for point in POINTS:
        with pytest.raises(Exception, match="the query ended"):
            estate.run(APPEND, on_moment=killing_at(point))
        assert "the query ended" in estate.health.problems()[APPEND.name]
    assert estate.run(APPEND)
    assert APPEND.name not in estate.health.problems()
    assert_some_are_there_once(estate)


def test_a_batch_that_spark_has_begun_to_write_is_finished_by_spark(estate: Estate) -> None:
    """Killed between the two passes over the records of a table, and before the checkpoint."""
    write_some(estate)
    with pytest.raises(Exception, match="the query ended"):
        estate.run(BY_SPARK, on_moment=killing_at(("after", "group_lags")))
    assert estate.rows("rejected_facts") == {}, "the second pass finds them"
    with pytest.raises(Exception, match="the query ended"):
        estate.run(APPEND, on_moment=killing_at(("end", "")))
    assert_some_are_there_once(estate)
    assert estate.run(APPEND)
    assert_some_are_there_once(estate)


def test_a_table_of_another_version_stops_no_other(estate: Estate) -> None:
    estate.store_version("dispositions", 99)
    estate.write(*map(dispositions, (1, 2)), *map(activity, (1, 2)), described("g", POOL[1], at=1))
    assert not estate.run(FACTS, APPEND)
    assert "its schema version is 99" in estate.health.problems()["table dispositions"]
    assert len(estate.rows("activity_intervals")) == 2
    assert_tables_are_right(estate, cluster_of(estate))
    estate.rebuild("dispositions")
    estate.write(dispositions(3))
    assert estate.run(APPEND)
    assert_appended_are_right(estate)
