"""A replay into members that still fail: the breaker of their group trips again, and that stops the replay.

Everything is real: a gateway with circuit breakers, members that reject, the command, and the process of the page.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main
from headgate.dead_letters.model.plans import PlanRecord, ReplayPlan
from headgate.kafka.topics import TopicAdmin
from tests.integration.dead_letters.replays import write_plan
from tests.support.cluster import Cluster
from tests.support.share_consumers import ShareJvm
from tests.support.share_scene import BREAKER, DLQ_TOPIC, MINIMUM, WINDOW, ShareScene, share_scene, until
from tests.support.topics import committed_records
from tests.support.web import Web, running_web

RECORDS = 400
TRIPS_AT = 20  # rejected records, once they are replayed
RATE = 10.0  # the replay would last 40 seconds
Row = dict[str, Any]


@pytest.fixture(scope="module")
def scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    with share_scene(cluster, tmp_path_factory.mktemp("watched"), replay__topics=["t-*"]) as running:
        yield running


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareJvm]:
    with ShareJvm("clients", tmp_path_factory.mktemp("members") / "members.log") as running:
        yield running


class Relapse:
    """A group whose breaker has tripped, that is resumed too early, and the plan of its dead letters."""

    def __init__(self, scene: ShareScene, jvm: ShareJvm) -> None:
        self.scene = scene
        self.config = scene.gateway.setup.folder / "headgate.toml"
        self.tables = scene.gateway.setup.folder / "tables"
        self.topic, dlq = scene.new_topic(), scene.new_topic("dlq")
        committed = {"share.isolation.level": "read_committed"}  # see docs/incident.md
        breaker = {BREAKER: "true", MINIMUM: str(RECORDS), WINDOW: "60000"}
        self.group = scene.new_group({DLQ_TOPIC: dlq} | breaker | committed)
        self.member = jvm.join(self.group, scene.bootstrap, self.group, [self.topic], commit="sync")
        self.member.set_downstream(failing_percent=100)
        scene.send(self.topic, [f"order {one}" for one in range(RECORDS)])
        scene.wait_for_status(self.group, lambda status: status["paused"])
        scene.configure(self.group, {MINIMUM: str(TRIPS_AT)})
        self.resume()
        admin = TopicAdmin(scene.direct)
        ids = admin.ids([self.topic, dlq])
        self.plan = ReplayPlan(
            cluster_id=admin.client.list_topics(timeout=60).cluster_id or "",
            plan=f"plan-{self.topic}",
            at=1,
            by="User:ANONYMOUS",
            group=self.group,
            to="original",
            targets={self.topic: ids[self.topic]},
            records=RECORDS,
            parked=0,
            expired=0,
            superseded=0,
            already_replayed=0,
            over_max_replays=0,
            reasons={},
            readers=(),
            oldest_at=None,
        )
        records = [
            PlanRecord(
                position=offset,
                topic=self.topic,
                topic_id=ids[self.topic],
                partition=0,
                offset=offset,
                dlq_topic=dlq,
                dlq_topic_id=ids[dlq],
                dlq_partition=0,
                dlq_offset=offset,
                copied=False,
                action="replay",
                why=None,
                target_topic=self.topic,
                target_partition=0,
            )
            for offset in range(RECORDS)
        ]
        write_plan(self.tables, self.plan, records)

    @property
    def reason(self) -> str:
        return f"the circuit breaker of group {self.group} tripped again"

    def resume(self) -> None:
        words = ("--resume", "--group", self.group, "--reason", "downstream repaired")
        assert main(["share-groups", "--bootstrap-server", self.scene.bootstrap, *words]) == 0
        self.scene.wait_for_status(self.group, lambda status: not status["paused"])

    def check_stopped(self, written: int) -> None:
        """After its first part, and with the group paused by its second trip."""
        assert TRIPS_AT <= written < RECORDS
        status = self.scene.status(self.group)
        assert (status["paused"], status["generation"]) == (True, 2)

    def repair(self) -> None:
        self.member.set_downstream(failing_percent=0)
        self.resume()

    def check_done(self, stopped_after: int) -> None:
        """Each record is in the topic once more, in order, and those of the second part are accepted."""
        found = committed_records(self.scene.direct, self.topic)
        values = [record.value() for record in found]
        assert values == [f"order {one}".encode() for one in range(RECORDS)] * 2
        targets = {(0, record.offset() or 0) for record in found[RECORDS + stopped_after :]}
        until(lambda: targets <= self.scene.fate(self.group, self.topic).acknowledged)
        assert self.scene.status(self.group)["generation"] == 2


@pytest.fixture
def relapse(scene: ShareScene, jvm: ShareJvm) -> Iterator[Relapse]:
    made = Relapse(scene, jvm)
    yield made
    made.member.close()


def test_a_replay_stops_when_the_group_trips_again_and_goes_on_when_it_is_repaired(
    relapse: Relapse, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["dlq", "replay", relapse.plan.plan, "--config", str(relapse.config), "--json"]
    capsys.readouterr()
    assert main([*command, "--rate", str(RATE)]) == 1
    out, errors = capsys.readouterr()
    stopped = json.loads(out)
    assert (stopped["state"], stopped["stopped_by"]) == ("PAUSED", relapse.reason)
    assert f"headgate: stopped: {relapse.reason}; run the same command again to go on\n" in errors
    assert "cannot be watched" not in errors
    relapse.check_stopped(stopped["written"])

    relapse.repair()
    capsys.readouterr()
    assert main(command) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["state"], done["written"], done["stopped_by"]) == ("DONE", RECORDS, None)
    relapse.check_done(stopped["written"])


def test_a_replay_of_the_page_stops_too(relapse: Relapse, scene: ShareScene, tmp_path: Path) -> None:
    keys = {
        "facts.prefix": scene.facts,
        "web.gateway": scene.bootstrap,
        "tables.path": str(relapse.tables),
        "replay.topics": ["t-*"],
    }

    def run(web: Web, **more: Any) -> Row:
        """Start the replay, and return what the page shows when its process has ended."""
        found: Row = {}

        def has_ended() -> bool:
            found.update(web.call("GET", f"/api/v1/replays/{relapse.plan.plan}")[1])
            return found["here"] is False and found["state"] in {"PAUSED", "DONE", "FAILED"}

        status, answer = web.call("POST", "/api/v1/replays", document={"plan": relapse.plan.plan} | more)
        assert status == 202, answer
        until(has_ended, what=lambda: str(found))
        return found

    with running_web(tmp_path, scene.cluster.bootstrap, keys) as web:
        stopped = run(web, rate=RATE)
        assert (stopped["state"], stopped["stopped_by"], stopped["notes"]) == ("PAUSED", relapse.reason, [])
        relapse.check_stopped(stopped["written"])
        relapse.repair()
        done = run(web)
        assert (done["state"], done["written"], done["stopped_by"]) == ("DONE", RECORDS, None)
    relapse.check_done(stopped["written"])
