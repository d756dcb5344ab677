"""The verdict on incidents that were recorded from real share consumers (`python -m bench.record_incidents`)."""

import pytest

from bench.incident_fixtures import (
    FOLDER,
    DisposedSecond,
    RecordedIncident,
    RecordedLetter,
    dump,
    load,
    record_features,
    recorded_incidents,
)
from bench.incident_plans import all_plans
from bench.triage import MOST_ABSTAINED, evaluate_recorded, page_of
from headgate.dead_letters.model.clusters import SourceRecord
from headgate.dead_letters.model.verdict import EpisodeCause

INCIDENTS = recorded_incidents()
# The verdict abstains: the breaker ended a ramp at a failure rate of 46 %, and the failures of four bad records do not
# exceed three times those of a group in which one in a hundred attempts fails anyway, so that there is no episode.
ABSTAINED = {"outage_ramp-1": EpisodeCause.MIXED, "poison_among_noise-0": None, "poison_among_noise-1": None}


@pytest.mark.parametrize("incident", [one for one in INCIDENTS if not one.is_overlapping], ids=lambda one: one.name)
def test_the_cause_is_found(incident: RecordedIncident) -> None:
    found = incident.verdict()
    assert (None if found is None else found.cause) is ABSTAINED.get(incident.name, incident.truth), found


def test_few_are_abstained() -> None:
    assert len(ABSTAINED) <= MOST_ABSTAINED * sum(not one.is_overlapping for one in INCIDENTS)


def test_every_plan_is_recorded_and_the_files_are_small() -> None:
    assert [one.name for one in INCIDENTS] == sorted(one.name for one in all_plans())
    assert len(INCIDENTS) >= 24
    assert max(path.stat().st_size for path in FOLDER.glob("*.json")) < 60_000
    for plan, one in zip(sorted(all_plans(), key=lambda plan: plan.name), INCIDENTS, strict=True):
        assert (plan.truth, plan.is_overlapping) == (one.truth, one.is_overlapping)


def test_a_bad_producer_is_found_by_the_id_of_its_batches() -> None:
    features = [one.verdict() for one in INCIDENTS if one.family == "content_producer"]
    assert features
    assert all(one is not None and str(one.feature).startswith("producer_id=") for one in features)


def test_the_page_reports_them_apart() -> None:
    outcomes = evaluate_recorded(INCIDENTS)
    assert len(outcomes) >= 24
    page = page_of([], INCIDENTS)
    assert "## Recorded from real share consumers" in page
    assert "| both |" in page


def test_a_file_has_the_whole_incident() -> None:
    incident = RecordedIncident(
        family="content_key",
        seed=1,
        truth=EpisodeCause.CONTENT,
        is_overlapping=False,
        made={"members": 2},
        now_ms=60_000,
        attempts=[
            DisposedSecond(
                second=3,
                member=1,
                accepted=4,
                released=1,
                rejected=2,
                over_limit=0,
                by_delivery_count=((1, 6), (2, 1)),
            )
        ],
        pauses=[(1, 2), (5, None)],
        letters=[RecordedLetter(partition=0, offset=7, at_ms=3_100, delivery_count=None)],
        sources={0: [SourceRecord(offset=7, features=["a1", 5, None, "Paid", 7])]},
    )
    assert load(dump(incident)) == incident


def test_features_are_those_of_the_pipeline() -> None:
    value = b"\0\0\0\0\x07A:" + b"x" * 57
    assert record_features(b"key", value, [("__TypeId__", b"Paid")], 12) == ("2c70e12b7a", 7, 12, "Paid", 6)
    assert record_features(None, b"plain", [], None) == (None, None, None, None, 2)
