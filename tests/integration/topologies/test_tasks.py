"""Tasks of stock Kafka Streams members: `streams-groups --describe --tasks`, and the records of `headgate.tasks`."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster
from tests.support.fact_records import member_tasks
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.streams_apps import word_count_demo, words_cluster

Capture = pytest.CaptureFixture[str]
SECONDS = 90.0
PREFIX = "tasks-test."
STORE = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
TASKS = ["0_0", "0_1", "1_0", "1_1"]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with words_cluster(tmp_path_factory) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(own: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    with running_gateway(folder, own.bootstrap, topologies__owner="gateway", facts__prefix=PREFIX) as running:
        until(lambda: running.metric("headgate_topologies_ready") == 1, 60)
        yield running


def shown(gateway: GatewayProcess, group: str, capsys: Capture) -> dict[str, Any]:
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
            found = shown(gateway, group, capsys)
            held = [member["tasks"] for member in found["members"]]
            return found["state"] == "Stable" and len(held) == 2 and all(held)

        until(is_shared, SECONDS)
        found = shown(gateway, group, capsys)
        assert tasks_of(found["members"]) == TASKS
        stores = {task["task"]: task["stores"] for member in found["members"] for task in member["tasks"]}
        assert stores == {"0_0": [], "0_1": [], "1_0": [STORE], "1_1": [STORE]}
        where = ["--bootstrap-server", gateway.bootstrap]
        assert main(["streams-groups", *where, "--describe", "--tasks", "--all-groups"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert f"GROUP {group} (Stable): 2 members, 2 processes, 4 tasks" in lines
        assert lines[[line.split()[:1] == ["HOST"] for line in lines].index(True)].split()[2:] == TASKS

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
