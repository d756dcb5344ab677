"""Streaming queries as topologies: real queries on a real Kafka, and every name and edge of what is told of them."""

import json
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from headgate.facts import TopologyDescribed, decode, encode
from headgate.facts.topology import Description, Node, ProcessorNode, SinkNode, SourceNode, Subtopology, content_hash
from headgate.kafka.topics import quiet
from headgate.pipeline.queries import FACTS, read_options
from headgate.spark import DescribedQuery, Output, TopologyFacts, describe, listen, plan
from headgate.spark.plan import without_credentials
from tests.pipeline.estate import Estate
from tests.support.cluster import Cluster

SECRET = "hunter2-never-tell"
KEYS = ("key", "value", "timestamp")


class Job:
    """A user's job: queries that read what is there now, from topics that are empty."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder

    def kafka(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**options).load()

    def files(self, name: str) -> DataFrame:
        place = self.folder / name
        place.mkdir(exist_ok=True)
        return self.spark.readStream.schema("id long, at timestamp").parquet(str(place))

    def run(self, rows: DataFrame, kind: str | None, name: str, **options: str) -> StreamingQuery:
        """Until it has ended; `kind` None: by a function of `foreachBatch`."""
        writer = rows.writeStream.queryName(name).option("checkpointLocation", str(self.folder / f"checkpoint-{name}"))
        writer = writer.options(**options).trigger(availableNow=True)
        query = (writer.foreachBatch(_nothing) if kind is None else writer.format(kind)).start()
        assert query.awaitTermination(60)
        return query


def _nothing(_rows: DataFrame, _batch: int) -> None:
    """A function of whose doing nobody can know."""


@pytest.fixture(scope="module")
def topics(cluster: Cluster) -> tuple[str, str]:
    names = (f"orders-{uuid.uuid4().hex[:6]}", f"rates-{uuid.uuid4().hex[:6]}")
    admin = AdminClient(quiet(cluster.client_config()))
    for made in admin.create_topics(
        [NewTopic(name, num_partitions=1, replication_factor=1) for name in names]
    ).values():
        made.result(30)
    return names


@pytest.fixture
def job(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, cluster.bootstrap, tmp_path)


def of(*nodes: Node) -> Description:
    return Description(subtopologies=(Subtopology(id="0", nodes=nodes),))


@contextmanager
def heard(spark: SparkSession, **more: Any) -> Iterator[list[DescribedQuery]]:
    """What a listener was told when the block has ended."""
    told: list[DescribedQuery] = []
    listening = listen(spark, told.append, **more)
    try:
        yield told
    finally:
        listening.close()


def test_topics_to_a_topic(job: Job, topics: tuple[str, str]) -> None:
    orders, rates = topics
    rows = job.kafka(subscribe=f"{orders}, {rates}").select("key", "value")
    query = job.run(rows, "kafka", "copy", **{"kafka.bootstrap.servers": job.bootstrap, "topic": "out"})
    assert describe(query) == of(
        SourceNode(name="kafka-source-1", topics=(orders, rates), successors=("kafka-sink-2",)),
        SinkNode(name="kafka-sink-2", topic="out"),
    )


def test_topics_by_pattern_and_by_partition_to_topics_that_records_name(job: Job, topics: tuple[str, str]) -> None:
    orders, rates = topics
    rows = job.kafka(subscribePattern=f"{orders}.*").union(job.kafka(assign=json.dumps({rates: [0]})))
    query = job.run(
        rows.select("key", "value", "topic"), "kafka", "union", **{"kafka.bootstrap.servers": job.bootstrap}
    )
    assert describe(query) == of(
        SourceNode(name="kafka-source-1", pattern=f"{orders}.*", successors=("kafka-sink-3",)),
        SourceNode(name="kafka-source-2", topics=(rates,), successors=("kafka-sink-3",)),
        SinkNode(name="kafka-sink-3", topic=None),
    )


def test_an_aggregation_with_a_watermark_keeps_state(job: Job, topics: tuple[str, str]) -> None:
    rows = job.kafka(subscribe=topics[0]).withWatermark("timestamp", "1 minute")
    counts = rows.groupBy(sf.window("timestamp", "1 minute"), "key").count()
    place = str(job.folder / "counts")
    query = job.run(counts, "delta", "counts", path=place)
    sink = f"delta-sink-3:{place}"
    assert describe(query) == of(
        SourceNode(name="kafka-source-1", topics=(topics[0],), successors=("aggregate-2",)),
        ProcessorNode(name="aggregate-2", stores=("aggregate-2-state",), successors=(sink,)),
        SinkNode(name=sink, topic=None),
    )


def test_a_join_of_two_streams_and_the_operator_after_it(job: Job, topics: tuple[str, str]) -> None:
    orders, rates = topics
    left = job.kafka(subscribe=orders).select(*KEYS).withWatermark("timestamp", "1 minute").alias("o")
    right = job.kafka(subscribe=rates).select(*KEYS).withWatermark("timestamp", "1 minute").alias("r")
    near = sf.expr("o.key = r.key AND o.timestamp BETWEEN r.timestamp AND r.timestamp + INTERVAL 1 MINUTE")
    joined = left.join(right, near).select("o.key", "o.value").dropDuplicates(["key"])
    query = job.run(joined, "kafka", "join", **{"kafka.bootstrap.servers": job.bootstrap, "topic": "priced"})
    assert describe(query) == of(
        SourceNode(name="kafka-source-1", topics=(orders,), successors=("join-3",)),
        SourceNode(name="kafka-source-2", topics=(rates,), successors=("join-3",)),
        ProcessorNode(name="join-3", stores=("join-3-state",), successors=("deduplicate-4",)),
        ProcessorNode(name="deduplicate-4", stores=("deduplicate-4-state",), successors=("kafka-sink-5",)),
        SinkNode(name="kafka-sink-5", topic="priced"),
    )


def test_a_static_side_is_no_stream_and_its_join_keeps_no_state(job: Job) -> None:
    rows = job.files("in").join(job.spark.range(3), "id")
    query = job.run(rows, "parquet", "static", path=str(job.folder / "out"))
    source, sink = f"parquet-source-1:{job.folder}/in", f"parquet-sink-2:{job.folder}/out"
    assert describe(query) == of(SourceNode(name=source, successors=(sink,)), SinkNode(name=sink, topic=None))


def test_common_table_expressions_are_followed(job: Job) -> None:
    job.files("in").dropDuplicates(["id"]).createOrReplaceTempView("streamed")
    rows = job.spark.sql("WITH a AS (SELECT id FROM streamed), b AS (SELECT id FROM a) TABLE a UNION ALL TABLE b")
    query = job.run(rows, "memory", "expressions")
    source = f"parquet-source-{{}}:{job.folder}/in"
    sink = "memory-sink-5:expressions"
    assert describe(query) == of(
        SourceNode(name=source.format(1), successors=("deduplicate-4",)),
        SourceNode(name=source.format(2), successors=("deduplicate-3",)),
        ProcessorNode(name="deduplicate-3", stores=("deduplicate-3-state",), successors=(sink,)),
        ProcessorNode(name="deduplicate-4", stores=("deduplicate-4-state",), successors=(sink,)),
        SinkNode(name=sink, topic=None),
    )


def test_outputs_of_foreach_batch_are_declared(job: Job, topics: tuple[str, str]) -> None:
    outputs = (Output(format="kafka", topic="totals"), Output(format="delta", place="s3a://key:secret@lake/totals"))
    with heard(job.spark, outputs={"totals": outputs}) as told:
        job.run(job.kafka(subscribe=topics[0]), None, "totals")
        undeclared = job.run(job.kafka(subscribe=topics[0]), None, "other")
    lake = "delta-sink-4:s3a://lake/totals"
    assert [(one.group, one.description) for one in told] == [
        (
            "totals",
            of(
                SourceNode(name="kafka-source-1", topics=(topics[0],), successors=("foreach-batch-2",)),
                ProcessorNode(name="foreach-batch-2", successors=("kafka-sink-3", lake)),
                SinkNode(name="kafka-sink-3", topic="totals"),
                SinkNode(name=lake, topic=None),
            ),
        ),
        (
            "other",
            of(
                SourceNode(name="kafka-source-1", topics=(topics[0],), successors=("foreach-batch-sink-2",)),
                SinkNode(name="foreach-batch-sink-2", topic=None),
            ),
        ),
    ]
    assert told[1].query_id == undeclared.id
    assert told[1].hash == content_hash(told[1].description)


def test_the_same_program_is_the_same_version_when_it_is_started_again(job: Job) -> None:
    with heard(job.spark) as told:
        for _ in range(2):
            job.run(job.files("in").dropDuplicates(["id"]), "noop", "again")
    assert told[0] == told[1]


def test_the_facts_query_is_a_version_among_the_others(estate: Estate) -> None:
    tables = {name: str(estate.folder / "tables" / name) for name in FACTS.builds()}
    outputs = {"facts": [Output(format="delta", place=place) for place in tables.values()]}
    listening = listen(estate.spark, TopologyFacts(estate.settings, prefix=estate.prefix), outputs=outputs)
    try:
        assert estate.run()
    finally:
        listening.close()
    (record,) = estate.records(["topologies"])
    fact = decode("topologies", record.key, record.value)
    assert isinstance(fact, TopologyDescribed)
    sinks = [f"delta-sink-{number}:{place}" for number, place in enumerate(tables.values(), 3)]
    pattern = read_options(estate.config, FACTS)["subscribePattern"]
    assert fact.description == of(
        SourceNode(name="kafka-source-1", pattern=pattern, successors=("foreach-batch-2",)),
        ProcessorNode(name="foreach-batch-2", successors=tuple(sinks)),
        *(SinkNode(name=name, topic=None) for name in sinks),
    )
    metadata = json.loads((estate.folder / "checkpoints" / "facts" / "metadata").read_text(encoding="utf-8"))
    assert record.key is not None
    assert json.loads(record.key) == ["facts", metadata["id"], 0, content_hash(fact.description), "spark"]
    assert estate.run()
    (application,) = estate.rows("applications").values()
    assert (application["app_id"], application["kind"], application["provenance"]) == ("facts", "spark", "spark")


def test_no_secret_of_any_option_leaves(
    job: Job, topics: tuple[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'
    secrets = {
        "kafka.bootstrap.servers": job.bootstrap,
        "kafka.sasl.jaas.config": login,
        "kafka.ssl.keystore.password": SECRET,
        "kafka.ssl.key.password": SECRET,
        "kafka.ssl.truststore.password": SECRET,
        "kafka.client.id": SECRET,
        "groupIdPrefix": SECRET,
        "password": SECRET,
        "fs.s3a.secret.key": SECRET,
    }
    caplog.set_level(logging.DEBUG, "headgate")
    with heard(job.spark) as told:
        job.run(job.kafka(subscribe=topics[0], **secrets).select("value"), "kafka", "secret", topic="out", **secrets)
        monkeypatch.setattr(plan, "output", _raise)
        job.run(job.kafka(subscribe=topics[0], **secrets).select("value"), "kafka", "secret", topic="out", **secrets)
    (one,) = told
    fact = TopologyDescribed(
        at=1,
        group=one.group,
        incarnation=one.query_id,
        epoch=0,
        hash=one.hash,
        provenance="spark",
        member=None,
        process=None,
        description=one.description,
    )
    assert SECRET not in repr(told)
    assert SECRET.encode() not in b"".join(part or b"" for part in encode(fact)[1:])
    assert SECRET not in caplog.text
    assert "the query 'secret' is not described and runs on" in caplog.text


def _raise(*_: object) -> Output:
    raise ValueError(f"password={SECRET}")


def _refuse(_: DescribedQuery) -> None:
    raise RuntimeError(SECRET)


def test_a_sink_that_fails_is_a_warning_and_the_query_runs(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.spark.range(3).selectExpr("id", "current_timestamp() AS at").write.parquet(str(job.folder / "in"))
    listening = listen(job.spark, _refuse)
    nowhere = listen(job.spark, TopologyFacts({"bootstrap.servers": job.bootstrap}, prefix="nobody-made-this."))
    try:
        query = job.run(job.files("in"), "memory", "hardy")
    finally:
        listening.close()
        nowhere.close()
    assert query.exception() is None
    assert job.spark.table("hardy").count() == 3
    assert "the query 'hardy' is not described and runs on: RuntimeError" in caplog.text
    assert SECRET not in caplog.text
    assert "nobody-made-this.topologies: the topic does not exist" in caplog.text


def test_a_plan_that_grows_without_end_is_not_walked(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plan, "MOST_PLAN_NODES", 2)
    with heard(job.spark) as told:
        job.run(job.files("in").select("id").where("id > 1"), "noop", "large")
    assert told == []
    assert "the query 'large' is not described and runs on: its plan has more than 2 nodes" in caplog.text


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("/data/part-?", "/data/part-?"),
        ("s3a://key:se/cret@bucket/path", "s3a://bucket/path"),
        ("https://host/path?sig=secret#x", "https://host/path"),
        ("abfss://container@account.example/path", "abfss://container@account.example/path"),
        ("hdfs://name:8020/path", "hdfs://name:8020/path"),
    ],
)
def test_a_place_is_described_without_credentials(place: str, told: str) -> None:
    assert without_credentials(place) == told
