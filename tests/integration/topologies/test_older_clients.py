"""Applications that do not push a description: stock Kafka Streams 4.3.1 through the gateway, on a real broker.

Their topologies, and their tasks: `streams-groups --describe --tasks`, and the records of `headgate.tasks`.
"""

import asyncio
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main
from headgate.config.addresses import parse_address
from headgate.facts import MemberTasksObserved
from headgate.kafka.connections import Dialler
from headgate.kafka.group_admin import describe_groups
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster
from tests.support.fact_records import member_tasks, mismatch_details
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.streams_apps import COUNTS_OUT, WORDS_IN, word_count_demo, words_cluster

Capture = pytest.CaptureFixture[str]
PREFIX = "headgate."
SECONDS = 120.0
STORE = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
TASKS = ["0_0", "0_1", "1_0", "1_1"]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with words_cluster(tmp_path_factory) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(own: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running_gateway(tmp_path_factory.mktemp("gateway"), own.bootstrap, topologies__owner="gateway") as running:
        until(lambda: running.metric("headgate_topologies_ready") == 1)
        yield running


def config_of(gateway: GatewayProcess) -> list[str]:
    return ["--config", str(gateway.setup.folder / "headgate.toml")]


def versions(gateway: GatewayProcess, group: str, capsys: Capture) -> list[dict[str, Any]]:
    code = main(["topology", "versions", group, *config_of(gateway), "--json"])
    shown = capsys.readouterr().out
    return json.loads(shown)["versions"] if code == 0 else []


def has_recorded(gateway: GatewayProcess, group: str) -> bool:
    return any(f'"partial topology description recorded" group={group} ' in line for line in gateway.log_lines())


def test_a_stock_application_of_4_3_is_on_the_list_and_marked_as_partial(
    gateway: GatewayProcess, capsys: Capture, tmp_path: Path
) -> None:
    group = f"words-{secrets.token_hex(4)}"
    with word_count_demo(gateway.bootstrap, group, tmp_path):
        until(lambda: has_recorded(gateway, group), SECONDS)
        describe = ["--describe", "--group", group, "--topology"]
        assert main(["streams-groups", "--bootstrap-server", gateway.bootstrap, *describe]) == 1
        assert f"No topology description is stored for streams group '{group}'." in capsys.readouterr().out
    [kept] = versions(gateway, group, capsys)
    assert (kept["provenance"], kept["partial"], kept["current"]) == ("assignment", True, True)
    assert (kept["member"], kept["process"], kept["topology_epoch"]) == (None, None, 0)

    assert main(["topology", "versions", group, *config_of(gateway)]) == 0
    assert "current, partial" in capsys.readouterr().out
    assert main(["topology", "show", group, *config_of(gateway)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Partial description: ")
    assert f"Source: ASSIGNMENT-0-SOURCE (topics: [{WORDS_IN}])" in shown
    assert f"Sink: ASSIGNMENT-0-SINK-0 (topic: {group}-{STORE}-repartition)" in shown
    assert f"Source: ASSIGNMENT-1-SOURCE (topics: [{group}-{STORE}-repartition])" in shown
    assert f"Processor: ASSIGNMENT-1-PROCESSOR (stores: [{STORE}])" in shown
    assert COUNTS_OUT not in shown


def test_a_stock_application_in_the_classic_protocol_is_on_the_list_too(
    own: Cluster, gateway: GatewayProcess, capsys: Capture, tmp_path: Path
) -> None:
    group = f"words-{secrets.token_hex(4)}"
    with word_count_demo(gateway.bootstrap, group, tmp_path, protocol="classic", application_server="one:7"):
        until(lambda: has_recorded(gateway, group), SECONDS)
        dialler = Dialler(bootstrap=(parse_address(own.bootstrap),))
        found = asyncio.run(describe_groups(dialler, [group, "no-such-group"]))
        assert (found[group].error_code, found["no-such-group"].error_code) == (0, 69)
        assert found[group].state in {"Stable", "PreparingRebalance", "CompletingRebalance"}
        until(
            lambda: sum(len(one.tasks) for one in member_tasks(own.client_config(), PREFIX, group).values()) == 4,
            SECONDS,
        )
        [member] = member_tasks(own.client_config(), PREFIX, group).values()
    assert (member.host, member.client_id) == ("one", "demo-StreamThread-1-consumer")
    assert {task.name for task in member.tasks if task.role == "active"} == {"0_0", "0_1", "1_0", "1_1"}
    kept = versions(gateway, group, capsys)[-1]
    assert (kept["provenance"], kept["partial"], kept["current"]) == ("assignment", True, True)
    assert main(["topology", "show", group, *config_of(gateway)]) == 0
    shown = capsys.readouterr().out
    assert f"Source: ASSIGNMENT-0-SOURCE (topics: [{WORDS_IN}])" in shown
    assert f"Source: ASSIGNMENT-1-SOURCE (topics: [{group}-{STORE}-repartition])" in shown
    assert "unknown" not in shown


def members(own: Cluster, group: str) -> list[MemberTasksObserved]:
    return list(member_tasks(own.client_config(), PREFIX, group).values())


def test_two_versions_of_an_application_in_one_group_are_reported(
    own: Cluster, gateway: GatewayProcess, tmp_path: Path
) -> None:
    """The broker refuses the second version. That it ends a minute later is tested without a broker."""
    group = f"words-{secrets.token_hex(4)}"
    with word_count_demo(gateway.bootstrap, group, tmp_path / "one"):
        until(lambda: has_recorded(gateway, group), SECONDS)
        other = "WordCountProcessorDemo"
        with word_count_demo(gateway.bootstrap, group, tmp_path / "two", demo=other, application_server="two:7"):
            until(lambda: bool(mismatch_details(own.client_config(), PREFIX, group)), SECONDS)
            [detail] = mismatch_details(own.client_config(), PREFIX, group)
            assert (detail["state"], detail["kind"]) == ("open", "refused")
            accepted, refused = detail["topologies"]
            assert (accepted["refused"], refused["refused"]) == (False, True)
            assert (accepted["member_count"], refused["member_count"]) == (1, 1)
            assert accepted["members"][0]["host"] == "127.0.0.1"
            assert refused["members"][0]["host"] == "two"
            assert accepted["members"][0]["process"] != refused["members"][0]["process"]
            assert accepted["fingerprint"] != refused["fingerprint"]


def described_tasks(gateway: GatewayProcess, group: str, capsys: Capture) -> dict[str, Any]:
    where = ["--bootstrap-server", gateway.bootstrap]
    code = main(["streams-groups", *where, "--describe", "--tasks", "--group", group, "--json"])
    out = capsys.readouterr().out
    return json.loads(out) if code == 0 else {"state": "", "members": []}


def tasks_of(members: list[dict[str, Any]], role: str = "active") -> list[str]:
    return sorted(task["task"] for member in members for task in member["tasks"] if task["role"] == role)


def test_tasks_of_two_processes_are_shown_and_recorded(
    own: Cluster, gateway: GatewayProcess, capsys: Capture, tmp_path: Path
) -> None:
    group = f"words-{secrets.token_hex(4)}"
    with (
        word_count_demo(gateway.bootstrap, group, tmp_path / "a"),
        word_count_demo(gateway.bootstrap, group, tmp_path / "b"),
    ):

        def is_shared() -> bool:
            found = described_tasks(gateway, group, capsys)
            held = [member["tasks"] for member in found["members"]]
            return found["state"] == "Stable" and len(held) == 2 and all(held)

        until(is_shared, SECONDS)
        found = described_tasks(gateway, group, capsys)
        assert tasks_of(found["members"]) == TASKS
        stores = {task["task"]: task["stores"] for member in found["members"] for task in member["tasks"]}
        assert stores == {"0_0": [], "0_1": [], "1_0": [STORE], "1_1": [STORE]}
        where = ["--bootstrap-server", gateway.bootstrap]
        assert main(["streams-groups", *where, "--describe", "--tasks", "--all-groups"]) == 0
        lines = capsys.readouterr().out.splitlines()
        mine = lines[lines.index(f"GROUP {group} (Stable): 2 members, 2 processes, 4 tasks") :]
        assert next(line for line in mine if line.split()[:1] == ["HOST"]).split()[2:] == TASKS

        def by_member(members: list[dict[str, Any]]) -> dict[str, list[str]]:
            return {member["member"]: sorted(task["task"] for task in member["tasks"]) for member in members}

        def is_recorded() -> bool:
            facts = member_tasks(own.client_config(), PREFIX, group)
            held = {name: sorted(task.name for task in fact.tasks) for name, fact in facts.items()}
            return held == by_member(found["members"])

        until(is_recorded, SECONDS)
        facts = member_tasks(own.client_config(), PREFIX, group).values()
        assert {fact.host for fact in facts} == {"127.0.0.1"}
        assert {fact.process for fact in facts} == {member["process"] for member in found["members"]}
        assert {store for fact in facts for task in fact.tasks for store in task.stores} == {STORE}
    until(lambda: not member_tasks(own.client_config(), PREFIX, group), SECONDS)  # both have left
