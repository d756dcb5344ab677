"""A plan from real tables and a scan of a real topic, replayed and audited by the commands."""

import json
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headgate.base.clock import SystemClock
from headgate.base.errors import UsageError
from headgate.cli.main import main
from headgate.config import Config, load
from headgate.dead_letters.audit import refresh_audit
from headgate.dead_letters.model.plans import (
    WHERE_COLUMNS,
    PlanNotFoundError,
    ReplayPlan,
    ReplayRefusedError,
)
from headgate.dead_letters.model.where import is_selected, parse_where
from headgate.dead_letters.plan_topic import PlanRecordReader, PlanRecordWriter
from headgate.dead_letters.progress_topic import ensure_progress_topic
from headgate.facts.plan_requests import FINAL, PlanAnswered, PlanRequested
from headgate.kafka.topics import TopicAdmin
from headgate.pipeline.derived.source_tables import read_rows
from headgate.pipeline.plan_maker import PlanMaker, PlanRequest
from headgate.pipeline.plan_requests import PlanRequests
from headgate.pipeline.replay_plans import PlanSelection, where_column
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition, TableReader
from headgate.tables.writer import TableWriter
from tests.support.cluster import Cluster
from tests.support.topics import committed_records, create_topics

Row = dict[str, Any]
GROUP = "billing"


class Incident:
    """A topic with records of some keys, of which some became dead letters."""

    def __init__(self, cluster: Cluster, spark: SparkSession, folder: Path) -> None:
        self.settings = dict(cluster.client_config())
        self.admin = TopicAdmin(self.settings)
        self.spark = spark
        self.orders = f"orders-{uuid.uuid4().hex[:8]}"
        self.parked = f"{self.orders}.parked"
        self.dlq = f"dlq.{self.orders}"
        create_topics(cluster, [self.orders, self.parked, self.dlq])
        self.cluster_id = self.admin.client.list_topics(timeout=60).cluster_id or ""
        self.file = folder / "headgate.toml"
        self.file.write_text(
            f'[upstream]\nbootstrap = ["{cluster.bootstrap}"]\nservice_mechanism = "none"\n'
            f'[tables]\npath = "{folder / "tables"}"\n[replay]\ntopics = ["orders-*"]\nmax_replays = 1\n'
            f'parking_topic = "{self.parked}"\n'
        )
        self.config: Config = load(self.file, {})

    def write(self, keys: str) -> None:
        """A record for each letter, which is its key; a dot has none."""
        producer = Producer(self.settings)
        for number, key in enumerate(keys):
            producer.produce(self.orders, key=None if key == "." else key.encode(), value=f"{key}{number}".encode())
        assert producer.flush(60) == 0

    def fail(self, *offsets: int, **more: object) -> None:
        """Add rows of `dead_letters`, as the pipeline makes them, for these offsets."""
        table = TABLES["dead_letters"]
        empty: Row = {
            one.name: None if one.nullable else {pa.string(): "", pa.bool_(): False}.get(one.type, 0)
            for one in table.columns
        }
        known = {
            "cluster_id": self.cluster_id,
            "group": GROUP,
            "topic": self.orders,
            "topic_id": self.admin.ids([self.orders])[self.orders],
            "dlq_topic": "dlq.orders",
            "source_state": "found",
            "reason": "Offset rejected by client.",
            "copies": 1,
        }
        self.add("dead_letters", [empty | known | {"offset": offset} | more for offset in offsets])

    def add(self, name: str, rows: list[Row]) -> None:
        table = TABLES[name]
        writer = TableWriter(self.config.tables.path, table)
        writer.upsert(pa.Table.from_pylist(rows, schema=table.columns), query=uuid.uuid4().hex, batch=0)
        writer.close()

    def read_by(self, *readers: tuple[str, str], topic: str | None = None) -> None:
        """Make the map, with these readers of the topic, which is that of the records unless another is named."""
        shared = {"cluster_id": self.cluster_id, "topic": topic or self.orders, "direction": "read", "valid_from": 1}
        flags = dict.fromkeys(("declared", "observed", "filled", "is_internal"), False)
        rows = [shared | flags | {"actor_kind": kind, "app_id": name} for kind, name in readers]
        self.add("lineage_edges", rows)

    def plan(
        self,
        *,
        to: str = "original",
        fanout: bool = False,
        superseded: bool = False,
        topics: tuple[str, ...] | None = None,
        **more: Any,
    ) -> ReplayPlan:
        refresh_audit(self.config.tables.path, self.settings, self.admin, self.cluster_id)
        request = PlanRequest(
            plan=uuid.uuid4().hex[:12],
            at=1,
            by="ops",
            to=to,
            selection=PlanSelection(cluster_id=self.cluster_id, **({"group": GROUP} | more)),
            asked={},
            topics=topics,
            accept_fanout=fanout,
            include_superseded=superseded,
        )
        return PlanMaker(self.config, self.spark, self.admin, lambda _step: None).make(request)

    def rows(self, plan: ReplayPlan) -> list[Mapping[str, Any]]:
        reader = TableReader(self.config.tables.path)
        where = [Condition("plan", "=", plan.plan)]
        return list(reader.rows(TABLES["replay_plan_records"], where=where).rows)


@pytest.fixture
def incident(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> Incident:
    return Incident(cluster, spark, tmp_path)


def actions(rows: list[Mapping[str, Any]]) -> dict[int, str]:
    return {row["offset"]: row["why"] or row["action"] for row in rows}


def test_an_incident_is_planned_replayed_and_audited_and_what_fails_again_is_parked(
    incident: Incident, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    #               0: later a processed; 1, 3: both dead; 4: no key; 5, 7: their source is gone
    incident.write("abab.xcy")
    incident.fail(0, 1, 3, 4)
    incident.fail(5, source_state="expired")
    incident.fail(7, source_state="compacted")
    incident.fail(6, withdrawn=True)
    incident.read_by(("share_group", GROUP), ("streams", "totals"))
    incident.read_by(("connector", "alarms"), topic=incident.parked)
    with pytest.raises(ReplayRefusedError, match="streams totals") as refused:
        incident.plan()
    assert "alarms" not in str(refused.value), "nothing is parked"
    plan = incident.plan(fanout=True, topics=("orders-*",))
    assert actions(incident.rows(plan)) == {
        0: "superseded",
        **dict.fromkeys((1, 3, 4), "replay"),
        **dict.fromkeys((5, 7), "expired"),
    }
    assert [row["offset"] for row in incident.rows(plan)] == sorted(row["offset"] for row in incident.rows(plan))
    assert (plan.records, plan.superseded, plan.expired) == (3, 1, 2)
    assert plan.reasons == {"Offset rejected by client.": 3}
    assert plan.readers == ("streams totals",)

    command = ["dlq", "replay", plan.plan, "--config", str(incident.file), "--bootstrap-server", cluster.bootstrap]
    assert main([*command, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == 3
    assert incident.admin.bounds(incident.orders, [0], timeout_s=60)[0] == (0, 8)
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["state"], document["written"], document["skipped"]) == ("DONE", 3, 0)
    audit = ["dlq", "audit", "--plan", plan.plan, "--config", str(incident.file)]
    assert main([*audit, "--json"]) == 0
    trail = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["offset"], row["outcome"], row["target_offset"]) for row in trail] == [
        (1, "replayed", 8),
        (3, "replayed", 9),
        (4, "replayed", 10),
    ]
    assert {row["by"] for row in trail} == {"User:ANONYMOUS"}

    # The copy of offset 3 fails again, and may not be replayed a second time.
    incident.fail(9)
    again = incident.plan(fanout=True, superseded=True)
    assert actions(incident.rows(again)) == {
        **dict.fromkeys((1, 3, 4), "already_replayed"),
        0: "replay",
        **dict.fromkeys((5, 7), "expired"),
        9: "over_max_replays",
    }
    assert (again.records, again.parked, again.already_replayed) == (1, 1, 3)
    assert [row["target_topic"] for row in incident.rows(again) if row["action"] == "park"] == [incident.parked]
    assert again.readers == ("connector alarms", "streams totals")


@pytest.mark.parametrize("stand_in", ["", "name:{}"])
def test_dead_letters_without_a_topic_id_are_replayed_from_their_copies_and_counted(
    incident: Incident, cluster: Cluster, capsys: pytest.CaptureFixture[str], stand_in: str
) -> None:
    """Those of Connect, Streams and Spring, as earlier releases and this one keep them."""
    #               0: later c processed; 2: is replayed; 3: another dead letter of its key; 4: has no copy
    incident.write("cabbd.c")
    copies = iter(range(100))

    def fail(*offsets: int, copied: bool = True) -> None:
        for offset in offsets:
            named: list[tuple[str, str | bytes | None]] = [
                ("kafka_dlt-original-topic", incident.orders.encode()),
                ("kafka_dlt-original-partition", struct.pack(">i", 0)),
                ("kafka_dlt-original-offset", struct.pack(">q", offset)),
            ]
            producer = Producer(incident.settings)
            producer.produce(incident.dlq, key=b"b", value=f"copy of {offset}".encode(), headers=named, partition=0)
            assert producer.flush(60) == 0
            incident.fail(
                offset,
                topic_id=stand_in.format(incident.orders),
                format="spring",
                copied=copied,
                dlq_topic=incident.dlq,
                dlq_topic_id=incident.admin.ids([incident.dlq])[incident.dlq],
                dlq_offset=next(copies),
            )

    incident.read_by(("share_group", GROUP))
    fail(4, copied=False)
    with pytest.raises(PlanNotFoundError, match="none of the 1 selected dead letters can be replayed: they do not"):
        incident.plan()
    fail(0, 2, 3)
    plan = incident.plan(group=None, dlq_topic=incident.dlq)
    assert actions(incident.rows(plan)) == {0: "superseded", 2: "replay", 3: "replay", 4: "unidentified"}
    assert (plan.records, plan.superseded, plan.expired) == (2, 1, 1)
    assert {row["topic_id"] for row in incident.rows(plan)} == {""}

    command = ["dlq", "replay", plan.plan, "--config", str(incident.file), "--bootstrap-server", cluster.bootstrap]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == 2
    found = committed_records(incident.settings, incident.orders)[-2:]
    assert [one.value() for one in found] == [b"copy of 2", b"copy of 3"]

    # The copy of offset 3 fails again; the one of 2 was processed, and is as old as 2.
    fail(8)
    again = incident.plan()
    assert actions(incident.rows(again)) == {
        **dict.fromkeys((2, 3), "already_replayed"),
        0: "superseded",
        4: "unidentified",
        8: "over_max_replays",
    }
    assert (again.records, again.parked) == (0, 1)


def test_a_plan_is_refused_where_records_must_not_go(incident: Incident) -> None:
    incident.write("a")
    incident.fail(0)
    with pytest.raises(ReplayRefusedError, match="readers of a topic"):
        incident.plan()  # without a map
    with pytest.raises(ReplayRefusedError, match="is a dead-letter topic"):
        incident.plan(to="dlq.other", fanout=True)
    with pytest.raises(ReplayRefusedError, match=r"not in \[replay\] topics"):
        incident.plan(to="elsewhere", fanout=True)
    with pytest.raises(PlanNotFoundError):
        incident.plan(fanout=True, where=parse_where("reason = 'another'", WHERE_COLUMNS))
    with pytest.raises(PlanNotFoundError):
        incident.plan(fanout=True, topics=(GROUP,))
    incident.fail(0, group="other")
    with pytest.raises(UsageError, match="of 2 groups"):
        incident.plan(fanout=True, group=None, dlq_topic="dlq.orders")


@contextmanager
def answering(incident: Incident) -> Iterator[None]:
    """The part of a running pipeline that makes plans, until the block ends."""
    stop = Event()
    requests = PlanRequests(incident.config, incident.spark, SystemClock())
    thread = Thread(target=requests.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def test_a_running_pipeline_makes_the_plan_that_is_asked_for_and_refuses_as_the_command_itself_does(
    incident: Incident, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    incident.write("ab")
    incident.fail(0, 1)
    incident.read_by(("share_group", GROUP), ("streams", "totals"))
    ensure_progress_topic(incident.admin)
    writer = PlanRecordWriter(incident.settings)
    left = PlanRequested(at=SystemClock().epoch_ms(), request=uuid.uuid4().hex, by="ops", group=GROUP, to="original")
    writer.write(left)
    writer.write(PlanAnswered(at=1, request=left.request, state="RUNNING", text="scanning"))
    reader = PlanRecordReader(incident.settings, incident.admin, from_end=True)
    command = ["dlq", "plan", "--group", GROUP, "--to", "original", "--config", str(incident.file)]
    command += ["--bootstrap-server", cluster.bootstrap]
    with answering(incident):
        assert main(command) == 1
        assert "headgate:   streams totals\nheadgate: use --accept-fanout" in capsys.readouterr().err
        assert main([*command, "--accept-fanout", "--where", "offset > 0", "--json"]) == 0
        made = json.loads(capsys.readouterr().out)
        forged = replace(left, request=uuid.uuid4().hex, where="secret = 'x'")
        writer.write(forged)
        answers: dict[str, PlanAnswered] = {}
        until = time.monotonic() + 60
        while not {left.request, forged.request} <= answers.keys():
            assert time.monotonic() < until
            found = reader.poll(0.2)
            answers |= {one.request: one for one in found if isinstance(one, PlanAnswered) and one.state in FINAL}
    reader.close()
    writer.close()
    assert made["records"] == 1
    head = TableReader(incident.config.tables.path).rows(TABLES["replay_plans"]).rows
    assert [row["plan"] for row in head] == [made["plan"]]  # the refused ones have left nothing
    assert (answers[left.request].state, "a pipeline ended" in str(answers[left.request].text)) == ("FAILED", True)
    assert answers[forged.request].state == "REFUSED"
    assert "there is no column secret" in str(answers[forged.request].text)


def test_spark_selects_what_the_expression_means(incident: Incident, spark: SparkSession) -> None:
    incident.fail(0, reason="it's 100% done", partition=3, copied=True, key_hash="é")
    incident.fail(1, reason=None, delivery_count=2)
    incident.fail(2, reason="Z", dead_lettered_at=1794731901727, key_hash="z")
    rows = list(TableReader(incident.config.tables.path).rows(TABLES["dead_letters"]).rows)
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], read_rows(spark, "dead_letters", []).schema)
    texts = [
        "reason like '%100_ done'",
        "reason = 'it''s 100% done' and copied",
        "not (reason = 'Z')",
        "reason is null or delivery_count in (2, 3)",
        "reason != 'Z' or partition >= 3",
        "key_hash > 'z'",
        "dead_lettered_at = '2026-11-15T08:38:21.727Z'",
        "offset not in (0, 2) and not copied",
        "delivery_count < 3",
    ]
    wheres = [parse_where(text, WHERE_COLUMNS) for text in texts]
    found = frame.select(
        "offset", *(where_column(where).alias(str(index)) for index, where in enumerate(wheres))
    ).collect()
    for row, of_table in zip(found, rows, strict=True):
        assert [row[str(index)] is True for index in range(len(texts))] == [
            is_selected(one, of_table) for one in wheres
        ]
