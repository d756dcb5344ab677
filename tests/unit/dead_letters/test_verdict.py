"""The verdict on an episode: each rule at its limits, their order, and simulated incidents."""

from dataclasses import replace

import pytest

from bench.triage import Outcome, evaluate, page_of, wrong_and_abstained
from bench.triage_incidents import FAMILIES, OVERLAPPING, TUNING, incident, judge
from bench.triage_late_families import FRESH_SEEDS, LATE, LATE_OVERLAPPING, LATE_SEEDS
from headgate.dead_letters.model.episodes import Bucket, Episode
from headgate.dead_letters.model.rates import FailureRate
from headgate.dead_letters.model.verdict import (
    DeadLetterCounts,
    EpisodeCause,
    EpisodeVerdict,
    FeatureRate,
    OperatorAction,
    RecordSample,
    verdict_on,
)

NO_SAMPLE = RecordSample()


def episode(
    members: dict[str, tuple[int, int]], *, after: tuple[int, int] = (0, 0), base: float = 0.0, buckets: int = 1
) -> Episode:
    """An episode in which members failed in so many of so many attempts, in each of its buckets."""
    rates = {member: FailureRate(*one) for member, one in members.items()}
    return Episode(
        base=base,
        buckets=[Bucket(since=5_000 * one, until=5_000 * (one + 1), members=rates) for one in range(buckets)],
        after=[Bucket(since=100_000, until=105_000, members={"m": FailureRate(*after)})] if after[1] else [],
        ended_at=None,
        paused_ms=0,
    )


def verdict(one: Episode, sample: RecordSample = NO_SAMPLE, letters: int = 5, deliveries: int = 5) -> EpisodeVerdict:
    return verdict_on(one, sample, DeadLetterCounts(letters=letters, deliveries=deliveries, failing=letters))


def sampled(failed: int, having: int, *, others_failed: int = 0, others: int = 100) -> RecordSample:
    """Records with schema 7, and others."""
    feature = FeatureRate(name="schema_id", value="7", rate=FailureRate(failed, having))
    return RecordSample(rate=FailureRate(failed + others_failed, having + others), features=[feature])


def test_fewer_than_30_attempts_are_insufficient() -> None:
    assert verdict(episode({"a": (29, 29)})).cause is EpisodeCause.INSUFFICIENT
    assert verdict(episode({"a": (30, 30)})).cause is EpisodeCause.OUTAGE


def test_attempts_after_the_failures_count_too() -> None:
    assert verdict(episode({"a": (1, 20)}, after=(0, 200)), letters=1, deliveries=1).cause is EpisodeCause.POISON


def test_a_broken_member_among_others_that_work() -> None:
    found = verdict(episode({"a": (20, 20), "b": (0, 40), "c": (1, 40)}))
    assert (found.cause, found.member, found.action) == (EpisodeCause.MEMBER, "a", OperatorAction.RESTART_MEMBER)


@pytest.mark.parametrize(
    "members",
    [
        {"a": (20, 20), "b": (0, 20)},  # the other's upper bound is .16: too few attempts to tell
        {"a": (12, 24), "b": (0, 100)},  # its own lower bound is below .5
        {"a": (20, 20), "b": (8, 100)},
    ],
    ids=["too few of others", "half broken", "others fail too"],
)
def test_a_member_is_not_blamed_without_both_bounds(members: dict[str, tuple[int, int]]) -> None:
    assert verdict(episode(members)).cause is not EpisodeCause.MEMBER


def test_a_single_member_is_never_blamed() -> None:
    assert verdict(episode({"a": (100, 100)})).cause is EpisodeCause.OUTAGE


def test_records_with_one_feature_fail_and_the_rest_does_not() -> None:
    found = verdict(episode({"a": (10, 60), "b": (10, 60)}), sampled(20, 20))
    assert (found.cause, found.feature, found.action) == (
        EpisodeCause.CONTENT,
        "schema_id=7",
        OperatorAction.FIX_FIRST,
    )
    assert found.evidence["recall"] == 1.0


def test_a_producer_is_blamed_only_where_its_records_have_nothing_else_in_common() -> None:
    every, bad = FailureRate(20, 120), FailureRate(20, 20)
    producer = FeatureRate(name="producer_id", value="4001", rate=bad)
    both = [producer, FeatureRate(name="schema_id", value="7", rate=bad)]
    members = {"a": (10, 60), "b": (10, 60)}
    assert verdict(episode(members), RecordSample(rate=every, features=both)).feature == "schema_id=7"
    assert verdict(episode(members), RecordSample(rate=every, features=both[:1])).feature == "producer_id=4001"


@pytest.mark.parametrize(
    "sample",
    [
        sampled(15, 15),  # lower bound .796
        sampled(20, 20, others_failed=6, others=100),  # upper bound .125
        sampled(20, 20, others_failed=6, others=400),  # recall .77
        sampled(20, 20, others=0),  # nothing to compare with: every record has it
    ],
    ids=["too few", "others fail", "recall", "no others"],
)
def test_a_feature_is_not_blamed_without_all_three(sample: RecordSample) -> None:
    assert verdict(episode({"a": (10, 60), "b": (10, 60)}), sample).cause is not EpisodeCause.CONTENT


def test_the_member_comes_before_the_content_and_the_content_before_the_outage() -> None:
    broken = episode({"a": (40, 40), "b": (0, 40)})
    assert verdict(broken, sampled(40, 40)).cause is EpisodeCause.MEMBER
    everywhere = episode({"a": (40, 60), "b": (40, 60)})
    assert verdict(everywhere).cause is EpisodeCause.OUTAGE
    assert verdict(everywhere, sampled(40, 40)).cause is EpisodeCause.CONTENT


def test_an_outage_is_felt_by_most_members() -> None:
    members = dict.fromkeys("abcd", (20, 20))
    assert verdict(episode(members | {"e": (0, 20)})).cause is EpisodeCause.OUTAGE
    assert verdict(episode(members | {"e": (0, 20), "f": (0, 20)})).cause is EpisodeCause.MIXED


def test_after_an_outage_that_is_over_records_can_be_replayed() -> None:
    down = {"a": (30, 30), "b": (30, 30)}
    assert verdict(episode(down)).action is OperatorAction.RESUME_AND_WATCH
    assert verdict(episode(down, after=(0, 100))).action is OperatorAction.REPLAY_NOW
    assert verdict(episode(down, after=(30, 100))).action is OperatorAction.RESUME_AND_WATCH


def test_attempts_after_a_resume_tell_that_an_outage_is_over_and_not_what_it_was() -> None:
    down = replace(episode({"a": (10, 10), "b": (10, 10)}), ended_at=6_000)
    for later, action in ((34, OperatorAction.RESUME_AND_WATCH), (35, OperatorAction.REPLAY_NOW)):
        resumed = replace(down, buckets=[*down.buckets, *down.buckets], later=FailureRate(0, later))
        assert (verdict(resumed).cause, verdict(resumed).action) == (EpisodeCause.OUTAGE, action)
    assert verdict(replace(down, later=FailureRate(0, 35))).cause is EpisodeCause.INSUFFICIENT


def test_single_records_that_fail_whatever_is_tried_are_poison() -> None:
    found = verdict(episode({"a": (5, 100), "b": (0, 100)}), letters=1, deliveries=5)
    assert (found.cause, found.action) == (EpisodeCause.POISON, OperatorAction.QUARANTINE)
    assert found.evidence["attempts_of_others"] == FailureRate(0, 195).figures


def test_other_records_that_fail_too_are_no_poison_unless_the_group_always_had_as_many() -> None:
    failing = {"a": (8, 100), "b": (7, 100)}
    assert verdict(episode(failing), letters=1, deliveries=1).cause is EpisodeCause.MIXED
    assert verdict(episode(failing, base=0.05), letters=1, deliveries=1).cause is EpisodeCause.POISON


def test_a_bucket_in_which_many_fail_is_no_poison() -> None:
    assert verdict(episode({"a": (30, 100), "b": (28, 100)}), letters=58, deliveries=58).cause is EpisodeCause.MIXED


def test_many_records_that_are_rejected_at_once_are_no_poison() -> None:
    """Nothing else fails then, because every failure is a dead letter."""
    tenth = episode({"a": (10, 100), "b": (10, 100)})
    assert verdict(tenth, letters=20, deliveries=20).cause is EpisodeCause.MIXED
    assert verdict(tenth, letters=3, deliveries=20).cause is EpisodeCause.POISON


def test_evidence_is_bounded_and_names_the_worst() -> None:
    members = {f"m-{one}": (one % 3, 30) for one in range(500)}
    features = [FeatureRate(name="key", value=str(one), rate=FailureRate(1, 2)) for one in range(500)]
    found = verdict(episode(members), RecordSample(rate=FailureRate(500, 1000), features=features))
    worst = found.evidence["worst_members"]
    assert isinstance(worst, list)
    assert [one["failed"] for one in worst] == [2] * 5
    assert len(found.evidence["worst_features"]) == 5  # type: ignore[arg-type]
    assert found.evidence["members"] == 500


def test_simulated_incidents_are_judged_rightly() -> None:
    """A few of the incidents of `python -m bench.triage`, which has them all."""
    outcomes = evaluate(TUNING, [0, 4])
    wrong, abstained = wrong_and_abstained(outcomes)
    assert len(outcomes) >= 14
    assert (wrong.failed, abstained.failed) == (0, 0)
    assert "| tuning | 8 |" in page_of(outcomes)


def test_the_late_families_and_seeds_are_none_of_the_first() -> None:
    assert not {*LATE, *LATE_OVERLAPPING} & FAMILIES.keys()
    assert min(FRESH_SEEDS) > max(LATE_SEEDS)


def test_late_families_are_reported_apart_from_the_first_halves() -> None:
    late = [
        Outcome(family=name, seed=0, truth=EpisodeCause.OUTAGE, verdict=EpisodeCause.POISON)
        for name in ("outage_twice", "outage_total")
    ]
    first, _, second = page_of([], late=late).partition("## Held out a second time")
    assert "| outage_twice |" not in first
    assert "| late families | 1 | 1 | 100.0% (1)" in second
    assert "| fresh seeds | 1 | 1 | 100.0% (1)" in second
    assert "| both | 2 | 2 | 100.0% (2)" in second


def test_incidents_follow_from_their_seed() -> None:
    one, again = incident("poison_single", 1), incident("poison_single", 1)
    assert one.attempts == again.attempts
    assert judge(one) == judge(again)


def test_several_causes_at_once_are_kept_apart() -> None:
    assert all(incident(family, 0).is_overlapping for family in list(OVERLAPPING)[:1])
