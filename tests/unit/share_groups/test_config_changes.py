"""What one resource of a config change comes to: a table of what is ours, what is the broker's, and what is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from headgate.facts import GroupConfigSet
from headgate.share_groups.config_changes import GroupAction, GroupConfigChange, read_change
from headgate.share_groups.model.group_configs import (
    BREAKER_ENABLE,
    COPY_RECORD,
    DLQ_TOPIC,
    LIMIT,
    OWN,
    PAUSE,
    RESUME,
    THRESHOLD_PERCENT,
    ConfigRules,
)
from headgate.share_groups.model.group_state import ShareGroupState, ShareStates
from headgate.wire.messages.configs import IncrementalConfig

LOCKS = "share.record.lock.duration.ms"
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID = "Invalid value"
Asked = tuple[str, int, str | None]


def state(values: Mapping[str, str]) -> ShareGroupState:
    states = ShareStates()
    for name, value in values.items():
        states.apply(GroupConfigSet(group="sg", name=name, value=value, by="User:x", at=1))
    return states.of("sg")


def changed_or_none(
    *asked: Asked, values: Mapping[str, str] | None = None, replaces: bool = False, pause: bool = True
) -> GroupConfigChange | None:
    configs = [
        IncrementalConfig(name=name, config_operation=operation, value=value) for name, operation, value in asked
    ]
    return read_change("sg", configs, state(values or {}), ConfigRules(pause_enable=pause), replaces=replaces)


def changed(*asked: Asked, **more: Any) -> GroupConfigChange:
    change = changed_or_none(*asked, **more)
    assert change is not None
    return change


def names(configs: Sequence[IncrementalConfig]) -> list[str]:
    return [one.name for one in configs]


@dataclass(frozen=True, kw_only=True)
class Row:
    says: str
    asked: tuple[Asked, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False
    changes: Mapping[str, str | None] | None = None  # None: nothing is ours
    validated: tuple[str, ...] = ()
    forwarded: tuple[str, ...] = ()


HAS_TOPIC = {DLQ_TOPIC: "dlq.a"}
ROWS = (
    Row(says="only the broker's", asked=((LOCKS, SET, "1"),)),
    Row(says="a limit without a dead-letter topic", asked=((LIMIT, SET, "7"),), values={COPY_RECORD: "true"}),
    Row(says="nothing at all", asked=()),
    Row(says="one of ours", asked=((BREAKER_ENABLE, SET, "true"),), changes={BREAKER_ENABLE: "true"}),
    Row(says="ours deleted", asked=((BREAKER_ENABLE, DELETE, None),), changes={BREAKER_ENABLE: None}),
    Row(says="ours deleted with a value", asked=((BREAKER_ENABLE, DELETE, "x"),), changes={BREAKER_ENABLE: None}),
    Row(
        says="mixed",
        asked=((LOCKS, SET, "1"), (COPY_RECORD, SET, "true"), ("unknown", SET, "x")),
        changes={COPY_RECORD: "true"},
        validated=(LOCKS, "unknown"),
        forwarded=(LOCKS, "unknown"),
    ),
    Row(
        says="a limit with a dead-letter topic",
        asked=((LIMIT, SET, "7"), (LOCKS, SET, "1")),
        values=HAS_TOPIC,
        changes={LIMIT: "7"},
        validated=(LOCKS, LIMIT),
        forwarded=(LOCKS,),
    ),
    Row(
        says="such a limit deleted",
        asked=((LIMIT, DELETE, None),),
        values=HAS_TOPIC,
        changes={LIMIT: None},
        validated=(LIMIT,),
    ),
    Row(
        says="a limit with the topic that it comes with",
        asked=((LIMIT, SET, "7"), (DLQ_TOPIC, SET, "dlq.a")),
        changes={LIMIT: "7", DLQ_TOPIC: "dlq.a"},
        validated=(LIMIT,),
    ),
    Row(
        says="a limit with the topic that it outlives",
        asked=((LIMIT, SET, "7"), (DLQ_TOPIC, DELETE, None)),
        values=HAS_TOPIC,
        changes={LIMIT: "7", DLQ_TOPIC: None},
        validated=(LIMIT,),
    ),
    Row(says="replaced, and none is ours", asked=((LOCKS, SET, "1"),), replaces=True),
    Row(
        says="replaced, and ours are not named",
        asked=((LOCKS, SET, "1"),),
        values={COPY_RECORD: "true"},
        replaces=True,
        changes={COPY_RECORD: None},
        validated=(LOCKS,),
        forwarded=(LOCKS,),
    ),
    Row(
        says="replaced, and some of ours are named",
        asked=((THRESHOLD_PERCENT, SET, "30"),),
        values={COPY_RECORD: "true", THRESHOLD_PERCENT: "20"},
        replaces=True,
        changes={COPY_RECORD: None, THRESHOLD_PERCENT: "30"},
    ),
    Row(
        says="replaced, the limit is set anew even if it is not named, for the broker forgets its own",
        asked=((DLQ_TOPIC, SET, "dlq.b"),),
        values={**HAS_TOPIC, LIMIT: "7"},
        replaces=True,
        changes={DLQ_TOPIC: "dlq.b", LIMIT: None},
    ),
    Row(
        says="replaced, the topic goes",
        asked=((LIMIT, SET, "6"),),
        values=HAS_TOPIC,
        replaces=True,
        changes={DLQ_TOPIC: None, LIMIT: "6"},
        validated=(LIMIT,),
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.says)
def test_headgates_configs_are_separated_from_the_brokers(row: Row) -> None:
    change = changed_or_none(*row.asked, values=row.values, replaces=row.replaces)
    if row.changes is None:
        assert change is None
        return
    assert change is not None
    assert not change.is_malformed
    assert change.problem is None
    assert change.changes == row.changes
    assert (names(change.validated), names(change.forwarded)) == (list(row.validated), list(row.forwarded))


@pytest.mark.parametrize("name", OWN)
def test_every_one_of_ours_is_taken_out(name: str) -> None:
    change = changed((name, DELETE, None))
    assert (change.validated, change.forwarded, change.changes) == ((), (), {name: None})


@pytest.mark.parametrize(
    "asked",
    [
        [(COPY_RECORD, SET, "true"), (COPY_RECORD, SET, "false")],
        [(COPY_RECORD, SET, "true"), (LOCKS, SET, "1"), (LOCKS, SET, "2")],
        [(COPY_RECORD, SET, None)],
        [(COPY_RECORD, SET, "true"), (LOCKS, SET, None)],
        [(COPY_RECORD, APPEND, "true")],
        [(COPY_RECORD, SUBTRACT, "true")],
        [(COPY_RECORD, 9, "true")],
        [(PAUSE, APPEND, "x")],
    ],
)
def test_what_is_broken_goes_to_the_broker_as_it_came(asked: list[Asked]) -> None:
    change = changed(*asked)
    assert change.is_malformed
    assert [(one.name, one.config_operation, one.value) for one in change.validated] == asked
    assert (change.forwarded, change.changes, change.action) == ((), {}, None)


def test_what_is_broken_and_none_of_ours_is_not_looked_at() -> None:
    assert changed_or_none((LOCKS, SET, None)) is None
    assert changed_or_none((LOCKS, APPEND, "1"), values=HAS_TOPIC) is None


def test_an_operation_of_lists_on_the_limit_is_the_brokers_to_refuse() -> None:
    change = changed((LIMIT, APPEND, "7"), values=HAS_TOPIC)
    assert [(one.name, one.config_operation) for one in change.validated] == [(LIMIT, APPEND)]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            (THRESHOLD_PERCENT, SET, "abc"),
            f"{INVALID} abc for configuration {THRESHOLD_PERCENT}: Not a number of type INT",
        ),
        ((THRESHOLD_PERCENT, SET, "0"), f"{INVALID} 0 for configuration {THRESHOLD_PERCENT}: Value must be at least 1"),
        (
            (DLQ_TOPIC, SET, "orders"),
            f"{INVALID} orders for configuration {DLQ_TOPIC}: Dead-letter topic name must start with 'dlq.'",
        ),
        ((PAUSE, SET, " "), f"{INVALID}   for configuration {PAUSE}: Reason must not be empty"),
        ((PAUSE, DELETE, None), f"{PAUSE} cannot be deleted: it is an action and has no stored value"),
        ((RESUME, DELETE, "x"), f"{RESUME} cannot be deleted: it is an action and has no stored value"),
    ],
)
def test_what_is_wrong_is_said_as_a_broker_says_it(asked: Asked, text: str) -> None:
    change = changed((LOCKS, SET, "1"), (COPY_RECORD, SET, "true"), asked)
    assert change.problem == text


def test_a_reason_has_an_end() -> None:
    change = changed((RESUME, SET, "x" * 100_000))
    assert change.problem is not None
    assert len(change.problem) < 1000


@pytest.mark.parametrize(("name", "step"), [(PAUSE, GroupAction.PAUSE), (RESUME, GroupAction.RESUME)])
def test_a_step_is_done_and_not_kept(name: str, step: GroupAction) -> None:
    change = changed((name, SET, " deploy "), (COPY_RECORD, SET, "true"))
    assert (change.action, change.reason, change.problem) == (step, "deploy", None)
    assert change.changes == {COPY_RECORD: "true"}


def test_one_step_at_a_time() -> None:
    change = changed((PAUSE, SET, "a"), (RESUME, SET, "b"))
    assert change.problem == "headgate.pause and headgate.resume cannot be set together"


def test_a_step_is_no_replacement_of_all_configs() -> None:
    change = changed((PAUSE, SET, "a"), values={COPY_RECORD: "true"}, replaces=True)
    assert change.problem is not None
    assert "IncrementalAlterConfigs" in change.problem


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ((BREAKER_ENABLE, SET, "true"), True),
        ((PAUSE, SET, "x"), True),
        ((BREAKER_ENABLE, SET, "false"), False),
        ((RESUME, SET, "x"), False),
    ],
)
def test_without_the_pause_there_is_no_breaker_and_the_text_names_what_is_missing(asked: Asked, refused: bool) -> None:
    change = changed(asked, pause=False)
    assert (change.problem is not None) is refused
    if change.problem is not None:
        assert "KIP-1249" in change.problem
        assert "share_groups.pause_enable" in change.problem


@pytest.mark.parametrize(
    ("asked", "topic"),
    [((DLQ_TOPIC, SET, " dlq.a "), "dlq.a"), ((DLQ_TOPIC, DELETE, None), None), ((COPY_RECORD, SET, "true"), None)],
)
def test_the_topic_whose_right_is_asked_is_the_one_that_will_be_written_to(asked: Asked, topic: str | None) -> None:
    change = changed(asked, values={DLQ_TOPIC: "dlq.old"})
    assert change.new_topic == topic
