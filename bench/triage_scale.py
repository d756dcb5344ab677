"""What triage costs by the number of dead letters: `python -m bench.triage --letters 100000 1000000`.

For each number a real broker holds a topic with as many records as there are letters, and a dead-letter topic with a
letter for each of them, of twenty groups in an hour; the tables have the attempts of these groups. The derivation makes
`dead_letters` and `dead_letter_clusters` from all of them, then again after a thousand new letters. After that the
command `headgate dlq triage` reads the tables, from its start to its end.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from deltalake import write_deltalake

from bench import machine
from bench.cluster import admin
from bench.pipeline_versus import tree_cpu_s
from headgate.base.clock import SystemClock
from headgate.config import load
from headgate.embedded import ClusterSpec, EmbeddedKafka
from headgate.kafka.topics import TopicAdmin, list_topics
from headgate.share_groups.model.dead_letter_records import Cause, DeadLetter, DeadLetterSource, topic_id_of
from headgate.tables.definitions import table_named
from headgate.tables.writer import TableWriter
from tests.support.ports import port_block

_GROUPS, _MEMBERS, _PARTITIONS = 20, 4, 4
_HOUR_S = 3_600
_SLOT_S = 5
_NEW = 1_000
_WARM_UP = 2_000
_CALL_S = 120.0
_FAILED_PERCENT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageCost:
    """One step: what was done, with how many letters, seconds and CPU seconds of all processes."""

    letters: int
    step: str
    seconds: float
    cpu_s: float


@dataclass(slots=True, kw_only=True)
class LetterEstate:
    """Topics with records and their dead letters, and the tables beside them."""

    bootstrap: str
    root: Path
    name: str
    begin_s: int
    cluster: str = ""
    sent: int = 0
    batches: int = 0

    @property
    def orders(self) -> str:
        return f"orders-{self.name}"

    @property
    def prefix(self) -> str:
        return f"dlq-{self.name}."

    @property
    def dlq(self) -> str:
        return f"{self.prefix}orders"

    def create(self) -> None:
        self.cluster = list_topics({"bootstrap.servers": self.bootstrap}).cluster
        wanted = [NewTopic(topic, _PARTITIONS, 1) for topic in (self.orders, self.dlq)]
        client = admin(self.bootstrap, None)  # kept, because its end would end the calls
        for made in client.create_topics(wanted).values():
            made.result(_CALL_S)

    def send(self, letters: int) -> None:
        """So many records, and a letter for each; their times go round the last hour."""
        config = {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "compression.type": "lz4"}
        records = Producer({**config, "enable.idempotence": True})
        topic_id = topic_id_of(TopicAdmin({"bootstrap.servers": self.bootstrap}).ids([self.orders])[self.orders])
        assert topic_id is not None
        for number in range(self.sent, self.sent + letters):
            _produce(records, self.orders, number % _PARTITIONS, key=b"%d" % (number % 10_000), value=b"x" * 50)
        _flush(records)
        dead = Producer(config)
        for number in range(self.sent, self.sent + letters):
            source = DeadLetterSource(
                group=f"group-{number % _GROUPS}",
                member=f"m-{number % _MEMBERS}",
                cluster=self.cluster,
                topic=self.orders,
                topic_id=topic_id,
                partition=number % _PARTITIONS,
                delivery_count=1,
                cause=Cause.REJECTED,
                at=(self.begin_s + number * 37 % _HOUR_S) * 1000,
            )
            letter = DeadLetter(source=source, offset=number // _PARTITIONS)
            _produce(dead, self.dlq, number % _PARTITIONS, headers=list(letter.headers))
        _flush(dead)
        self.sent += letters

    def write_attempts(self, letters: int) -> None:
        """A tenth of the attempts of each group fails, in every slot of the hour."""
        slots = _HOUR_S // _SLOT_S
        failed = max(1, letters // (_GROUPS * _MEMBERS * slots))
        rows = [
            {
                "seq": (slot * _GROUPS + group) * _MEMBERS + member,
                "group": f"group-{group}",
                "member": f"m-{member}",
                "topic": self.orders,
                "second": self.begin_s + slot * _SLOT_S,
                "at": (self.begin_s + slot * _SLOT_S) * 1000,
                "rejected": failed,
                "accepted": failed * (100 - _FAILED_PERCENT) // _FAILED_PERCENT,
                "by_delivery_count": "{}",
            }
            for slot in range(slots)
            for group in range(_GROUPS)
            for member in range(_MEMBERS)
        ]
        self._append("dispositions", rows)

    def touch(self) -> None:
        """Another version of a source, so that the derivation is due."""
        self.batches += 1
        row = {"event_id": f"e{self.batches}", "group": "group-0", "event": "operation", "detail": "{}", "at": 1}
        self._append("breaker_events", [row])

    def _append(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        table = table_named(name)
        other: dict[pa.DataType, object] = {pa.string(): "", pa.bool_(): False, pa.float64(): 0.0}
        empty = {one.name: None if one.nullable else other.get(one.type, 0) for one in table.columns}
        full = [empty | {"cluster_id": self.cluster, "writer": "gw", "boot": "b"} | row for row in rows]
        named = [{column: row.get(column) for column in table.columns.names} for row in full]
        made = pa.Table.from_pylist(named, table.columns)
        writer = TableWriter(self.root, table)
        try:
            if table.appended:
                writer.create()
                write_deltalake(str(writer.folder), made.cast(table.stored_schema), mode="append")
            else:
                writer.upsert(made, query="facts", batch=self.batches)
        finally:
            writer.close()


def _produce(producer: Producer, topic: str, partition: int, **record: Any) -> None:
    while True:
        try:
            producer.produce(topic, partition=partition, **record)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def _flush(producer: Producer) -> None:
    if producer.flush(_CALL_S):
        raise SystemExit("records were not acknowledged")


# --- measuring --------------------------------------------------------------------------------------------------------


class TriageScale:
    """Runs the derivation in this process, as the pipeline does, and the command in one of its own."""

    def __init__(self, bootstrap: str, folder: Path, threads: int, driver_memory: str) -> None:
        from headgate.pipeline.session import start_session  # noqa: PLC0415 - the evaluation needs no Spark

        self._bootstrap, self._folder = bootstrap, folder
        config = load(None, {}, {"tables.path": str(folder)})
        mine = {"spark.master": f"local[{threads}]", "spark.driver.memory": driver_memory}
        self._session = start_session({**config.pipeline.spark, **mine})

    def close(self) -> None:
        from headgate.pipeline.session import end_session  # noqa: PLC0415 - see above

        end_session(self._session)

    def measure(self, letters: int) -> Iterator[TriageCost]:
        begin_s = int(time.time()) - _HOUR_S - 60
        root = self._folder / f"tables-{letters}"
        estate = LetterEstate(bootstrap=self._bootstrap, root=root, name=str(letters), begin_s=begin_s - begin_s % 5)
        estate.create()
        estate.send(letters)
        estate.write_attempts(letters)
        yield self._derive(estate, "all of them become rows, with clusters")
        estate.send(_NEW)
        yield self._derive(estate, f"{_NEW:,} new ones")
        yield _command(root, letters)

    def _derive(self, estate: LetterEstate, step: str) -> TriageCost:
        from headgate.pipeline.batches import TableWriters  # noqa: PLC0415 - see above
        from headgate.pipeline.derived.dead_letters import DEAD_LETTERS  # noqa: PLC0415 - see above
        from headgate.pipeline.derived.derivation import DerivedContext  # noqa: PLC0415 - see above
        from headgate.pipeline.derived.derived_runner import DerivedTables  # noqa: PLC0415 - see above
        from headgate.pipeline.run_log import PipelineHealth, RunLog  # noqa: PLC0415 - see above

        estate.touch()
        overrides = {
            "upstream.bootstrap": [estate.bootstrap],
            "upstream.service_mechanism": "none",
            "tables.path": str(estate.root),
            "share_groups.dlq_prefix": estate.prefix,
        }
        writers = TableWriters(estate.root)
        context = DerivedContext(config=load(None, {}, overrides), session=self._session, writers=writers)
        log = RunLog(writers, SystemClock(), PipelineHealth())
        tables = DerivedTables((DEAD_LETTERS,), context, SystemClock(), log)
        began, used = time.perf_counter(), tree_cpu_s(os.getpid())
        if not tables.run_once(estate.cluster, Event()):
            raise SystemExit(f"{step}: the derivation failed")
        seconds, cpu_s = time.perf_counter() - began, tree_cpu_s(os.getpid()) - used
        writers.close()
        return TriageCost(letters=estate.sent, step=step, seconds=seconds, cpu_s=cpu_s)


def _command(root: Path, letters: int) -> TriageCost:
    """`headgate dlq triage` as an operator runs it; it must have counted all letters."""
    command = [sys.executable, "-m", "headgate.cli.main", "dlq", "triage", "--json", "--path", str(root)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    document = json.loads(done.stdout)
    counted = sum(one["records"]["letters"] for one in document["clusters"])
    counted += sum(one["letters"] for one in document["unassigned"].values())
    if counted != letters + _NEW:
        raise SystemExit(f"triage counted {counted} of {letters + _NEW} dead letters")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return TriageCost(letters=counted, step="`headgate dlq triage --json`", seconds=seconds, cpu_s=cpu_s)


def scale_page(numbers: Sequence[int], threads: int, driver_memory: str) -> Iterator[str]:
    """Markdown, row by row."""
    facts = ", ".join(f"{key} {value}" for key, value in machine.facts().items())
    yield "# What triage costs by the number of dead letters"
    when, command = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), " ".join(map(str, numbers))
    yield f"\n{when}, `python -m bench.triage --letters {command}`. {facts}."
    yield f"{threads} worker threads of Spark, spark.driver.memory {driver_memory}, {_GROUPS} groups, one hour.\n"
    yield "| dead letters | step | seconds | CPU seconds |"
    yield "|---:|---|---:|---:|"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        spec = ClusterSpec(data_dir=folder / "kafka", port=port_block(), heap_mb=1024)
        kafka = stack.enter_context(EmbeddedKafka(spec))
        scale = TriageScale(kafka.bootstrap, folder, threads, driver_memory)
        stack.callback(scale.close)
        for _ in scale.measure(_WARM_UP):  # classes are loaded and compiled
            pass
        for letters in numbers:
            for one in scale.measure(letters):
                yield f"| {one.letters:,} | {one.step} | {one.seconds:.1f} | {one.cpu_s:.1f} |"
