"""Periods of an edge: pauses, learned ones of batch jobs, and what descriptions leave open."""

from headgate.lineage.edge_periods import (
    DAY_MS,
    HOUR_MS,
    Edge,
    LineagePeriod,
    Period,
    Use,
    edge_rows,
    is_internal_name,
)

QUIET = 7 * DAY_MS
NOW = 1000 * DAY_MS


def use(day: float, *, size: int = 1, records: int | None = None) -> Use:
    start = int(day * DAY_MS)
    return Use(start, start + HOUR_MS, size, records)


def rows(uses: list[Use], declared: list[Period] | None = None, *, now_ms: int = NOW) -> list[LineagePeriod]:
    return edge_rows(uses, declared or [], [], now_ms=now_ms, quiet_ms=QUIET)


def spans(found: list[LineagePeriod]) -> list[tuple[int, int | None]]:
    return [(row.valid_from, row.valid_to) for row in found]


def test_an_edge_is_observed_until_its_last_use_when_it_has_been_silent_for_long() -> None:
    uses = [use(1), use(7), use(16)]
    assert spans(rows(uses)) == [(DAY_MS, 7 * DAY_MS + HOUR_MS), (16 * DAY_MS, 16 * DAY_MS + HOUR_MS)]
    last = 16 * DAY_MS + HOUR_MS
    assert rows(uses, now_ms=last + QUIET)[-1].valid_to is None
    assert rows(uses, now_ms=last + QUIET + 1)[-1].valid_to == last


def test_a_pause_of_exactly_the_quiet_time_does_not_end_an_edge() -> None:
    uses = [Use(0, HOUR_MS, 1, None), Use(HOUR_MS + QUIET, 2 * HOUR_MS + QUIET, 1, None)]
    assert len(rows(uses)) == 1
    assert len(rows([uses[0], uses[1]._replace(first_seen=HOUR_MS + QUIET + 1)])) == 2


def test_a_batch_job_that_comes_back_regularly_may_be_silent_for_longer() -> None:
    monthly = [use(day) for day in (0, 30, 61, 91)]
    last = 91 * DAY_MS + HOUR_MS
    pause = 31 * DAY_MS - HOUR_MS
    assert spans(rows(monthly, now_ms=last + pause + pause // 2)) == [(0, None)]
    assert spans(rows(monthly, now_ms=last + pause + pause // 2 + 1)) == [(0, last)]
    assert len(rows(monthly[1:])) == 3, "two pauses are not enough"
    assert len(rows([use(day) for day in (0, 10, 61, 91)])) == 4, "they are not alike"


def test_a_row_ends_where_declaration_or_use_changes() -> None:
    declared = [Period(0, 5 * DAY_MS), Period(5 * DAY_MS, 40 * DAY_MS)]
    found = rows([use(2), use(3)], declared)
    end = 3 * DAY_MS + HOUR_MS
    assert spans(found) == [(0, 2 * DAY_MS), (2 * DAY_MS, end), (end, 40 * DAY_MS)]
    assert [row.observed for row in found] == [False, True, False]
    assert all(row.declared for row in found)
    assert [row.last_seen for row in found] == [None, end, None]


def test_an_unnamed_topic_is_declared_while_it_is_used_and_marked() -> None:
    found = edge_rows([use(2)], [], [Period(0, None)], now_ms=3 * DAY_MS, quiet_ms=QUIET)
    assert [(row.declared, row.observed, row.filled) for row in found] == [(True, True, True)]
    named = edge_rows([use(2)], [Period(0, None)], [Period(0, None)], now_ms=3 * DAY_MS, quiet_ms=QUIET)
    assert not any(row.filled for row in named)


def test_sums_are_those_of_edges_that_are_in_use() -> None:
    now = 10 * DAY_MS + 5
    uses = [use(9, size=0), use(9 + 1 / 24, size=10), use(10, size=2**63, records=3)]
    (row,) = rows(uses, now_ms=now)
    assert (row.bytes_day, row.records_day) == (2**63 - 1, 3)
    assert [(one.bytes_day, one.last_seen) for one in rows(uses)] == [(None, 10 * DAY_MS + HOUR_MS)]


def test_uses_by_topic_id_that_overlap_are_one_period() -> None:
    first, other = Use(0, 9 * DAY_MS, 1, None), Use(DAY_MS, 2 * DAY_MS, 2, 5)
    (row,) = rows([other, first], now_ms=10 * DAY_MS)
    assert (row.valid_from, row.last_seen, row.bytes_day, row.records_day) == (0, 9 * DAY_MS, 3, 5)


def test_internal_topics_are_known_by_their_names() -> None:
    names = {"app-x-changelog": True, "app-x-repartition": True, "other-x-changelog": False, "app-x": False}
    found = {topic: is_internal_name(Edge("c", "streams", "app", topic, "read")) for topic in names}
    assert found == names
    assert not is_internal_name(Edge("c", "client", "app", "app-x-changelog", "read"))
