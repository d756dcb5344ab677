"""What is decided about share groups is what the last records say, however much of the log is left of it."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headgate.facts import (
    BreakerResumed,
    BreakerTripped,
    DlqRegistered,
    DlqUnregistered,
    GroupConfigSet,
    GroupConfigUnset,
    GroupPaused,
    GroupPauseEnded,
)
from headgate.share_groups.model.breaker import PauseReason
from headgate.share_groups.model.group_configs import AUTO_RESUME_ENABLE, BREAKER_ENABLE, DLQ_TOPIC, GroupSettings
from headgate.share_groups.model.group_state import ShareGroupFact, ShareGroupState, ShareStates

TRIP = BreakerTripped(
    group="sg",
    generation=1,
    resume_at=None,
    dlq_written=25,
    delivered=75,
    threshold_percent=20,
    window_ms=60_000,
    at=1_000,
)
PAUSE = GroupPaused(group="sg", reason="deploy", by="User:ops", at=2_000)
RESUMED = BreakerResumed(group="sg", generation=1, at=3_000)


def folded(events: Iterable[ShareGroupFact]) -> ShareStates:
    states = ShareStates()
    for event in events:
        assert states.apply(event) == event.group
    return states


def configured(name: str, value: str) -> GroupConfigSet:
    return GroupConfigSet(group="sg", name=name, value=value, by="User:ops", at=1)


def test_a_group_of_which_nothing_is_known_is_not_managed() -> None:
    state = ShareStates().of("sg")
    assert state == ShareGroupState()
    assert not state.is_managed
    assert not state.is_paused
    assert (state.generation, state.next_generation, state.pause_reasons) == (0, 1, ())


def test_a_config_counts_until_it_is_unset() -> None:
    states = folded([configured(BREAKER_ENABLE, "true"), configured(DLQ_TOPIC, "dlq.o")])
    assert states.of("sg").values == {BREAKER_ENABLE: "true", DLQ_TOPIC: "dlq.o"}
    assert states.of("sg").settings == GroupSettings(breaker_enable=True, dlq_topic="dlq.o")
    assert states.of("sg").is_managed
    states.apply(GroupConfigUnset(group="sg", name=BREAKER_ENABLE))
    assert states.of("sg").settings == GroupSettings(dlq_topic="dlq.o")
    states.apply(GroupConfigUnset(group="sg", name=DLQ_TOPIC))
    assert not states.of("sg").is_managed
    assert not list(states.groups())


def test_a_state_that_was_handed_out_does_not_change() -> None:
    states = folded([configured(DLQ_TOPIC, "dlq.o")])
    before = states.of("sg")
    states.apply(configured(DLQ_TOPIC, "dlq.p"))
    assert before.values == {DLQ_TOPIC: "dlq.o"}


def test_a_group_is_tripped_while_its_generation_is_above_the_resumed_one() -> None:
    assert folded([TRIP]).of("sg").is_tripped
    assert not folded([TRIP, RESUMED]).of("sg").is_tripped
    assert not folded([RESUMED, TRIP]).of("sg").is_tripped, "two topics: which one is read first does not matter"
    again = folded([TRIP, RESUMED, replace(TRIP, generation=2)]).of("sg")
    assert again.is_tripped
    assert (again.generation, again.next_generation) == (2, 3)


def test_the_next_trip_is_above_what_is_resumed_even_if_the_trips_were_lost() -> None:
    assert folded([replace(RESUMED, generation=7)]).of("sg").next_generation == 8


def test_reasons_are_a_set_and_each_end_clears_its_own() -> None:
    both = folded([TRIP, PAUSE])
    text = "25 of 100 records became dead letters within 60 s, and 20 % is the threshold"
    breakers = PauseReason(code="DLQ_CIRCUIT_BREAKER_TRIPPED", text=text, by="headgate", since=1_000)
    operators = PauseReason(code="OPERATOR", text="deploy", by="User:ops", since=2_000)
    assert both.of("sg").pause_reasons == (breakers, operators)
    assert both.of("sg").is_paused
    both.apply(RESUMED)
    assert both.of("sg").pause_reasons == (operators,)
    assert both.of("sg").is_paused
    both.apply(GroupPauseEnded(group="sg"))
    assert not both.of("sg").is_paused
    only_breaker = folded([TRIP, PAUSE, GroupPauseEnded(group="sg")])
    assert only_breaker.of("sg").pause_reasons == (breakers,)
    assert only_breaker.of("sg").is_paused
    only_operator = folded([PAUSE])
    assert only_operator.of("sg").pause_reasons == (operators,)
    assert only_operator.of("sg").is_paused


def test_a_group_without_configs_that_is_paused_is_managed() -> None:
    assert folded([PAUSE]).of("sg").is_managed
    assert folded([TRIP]).of("sg").is_managed
    assert not folded([TRIP, RESUMED]).of("sg").is_managed


def test_switching_the_breaker_off_does_not_resume() -> None:
    states = folded([configured(BREAKER_ENABLE, "true"), TRIP, configured(BREAKER_ENABLE, "false")])
    assert states.of("sg").is_tripped
    states.apply(GroupConfigUnset(group="sg", name=BREAKER_ENABLE))
    assert states.of("sg").is_tripped


def test_a_resume_is_due_at_its_time_and_clears_only_the_breakers_reason() -> None:
    states = folded([replace(TRIP, resume_at=5_000), PAUSE])
    assert states.due_resumes(4_999) == ()
    (due,) = states.due_resumes(5_000)
    assert due == BreakerResumed(group="sg", generation=1, at=5_000)
    states.apply(due)
    assert states.due_resumes(9_999) == ()
    assert [reason.code for reason in states.of("sg").pause_reasons] == ["OPERATOR"]


def test_when_it_resumes_is_what_the_trip_says_and_not_what_the_configs_say() -> None:
    never = folded([TRIP, configured(AUTO_RESUME_ENABLE, "true")])
    assert never.due_resumes(10**15) == ()
    some_day = folded([replace(TRIP, resume_at=5_000), configured(AUTO_RESUME_ENABLE, "false")])
    assert len(some_day.due_resumes(5_000)) == 1


def test_a_new_trip_has_its_own_time() -> None:
    states = folded([replace(TRIP, resume_at=5_000), RESUMED, replace(TRIP, generation=2, resume_at=8_000)])
    assert states.due_resumes(7_999) == ()
    assert states.due_resumes(8_000) == (BreakerResumed(group="sg", generation=2, at=8_000),)


def test_groups_of_a_dead_letter_topic_come_in_the_order_of_their_registration() -> None:
    states = folded([DlqRegistered(topic="dlq.o", group=name, at=9) for name in ("b", "a", "c")])
    assert states.registered_groups("dlq.o") == ("b", "a", "c")
    states.apply(DlqUnregistered(topic="dlq.o", group="b"))
    assert states.registered_groups("dlq.o") == ("a", "c")
    states.apply(DlqRegistered(topic="dlq.o", group="b", at=1))
    assert states.registered_groups("dlq.o") == ("a", "c", "b"), "by their place in the log, never by their time"
    assert states.registered_topics() == {"dlq.o": ("a", "c", "b")}
    states.apply(DlqRegistered(topic="dlq.o", group="a", at=10))
    assert states.registered_groups("dlq.o") == ("c", "b", "a"), "the first record of a may be compacted away"
    assert states.registered_groups("dlq.p") == ()


def test_a_registration_alone_does_not_manage_the_group() -> None:
    states = folded([DlqRegistered(topic="dlq.o", group="sg", at=9)])
    assert not states.of("sg").is_managed
    assert not list(states.groups())


def test_forgetting_is_whole() -> None:
    states = folded([TRIP, PAUSE, configured(DLQ_TOPIC, "dlq.o"), DlqRegistered(topic="dlq.o", group="sg", at=9)])
    states.clear()
    assert not list(states.groups())
    assert not states.registered_topics()
    assert states.due_resumes(10**15) == ()
    assert states.of("sg") == ShareGroupState()


# --- compaction -----------------------------------------------------------------------------------------------------

GROUPS = st.sampled_from(["a", "b", "c"])
NAMES = st.sampled_from([BREAKER_ENABLE, AUTO_RESUME_ENABLE, DLQ_TOPIC])
TOPICS = st.sampled_from(["dlq.o", "dlq.p"])
SMALL = st.integers(0, 4)
DECISIONS: st.SearchStrategy[ShareGroupFact] = st.one_of(
    st.builds(
        GroupConfigSet,
        group=GROUPS,
        name=NAMES,
        value=st.sampled_from(["true", "false", "dlq.o", "x"]),
        by=st.just("u"),
        at=SMALL,
    ),
    st.builds(GroupConfigUnset, group=GROUPS, name=NAMES),
    st.builds(GroupPaused, group=GROUPS, reason=st.just("r"), by=st.just("u"), at=SMALL),
    st.builds(GroupPauseEnded, group=GROUPS),
    st.builds(BreakerResumed, group=GROUPS, generation=SMALL, at=SMALL),
    st.builds(DlqRegistered, topic=TOPICS, group=GROUPS, at=SMALL),
    st.builds(DlqUnregistered, topic=TOPICS, group=GROUPS),
)
TRIPS = st.builds(
    BreakerTripped,
    group=GROUPS,
    generation=SMALL,
    resume_at=st.none() | SMALL,
    dlq_written=SMALL,
    delivered=SMALL,
    threshold_percent=st.just(20),
    window_ms=st.just(1000),
    at=SMALL,
)


def key_of(event: ShareGroupFact) -> tuple[str, ...]:
    """The key of its record, without the topic."""
    match event:
        case GroupConfigSet() | GroupConfigUnset():
            return ("group_config", event.group, event.name)
        case GroupPaused() | GroupPauseEnded():
            return ("pause", event.group)
        case BreakerResumed():
            return ("resumed", event.group)
        case BreakerTripped():
            return ("trip", event.group)
        case DlqRegistered() | DlqUnregistered():
            return ("dlq", event.topic, event.group)


def compacted(log: list[ShareGroupFact], stay: st.DataObject) -> list[ShareGroupFact]:
    """What a cleaner may leave: the last record of each key, any of those before it, and of a last null maybe none."""
    last = {key_of(event): place for place, event in enumerate(log)}
    left: list[ShareGroupFact] = []
    for place, event in enumerate(log):
        key = key_of(event)
        is_last = last[key] == place
        is_null = isinstance(event, GroupConfigUnset | GroupPauseEnded | DlqUnregistered)
        if not is_last:
            if stay.draw(st.booleans(), label=f"{place} stays"):
                left.append(event)
        elif not is_null or any(key_of(one) == key for one in left) or stay.draw(st.booleans(), label="null stays"):
            left.append(event)
    return left


def seen(states: ShareStates) -> object:
    return (
        {group: states.of(group) for group in sorted(states.groups())},
        states.registered_topics(),
        [states.due_resumes(now) for now in range(6)],
    )


def interleaved(one: list[ShareGroupFact], other: list[ShareGroupFact], data: st.DataObject) -> list[ShareGroupFact]:
    one, other, mixed = one[::-1], other[::-1], []
    while one or other:
        first = bool(one) and (not other or data.draw(st.booleans()))
        mixed.append(one.pop() if first else other.pop())
    return mixed


@given(decisions=st.lists(DECISIONS, max_size=30), trips=st.lists(TRIPS, max_size=8), data=st.data())
def test_the_fold_of_a_compacted_log_is_the_fold_of_the_log(
    decisions: list[ShareGroupFact], trips: list[ShareGroupFact], data: st.DataObject
) -> None:
    whole = folded([*decisions, *trips])
    left = interleaved(compacted(decisions, data), compacted(trips, data), data)
    assert seen(folded(left)) == seen(whole)


@given(
    log=st.lists(
        st.builds(DlqRegistered, topic=st.just("dlq.o"), group=GROUPS, at=SMALL)
        | st.builds(DlqUnregistered, topic=st.just("dlq.o"), group=GROUPS),
        max_size=8,
    ),
    data=st.data(),
)
def test_who_was_first_survives_compaction(log: list[ShareGroupFact], data: st.DataObject) -> None:
    assert folded(compacted(log, data)).registered_groups("dlq.o") == folded(log).registered_groups("dlq.o")


@given(log=st.lists(DECISIONS | TRIPS, max_size=30))
def test_reading_a_log_twice_is_reading_it_once(log: list[ShareGroupFact]) -> None:
    once = folded(log)
    twice = folded([*log, *log])
    assert seen(twice) == seen(once)
