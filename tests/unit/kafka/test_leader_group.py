"""Who leads, by what the coordinator says of the leaders' group; a real group is in the tests of the page's brake."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, TopicPartition

import headgate
from headgate.base.errors import ClusterError
from headgate.kafka.leader_group import (
    ElectionState,
    candidate_client_id,
    describe_leader_group,
    leader_group_of,
    parse_client_id,
)
from headgate.kafka.topics import TopicAdmin

STABLE = ConsumerGroupState.STABLE


def member(client_id: str, *, leads: bool = False, host: str = "/10.0.0.7") -> Any:
    assigned = [TopicPartition("headgate.leader", 0)] if leads else []
    return SimpleNamespace(client_id=client_id, host=host, assignment=SimpleNamespace(topic_partitions=assigned))


def test_a_client_id_tells_the_worker_and_its_version() -> None:
    assert parse_client_id(candidate_client_id("gw-a:9092/3")) == ("gw-a:9092/3", headgate.__version__)
    assert candidate_client_id("") == "headgate"


@pytest.mark.parametrize("text", ["", "headgate", "headgate/1", "headgate/1/", "headgate//w", "rdkafka", "other/1/w"])
def test_any_other_client_id_tells_nothing(text: str) -> None:
    assert parse_client_id(text) == (None, None)


def test_the_member_with_the_partition_leads_and_comes_first() -> None:
    found = leader_group_of(
        STABLE, [member("headgate/0.2.0/gw-a/0"), member("headgate/0.1.0/gw-b/0", leads=True), member("rdkafka")]
    )
    assert found.state is ElectionState.LED
    assert [(one.worker, one.version, one.is_leader) for one in found.candidates] == [
        ("gw-b/0", "0.1.0", True),
        (None, None, False),
        ("gw-a/0", "0.2.0", False),
    ]
    assert found.candidates[0].host == "10.0.0.7"


def test_nobody_leads_without_members_or_without_an_assignment() -> None:
    assert leader_group_of(ConsumerGroupState.EMPTY, []).state is ElectionState.NOBODY
    assert leader_group_of(STABLE, [member("headgate/0.1.0/gw-a/0")]).state is ElectionState.NOBODY


def test_while_the_group_rebalances_a_leader_is_being_elected() -> None:
    found = leader_group_of(ConsumerGroupState.PREPARING_REBALANCING, [member("headgate/0.1.0/gw-a/0")])
    assert found.state is ElectionState.ELECTING


def test_names_and_numbers_of_members_are_bounded() -> None:
    long = leader_group_of(STABLE, [member(f"headgate/1/{'x' * 5_000}", host="y" * 5_000)] * 1_001)
    assert (len(long.candidates), long.is_truncated) == (1_000, True)
    assert (len(long.candidates[0].worker or ""), len(long.candidates[0].host)) == (300, 300)


def test_a_cluster_that_does_not_respond_is_an_error_with_the_group() -> None:
    with pytest.raises(ClusterError, match=r"group headgate\.leader"):
        describe_leader_group(TopicAdmin({"bootstrap.servers": "127.0.0.1:1"}), "headgate.leader", timeout_s=0.2)
