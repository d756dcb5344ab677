"""One cluster, its nodes against the ports, the calls that features need, and the clock."""

from typing import cast

import pytest

from headgate.base.ids import NodeId
from headgate.config import Address, Config
from headgate.config.model import GatewayConfig, MetricsConfig, ShareGroupsConfig
from headgate.doctor import clock, features, nodes
from headgate.doctor.broker import Broker
from headgate.doctor.commands import KafkaTools
from headgate.doctor.findings import Finding, Verdict
from headgate.doctor.messages import (
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumResponse,
    ReplicaState,
)
from headgate.wire.apis import APIS

TOOLS = KafkaTools(bootstrap="b:9092", principal="User:headgate")
ALL_CALLS = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
ALL_LEVELS = {"share.version": 1, "streams.version": 1, "metadata.version": 30}


def broker(port: int, cluster_id: str) -> Broker:
    return Broker(
        address=Address("b", port),
        cluster_id=cluster_id,
        nodes={},
        versions={},
        levels={},
        certificate=None,
        caller=cast("object", None),  # type: ignore[arg-type]
        writer=cast("object", None),  # type: ignore[arg-type]
    )


def cluster_of(*ids: int) -> dict[NodeId, Address]:
    return {NodeId(one): Address("b", 1000 + one) for one in ids}


def verdicts(findings: list[Finding]) -> list[Verdict]:
    return [finding.verdict for finding in findings]


def test_an_address_of_another_cluster_is_named() -> None:
    findings = list(nodes.same_cluster([broker(1, "A"), broker(2, "A"), broker(3, "B")]))
    assert verdicts(findings) == [Verdict.PROBLEM]
    assert (findings[0].subject, "cluster B" in findings[0].text) == ("b:3", True)
    assert verdicts(list(nodes.same_cluster([broker(1, "A"), broker(2, "A")]))) == [Verdict.OK]


def test_nodes_that_are_all_named_are_in_order() -> None:
    (finding,) = nodes.ports_of(cluster_of(0, 1, 2), Config())
    assert finding.verdict is Verdict.OK
    assert "9093 to 9095" in finding.text


def test_a_node_outside_the_range_is_a_warning_with_the_line_to_write() -> None:
    (finding,) = nodes.ports_of(cluster_of(0, 1, 2, 5), Config())
    assert (finding.verdict, finding.subject) == (Verdict.WARNING, "node 5")
    assert finding.mend == 'gateway.nodes = "0-2,5"'


def test_a_node_whose_port_does_not_exist_is_a_problem() -> None:
    (finding,) = nodes.ports_of(cluster_of(0, 1, 2, 60000), Config())
    assert (finding.verdict, "69093" in finding.text) == (Verdict.PROBLEM, True)


def test_a_node_whose_port_is_the_status_pages_is_a_problem() -> None:
    config = Config(metrics=MetricsConfig(listen=Address("127.0.0.1", 9098)))
    (finding,) = nodes.ports_of(cluster_of(0, 1, 2, 5), config)
    assert (finding.verdict, "metrics.listen" in finding.mend) == (Verdict.PROBLEM, True)


def test_a_named_node_that_is_not_there_is_a_warning() -> None:
    (finding,) = nodes.ports_of(cluster_of(0), Config())
    assert (finding.verdict, finding.subject) == (Verdict.WARNING, "node 1, 2")
    assert 'gateway.nodes = "0"' in finding.mend


def examine(
    versions: dict[int, tuple[int, int]] | None = None,
    levels: dict[str, int] | None = None,
    config: Config | None = None,
) -> list[Finding]:
    return list(
        features.examine(
            "b:1",
            ALL_CALLS if versions is None else versions,
            ALL_LEVELS if levels is None else levels,
            config or Config(),
            TOOLS,
        )
    )


def test_a_broker_with_every_call_is_in_order() -> None:
    assert verdicts(examine()) == [Verdict.OK]


def test_a_missing_call_switches_its_feature_off_and_says_which() -> None:
    (finding,) = examine({key: ALL_CALLS[key] for key in ALL_CALLS if key != 78})
    assert finding.verdict is Verdict.WARNING
    assert "no ShareFetch v1" in finding.text
    assert "share_groups.enable = false" in finding.mend


def test_a_feature_that_is_off_needs_nothing() -> None:
    config = Config(share_groups=ShareGroupsConfig(enable=False))
    assert verdicts(examine({key: ALL_CALLS[key] for key in ALL_CALLS if key != 78}, config=config)) == [Verdict.OK]


def test_a_feature_at_level_zero_is_mended_by_kafkas_tool() -> None:
    (finding,) = examine(levels={"streams.version": 1})
    assert "share.version at level 0" in finding.text
    assert "kafka-features.sh --bootstrap-server b:9092 upgrade --feature share.version=1" in finding.mend


def test_without_the_calls_of_the_gateway_itself_there_is_a_problem() -> None:
    findings = examine({**ALL_CALLS, 3: (0, 11)})
    assert Verdict.PROBLEM in verdicts(findings)
    assert "no Metadata v12" in findings[0].text


def test_every_call_that_a_feature_names_is_one_that_we_speak() -> None:
    for feature in features.FEATURES:
        for key, version in feature.calls.items():
            assert APIS[key].has_version(version), (feature.name, key)


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        (1_000_050, Verdict.OK),
        (1_000_100 + 1_000, Verdict.OK),
        (1_000_100 + 1_001, Verdict.WARNING),
        (1_000_000 - 1_001, Verdict.WARNING),
        (1_000_000 - 3_600_000, Verdict.PROBLEM),
        (1_000_100 + 3_600_000, Verdict.WARNING),
    ],
)
def test_a_clock_is_judged_by_what_the_answers_time_cannot_explain(theirs: int, verdict: Verdict) -> None:
    seen = clock.offset(asked_ms=1_000_000, theirs_ms=theirs, answered_ms=1_000_100)
    assert clock.judge(seen).verdict is verdict


def test_the_side_that_is_ahead_is_said() -> None:
    assert "30.0 s ahead of ours" in clock.judge(clock.Offset(30_000, 30_010)).text
    assert "30.0 s behind ours" in clock.judge(clock.Offset(-30_010, -30_000)).text


def test_the_controllers_time_is_that_of_its_own_copy() -> None:
    voters = (
        ReplicaState(replica_id=1, last_fetch_timestamp=500),
        ReplicaState(replica_id=2, last_fetch_timestamp=900),
    )
    partition = DescribedQuorumPartition(leader_id=2, current_voters=voters)
    answer = DescribeQuorumResponse(topics=(DescribedQuorumTopic(partitions=(partition,)),))
    assert clock.controller_time(answer) == 900
    assert clock.controller_time(DescribeQuorumResponse()) is None


def test_a_gateway_with_one_node_says_one_port() -> None:
    config = Config(gateway=GatewayConfig(nodes=(NodeId(0),)))
    (finding,) = nodes.ports_of(cluster_of(0), config)
    assert "(0: port 9093)" in finding.text
