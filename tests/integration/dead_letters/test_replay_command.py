"""`headgate dlq replay` as an operator: the broker proves the rights, and the service account is not used."""

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from headgate.base.clock import SystemClock
from headgate.cli.main import main
from headgate.config.addresses import parse_address
from headgate.dead_letters.model.plans import ReplayPlan, ReplayRules
from headgate.dead_letters.progress_topic import read_past
from headgate.dead_letters.replay_control import ReplayControl
from headgate.dead_letters.replay_transactions import ReplayFencedError
from headgate.embedded import SecurityProtocol
from headgate.facts.replays import PROGRESS_TOPIC, TRANSACTIONAL_ID_PREFIX
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition, TableReader
from headgate.web.operations import GatewayAccess
from headgate.web.replay_runs.child import ProgressPipe, run_job
from headgate.web.replay_runs.job import ReplayJob, ReplayKind
from tests.integration.dead_letters.replays import DEADLINE_S, Kind, Operation, Scene, grant, write_plan
from tests.support.cluster import Cluster
from tests.support.share_scene import until

OPERATOR = "bob"


class Command:
    """The command with the operator's own file; the configuration names a service account that does not exist."""

    def __init__(self, scene: Scene, cluster: Cluster, folder: Path) -> None:
        records = scene.records(scene.fill(10))
        self.plan = scene.plan(records)
        write_plan(folder / "tables", self.plan, records)
        (folder / "password").write_text("wrong")
        config = folder / "headgate.toml"
        config.write_text(
            f'[upstream]\nbootstrap = ["127.0.0.1:1"]\nservice_user = "nobody"\n'
            f'service_password_file = "{folder / "password"}"\n[tables]\npath = "{folder / "tables"}"\n'
            f'[replay]\ntopics = ["{scene.target}"]\n'
        )
        properties = cluster.java_config(SecurityProtocol.SASL_SSL, user=OPERATOR, mechanism="PLAIN")
        server = properties.pop("bootstrap.servers")
        own = folder / "ops.properties"
        own.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self.config = config
        self._words = ["--config", str(config), "--bootstrap-server", server, "--command-config", str(own)]

    def __call__(self, *words: str, plan: str | None = None) -> int:
        return main(["dlq", "replay", plan or self.plan.plan, *self._words, *words])


@pytest.fixture
def scene(cluster: Cluster) -> Scene:
    return Scene(cluster)


def test_an_operator_replays_with_the_rights_of_the_page_and_not_without(
    scene: Scene, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(scene, cluster, tmp_path)
    assert command() == 1
    assert "does not exist, or the operator may not describe it" in capsys.readouterr().err
    grant(scene, OPERATOR, Kind.TOPIC, scene.target, Operation.WRITE, Operation.DESCRIBE_CONFIGS)
    grant(scene, OPERATOR, Kind.TOPIC, PROGRESS_TOPIC, Operation.READ, Operation.WRITE)
    grant(scene, OPERATOR, Kind.TOPIC, scene.source, Operation.READ)
    assert command() == 1
    error = capsys.readouterr().err
    assert f"needs WRITE on transactional ids that begin with {TRANSACTIONAL_ID_PREFIX}" in error
    assert "bob-secret" not in error
    grant(scene, OPERATOR, Kind.TRANSACTIONAL_ID, TRANSACTIONAL_ID_PREFIX, Operation.WRITE, pattern="PREFIXED")
    assert scene.values(scene.target) == []
    assert command("--json") == 0
    written = json.loads(capsys.readouterr().out)
    assert (written["state"], written["written"]) == ("DONE", 10)
    assert scene.values(scene.target) == scene.values(scene.source)
    assert main(["dlq", "audit", "--plan", command.plan.plan, "--config", str(command.config), "--json"]) == 0
    trail = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["position"] for row in trail] == list(range(10))
    assert {row["by"] for row in trail} == {f"User:{OPERATOR}"}


def test_a_plan_is_refused_that_is_unknown_or_whose_targets_have_changed(
    scene: Scene, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grant(scene, OPERATOR, Kind.TOPIC, scene.target, Operation.WRITE, Operation.DESCRIBE_CONFIGS)
    command = Command(scene, cluster, tmp_path)
    changes: dict[str, dict[str, Any]] = {
        "was created again": {"targets": {scene.target: uuid.uuid4().hex[:22]}},
        "is a dead-letter topic": {"targets": {scene.dlq: "x"}},
        "is not in [replay] topics": {"targets": {scene.source: "x"}},
        "is for the cluster elsewhere": {"cluster_id": "elsewhere"},
    }
    for number, (words, change) in enumerate(changes.items()):
        write_plan(tmp_path / "tables", replace(command.plan, plan=f"p{number}", **change), [])
        assert command(plan=f"p{number}") == 1
        assert words in capsys.readouterr().err
    assert command(plan="nonsense") == 1
    assert "there is no plan nonsense" in capsys.readouterr().err
    assert command("--rate", "0") == 2


def configure(scene: Scene, topic: str, **configs: str) -> None:
    """Set configs of a topic; `__` in their names is a dot."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for name, value in configs.items():
        entry = ConfigEntry(name.replace("__", "."), value, incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
    for altered in scene.admin.client.incremental_alter_configs([resource]).values():
        altered.result(DEADLINE_S)


def plain_command(scene: Scene, cluster: Cluster, folder: Path) -> Callable[..., int]:
    """The command of a super user without SASL."""
    config = folder / "headgate.toml"
    config.write_text(f'[tables]\npath = "{folder / "tables"}"\n[replay]\ntopics = ["{scene.target}"]\n')
    words = ["--config", str(config), "--bootstrap-server", cluster.bootstrap]
    return lambda plan, *more: main(["dlq", "replay", plan.plan, *words, *more])


def test_a_replay_is_refused_that_its_target_would_delete_or_reject(
    scene: Scene, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hour_ago = SystemClock().epoch_ms() - 3_600_000
    records = scene.records(scene.write(scene.source, [{"value": b"old", "partition": 0, "timestamp": hour_ago}]))
    plan = replace(scene.plan(records), oldest_at=hour_ago)
    write_plan(tmp_path / "tables", plan, records)
    replay = plain_command(scene, cluster, tmp_path)
    configure(scene, scene.target, retention__ms="60000")
    assert replay(plan) == 1
    assert f"{scene.target} deletes records after 60 s (retention.ms)" in capsys.readouterr().err
    configure(scene, scene.target, retention__ms="-1", message__timestamp__before__max__ms="60000")
    assert replay(plan, "--dry-run") == 1
    assert f"{scene.target} rejects records older than 60 s" in capsys.readouterr().err
    assert scene.values(scene.target) == []
    assert replay(plan, "--timestamp", "now") == 0
    assert scene.values(scene.target) == [b"old"]


def fence(scene: Scene, plan: ReplayPlan) -> Thread:
    """A thread that ends the plan for good once a part of it was replayed."""

    def abort() -> None:
        until(lambda: bool(read_past(scene.settings, scene.admin, group=scene.group, plan=plan.plan).positions))
        scene.replayer(plan).abort()

    thread = Thread(target=abort)
    thread.start()
    return thread


def positions(tables: Path, plan: ReplayPlan) -> list[int]:
    reader = TableReader(tables)
    found = reader.rows(TABLES["replay_audit"], where=[Condition("plan", "=", plan.plan)]).rows
    reader.close()
    return [row["position"] for row in found]


def test_a_replay_that_fails_has_its_trail_in_the_table(
    scene: Scene, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = scene.records(scene.fill(100))
    tables = tmp_path / "tables"
    plan = scene.plan(records)
    write_plan(tables, plan, records)
    fencing = fence(scene, plan)
    assert plain_command(scene, cluster, tmp_path)(plan, "--rate", "5") == 1
    fencing.join(DEADLINE_S)
    assert "another replay of group" in capsys.readouterr().err
    assert 0 < len(positions(tables, plan)) < 100

    plan = scene.plan(records)
    write_plan(tables, plan, records)
    job = ReplayJob(
        plan=plan.plan,
        kind=ReplayKind.REPLAY,
        rate=5,
        timestamps="original",
        by="User:ops",
        tables=tables,
        rules=ReplayRules(topics=(scene.target,), dlq_prefix="dlq.", facts_prefix="headgate."),
        gateway=GatewayAccess(address=parse_address(cluster.bootstrap), has_tls=False, tls_ca=None, has_sasl=False),
        credentials=None,
    )
    fencing = fence(scene, plan)
    with (tmp_path / "pipe").open("wb", buffering=0) as pipe, pytest.raises(ReplayFencedError):
        run_job(job, ReplayControl(), ProgressPipe(pipe))
    fencing.join(DEADLINE_S)
    assert 0 < len(positions(tables, plan)) < 100
