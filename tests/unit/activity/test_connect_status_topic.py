"""A reader of Connect's topics without a cluster: its resources, what it records, and the records that it skips."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.activity import connect_status_topic
from headgate.activity.connect_status_topic import ConnectStatusTopic
from headgate.activity.model.connect_records import TopicUsed, status_key, status_value
from headgate.activity.skipped_records import SkippedRecordLog
from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.fact_writer import RecordProducer
from tests.support.clock import FakeClock
from tests.unit.proxy.stage import until

Raw = tuple[bytes | None, bytes | None]


class TopicDouble:
    """A reader whose records come from the test."""

    def __init__(self, _: object, *, topic: str, digest: Any, take: Any, **__: object) -> None:
        self.topic = topic
        self.digest, self.take = digest, take
        self.replayed = asyncio.Event()
        self.problem: str | None = None

    def feed(self, *records: Raw) -> None:
        self.take(self.digest([ConsumedRecord(at, key, value) for at, (key, value) in enumerate(records)]))

    async def reached(self, offset: int, partition: int = 0) -> None:
        pass


class WriterDouble:
    """Everything that was appended, which the status topic reads back at once."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.appended: list[Raw] = []
        self.failing: set[bytes] = set()
        self.reader: TopicDouble | None = None

    async def append(self, _: str, key: bytes, value: bytes | None) -> Any:
        if key in self.failing:
            raise ClusterError("it is away")
        self.appended.append((key, value))
        assert self.reader is not None
        self.reader.feed((key, value))
        return SimpleNamespace(offset=0, partition=0)


class Stage:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connect_status_topic, "FactReader", self._reader)
        monkeypatch.setattr(connect_status_topic, "RecordWriter", self._writer)
        self.readers: dict[str, TopicDouble] = {}
        self.topic = ConnectStatusTopic({}, status_topic="s", config_topic="c", clock=SystemClock())
        self.writer.reader = self.readers["s"]

    def _reader(self, settings: object, *, topic: str, **options: Any) -> TopicDouble:
        self.readers[topic] = TopicDouble(settings, topic=topic, **options)
        return self.readers[topic]

    def _writer(self, settings: object) -> WriterDouble:
        self.writer = WriterDouble(settings)
        return self.writer


def used(connector: str) -> TopicUsed:
    return TopicUsed(topic="t", connector=connector, task=0, discover_timestamp_ms=1)


async def test_only_connectors_that_the_config_topic_names_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    status, configs = stage.readers["s"], stage.readers["c"]
    status.replayed.set()
    assert (stage.topic.problem or "").startswith("c has not been read to its end yet")
    assert stage.topic.is_missing("t", "src")  # it may be one: the use is kept until the config topic was read
    with pytest.raises(ClusterError, match="the connectors of this cluster are not known yet"):
        await stage.topic.record(used("src"))
    configs.feed((b"connector-src", b"{}"), (b"connector-gone", b"{}"), (b"connector-gone", None))
    configs.replayed.set()
    assert stage.topic.problem is None
    assert [stage.topic.is_missing("t", name) for name in ("src", "gone", "of-another-cluster")] == [True, False, False]
    assert [await stage.topic.record(used(name)) for name in ("src", "gone", "of-another-cluster")] == [
        True,
        False,
        False,
    ]
    assert stage.writer.appended == [(status_key("t", "src"), status_value(used("src")))]
    assert not stage.topic.is_missing("t", "src")
    assert not await stage.topic.record(used("src"))


async def test_records_go_to_the_partitions_of_a_java_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    producer: RecordProducer = Stage(monkeypatch).writer.settings
    assert producer.settings["partitioner"] == "murmur2_random"


async def test_names_that_are_not_writable_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    stage.readers["c"].feed((b"connector-a\nb", b"{}"), (b"connector-src", b"{}"))
    for reader in stage.readers.values():
        reader.replayed.set()
    assert not await stage.topic.record(used("a\nb"))
    assert await stage.topic.record(used("src"))
    assert [key for key, _ in stage.writer.appended] == [status_key("t", "src")]


async def test_a_reset_that_was_written_in_part_is_an_error_and_the_next_one_writes_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(monkeypatch)
    stage.readers["s"].feed(*((status_key(topic, "src"), status_value(used("src"))) for topic in "ab"))
    stage.readers["s"].replayed.set()
    stage.writer.failing = {status_key("a", "src")}
    with pytest.raises(ClusterError, match="it is away"):
        await stage.topic.reset("src")
    assert stage.topic.topics.of("src") == ("a",)
    stage.writer.failing.clear()
    assert await stage.topic.reset("src") == ("a",)
    assert stage.topic.topics.of("src") == ()


async def test_only_a_null_is_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    stage.readers["c"].feed((b"connector-empty", b""), (b"connector-gone", None))
    assert [stage.topic.is_deleted(name) for name in ("empty", "gone")] == [False, True]


def bad(count: int) -> Sequence[ConsumedRecord]:
    return [ConsumedRecord(number, b"nonsense", b"{}") for number in range(count)]


def test_skipped_records_are_counted_when_they_are_skipped(logs: list[EventDict]) -> None:
    clock = FakeClock(0)
    skipped = SkippedRecordLog(clock, "s")
    for record in bad(50):
        skipped.on_skipped(record, "no")
    assert skipped.count == 50
    assert [(one["event"], one["log_level"]) for one in logs] == [("status record skipped", "warning")] * 10
    clock.now = 59.0
    skipped.log_count()
    assert len(logs) == 10
    clock.now = 60.0
    skipped.log_count()  # without another record that is not valid
    assert logs[10:] == [{"event": "more status records skipped", "topic": "s", "count": 40, "log_level": "warning"}]
    skipped.log_count()
    assert len(logs) == 11
    skipped.on_skipped(bad(1)[0], "no")
    assert (skipped.count, logs[-1]["event"]) == (51, "status record skipped")


async def test_the_count_is_logged_though_no_other_record_is_skipped(logs: list[EventDict]) -> None:
    skipped = SkippedRecordLog(SystemClock(), "s", interval_s=0.05)
    running = asyncio.create_task(skipped.run())
    for record in bad(12):
        skipped.on_skipped(record, "no")
    await until(lambda: any(one["event"] == "more status records skipped" for one in logs))
    running.cancel()


async def test_the_reader_counts_what_it_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    stage.readers["s"].feed(*[(b"nonsense", b"{}")] * 12, (b"status-task-a-0", b"{}"), (None, None))
    assert stage.topic.skipped.count == 13


async def test_the_status_of_connectors_and_tasks_changes_no_set(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    stage.readers["s"].feed((status_key("t", "src"), status_value(used("src"))))
    for state in (b"RESTARTING", b"UNASSIGNED", b"DESTROYED"):
        value = b'{"state":"%b","worker_id":"w:8083"}' % state
        stage.readers["s"].feed(*((key, value) for key in (b"status-connector-src", b"status-task-src-0")))
    stage.readers["s"].feed((b"status-connector-src", None), (b"status-task-src-0", None))
    assert stage.topic.topics.of("src") == ("t",)


async def test_readers_are_closed_when_the_end_is_cancelled_while_the_task_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, cancelled, leave = asyncio.Event(), asyncio.Event(), asyncio.Event()
    open_readers: list[object] = []

    async def end_slowly(*_: object) -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await asyncio.sleep(0.05)

    def start(reader: object) -> None:
        open_readers.append(reader)

    async def close(reader: object) -> None:
        open_readers.remove(reader)

    monkeypatch.setattr(ConnectStatusTopic, "_reset_deleted", end_slowly)
    monkeypatch.setattr(FactReader, "start", start)
    monkeypatch.setattr(FactReader, "close", close)
    topic = ConnectStatusTopic({"bootstrap.servers": "127.0.0.1:1"}, status_topic="s", config_topic="c")

    async def run() -> None:
        async with topic.running():
            await leave.wait()

    running = asyncio.create_task(run())
    await started.wait()
    assert len(open_readers) == 2
    leave.set()
    await cancelled.wait()
    running.cancel()
    await asyncio.wait([running])
    assert not open_readers
