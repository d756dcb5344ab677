"""Limits of file descriptors and threads, against what a configuration can need."""

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.base.ids import NodeId
from headgate.config import Address, Config
from headgate.config.model import ActivityConfig, GatewayConfig, LagsConfig, ShareGroupsConfig, TopologiesConfig
from headgate.doctor import limits
from headgate.kafka.client_counts import most_clients

CLIENTS = 10  # of the leader, with all features and without Connect
OWN = 1 + 192 + CLIENTS * (3 + 5)


def config_for(**gateway: object) -> Config:
    nodes = gateway.pop("nodes", (NodeId(0),))
    return Config(gateway=GatewayConfig(listen=Address("127.0.0.1", 9092), nodes=nodes, **gateway))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("clients", "limit", "verdict"),
    [
        (500, 1024, "warning"),
        (500, 2 * 500 + OWN, "ok"),
        (500, 2 * 500 + OWN - 1, "warning"),
        (500, resource.RLIM_INFINITY, "ok"),
        (375, 1024, "ok"),  # the number that the warning suggests
    ],
)
def test_two_descriptors_for_each_client_and_those_of_the_own_clients_are_needed(
    clients: int, limit: int, verdict: str
) -> None:
    finding = limits.descriptors(config_for(max_connections=clients), limit)
    assert finding.verdict.value == verdict
    if limit == 1024 and verdict == "warning":
        assert f"LimitNOFILE={1000 + OWN}" in finding.mend
        assert "gateway.max_connections = 375" in finding.mend


NEEDED = 3 * (CLIENTS * (40 + 3) + 64) + 16  # one worker more while workers are replaced


@pytest.mark.parametrize(
    ("processes", "tasks", "verdict"),
    [
        (resource.RLIM_INFINITY, None, "ok"),
        (NEEDED, NEEDED, "ok"),
        (NEEDED - 1, None, "warning"),
        (resource.RLIM_INFINITY, NEEDED - 1, "warning"),
    ],
)
def test_every_worker_needs_a_thread_for_each_broker_and_client(
    processes: int, tasks: int | None, verdict: str
) -> None:
    config = config_for(workers=2, nodes=tuple(map(NodeId, range(40))))
    finding = limits.threads(config, processes=processes, tasks=tasks)
    assert finding.verdict.value == verdict
    if verdict == "warning":
        assert f"{NEEDED - 1} {'processes' if tasks is None else 'tasks'}" in finding.text
        assert f"TasksMax={NEEDED}" in finding.mend


def test_features_that_are_off_need_no_clients() -> None:
    bare = Config(
        topologies=TopologiesConfig(owner="broker"),
        activity=ActivityConfig(enable=False),
        lags=LagsConfig(enable=False),
        share_groups=ShareGroupsConfig(enable=False),
    )
    assert most_clients(bare) == 1, "it restores the limits of share groups"
    polling = replace(bare, lags=LagsConfig(enable=True))
    assert most_clients(polling) == 1 + 4 + 1, "those that features share, and an election"
    assert most_clients(Config()) == CLIENTS


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/user/gate\n", {"user/gate/pids.max": "max\n", "user/pids.max": "700\n"}, 700),
        ("0::/user/gate\n", {"user/gate/pids.max": "600\n", "user/pids.max": "700\n"}, 600),
        ("0::/\n", {}, None),
        ("8:pids:/a\n4:memory:/b\n0::/\n", {"pids/a/pids.max": "500\n", "b/pids.max": "1\n"}, 500),
        ("8:pids:/\n", {"pids/pids.max": "not a number"}, None),
        ("nonsense\n", {}, None),
    ],
)
def test_the_lowest_limit_of_the_control_groups_counts(
    own: str, files: dict[str, str], limit: int | None, tmp_path: Path
) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text)
    assert limits.pids_max(tmp_path / "cgroup", tmp_path / "own") == limit


def test_a_machine_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert limits.pids_max(tmp_path, tmp_path / "absent") is None


def test_both_limits_of_this_machine_are_examined() -> None:
    assert [one.subject for one in limits.examine(config_for())] == ["file descriptors", "threads", "pipes"]


@pytest.mark.parametrize(
    ("limit", "gateway", "verdict"),
    [
        (32, {"workers": 2}, "ok"),
        (1, {"workers": 64}, "warning"),
        (0, {}, "warning"),
        (0, {"tls_cert": Path("c"), "tls_key": Path("k")}, "ok"),
    ],
)
def test_too_few_pipes_are_a_warning_unless_tls_does_without(limit: int, gateway: dict[str, Any], verdict: str) -> None:
    finding = limits.pipes(config_for(**gateway), limit)
    assert finding.verdict.value == verdict
    if gateway == {"workers": 64}:
        assert "fs.pipe-user-pages-soft=65536" in finding.mend
