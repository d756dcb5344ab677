"""What a test of the pipeline works with: facts in topics of its own, the pipeline, and the tables that it makes."""

import asyncio
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from headgate.base.clock import SystemClock
from headgate.base.locations import Location, ObjectLocation
from headgate.config import Config, load
from headgate.facts import Ended, Fact
from headgate.facts.topics import message_limit, topic_specs
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.topics import Origin, TopicAdmin, list_topics, quiet
from headgate.pipeline.batches import OnMoment, ignore_moment
from headgate.pipeline.derived.derivation import Derivation
from headgate.pipeline.queries import FACTS, Query
from headgate.pipeline.rebuild import new_rebuild
from headgate.pipeline.run_log import PipelineHealth
from headgate.pipeline.runner import PipelineRunner
from headgate.tables.definitions import table_named
from headgate.tables.reader import Summary, TableReader
from headgate.tables.writer import TableWriter
from tests.pipeline.oracle import Record, Rows
from tests.support.cluster import Cluster

MAX_BYTES = 4 * 1024 * 1024
TOPICS = ("events", "state", "tasks", "topologies")


@dataclass
class Estate:
    settings: dict[str, Any]
    spark: SparkSession
    folder: Path
    prefix: str
    about: str = "c"  # the cluster that the facts are about
    boots: int = 0
    health: PipelineHealth = field(default_factory=PipelineHealth)  # as the last run left it
    upstream: dict[str, Any] = field(default_factory=dict)  # instead of the plaintext listener
    place: ObjectLocation | None = None  # of tables and checkpoints; without it they are in the folder
    openlineage: Path | None = None  # the settings of the catalogue, to which the pipeline sends the estate

    @property
    def root(self) -> Location:
        return self.folder if self.place is None else self.place

    @property
    def config(self) -> Config:
        overrides = {
            "upstream.bootstrap": [self.settings["bootstrap.servers"]],
            "upstream.service_mechanism": "none",
            "facts.prefix": self.prefix,
            "tables.path": str(self.root / "tables"),
            "tables.storage": {} if self.place is None else dict(self.place.options),
            "pipeline.checkpoint": str(self.root / "checkpoints"),
            **{f"upstream.{name}": value for name, value in self.upstream.items()},
            **({} if self.openlineage is None else {"pipeline.openlineage": str(self.openlineage)}),
        }
        return load(None, {}, overrides)

    def make_topics(self, *suffixes: str) -> None:
        """Those with these suffixes, all when none is named."""
        admin = AdminClient(quiet(self.settings))
        specs = topic_specs(prefix=self.prefix, brokers=1, max_bytes=MAX_BYTES)
        wanted = [
            NewTopic(spec.name, num_partitions=spec.partitions, replication_factor=1, config=dict(spec.configs))
            for spec in specs
            if not suffixes or spec.name.removeprefix(self.prefix) in suffixes
        ]
        for created in admin.create_topics(wanted).values():
            created.result(30)

    def forget(self, suffix: str) -> None:
        """Delete all records of a topic, as retention does."""
        admin = AdminClient(quiet(self.settings))
        topic = self.prefix + suffix
        ends = [
            TopicPartition(topic, number, OFFSET_END)
            for number in admin.list_topics(topic, 10).topics[topic].partitions
        ]
        for deleted in admin.delete_records(ends).values():
            deleted.result(30)

    def store_version(self, name: str, version: int) -> None:
        """Put an empty table of another schema version in the place of this one, if it is there."""
        shutil.rmtree(self.folder / "tables" / name, ignore_errors=True)
        writer = TableWriter(self.folder / "tables", replace(table_named(name), version=version))
        writer.create()
        writer.close()

    def write(self, *facts: Fact | Ended) -> None:
        """As a gateway writes them, in this order."""
        self.boots += 1
        asyncio.run(self._write(facts))

    async def _write(self, facts: Sequence[Fact | Ended]) -> None:
        origin = Origin(cluster=self.about, writer="gw/0", boot=f"b{self.boots}")
        writer = FactWriter(self.settings, prefix=self.prefix, origin=origin, largest=message_limit(MAX_BYTES))
        try:
            for fact in facts:
                await writer.write(fact)
        finally:
            await writer.close()

    def write_raw(self, suffix: str, key: bytes | None, value: bytes | None) -> None:
        producer = Producer(quiet(self.settings))
        producer.produce(self.prefix + suffix, key=key, value=value)
        producer.flush()

    def cluster_id(self) -> str:
        return list_topics(self.settings).cluster

    def topic_ids(self) -> dict[str, str]:
        """Of the topics of facts that are there."""
        specs = topic_specs(prefix=self.prefix, brokers=1, max_bytes=MAX_BYTES)
        return TopicAdmin(self.settings).ids([spec.name for spec in specs])

    def records(self, suffixes: Sequence[str] = TOPICS) -> list[Record]:
        """Everything that lies in the topics, read by another client than Spark's."""
        settings = quiet(self.settings, group__id="test", enable__partition__eof=True, enable__auto__commit=False)
        consumer = Consumer(settings)
        found = []
        try:
            topics = consumer.list_topics(timeout=10).topics
            partitions = [
                TopicPartition(self.prefix + suffix, number, OFFSET_BEGINNING)
                for suffix in suffixes
                if self.prefix + suffix in topics
                for number in topics[self.prefix + suffix].partitions
            ]
            consumer.assign(partitions)
            ended = 0
            while ended < len(partitions):
                message = consumer.poll(10)
                assert message is not None
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended += 1
                    continue
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                at, key, value = message.timestamp()[1], message.key(), message.value()
                record = Record(topic=topic, partition=partition, offset=offset, timestamp=at, key=key, value=value)
                found.append(record)
        finally:
            consumer.close()
        return found

    def run(self, *queries: Query, on_moment: OnMoment = ignore_moment, derivations: Sequence[Derivation] = ()) -> bool:
        """`headgate pipeline run --once`, on the session that the tests share; the facts query unless told."""
        self.health = PipelineHealth(query.name for query in queries or (FACTS,))
        pipeline = PipelineRunner(
            self.config,
            self.spark,
            SystemClock(),
            Event(),
            queries=queries or (FACTS,),
            derivations=derivations,
            health=self.health,
            on_moment=on_moment,
        )
        try:
            return pipeline.run(once=True)
        finally:
            pipeline.close()

    def rebuild(self, table: str) -> None:
        rebuild = new_rebuild(self.config, self.spark, SystemClock(), Event(), table)
        try:
            assert rebuild.run()
        finally:
            rebuild.close()

    def rows(self, name: str) -> Rows:
        """A table's rows by their keys."""
        table = table_named(name)
        reader = TableReader(self.root / "tables")
        try:
            found = list(reader.stream(table) or ())
        finally:
            reader.close()
        return {tuple(row[column] for column in table.key): row for row in found}

    def tables(self, names: Sequence[str]) -> Mapping[str, Rows]:
        return {name: self.rows(name) for name in names}

    def summary(self, name: str) -> Summary:
        """A table at a glance, as it is stored."""
        reader = TableReader(self.root / "tables")
        try:
            found = reader.summary(table_named(name))
        finally:
            reader.close()
        assert found is not None
        return found

    def versions(self, names: Sequence[str]) -> Mapping[str, int | None]:
        """The Delta version of each table: it rises with every commit."""
        reader = TableReader(self.root / "tables")
        try:
            found = {name: reader.summary(table_named(name)) for name in names}
        finally:
            reader.close()
        return {name: None if summary is None else summary.version for name, summary in found.items()}

    def problems(self) -> list[tuple[str | None, str]]:
        """What `pipeline_runs` says is wrong, in the order in which it was told."""
        rows = sorted(self.rows("pipeline_runs").values(), key=lambda row: row["at"])
        return [(row["table"], row["problem"]) for row in rows if row["problem"] is not None]


def new_estate(cluster: Cluster, spark: SparkSession, folder: Path) -> Estate:
    """With topics of its own."""
    made = Estate(dict(cluster.client_config()), spark, folder, f"headgate-{uuid.uuid4().hex[:8]}.")
    made.make_topics()
    return made
