"""Between the words of share groups and facts: there and back, and nothing for what is not theirs."""

from typing import get_args

import pytest

from headgate.facts import Rejected, TopologyEpochsSet, decode, encode
from headgate.share_groups.fact_mapping import event_of, fact_of
from headgate.share_groups.model.group_state import (
    ConfigSet,
    ConfigUnset,
    Event,
    Paused,
    PauseEnded,
    Registered,
    Resumed,
    Tripped,
    Unregistered,
)

EVENTS: tuple[Event, ...] = (
    ConfigSet(group="sg", name="n", value="v", by="User:ops", at=1),
    ConfigUnset(group="sg", name="n"),
    Paused(group="sg", reason="deploy", by="User:ops", at=2),
    PauseEnded(group="sg"),
    Resumed(group="sg", generation=4, at=3),
    Tripped(
        group="sg",
        generation=5,
        resume_at=9,
        dlq_written=25,
        delivered=75,
        threshold_percent=20,
        window_ms=60_000,
        at=4,
    ),
    Registered(topic="dlq.o", group="sg", at=5),
    Unregistered(topic="dlq.o", group="sg"),
)


def test_these_are_all_of_them() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_the_same_after_it_was_a_record(event: Event) -> None:
    assert event_of(decode(*encode(fact_of(event)))) == event


@pytest.mark.parametrize(
    "other",
    [TopologyEpochsSet(at=1, group="g", incarnation="9", stored_epoch=0, failed_epoch=-1), Rejected("no"), None],
)
def test_what_is_not_about_share_groups_is_nothing(other: object) -> None:
    assert event_of(other) is None
