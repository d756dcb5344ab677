"""`headgate topology versions`, `show` and `diff` on versions that members pushed to a real cluster.

And the event of members that pushed different versions to one group.
"""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.cli.main import main
from headgate.facts.topology import content_hash
from headgate.topologies.wire_descriptions import to_wire
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster
from tests.support.fact_records import mismatch_details
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.streams_client import Member, StreamsClient
from tests.support.topics import create_topics
from tests.unit.topologies.topologies import FIXTURES, generated

Capture = pytest.CaptureFixture[str]
PREFIX = f"{uuid.uuid4().hex[:8]}."


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running_gateway(
        tmp_path_factory.mktemp("versions"),
        cluster.bootstrap,
        topologies__owner="gateway",
        topologies__store="kafka:",
        facts__prefix=PREFIX,
    ) as running:
        until(lambda: running.metric("headgate_topologies_ready") == 1)
        yield running


def test_a_roll_out_is_seen_as_a_diff_of_two_versions(
    cluster: Cluster, gateway: GatewayProcess, capsys: Capture
) -> None:
    group = topic = f"orders-{uuid.uuid4().hex[:8]}"
    create_topics(cluster, [topic])
    config = ["--config", str(gateway.setup.folder / "headgate.toml")]
    assert main(["topology", "versions", group, *config]) == 1
    assert capsys.readouterr().err == f"headgate: no version of the topology of group '{group}' is kept\n"

    first, second = generated("orders-v1"), generated("orders-operator-in-front")
    with StreamsClient(gateway.bootstrap) as client:
        member = Member(client=client, group=group, topic=topic)
        member.join_and_take_tasks()
        assert member.push(first).error_code == 0
        member.leave()
        redeployed = Member(client=client, group=group, topic=topic)
        redeployed.join_and_take_tasks()
        assert redeployed.push(second).error_code == 0
        redeployed.leave()

    assert main(["topology", "versions", group, *config, "--json"]) == 0
    kept = json.loads(capsys.readouterr().out)["versions"]
    assert [one["hash"] for one in kept] == [content_hash(first), content_hash(second)]
    assert [one["member"] for one in kept] == [member.member, redeployed.member]
    assert [one["process"] for one in kept] == [member.process, redeployed.process]
    assert [(one["provenance"], one["nodes"], one["current"]) for one in kept] == [
        ("pushed", 30, False),
        ("pushed", 31, True),
    ]
    assert main(["topology", "versions", group, *config]) == 0
    assert kept[1]["version"] in capsys.readouterr().out.splitlines()[1]

    assert main(["topology", "show", group, "--version", kept[0]["version"], *config]) == 0
    shown = capsys.readouterr().out
    assert "Source: KSTREAM-SOURCE-0000000000 (topics: [orders])" in shown
    assert "KSTREAM-PEEK-0000000001" not in shown

    assert main(["topology", "diff", f"{group}@previous", f"{group}@latest", *config, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["added"]] == ["KSTREAM-PEEK-0000000001"]
    assert (found["removed"], found["renamed"], found["moved"], found["changed"]) == ([], [], [], [])
    assert found["verdict"] == "safe"
    text = str(FIXTURES / "generated" / "orders-operator-in-front.txt")
    assert main(["topology", "diff", text, f"{group}@{kept[1]['version']}", *config]) == 0
    assert capsys.readouterr().out.startswith("The topologies are the same.\n")


def test_a_published_version_is_listed_and_compared_and_never_shown_by_a_describe(
    cluster: Cluster, gateway: GatewayProcess, capsys: Capture
) -> None:
    group = topic = f"orders-{uuid.uuid4().hex[:8]}"
    create_topics(cluster, [topic])
    config = ["--config", str(gateway.setup.folder / "headgate.toml")]
    text = str(FIXTURES / "generated" / "orders-operator-in-front.txt")
    publish = ["topology", "publish", text, "--group", group]
    at_gateway = ["--bootstrap-server", gateway.bootstrap]
    assert main([*publish, *at_gateway, "--json"]) == 0  # before the group exists
    first = json.loads(capsys.readouterr().out)["version"]

    with StreamsClient(gateway.bootstrap) as client:
        member = Member(client=client, group=group, topic=topic)
        member.join_and_take_tasks()
        assert client.describe(group).topology_description_status == 1, "NOT_STORED"
        assert member.push(generated("orders-v1")).error_code == 0
        assert main([*publish, *at_gateway]) == 0
        assert capsys.readouterr().out == f"Published version {first} of the topology of streams group '{group}'.\n"
        assert client.shown(group) == to_wire(generated("orders-v1"))
        member.leave()

    assert main(["topology", "versions", group, *config, "--json"]) == 0
    kept = {one["provenance"]: one for one in json.loads(capsys.readouterr().out)["versions"]}
    assert kept["pushed"]["current"] is True
    pasted = kept["pasted"]
    assert (pasted["version"], pasted["current"], pasted["member"]) == (first, False, None)
    assert pasted["by"] == "User:ANONYMOUS"
    assert pasted["client_id"]
    assert main(["topology", "diff", f"{group}@latest", f"{group}@{first}", *config, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "safe"

    assert main([*publish, "--bootstrap-server", cluster.bootstrap]) == 1
    assert "connect to a Headgate gateway" in capsys.readouterr().err


def test_members_that_push_different_descriptions_of_one_topology_are_reported_until_one_leaves(
    cluster: Cluster, gateway: GatewayProcess
) -> None:
    """Their topics are the same, so that the broker lets both join: only the pushed descriptions differ."""
    group = topic = f"orders-{uuid.uuid4().hex[:8]}"
    create_topics(cluster, [topic], partitions=2)
    first, second = generated("orders-v1"), generated("orders-operator-in-front")

    def details(count: int) -> list[dict[str, Any]]:
        until(lambda: len(mismatch_details(cluster.client_config(), PREFIX, group)) == count)
        return mismatch_details(cluster.client_config(), PREFIX, group)

    with StreamsClient(gateway.bootstrap) as client, StreamsClient(gateway.bootstrap) as other_client:
        member = Member(client=client, group=group, topic=topic)
        member.join_and_take_tasks()
        assert member.push(first).error_code == 0
        other = Member(client=other_client, group=group, topic=topic)
        other.join()
        assert other.push(second).error_code == 0
        [opened] = details(1)
        assert (opened["state"], opened["kind"], opened["topology_count"]) == ("open", "description", 2)
        assert {
            side["fingerprint"]: [(seen["member"], seen["process"], seen["host"]) for seen in side["members"]]
            for side in opened["topologies"]
        } == {
            content_hash(first): [(member.member, member.process, "127.0.0.1")],
            content_hash(second): [(other.member, other.process, "127.0.0.1")],
        }
        other.leave()
        _, ended = details(2)
        assert (ended["state"], ended["mismatch"]) == ("ended", opened["mismatch"])
        member.leave()
