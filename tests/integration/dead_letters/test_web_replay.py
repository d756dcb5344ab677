"""A replay that is started through the web server, on a cluster with ACLs: a real process with the operator's rights.

Here `web.gateway` is the broker itself: rights are proved by the broker in any case.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.dead_letters.progress_topic import read_past
from headgate.facts.replays import PROGRESS_TOPIC, TRANSACTIONAL_ID_PREFIX
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition, TableReader
from tests.integration.dead_letters.replays import Kind, Operation, Scene, grant, write_plan
from tests.support.cluster import USERS, Cluster
from tests.support.share_scene import until
from tests.support.streams_client import SASL_PLAINTEXT
from tests.support.topics import create_topics
from tests.support.web import Web, running_web
from tests.unit.lineage.shop import write

OPERATOR = "alice"
CREDENTIAL = {"user": OPERATOR, "password": USERS[OPERATOR], "mechanism": "PLAIN"}
Row = dict[str, Any]


class ReplayDesk:
    """A plan over real records, and the keys of a web server that may make replays of it."""

    def __init__(self, scene: Scene, cluster: Cluster, folder: Path) -> None:
        self.scene = scene
        self.folder = folder
        records = scene.records(scene.fill(300))
        self.plan = scene.plan(records)
        tables = folder / "tables"
        write_plan(tables, self.plan, records)
        letter = {"group": scene.group, "topic": scene.source, "topic_id": scene.ids[scene.source], "offset": 0}
        write(tables, "dead_letters", [letter | {"dlq_topic": scene.dlq, "source_state": "found", "copies": 1}])
        (folder / "password").write_text(USERS["admin"])
        (folder / "password").chmod(0o600)
        self.upstream = cluster.kafka.bootstrap_of(SASL_PLAINTEXT)
        prefix = f"facts-{scene.source}."
        create_topics(cluster, [f"{prefix}events"])
        self.keys: dict[str, object] = {
            "upstream.service_user": "admin",
            "upstream.service_mechanism": "PLAIN",
            "upstream.service_password_file": str(folder / "password"),
            "facts.prefix": prefix,
            "activity.enable": False,
            "share_groups.enable": False,
            "web.gateway": self.upstream,
            "tables.path": str(tables),
            "replay.topics": [scene.target],
        }

    def running(self, name: str) -> Any:
        return running_web(self.folder / name, self.upstream, self.keys)

    def allow(self) -> None:
        target, source = self.scene.target, self.scene.source
        grant(self.scene, OPERATOR, Kind.TOPIC, target, Operation.WRITE, Operation.DESCRIBE_CONFIGS)
        grant(self.scene, OPERATOR, Kind.TOPIC, PROGRESS_TOPIC, Operation.READ, Operation.WRITE)
        grant(self.scene, OPERATOR, Kind.TOPIC, source, Operation.READ)
        prefixed = (Kind.TRANSACTIONAL_ID, TRANSACTIONAL_ID_PREFIX, Operation.WRITE)
        grant(self.scene, OPERATOR, *prefixed, pattern="PREFIXED")

    def start(self, web: Web, **more: Any) -> tuple[int, Row]:
        body = {"plan": self.plan.plan, "credential": CREDENTIAL} | more
        status, answer = web.call("POST", "/api/v1/replays", document=body)
        return status, dict(answer)

    def found(self, web: Web) -> Row:
        status, answer = web.call("GET", f"/api/v1/replays/{self.plan.plan}")
        assert status in {200, 503}, answer  # until the topic was read
        return dict(answer)

    def wait(self, web: Web, is_so: Callable[[Row], bool]) -> Row:
        until(lambda: "state" in self.found(web) and is_so(self.found(web)), what=lambda: str(self.found(web)))
        return self.found(web)

    def show(self, web: Web) -> tuple[int, Row]:
        place = {"group": self.scene.group, "topic": self.scene.source, "partition": 0, "offset": 0}
        status, answer = web.call("POST", "/api/v1/dead-letters/record", document=place | {"credential": CREDENTIAL})
        return status, dict(answer)


def test_a_replay_of_the_page_has_the_rights_of_its_operator_and_outlives_a_killed_server(
    cluster: Cluster, tmp_path: Path
) -> None:
    desk = ReplayDesk(Scene(cluster), cluster, tmp_path)
    scene = desk.scene
    with desk.running("first") as web:
        # The service account may do everything, and the operator nothing yet.
        status, answer = desk.start(web, credential=CREDENTIAL | {"password": "wrong"})
        assert (status, "login" in answer["message"].lower()) == (403, True)
        assert desk.start(web)[0] == 202
        failed = desk.wait(web, lambda one: one["state"] == "FAILED" and not one["here"])
        assert "the operator may not describe it" in failed["error"]
        status, answer = desk.show(web)
        assert (status, f"User:{OPERATOR} needs READ on the topic {scene.source}" in answer["message"]) == (403, True)
        desk.allow()
        until(lambda: desk.show(web)[0] == 200, what=lambda: str(desk.show(web)))
        shown = desk.show(web)[1]
        assert (shown["from"], shown["key"]["text"], shown["value"]["hex"]) == ("source", "k0", "30")
        assert [one["name"] for one in shown["headers"]] == ["type", "type", "empty"]

        assert desk.start(web, dry_run=True)[0] == 202
        dry = desk.wait(web, lambda one: one["dry_run"]["state"] == "DONE")["dry_run"]
        assert (dry["written"], dry["skipped"]) == (300, 0)
        assert scene.values(scene.target) == []
        until(lambda: desk.start(web, rate=20)[0] == 202)  # when the process of the dry run has ended
        desk.wait(web, lambda one: one["written"] > 0)
        web.process.kill()
        web.process.wait()
        written = web.log.read_text()
    until(lambda: read_past(scene.settings, scene.admin, group=scene.group, plan=desk.plan.plan).state == "PAUSED")
    assert 0 < len(scene.values(scene.target)) < 300

    with desk.running("second") as web:
        found = desk.wait(web, lambda one: one["state"] == "PAUSED")
        assert (found["here"], found["by"]) == (False, f"User:{OPERATOR}")
        assert f"headgate dlq replay {desk.plan.plan}" in found["go_on"]
        assert web.call("POST", f"/api/v1/replays/{desk.plan.plan}/stop", document={})[0] == 409
        assert desk.start(web)[0] == 202
        done = desk.wait(web, lambda one: one["state"] == "DONE" and not one["here"])
        assert (done["written"], done["skipped"]) == (300, 0)
        assert desk.start(web)[0] == 409
        status, plans = web.call("GET", "/api/v1/plans")
        assert [(one["state"], one["written"]) for one in plans["plans"]] == [("DONE", 300)]
        written += web.log.read_text()
    assert scene.values(scene.target) == scene.values(scene.source)
    audit = TableReader(tmp_path / "tables").rows(
        TABLES["replay_audit"], where=[Condition("plan", "=", desk.plan.plan)], limit=500
    )
    assert {(row["by"], row["outcome"]) for row in audit.rows} == {(f"User:{OPERATOR}", "replayed")}
    assert len(audit.rows) == 300
    assert [one for one in (*USERS.values(), "again") if one in written] == []
    assert "show_record" in written
