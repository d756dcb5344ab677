"""Headgate's topics as they are against what they should be: what is lost, what is only less, what is in order."""

import pytest

from headgate.config import Config
from headgate.doctor import topics
from headgate.doctor.commands import KafkaTools
from headgate.doctor.findings import Finding, Verdict
from headgate.doctor.topics import Seen, compare
from headgate.facts.topics import TopicSpec
from headgate.wire.messages.cluster import MetadataPartition, MetadataTopic

TOOLS = KafkaTools(bootstrap="b:9092", principal="User:headgate")
SPECS = {spec.name.removeprefix("headgate."): spec for spec in topics.wanted(Config(), 3)}


def as_wanted(spec: TopicSpec, **changes: object) -> Seen:
    fields: dict[str, object] = {
        "partitions": spec.partitions,
        "replication": spec.replication,
        "leaderless": (),
        "behind": (),
        "configs": dict(spec.configs),
    }
    return Seen(**(fields | changes))  # type: ignore[arg-type]


def differences(suffix: str, **changes: object) -> list[Finding]:
    spec = SPECS[suffix]
    return list(compare(spec, as_wanted(spec, **changes), [0, 1, 2], TOOLS))


@pytest.mark.parametrize("suffix", SPECS)
def test_a_topic_as_headgate_makes_it_is_in_order(suffix: str) -> None:
    assert differences(suffix) == []


def test_a_policy_that_lets_decisions_expire_is_a_problem_with_its_command() -> None:
    (finding,) = differences("state", configs={"cleanup.policy": "delete"})
    assert finding.verdict is Verdict.PROBLEM
    assert finding.mend == (
        "kafka-configs.sh --bootstrap-server b:9092 --alter --entity-type topics --entity-name headgate.state "
        "--add-config cleanup.policy=compact"
    )


def test_compact_and_delete_together_expire_decisions_too() -> None:
    (finding,) = differences("state", configs={"cleanup.policy": "compact,delete"})
    assert finding.verdict is Verdict.PROBLEM


@pytest.mark.parametrize(("days", "verdicts"), [(30, [Verdict.WARNING]), (90, []), (400, [])])
def test_keeping_less_is_a_warning_and_keeping_more_is_in_order(days: int, verdicts: list[Verdict]) -> None:
    configs = {"cleanup.policy": "delete", "retention.ms": str(days * 86_400_000)}
    assert [one.verdict for one in differences("activity", configs=configs)] == verdicts


def test_for_ever_is_long_enough() -> None:
    assert differences("activity", configs={"cleanup.policy": "delete", "retention.ms": "-1"}) == []


def test_a_message_limit_below_what_may_be_pushed_is_a_problem() -> None:
    (finding,) = differences("topologies", configs={"cleanup.policy": "compact", "max.message.bytes": "1048588"})
    assert finding.verdict is Verdict.PROBLEM
    assert f"max.message.bytes={11 * 4 * 1024 * 1024 + 1024 * 1024}" in finding.mend


def test_a_topic_whose_order_counts_has_one_partition() -> None:
    (finding,) = differences("trips", partitions=3)
    assert finding.verdict is Verdict.PROBLEM
    assert "--delete --topic headgate.trips" in finding.mend


def test_too_few_partitions_are_a_warning_and_more_are_in_order() -> None:
    (finding,) = differences("events", partitions=4)
    assert finding.verdict is Verdict.WARNING
    assert finding.mend.endswith("--alter --topic headgate.events --partitions 8")
    assert differences("events", partitions=16) == []


def test_fewer_replicas_are_a_warning_unless_there_are_no_more_brokers() -> None:
    (finding,) = differences("state", replication=1)
    assert finding.verdict is Verdict.WARNING
    spec = SPECS["state"]
    assert list(compare(spec, as_wanted(spec, replication=1), [0], TOOLS)) == []


def test_a_partition_without_a_leader_is_a_problem() -> None:
    (finding,) = differences("state", leaderless=(0,), behind=(0,))
    assert (finding.verdict, "partition 0" in finding.text) == (Verdict.PROBLEM, True)


def test_configs_that_may_not_be_read_are_said_to_be_unread() -> None:
    (finding,) = differences("state", configs=None)
    assert (finding.verdict, "User:headgate" in finding.text) == (Verdict.WARNING, True)


def test_what_is_seen_is_the_worst_partition() -> None:
    partitions = (
        MetadataPartition(partition_index=0, leader_id=1, replica_nodes=(1, 2, 3), isr_nodes=(1,)),
        MetadataPartition(partition_index=1, leader_id=-1, replica_nodes=(1, 2), isr_nodes=(1, 2)),
    )
    found = topics.seen(MetadataTopic(name="t", partitions=partitions), None)
    assert (found.partitions, found.replication, found.leaderless, found.behind) == (2, 2, (1,), (0,))
