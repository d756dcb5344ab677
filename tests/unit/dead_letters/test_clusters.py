"""Clusters: which letters belong to which episode, what their records share, and which offsets are read."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.dead_letters.model.clusters import (
    Letter,
    LetterCluster,
    SourceRecord,
    cluster_name,
    clusters_of,
    pauses_of,
    source_ranges,
)
from headgate.dead_letters.model.episodes import Attempts, Pause
from headgate.dead_letters.model.verdict import EpisodeCause
from headgate.share_groups.model.group_state import BREAKER_PRINCIPAL
from headgate.share_groups.model.recorded_history import RecordedEvent

MINUTE = 60_000


def letter(offset: int, at: int, *, topic: str | None = "orders", count: int | None = 1) -> Letter:
    return Letter(topic=topic, topic_id="id", partition=0, offset=offset, at=at, delivery_count=count)


def attempts(first_s: int, last_s: int, *, failed: int, succeeded: int) -> list[Attempts]:
    return [
        Attempts(at=one * 1000, member=f"m-{one % 2}", failed=failed, succeeded=succeeded)
        for one in range(first_s, last_s)
    ]


def clusters(
    letters: list[Letter], counted: list[Attempts], sources: list[SourceRecord] | None = None
) -> list[LetterCluster]:
    return clusters_of("c", "sg", letters, counted, (), {("id", 0): sources or []}, now=20 * MINUTE)


TWO_OUTAGES = [
    *attempts(0, 300, failed=0, succeeded=20),
    *attempts(300, 330, failed=20, succeeded=0),
    *attempts(330, 700, failed=0, succeeded=20),
    *attempts(700, 720, failed=20, succeeded=0),
]


def test_a_letter_belongs_to_the_episode_in_which_it_was_written() -> None:
    early, first, second = letter(1, 100_000), letter(2, 310_000), letter(3, 701_000)
    found = clusters([second, early, first], TWO_OUTAGES)
    assert [list(one.letters) for one in found] == [[first], [second]]
    assert [one.verdict.cause for one in found] == [EpisodeCause.OUTAGE] * 2
    assert found[0].id == cluster_name("c", "sg", 300_000)
    assert found[0].topics == ["orders"]


def test_an_episode_without_letters_is_no_cluster() -> None:
    assert clusters([], TWO_OUTAGES) == []
    assert clusters([letter(1, 310_000)], []) == []


def test_a_letter_that_was_written_a_moment_before_the_first_failure_was_counted_belongs_to_it() -> None:
    [found] = clusters([letter(1, 298_000)], TWO_OUTAGES)
    assert found.episode.since == 300_000


def test_records_between_the_letters_are_compared_with_them() -> None:
    """Every tenth record has schema 7 and fails; records beyond the last letter and other partitions do not count."""
    counted = [*attempts(0, 300, failed=0, succeeded=20), *attempts(300, 360, failed=2, succeeded=18)]
    letters = [letter(one, 300_000 + one * 40) for one in range(0, 1200, 10)]
    sources = [
        SourceRecord(offset=one, features=[None, 7 if one % 10 == 0 else 5, None, None, 3]) for one in range(2000)
    ]
    [found] = clusters(letters, counted, sources)
    assert (found.verdict.cause, found.verdict.feature) == (EpisodeCause.CONTENT, "schema_id=7")
    sampled = found.verdict.evidence["sampled_records"]
    assert isinstance(sampled, dict)
    assert (sampled["failed"], sampled["attempts"]) == (120, 1191)


def test_letters_of_unknown_records_count_and_have_no_features() -> None:
    [found] = clusters([letter(1, 310_000, topic=None)], TWO_OUTAGES, [SourceRecord(offset=1, features=[1] * 5)])
    assert found.topics == []
    assert found.verdict.evidence["worst_features"] == []


def test_pauses_begin_with_a_trip_or_an_operator_and_end_with_a_resume() -> None:
    events = [(50, "resumed"), (10, "tripped"), (20, "paused"), (90, "paused"), (5, "resumed")]
    by_operator = [RecordedEvent(at=at, event=event, by="User:alice") for at, event in events]
    assert pauses_of(by_operator) == [Pause(since=10, until=50), Pause(since=90, until=None)]


def test_an_automatic_resume_ends_no_pause_of_an_operator() -> None:
    """As in back-tests and triage: by one rule."""
    tripped = [RecordedEvent(at=10, event="tripped"), RecordedEvent(at=50, event="resumed", by=BREAKER_PRINCIPAL)]
    assert pauses_of(tripped) == [Pause(since=10, until=50)]
    paused = [*tripped, RecordedEvent(at=20, event="paused", by="User:alice")]
    assert pauses_of(paused) == [Pause(since=10, until=None)]
    assert pauses_of([*paused, RecordedEvent(at=70, event="resumed", by="User:bob")]) == [Pause(since=10, until=70)]


def test_names_of_clusters_differ_by_cluster_group_and_time() -> None:
    names = {cluster_name(*one) for one in [("a", "bc", 1), ("ab", "c", 1), ("a", "bc", 2), ("a", "b\ud800", 1)]}
    assert len(names) == 4
    assert all(len(one) == 12 for one in names)


@given(st.sets(st.integers(0, 10_000)), st.integers(1, 500), st.integers(1, 2000))
def test_ranges_cover_every_offset_once_and_are_bounded(offsets: set[int], gap: int, longest: int) -> None:
    found = source_ranges(offsets, gap=gap, longest=longest)
    assert all(begin < end and end - begin <= longest for begin, end in found)
    covered = [sum(begin <= one < end for begin, end in found) for one in offsets]
    assert covered == [1] * len(offsets)
    read = sum(end - begin for begin, end in found)
    assert read <= len(offsets) * gap
