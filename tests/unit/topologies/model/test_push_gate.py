"""The heartbeat gate: every condition is a row, and the rows are in the broker's order."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from headgate.topologies.model.push_backoff import Window
from headgate.topologies.model.push_gate import GroupFacts, HeartbeatAnswer, HeartbeatRequest, Verdict, decide

NOW = 1000.0
REQUEST = HeartbeatRequest(api_version=1, group="g", member="m", member_epoch=3)
ANSWER = HeartbeatAnswer()
GROUP = GroupFacts(current_epoch=2)

# What is changed of a heartbeat that is asked, and the reason why it then is not.
ROWS: list[tuple[Verdict, dict[str, Any]]] = [
    (Verdict.OLD_VERSION, {"api_version": 0}),
    (Verdict.NO_STORE, {"store": False}),
    (Verdict.NOT_SELECTED, {"selected": False}),
    (Verdict.LEAVING, {"member_epoch": -1}),
    (Verdict.HEARTBEAT_FAILED, {"error_code": 16}),
    (Verdict.EPOCH_UNKNOWN, {"current_epoch": -1}),
    (Verdict.STORED, {"stored_epoch": 2}),
    (Verdict.FAILED, {"failed_epoch": 2}),
    (Verdict.STALE, {"status_codes": (1, 0)}),
    (Verdict.VOUCHED, {"vouches": True}),
    (Verdict.ANOTHER_MEMBER, {"newcomer_waits": True}),
    (Verdict.BACKING_OFF, {"window": Window(2, 0, NOW + 0.1)}),
]


def verdict(**changes: Any) -> Verdict:
    def with_changes(part: Any) -> Any:
        return replace(part, **{name: value for name, value in changes.items() if hasattr(part, name)})

    return decide(with_changes(REQUEST), with_changes(ANSWER), with_changes(GROUP), NOW)


def test_a_member_of_a_group_of_which_nothing_is_stored_is_asked() -> None:
    assert verdict() is Verdict.ASK


@pytest.mark.parametrize(("reason", "changes"), ROWS, ids=[row[0].value for row in ROWS])
def test_one_condition_alone_is_reason_enough(reason: Verdict, changes: dict[str, Any]) -> None:
    assert verdict(**changes) is reason


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.combinations([row for row in ROWS if "current_epoch" not in row[1]], 2))
)
def test_of_two_reasons_the_brokers_first_is_told(
    first: tuple[Verdict, dict[str, Any]], second: tuple[Verdict, dict[str, Any]]
) -> None:
    assert verdict(**(second[1] | first[1])) is first[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"api_version": 2},
        {"member_epoch": 0},
        {"current_epoch": 0},
        {"stored_epoch": -2},
        {"stored_epoch": 1},
        {"failed_epoch": 1},
        {"status_codes": (1, 2, 3, 4, 5, 6)},
        {"window": Window(2, 3, NOW)},
        {"window": Window(1, 0, NOW + 100)},
    ],
    ids=str,
)
def test_what_is_no_reason(changes: dict[str, Any]) -> None:
    assert verdict(**changes) is Verdict.ASK


@pytest.mark.parametrize("member_epoch", [-1, -2])
def test_neither_kind_of_leave_is_asked(member_epoch: int) -> None:
    assert verdict(member_epoch=member_epoch) is Verdict.LEAVING


@pytest.mark.parametrize("epoch", [-1, -2])
def test_an_epoch_that_is_none_is_not_taken_for_one_that_is_stored(epoch: int) -> None:
    assert verdict(current_epoch=epoch, stored_epoch=epoch, failed_epoch=epoch) is Verdict.EPOCH_UNKNOWN
