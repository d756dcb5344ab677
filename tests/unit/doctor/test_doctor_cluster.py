"""The cluster's id, its nodes against the ports, the APIs that features need, the clock, and Headgate's topics."""

from collections.abc import Iterable
from typing import Any, cast

import pytest

from headgate.base.ids import NodeId
from headgate.config import Address, Config
from headgate.config.model import MetricsConfig, ShareGroupsConfig
from headgate.doctor import cluster, topics
from headgate.doctor.brokers import Broker
from headgate.doctor.findings import DoctorFinding, KafkaTools
from headgate.wire.apis import APIS
from headgate.wire.messages.admin import (
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumResponse,
    QuorumReplica,
)
from headgate.wire.messages.cluster import MetadataPartition, MetadataTopic

TOOLS = KafkaTools(bootstrap="b:9092", principal="User:headgate")
ALL_APIS = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
NO_SHARE_FETCH = {key: ALL_APIS[key] for key in ALL_APIS if key != 78}
ALL_LEVELS = {"share.version": 1, "streams.version": 1, "metadata.version": 30}
SPECS = {spec.name.removeprefix("headgate."): spec for spec in topics.wanted(Config(), 3)}
DAY_MS = 86_400_000


def found(findings: Iterable[DoctorFinding]) -> list[tuple[str, str]]:
    return [(one.verdict.value, one.subject) for one in findings]


@pytest.mark.parametrize(
    ("ids", "expected"), [("AA", [("ok", "A")]), ("AAB", [("problem", "b:2")])], ids=["one", "another"]
)
def test_an_address_of_another_cluster_is_named(ids: str, expected: list[tuple[str, str]]) -> None:
    brokers = [
        Broker(
            address=Address("b", at),
            cluster_id=one,
            nodes={},
            versions={},
            levels={},
            certificate=None,
            caller=cast("Any", None),
            writer=cast("Any", None),
        )
        for at, one in enumerate(ids)
    ]
    assert found(cluster.same_cluster(brokers)) == expected


@pytest.mark.parametrize(
    ("nodes", "metrics_port", "expected", "mend"),
    [
        ((0, 1, 2), 9404, ("ok", "gateway.nodes"), ""),
        ((0, 1, 2, 5), 9404, ("warning", "node 5"), 'gateway.nodes = "0-2,5"'),
        ((0, 1, 2, 60000), 9404, ("problem", "node 60000"), "lower the port of gateway.listen"),
        ((0, 1, 2, 5), 9098, ("problem", "node 5"), "move metrics.listen"),
        ((0,), 9404, ("warning", "node 1, 2"), 'gateway.nodes = "0"'),
    ],
)
def test_nodes_without_a_port_and_ports_without_a_node_are_found(
    nodes: tuple[int, ...], metrics_port: int, expected: tuple[str, str], mend: str
) -> None:
    config = Config(metrics=MetricsConfig(listen=Address("127.0.0.1", metrics_port)))
    (finding,) = cluster.ports_of({NodeId(one): Address("b", 1000 + one) for one in nodes}, config)
    assert (finding.verdict.value, finding.subject) == expected
    assert mend in finding.mend


@pytest.mark.parametrize(
    ("versions", "levels", "share_groups", "verdict", "text", "mend"),
    [
        (ALL_APIS, ALL_LEVELS, True, "ok", "", ""),
        (NO_SHARE_FETCH, ALL_LEVELS, True, "warning", "ShareFetch v1", "share_groups.enable = false"),
        (NO_SHARE_FETCH, ALL_LEVELS, False, "ok", "", ""),
        (ALL_APIS, {"streams.version": 1}, True, "warning", "level 0", "upgrade --feature share.version=1"),
        ({**ALL_APIS, 3: (0, 11)}, ALL_LEVELS, True, "problem", "Metadata v12", "upgrade the broker to Kafka 3.1"),
    ],
)
def test_a_missing_api_switches_its_feature_off(
    versions: dict[int, tuple[int, int]], levels: dict[str, int], share_groups: bool, verdict: str, text: str, mend: str
) -> None:
    config = Config(share_groups=ShareGroupsConfig(enable=share_groups))
    (finding,) = cluster.examine_apis("b:1", versions, levels, config, TOOLS)
    assert finding.verdict.value == verdict
    assert text in finding.text
    assert mend in finding.mend


def test_headgate_supports_every_api_that_a_feature_needs() -> None:
    for feature in cluster.FEATURES:
        for key, version in feature.calls.items():
            assert APIS[key].has_version(version), (feature.name, key)


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        (1_000_050, "ok"),
        (1_000_100 + 1_000, "ok"),
        (1_000_100 + 1_001, "warning"),
        (1_000_000 - 1_001, "warning"),
        (1_000_000 - 3_600_000, "problem"),
        (1_000_100 + 3_600_000, "warning"),
    ],
)
def test_a_clock_is_judged_by_what_the_time_of_the_request_cannot_explain(theirs: int, verdict: str) -> None:
    seen = cluster.offset(asked_ms=1_000_000, theirs_ms=theirs, answered_ms=1_000_100)
    assert cluster.judge_clock(seen).verdict.value == verdict


def test_the_controllers_time_is_that_of_its_own_replica() -> None:
    voters = (
        QuorumReplica(replica_id=1, last_fetch_timestamp=500),
        QuorumReplica(replica_id=2, last_fetch_timestamp=900),
    )
    partition = DescribedQuorumPartition(leader_id=2, current_voters=voters)
    answer = DescribeQuorumResponse(topics=(DescribedQuorumTopic(partitions=(partition,)),))
    assert cluster.controller_time(answer) == 900
    assert cluster.controller_time(DescribeQuorumResponse()) is None


# Headgate's topics.


@pytest.mark.parametrize(
    ("suffix", "changes", "verdicts", "mend"),
    [
        *((suffix, {}, [], "") for suffix in SPECS),
        ("state", {"configs": {"cleanup.policy": "delete"}}, ["problem"], "--add-config cleanup.policy=compact"),
        ("state", {"configs": {"cleanup.policy": "compact,delete"}}, ["problem"], "cleanup.policy=compact"),
        ("state", {"configs": None}, ["warning"], "DescribeConfigs"),
        ("state", {"replication": 1}, ["warning"], "kafka-reassign-partitions.sh"),
        ("state", {"replication": 1, "nodes": [0]}, [], ""),
        ("state", {"leaderless": (0,), "behind": (0,)}, ["problem"], "start the brokers"),
        ("activity", {"configs": {"cleanup.policy": "delete", "retention.ms": str(30 * DAY_MS)}}, ["warning"], "90"),
        ("activity", {"configs": {"cleanup.policy": "delete", "retention.ms": str(400 * DAY_MS)}}, [], ""),
        ("activity", {"configs": {"cleanup.policy": "delete", "retention.ms": "-1"}}, [], ""),
        (
            "topologies",
            {"configs": {"cleanup.policy": "compact", "max.message.bytes": "1048588"}},
            ["problem"],
            f"max.message.bytes={11 * 4 * 1024 * 1024 + 1024 * 1024}",
        ),
        ("state", {"configs": {"cleanup.policy": "compact", "min.insync.replicas": "1"}}, ["warning"], "replicas=2"),
        ("state", {"configs": {"cleanup.policy": "compact", "min.insync.replicas": "3"}}, [], ""),
        (
            "state",  # with fewer replicas the command would stop every write
            {"configs": {"cleanup.policy": "compact", "min.insync.replicas": "1"}, "replication": 2},
            ["warning"],
            "kafka-reassign-partitions.sh",
        ),
        ("trips", {"partitions": 3}, ["problem"], "--delete --topic headgate.trips"),
        ("events", {"partitions": 4}, ["warning"], "--alter --topic headgate.events --partitions 8"),
        ("events", {"partitions": 16}, [], ""),
    ],
)
def test_a_topic_that_differs_is_found_with_the_command_that_corrects_it(
    suffix: str, changes: dict[str, Any], verdicts: list[str], mend: str
) -> None:
    spec = SPECS[suffix]
    fields = {"partitions": spec.partitions, "replication": spec.replication, "leaderless": (), "behind": ()}
    fields |= {"configs": dict(spec.configs)} | changes
    nodes = cast("Any", fields.pop("nodes", [0, 1, 2]))
    findings = list(topics.compare(spec, topics.SeenTopic(**cast("Any", fields)), nodes, TOOLS))
    assert [one.verdict.value for one in findings] == verdicts
    assert all(mend in one.mend for one in findings)


def test_what_is_seen_is_the_worst_partition() -> None:
    partitions = (
        MetadataPartition(partition_index=0, leader_id=1, replica_nodes=(1, 2, 3), isr_nodes=(1,)),
        MetadataPartition(partition_index=1, leader_id=-1, replica_nodes=(1, 2), isr_nodes=(1, 2)),
    )
    seen = topics.seen(MetadataTopic(name="t", partitions=partitions), None)
    assert (seen.partitions, seen.replication, seen.leaderless, seen.behind) == (2, 2, (1,), (0,))
