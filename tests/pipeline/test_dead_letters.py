"""Dead letters become rows, once each, with what is left of their records, and episodes get their verdict."""

import hashlib
import json
import struct
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import PlatformError
from headgate.config import load
from headgate.kafka.topics import TopicAdmin, list_topics, quiet
from headgate.pipeline.batches import Moment, TableWriters
from headgate.pipeline.derived.dead_letters import DEAD_LETTERS
from headgate.pipeline.derived.derivation import HOUR_MS, DerivedContext
from headgate.pipeline.derived.derived_runner import DerivedTables
from headgate.pipeline.run_log import PipelineHealth, RunLog
from headgate.share_groups.model.dead_letter_records import Cause, DeadLetter, DeadLetterSource, topic_id_of
from headgate.tables.definitions import table_named
from headgate.tables.reader import TableReader
from headgate.wire.messages.data import ProducePartition, ProduceRequest, ProduceTopic
from headgate.wire.messages.transactions import InitProducerIdRequest
from headgate.wire.records import WireRecord
from tests.pipeline.breaker_histories import Row, whole_row
from tests.support.clock import FakeClock
from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient
from tests.support.record_batches import write_batch
from tests.support.topics import make_compacted_topic

Headers = Sequence[tuple[str, bytes]]
SECONDS = 60


class Incident:
    """A group that reads `orders`, a dead-letter topic, and the tables that the queries of the pipeline would write."""

    def __init__(self, settings: dict[str, Any], spark: SparkSession, root: Path) -> None:
        name = uuid.uuid4().hex[:8]
        self.settings, self.root, self.spark = settings, root, spark.newSession()
        self.group, self.prefix = f"sg-{name}", f"dlq-{name}."
        self.orders, self.dlq = f"orders-{name}", f"{self.prefix}orders"
        self.admin = AdminClient(quiet(settings))
        self.cluster = list_topics(settings).cluster
        self.now = int(time.time()) * 1000
        self.begin = self.now - 300_000
        self.batch = 0
        self.killed_at: tuple[Moment, str] | None = None
        self.make(self.orders)
        self.make(self.dlq)

    def make(self, topic: str, **configs: str) -> None:
        new = NewTopic(
            topic,
            num_partitions=1,
            replication_factor=1,
            config={one.replace("_", "."): configs[one] for one in configs},
        )
        for made in self.admin.create_topics([new]).values():
            made.result(30)

    def set_retention(self, topic: str, retention_ms: int) -> None:
        entry = ConfigEntry("retention.ms", str(retention_ms), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def topic_id(self, topic: str) -> str:
        return TopicAdmin(self.settings).ids([topic])[topic]

    def produce(self, topic: str, records: Sequence[tuple[bytes | None, bytes | None, Headers]]) -> None:
        producer = Producer(quiet(self.settings))
        for key, value, headers in records:
            producer.produce(topic, key=key, value=value, headers=list(headers), partition=0)
        assert producer.flush(30) == 0

    def produce_with_id(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> int:
        """In one batch of a producer whose id the broker gives; returns that id."""
        batch = [
            WireRecord(offset=at, timestamp=self.now, key=key, value=data) for at, (key, data) in enumerate(records)
        ]
        with RawClient(self.settings["bootstrap.servers"]) as client:
            until, request = (
                time.monotonic() + 30,
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            )
            while (given := client.call(request, 4)).error_code:  # a broker that has no ids yet asks its controller
                assert time.monotonic() < until, given
                time.sleep(0.05)
            raw = write_batch(batch, producer_id=given.producer_id, producer_epoch=0, base_sequence=0)
            written = ProduceTopic(name=topic, partition_data=(ProducePartition(index=0, records=raw),))
            answer = client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(written,)), 9)
        assert [one.error_code for each in answer.responses for one in each.partition_responses] == [0]
        return int(given.producer_id)

    def letter(self, topic: str, topic_id: str, offset: int, *, at: int | None = None) -> Headers:
        raw = topic_id_of(topic_id)
        assert raw is not None
        source = DeadLetterSource(
            group=self.group,
            member="m-1",
            cluster=self.cluster,
            topic=topic,
            topic_id=raw,
            partition=0,
            delivery_count=1,
            cause=Cause.REJECTED,
            at=self.begin if at is None else at,
        )
        return DeadLetter(source=source, offset=offset).headers

    def write(self, name: str, rows: list[Row]) -> None:
        self.batch += 1
        table = table_named(name)
        made = pa.Table.from_pylist([whole_row(name, **row) for row in rows], table.columns)
        writers = TableWriters(self.root)
        with writers.writer(name) as writer:
            if table.appended:
                writer.create()
                write_deltalake(str(writer.folder), made.cast(table.stored_schema), mode="append")
            else:
                writer.upsert(made, query="facts", batch=self.batch)
        writers.close()

    def write_dispositions(self, failed: int, accepted: int, *, seq: int = 0, seconds: int = SECONDS) -> None:
        """So many of each second from `begin` on, by two members."""
        rows = [
            {
                "cluster_id": self.cluster,
                "writer": "gw",
                "boot": "b",
                "seq": seq + 2 * second + member,
                "group": self.group,
                "member": f"m-{member}",
                "topic": self.orders,
                "second": self.begin // 1000 + second,
                "at": self.begin + second * 1000,
                "rejected": failed,
                "accepted": accepted,
                "by_delivery_count": "{}",
            }
            for second in range(seconds)
            for member in range(2)
        ]
        self.write("dispositions", rows)

    def event(self, event: str, detail: object) -> None:
        row = {
            "cluster_id": self.cluster,
            "event_id": uuid.uuid4().hex,
            "group": self.group,
            "event": event,
            "detail": json.dumps(detail),
            "at": self.begin,
        }
        self.write("breaker_events", [row])

    def run(self, clock: Clock | None = None) -> bool:
        writers = TableWriters(self.root)
        overrides = {
            "upstream.bootstrap": [self.settings["bootstrap.servers"]],
            "upstream.service_mechanism": "none",
            "tables.path": str(self.root),
            "share_groups.dlq_prefix": self.prefix,
        }
        context = DerivedContext(
            config=load(None, {}, overrides), session=self.spark, writers=writers, on_moment=self._kill_at_its_moment
        )
        try:
            now = SystemClock() if clock is None else clock
            log = RunLog(writers, now, PipelineHealth())
            return DerivedTables((DEAD_LETTERS,), context, now, log).run_once(self.cluster, Event())
        finally:
            writers.close()

    def _kill_at_its_moment(self, moment: Moment, table: str) -> None:
        if (moment, table) == self.killed_at:
            raise PlatformError("killed")

    def rows(self, name: str) -> list[Row]:
        reader = TableReader(self.root)
        try:
            return [dict(row) for row in reader.rows(table_named(name)).rows]
        finally:
            reader.close()

    def letters(self) -> dict[tuple[str | None, int], Row]:
        return {(row["topic"], row["offset"]): row for row in self.rows("dead_letters")}


def value(schema_id: int, text: str) -> bytes:
    return b"\0" + struct.pack(">i", schema_id) + text.encode()


BY_ONE_PRODUCER = 120
BAD = [one for one in range(240) if one % 6 == 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Triaged:
    """An incident and what its first run made; tests add to it in any order."""

    incident: Incident
    letters: dict[tuple[str | None, int], Row]
    clusters: list[Row]
    producer_id: int


@pytest.fixture(scope="module")
def triaged(cluster: Cluster, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Triaged:
    """Every sixth record has schema 7 and is rejected; the first letter is written twice, the last is withdrawn.

    The first half of the records is of an idempotent producer, the rest of one that has no id.
    """
    incident = Incident(dict(cluster.client_config()), spark, tmp_path_factory.mktemp("tables"))
    records = [(f"k{one % 9}".encode(), value(7 if one % 6 == 0 else 5, "secret")) for one in range(240)]
    producer_id = incident.produce_with_id(incident.orders, records[:BY_ONE_PRODUCER])
    incident.produce(incident.orders, [(*one, []) for one in records[BY_ONE_PRODUCER:]])
    orders_id = incident.topic_id(incident.orders)
    letters = [incident.letter(incident.orders, orders_id, one, at=incident.begin + one * 200) for one in BAD]
    incident.produce(incident.dlq, [(None, None, one) for one in (*letters[:1], *letters)])
    incident.write_dispositions(failed=1, accepted=5)
    withdrawn = {"topic_id": orders_id, "partition": 0, "offsets": [[BAD[-1], BAD[-1]]], "member": "m-1"}
    incident.event("dead_letter_withdrawn", withdrawn)
    assert incident.run()
    clusters = incident.rows("dead_letter_clusters")
    return Triaged(incident=incident, letters=incident.letters(), clusters=clusters, producer_id=producer_id)


def test_a_bad_schema_is_found_and_every_letter_is_a_row_once(triaged: Triaged) -> None:
    found, incident = triaged.letters, triaged.incident
    assert sorted(offset for _, offset in found) == BAD
    first = found[incident.orders, 0]
    assert (first["group"], first["format"], first["topic_id"]) == (
        incident.group,
        "kafka",
        incident.topic_id(incident.orders),
    )
    assert (first["copies"], first["dlq_offset"], first["copied"], first["problem"]) == (2, 0, False, None)
    assert (first["source_state"], first["schema_id"], first["size_bytes"]) == ("found", 7, 13)
    assert first["key_hash"] == hashlib.sha256(b"k0").hexdigest()
    assert first["source_expires_at"] > incident.now
    assert [offset for (_, offset), row in found.items() if row["withdrawn"]] == BAD[-1:]
    [cluster] = triaged.clusters
    assert (cluster["verdict"], cluster["feature"], cluster["action"]) == ("content", "schema_id=7", "fix_first")
    assert cluster["count"] == len(BAD) - 1
    assert {row["cluster"] for row in found.values() if not row["withdrawn"]} == {cluster["cluster"]}
    producers = {offset: row["producer_id"] for (_, offset), row in found.items()}
    assert producers == {one: triaged.producer_id if one < BY_ONE_PRODUCER else None for one in BAD}
    assert "secret" not in json.dumps([*found.values(), cluster])


def test_only_new_letters_are_read_and_a_killed_run_counts_none_twice(
    triaged: Triaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts of a few letters."""
    monkeypatch.setattr("headgate.pipeline.derived.dead_letters.PART_LETTERS", 15)
    incident = triaged.incident
    before = incident.letters()
    orders_id = incident.topic_id(incident.orders)
    incident.produce(incident.dlq, [(None, None, incident.letter(incident.orders, orders_id, one)) for one in (0, 1)])
    incident.event("operation", {})  # a new version of a source, so that it is due
    incident.killed_at = ("before", "dead_letter_clusters")  # the letters are written, their episodes not yet
    assert not incident.run()
    incident.killed_at = None
    assert incident.run()
    found = incident.letters()
    assert found[incident.orders, 0]["copies"] == before[incident.orders, 0]["copies"] + 1
    assert found[incident.orders, 1]["copies"] == 1
    assert {one: row["cluster"] for one, row in found.items() if one in before} == {
        one: row["cluster"] for one, row in before.items()
    }
    assert len(found) == len(before) + 1


def test_what_a_group_does_hours_later_after_a_resume_says_whether_an_outage_is_over(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    """The letters are of an hour whose attempts end with the pause; the episode ends some minutes before the runs."""
    incident = Incident(dict(cluster.client_config()), spark, tmp_path)
    incident.begin = incident.now - 4 * HOUR_MS
    letters = [incident.letter(incident.orders, incident.topic_id(incident.orders), one) for one in range(60)]
    incident.produce(incident.dlq, [(None, None, one) for one in letters])
    incident.write_dispositions(failed=1, accepted=0)
    incident.begin += SECONDS * 1000
    incident.event("tripped", {})
    incident.begin = incident.now - 300_000
    incident.event("resumed", {})
    incident.write_dispositions(failed=0, accepted=1, seq=1000, seconds=10)
    assert incident.run()
    [few] = incident.rows("dead_letter_clusters")
    assert (few["verdict"], few["action"], few["ended_at"]) == ("outage", "resume_and_watch", incident.begin)
    incident.begin += 10_000
    incident.write_dispositions(failed=0, accepted=1, seq=2000, seconds=20)
    assert incident.run()
    [many] = incident.rows("dead_letter_clusters")
    assert many | {"evidence": few["evidence"]} == few | {"action": "replay_now"}


def test_more_dead_letters_than_fit_into_memory_keep_their_episode_and_the_newest_are_compared(
    cluster: Cluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = Incident(dict(cluster.client_config()), spark, tmp_path)
    topic_id = incident.topic_id(incident.orders)
    letters = [
        incident.letter(incident.orders, topic_id, one, at=incident.begin + 1000 * one) for one in range(SECONDS)
    ]
    incident.produce(incident.dlq, [(None, None, one) for one in letters])
    incident.write_dispositions(failed=1, accepted=0)
    assert incident.run()
    [whole] = incident.rows("dead_letter_clusters")
    assert (whole["verdict"], whole["count"]) == ("outage", SECONDS)

    monkeypatch.setattr("headgate.pipeline.derived.dead_letters.MOST_TRIAGED", 20)
    incident.event("operation", {})
    assert incident.run()

    [found] = incident.rows("dead_letter_clusters")
    assert json.loads(found["evidence"])["dead_letters_left_out"] == SECONDS - 20
    assert found | {"evidence": ""} == whole | {"evidence": ""}
    assert {row["cluster"] for row in incident.letters().values()} == {whole["cluster"]}

    withdrawn = {"topic_id": topic_id, "partition": 0, "offsets": [[3, 3]], "member": "m-1"}
    incident.event("dead_letter_withdrawn", withdrawn)
    assert incident.run()

    found_letters = incident.letters()
    assert [offset for (_, offset), row in found_letters.items() if row["withdrawn"]] == [3], "also an older one"
    assert found_letters[incident.orders, 3]["cluster"] is None
    [found] = incident.rows("dead_letter_clusters")
    assert found["count"] == SECONDS - 1


def test_expiry_of_old_dead_letters_is_brought_up_to_date_each_hour(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Of an episode that is over for hours: its group is not triaged any more."""
    incident = Incident(dict(cluster.client_config()), spark, tmp_path)
    incident.begin = incident.now - 5 * HOUR_MS
    incident.produce(incident.orders, [(b"k", b"v", [])] * 3)
    topic_id = incident.topic_id(incident.orders)
    incident.produce(incident.dlq, [(None, None, incident.letter(incident.orders, topic_id, one)) for one in range(3)])
    incident.write_dispositions(failed=1, accepted=0)
    assert incident.run()
    before = incident.letters()
    for topic in (incident.orders, incident.dlq):
        incident.set_retention(topic, 14 * 24 * HOUR_MS)
    for topic, first in ((incident.orders, 1), (incident.dlq, 1)):
        place = TopicPartition(topic, 0, first)
        incident.admin.delete_records([place])[place].result(30)

    later = FakeClock(incident.now + HOUR_MS)
    assert incident.run(later)

    found = incident.letters()
    assert [found[incident.orders, one]["source_state"] for one in range(3)] == ["expired", "found", "found"]
    longer = 7 * 24 * HOUR_MS  # than the default of seven days
    for one in (1, 2):
        row, old = found[incident.orders, one], before[incident.orders, one]
        assert row["source_expires_at"] == old["source_expires_at"] + longer
        assert row["letter_expires_at"] == incident.begin + 2 * longer, "from when its record failed"
    assert found[incident.orders, 0]["letter_expires_at"] == later.now_ms, "it was deleted from its topic"
    columns = ("cluster", "dead_lettered_at", "copies", "key_hash")
    assert [[row[name] for name in columns] for row in found.values()] == [
        [row[name] for name in columns] for row in before.values()
    ]


def test_a_time_of_expiry_stays_exact_while_the_retention_is_the_same(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Dead letters are written five minutes after their records failed here, and retained from then on."""
    incident = Incident(dict(cluster.client_config()), spark, tmp_path)
    topic_id = incident.topic_id(incident.orders)
    incident.produce(incident.dlq, [(None, None, incident.letter(incident.orders, topic_id, 0))])
    incident.write_dispositions(failed=1, accepted=0)
    assert incident.run()
    before = incident.letters()[incident.orders, 0]
    assert before["letter_expires_at"] >= incident.now + 7 * 24 * HOUR_MS
    assert incident.run(FakeClock(incident.now + HOUR_MS))
    assert incident.letters()[incident.orders, 0]["letter_expires_at"] == before["letter_expires_at"]


def test_dead_letters_without_a_topic_id_are_one_for_each_topic_and_a_row_of_an_earlier_release_is_one_of_them(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    incident = Incident(dict(cluster.client_config()), spark, tmp_path)
    other = f"other-{uuid.uuid4().hex[:8]}"
    incident.make(other)
    for topic in (incident.orders, other):
        incident.produce(topic, [(b"k", topic.encode(), [])] * 3)

    def fail(topic: str) -> None:
        named = [("topic", topic.encode()), ("partition", b"0"), ("offset", b"2"), ("connector.name", b"sink")]
        headers = [(f"__connect.errors.{name}", value) for name, value in named]
        incident.produce(incident.dlq, [(b"k", b"copy", headers)])

    fail(other)
    incident.write_dispositions(failed=1, accepted=0)
    assert incident.run()
    first = incident.letters()[other, 2]
    incident.write("dead_letters", [first | {"topic": incident.orders, "topic_id": "", "copies": 3}])
    fail(incident.orders)
    fail(other)
    incident.event("operation", {})
    assert incident.run()
    rows = incident.rows("dead_letters")
    found = {row["topic"]: (row["topic_id"], row["copies"], row["source_state"]) for row in rows}
    assert len(rows) == 2
    assert found[other] == (f"name:{other}", 2, "found")
    assert found[incident.orders] == (f"name:{incident.orders}", 4, "found")
    assert {row["size_bytes"] for row in rows} == {1 + len(incident.orders), 1 + len(other)}


def test_what_is_left_of_the_record_is_told(triaged: Triaged) -> None:
    """Expired by deletion, compacted away, of a topic that was created again, of one that never existed, and forged."""
    incident = triaged.incident
    expired, compacted, again = (f"{one}-{uuid.uuid4().hex[:8]}" for one in ("expired", "compacted", "again"))
    for topic in (expired, again):
        incident.make(topic)
        incident.produce(topic, [(None, b"x", [])] * 3)
    make_compacted_topic(incident.settings, compacted)
    incident.admin.delete_records([TopicPartition(expired, 0, 2)])[TopicPartition(expired, 0, 2)].result(30)
    old_id = incident.topic_id(again)
    incident.admin.delete_topics([again])[again].result(30)
    _wait_until_deleted(incident, again)
    incident.make(again)
    incident.produce(again, [(None, b"y", [])] * 3)
    places = [
        (expired, incident.topic_id(expired), 1),
        (expired, incident.topic_id(expired), 2),
        (again, old_id, 1),
        (compacted, incident.topic_id(compacted), 0),
        ("never-there", old_id, 0),
        (expired, incident.topic_id(expired), 10**15),
    ]
    letters: list[tuple[bytes | None, bytes | None, Headers]] = [
        (None, None, incident.letter(topic, topic_id, offset)) for topic, topic_id, offset in places
    ]
    forged = [("__dlq.errors.topic", b"../etc"), ("__dlq.errors.offset", b"-5"), ("__dlq.errors.group", b"")]
    copied = [
        ("kafka_dlt-original-topic", incident.orders.encode()),
        ("kafka_dlt-original-partition", struct.pack(">i", 0)),
        ("kafka_dlt-original-offset", struct.pack(">q", 5)),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("kafka_dlt-exception-fqcn", b"java.lang.Boom"),
    ]
    incident.produce(incident.dlq, [*letters, (None, None, forged), (b"k", b"copy", copied), (None, b"stray", [])])
    incident.event("operation", {})

    assert incident.run()

    found = incident.letters()
    states = {(topic, offset): found[topic, offset]["source_state"] for topic, _, offset in places}
    assert states == {
        (expired, 1): "expired",
        (expired, 2): "found",
        (again, 1): "recreated",
        (compacted, 0): "compacted",
        ("never-there", 0): "expired",
        (expired, 10**15): "unknown",
    }
    [bad, stray] = sorted(
        (row for (topic, _), row in found.items() if topic is None), key=lambda row: str(row["format"])
    )
    assert (bad["format"], bad["group"], bad["topic_id"]) == ("kafka", "", incident.topic_id(incident.dlq))
    assert "is not the name of a topic" in str(bad["problem"])
    assert (stray["format"], stray["copied"], stray["offset"]) == ("unknown", True, stray["dlq_offset"])
    spring = found[incident.orders, 5]
    assert (spring["group"], spring["exception"], spring["format"]) == ("billing", "java.lang.Boom", "spring")
    assert (spring["source_state"], spring["copied"], spring["cluster"]) == ("found", True, None)


def _wait_until_deleted(incident: Incident, topic: str) -> None:
    until = time.monotonic() + 60
    while topic in list_topics(incident.settings).topics:
        assert time.monotonic() < until
        time.sleep(0.05)
