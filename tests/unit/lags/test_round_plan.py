"""Which groups a round polls, and in which requests."""

import pytest

from headgate.facts.lags import GroupKind
from headgate.lags.model.round_plan import LagGroup, RoundBudget, RoundLimits, RoundPlan, RoundPlanner


def groups(count: int, kind: GroupKind = "consumer", node: int = 0) -> list[LagGroup]:
    return [LagGroup(f"{kind}-{number:06}", kind, node) for number in range(count)]


def names(plan: RoundPlan, node: int = 0) -> list[str]:
    return [one.name for request in plan.requests[node] for one in request]


def test_ten_thousand_groups_are_few_requests_and_none_is_left_out() -> None:
    listed = [one for node in range(3) for one in groups(10_000)[node::3]]
    listed = [one._replace(node=number % 3) for number, one in enumerate(listed)]
    plan = RoundPlanner(RoundLimits()).plan(listed, is_complete=True)
    assert plan.left_out == 0
    assert sum(len(request) for some in plan.requests.values() for request in some) == 10_000
    assert max(len(request) for some in plan.requests.values() for request in some) == 200
    assert sum(map(len, plan.requests.values())) == 51


def test_groups_beyond_the_limit_come_first_in_the_next_round() -> None:
    planner = RoundPlanner(RoundLimits(groups=4))
    seen = []
    for _ in range(3):
        plan = planner.plan(groups(10), is_complete=True)
        assert plan.left_out == 6
        for name in names(plan):
            planner.on_polled(name, 1)
        seen.append([int(name[-1]) for name in names(plan)])
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]


def test_share_groups_have_requests_of_their_own_and_smaller_ones() -> None:
    plan = RoundPlanner(RoundLimits()).plan([*groups(30), *groups(60, "share")], is_complete=True)
    kinds = [{one.kind for one in request} for request in plan.requests[0]]
    assert kinds == [{"consumer"}, {"share"}, {"share"}, {"share"}]
    assert [len(request) for request in plan.requests[0]] == [30, 25, 25, 10]


def test_groups_that_had_many_partitions_share_a_request_with_few_others() -> None:
    planner = RoundPlanner(RoundLimits())
    for one in groups(4):
        planner.on_polled(one.name, 3_000)
    assert [len(one) for one in planner.plan(groups(4), is_complete=True).requests[0]] == [1, 1, 1, 1]


def test_a_group_that_is_gone_is_forgotten_only_when_all_groups_were_listed() -> None:
    for is_complete, first in ((True, "consumer-000000"), (False, "consumer-000001")):
        planner = RoundPlanner(RoundLimits())
        planner.plan(groups(2), is_complete=True)
        planner.on_polled("consumer-000000", 1)
        planner.plan(groups(2)[1:], is_complete=is_complete)
        assert names(planner.plan(groups(2), is_complete=True))[0] == first


def test_a_group_that_no_list_of_100_rounds_has_is_forgotten_although_a_broker_does_not_answer() -> None:
    planner = RoundPlanner(RoundLimits())
    for number in range(250):
        planner.plan([LagGroup("stays", "consumer", 0), LagGroup(f"g-{number}", "consumer", 0)], is_complete=False)
        planner.on_polled("stays", 1)
        planner.on_polled(f"g-{number}", 1)
    assert set(planner.known) == {"stays", *(f"g-{number}" for number in range(150, 250))}
    plan = planner.plan([LagGroup(f"g-{number}", "consumer", 0) for number in (149, 150)], is_complete=False)
    assert names(plan) == ["g-149", "g-150"], "the one that was forgotten comes first"


@pytest.mark.parametrize(("partitions", "fact_bytes"), [(500, 1), (1, 999)])
def test_the_group_that_exceeds_the_budget_is_the_last_that_is_taken(partitions: int, fact_bytes: int) -> None:
    budget = RoundBudget(RoundLimits(partitions=10, fact_bytes=1000))
    used_up = []
    for _ in range(2):
        used_up.append(budget.is_used_up)
        budget.take(partitions=9, fact_bytes=1)
        used_up.append(budget.is_used_up)
        budget.take(partitions=partitions, fact_bytes=fact_bytes)
    assert used_up == [False, False, True, True]
