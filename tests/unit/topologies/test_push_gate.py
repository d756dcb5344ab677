"""The heartbeat gate, the back-off of solicitations against a plain oracle, and the checks of a push."""

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.topologies.model.push_gate import (
    CLASSIC_JOIN_EPOCH,
    INITIAL_BACKOFF_S,
    JITTER,
    MAX_BACKOFF_S,
    BackoffWindow,
    GateInputs,
    HeartbeatResult,
    MemberHeartbeat,
    Push,
    PushBackoff,
    PushRejection,
    Solicitation,
    backoff_s,
    check_group,
    check_request,
    jitter_factor,
    solicitation,
)

NOW = 1000.0
HEARTBEAT = MemberHeartbeat(api_version=1, group="g", member="m", member_epoch=3)
RESULT = HeartbeatResult()
GROUP = GateInputs(current_epoch=2)

# What is changed of a heartbeat that is asked, and the reason why it then is not.
ROWS: list[tuple[Solicitation, dict[str, Any]]] = [
    (Solicitation.OLD_VERSION, {"api_version": 0}),
    (Solicitation.NO_STORE, {"has_store": False}),
    (Solicitation.NOT_SELECTED, {"is_selected": False}),
    (Solicitation.LEAVING, {"member_epoch": -1}),
    (Solicitation.HEARTBEAT_FAILED, {"error_code": 16}),
    (Solicitation.EPOCH_UNKNOWN, {"current_epoch": -1}),
    (Solicitation.STORED, {"stored_epoch": 2}),
    (Solicitation.FAILED, {"failed_epoch": 2}),
    (Solicitation.STALE, {"status_codes": (1, 0)}),
    (Solicitation.CONFIRMED, {"has_confirmed": True}),
    (Solicitation.ANOTHER_MEMBER, {"waits_for_new_member": True}),
    (Solicitation.BACKING_OFF, {"window": BackoffWindow(2, 0, NOW + 0.1)}),
]


def decision(**changes: Any) -> Solicitation:
    def with_changes(part: Any) -> Any:
        return replace(part, **{name: value for name, value in changes.items() if hasattr(part, name)})

    return solicitation(with_changes(HEARTBEAT), with_changes(RESULT), with_changes(GROUP), NOW)


def test_a_member_of_a_group_of_which_nothing_is_stored_is_asked() -> None:
    assert decision() is Solicitation.SOLICIT


@pytest.mark.parametrize(("reason", "changes"), ROWS, ids=[row[0].value for row in ROWS])
def test_one_condition_alone_is_reason_enough(reason: Solicitation, changes: dict[str, Any]) -> None:
    assert decision(**changes) is reason


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(ROWS, 2)))
def test_of_two_reasons_the_first_in_the_brokers_order_counts(
    first: tuple[Solicitation, dict[str, Any]], second: tuple[Solicitation, dict[str, Any]]
) -> None:
    assert decision(**(second[1] | first[1])) is first[0]


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
        {"window": BackoffWindow(2, 3, NOW)},
        {"window": BackoffWindow(1, 0, NOW + 100)},
    ],
    ids=str,
)
def test_what_is_no_reason(changes: dict[str, Any]) -> None:
    assert decision(**changes) is Solicitation.SOLICIT


@pytest.mark.parametrize("member_epoch", [-1, -2])
def test_neither_kind_of_leave_is_asked(member_epoch: int) -> None:
    assert decision(member_epoch=member_epoch) is Solicitation.LEAVING


@pytest.mark.parametrize("epoch", [-1, -2])
def test_an_epoch_that_is_none_is_not_taken_for_one_that_is_stored(epoch: int) -> None:
    assert decision(current_epoch=epoch, stored_epoch=epoch, failed_epoch=epoch) is Solicitation.EPOCH_UNKNOWN


# The back-off.


def test_the_first_request_arms_a_window_of_thirty_seconds() -> None:
    backoff = PushBackoff()
    assert backoff.arm_if_not_active("g", 0, 100.0, 1.0)
    assert backoff.is_active("g", 0, 129.9)
    assert not backoff.is_active("g", 0, 130.0)


def test_inside_a_window_no_other_member_is_solicited_and_the_window_stays() -> None:
    backoff = PushBackoff()
    backoff.arm_if_not_active("g", 0, 0.0, 1.0)
    assert not backoff.arm_if_not_active("g", 0, 29.0, 1.0)
    assert backoff.arm_if_not_active("g", 0, 30.0, 1.0)


def test_windows_double_up_to_an_hour() -> None:
    backoff = PushBackoff()
    now = 0.0
    lengths = []
    for _ in range(10):
        assert backoff.arm_if_not_active("g", 0, now, 1.0)
        window = backoff.window("g")
        assert window is not None
        lengths.append(window.until - now)
        now = window.until
    assert lengths == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_jitter_is_a_fifth_either_way(chance: float, factor: float) -> None:
    assert jitter_factor(chance) == pytest.approx(factor)
    assert backoff_s(0, jitter_factor(chance)) == pytest.approx(INITIAL_BACKOFF_S * factor)


def test_jitter_never_makes_the_longest_window_longer() -> None:
    assert backoff_s(100, 1.0 + JITTER) == MAX_BACKOFF_S
    assert backoff_s(100, 1.0 - JITTER) == pytest.approx(MAX_BACKOFF_S * 0.8)


def test_another_epoch_begins_afresh() -> None:
    backoff = PushBackoff()
    backoff.arm_if_not_active("g", 0, 0.0, 1.0)
    backoff.arm_or_extend("g", 0, 0.0, 1.0)
    assert backoff.arm_if_not_active("g", 1, 1.0, 1.0)
    window = backoff.window("g")
    assert window is not None
    assert (window.epoch, window.attempts, window.until) == (1, 0, 31.0)


def test_a_transient_failure_extends_the_window_from_now() -> None:
    backoff = PushBackoff()
    backoff.arm_if_not_active("g", 0, 0.0, 1.0)
    backoff.arm_or_extend("g", 0, 5.0, 1.0)
    assert backoff.is_active("g", 0, 64.9)
    assert not backoff.is_active("g", 0, 65.0)


def test_a_late_failure_of_an_older_epoch_changes_nothing() -> None:
    backoff = PushBackoff()
    backoff.arm_if_not_active("g", 2, 0.0, 1.0)
    before = backoff.window("g")
    backoff.arm_or_extend("g", 1, 10.0, 1.0)
    assert backoff.window("g") == before


def test_clearing_takes_the_window_of_its_own_epoch_only() -> None:
    backoff = PushBackoff()
    backoff.arm_if_not_active("g", 2, 0.0, 1.0)
    backoff.clear("g", 1)
    assert backoff.is_active("g", 2, 1.0)
    backoff.clear("g", 2)
    assert backoff.window("g") is None


def test_clearing_a_group_takes_whatever_window_it_has() -> None:
    backoff = PushBackoff()
    backoff.arm_if_not_active("g", 2, 0.0, 1.0)
    backoff.clear_group("g")
    assert backoff.window("g") is None


def test_groups_do_not_touch_each_other() -> None:
    backoff = PushBackoff()
    backoff.arm_if_not_active("g", 0, 0.0, 1.0)
    assert backoff.arm_if_not_active("h", 0, 0.0, 1.0)


def test_memory_is_bounded_and_the_one_armed_longest_ago_goes() -> None:
    backoff = PushBackoff(max_groups=2)
    for now, group in enumerate(("a", "b", "a", "c")):
        backoff.arm_or_extend(group, 0, float(now), 1.0)
    assert len(backoff) == 2
    assert backoff.window("b") is None


def test_a_window_that_is_dropped_or_of_a_classic_join_is_not_counted() -> None:
    backoff = PushBackoff(max_groups=2)
    for group in ("a", "b", "c"):
        backoff.arm_if_not_active(group, 0, NOW, 1.0)
    assert backoff.active_count(NOW) == 2
    backoff.arm_if_not_active("d", CLASSIC_JOIN_EPOCH, NOW, 1.0)
    assert backoff.active_count(NOW) == 1
    assert backoff.active_count(NOW + INITIAL_BACKOFF_S) == 0


@dataclass
class Plain:
    """The oracle: every arm since the last clear or epoch change, and nothing else remembered."""

    epoch: int = -9
    arms: list[tuple[float, float]] = field(default_factory=list)

    def until(self) -> float:
        now, jitter = self.arms[-1]
        length = 30.0
        for _ in self.arms[1:]:
            length *= 2
        return now + min(3600.0, min(3600.0, length) * jitter)

    def active(self, epoch: int, now: float) -> bool:
        return bool(self.arms) and self.epoch == epoch and now < self.until()

    def arm(self, epoch: int, now: float, jitter: float) -> None:
        if self.epoch != epoch:
            self.epoch, self.arms = epoch, []
        self.arms.append((now, jitter))


GROUPS = st.sampled_from(["a", "b"])
EPOCHS = st.integers(0, 2)
JITTERS = st.floats(1.0 - JITTER, 1.0 + JITTER)


class Against(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.backoff = PushBackoff()
        self.plain = {"a": Plain(), "b": Plain()}
        self.now = 0.0

    @rule(seconds=st.sampled_from([0.0, 0.5, 24.0, 30.0, 36.0, 100.0, 3600.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(group=GROUPS, epoch=EPOCHS, jitter=JITTERS)
    def ask(self, group: str, epoch: int, jitter: float) -> None:
        allowed = not self.plain[group].active(epoch, self.now)
        assert self.backoff.arm_if_not_active(group, epoch, self.now, jitter) == allowed
        if allowed:
            self.plain[group].arm(epoch, self.now, jitter)

    @rule(group=GROUPS, epoch=EPOCHS, jitter=JITTERS)
    def fail(self, group: str, epoch: int, jitter: float) -> None:
        self.backoff.arm_or_extend(group, epoch, self.now, jitter)
        if not self.plain[group].arms or epoch >= self.plain[group].epoch:
            self.plain[group].arm(epoch, self.now, jitter)

    @rule(group=GROUPS, epoch=EPOCHS)
    def clear(self, group: str, epoch: int) -> None:
        self.backoff.clear(group, epoch)
        if self.plain[group].epoch == epoch:
            self.plain[group] = Plain()

    @rule(group=GROUPS)
    def clear_group(self, group: str) -> None:
        self.backoff.clear_group(group)
        self.plain[group] = Plain()

    @invariant()
    def the_same_is_active(self) -> None:
        for group, plain in self.plain.items():
            for epoch in range(3):
                assert self.backoff.is_active(group, epoch, self.now) == plain.active(epoch, self.now)

    @invariant()
    def as_many_are_active(self) -> None:
        ends = [math.ceil(plain.until()) for plain in self.plain.values() if plain.arms]
        assert self.backoff.active_count(self.now) == sum(self.now < end for end in ends)


TestAgainstAPlainOracle = Against.TestCase
TestAgainstAPlainOracle.settings = settings(max_examples=60, stateful_step_count=40)


# The checks of a push, in the broker's order and words.

PUSH = Push(group="g", member="m", topology_epoch=3)
EMPTY = Push(group="", member="", topology_epoch=0)


def test_a_valid_push_passes_all_checks() -> None:
    assert check_request(PUSH, has_store=True) is None
    assert check_group(PUSH, is_found=True, is_member=True, current_epoch=3) is None


@pytest.mark.parametrize(
    ("push", "has_store", "code", "text"),
    [
        (EMPTY, False, 35, "The broker has no streams group topology description plugin configured."),
        (EMPTY, True, 42, "MemberId can't be empty."),
        (replace(EMPTY, member="m"), True, 42, "GroupId can't be empty."),
    ],
)
def test_a_push_is_checked_for_a_store_then_its_member_then_its_group(
    push: Push, has_store: bool, code: int, text: str
) -> None:
    assert check_request(push, has_store=has_store) == PushRejection(code, text)


@pytest.mark.parametrize(
    ("found", "member", "code", "text"),
    [
        (False, False, 69, "Group g not found."),
        (True, False, 25, "Member m is not a member of group g."),
        (True, True, 42, "Topology epoch 3 does not match the group's current topology epoch 4."),
    ],
)
def test_a_push_is_checked_for_its_group_then_its_member_then_its_epoch(
    found: bool, member: bool, code: int, text: str
) -> None:
    assert check_group(PUSH, is_found=found, is_member=member, current_epoch=4) == PushRejection(code, text)


def test_a_push_of_a_later_epoch_than_the_groups_is_refused_too() -> None:
    text = "Topology epoch 3 does not match the group's current topology epoch 2."
    assert check_group(PUSH, is_found=True, is_member=True, current_epoch=2) == PushRejection(42, text)
