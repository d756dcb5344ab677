"""`headgate dlq replay` as an operator: the broker proves the rights, and the service account is not used."""

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main
from headgate.embedded import SecurityProtocol
from headgate.facts.replays import PROGRESS_TOPIC, TRANSACTIONAL_ID_PREFIX
from tests.integration.dead_letters.replays import Kind, Operation, Scene, grant, write_plan
from tests.support.cluster import Cluster

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
