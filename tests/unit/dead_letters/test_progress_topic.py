"""What a replay takes of `headgate-replay.progress`, where everyone who replays may write.

The records are made here, because a replay writes none that cannot be read.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from headgate.base.errors import ClusterError
from headgate.dead_letters import progress_topic
from headgate.dead_letters.audit import audit_rows
from headgate.dead_letters.model.plans import PlanRecord
from headgate.dead_letters.progress_topic import PastReplays, ensure_progress_topic, read_past
from headgate.facts.replays import PROGRESS_TOPIC, encode_progress
from headgate.kafka.topics import TopicAdmin
from headgate.tables.definitions import TABLES
from tests.unit.facts.test_replays import PROGRESS

OWN, OTHER = replace(PROGRESS, plan="own"), replace(PROGRESS, plan="other")


@dataclass
class StoredRecord:
    """A record as a consumer returns it."""

    record: tuple[bytes | None, bytes | None]

    def key(self) -> bytes | None:
        return self.record[0]

    def value(self) -> bytes | None:
        return self.record[1]

    def offset(self) -> int:
        return 42


def plan_record(**fields: Any) -> PlanRecord:
    empty = dict.fromkeys(PlanRecord.__dataclass_fields__)
    return PlanRecord(**empty | fields)  # type: ignore[arg-type]


def past_of(monkeypatch: pytest.MonkeyPatch, *records: tuple[bytes | None, bytes | None]) -> PastReplays:
    def stored(*_: Any) -> Iterator[StoredRecord]:
        return map(StoredRecord, records)

    monkeypatch.setattr(progress_topic, "read_progress", stored)
    return read_past({}, TopicAdmin({}), group=PROGRESS.group, plan="own")


@pytest.mark.parametrize("key", [encode_progress(OTHER)[0], b'["progress",', b'["progress",7]', b'["progress","own'])
def test_a_progress_that_cannot_be_read_stops_no_other_plan(key: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as logged:
        past = past_of(monkeypatch, (key, b"\xff"), (key, b"{}"), encode_progress(OWN))
    assert past.positions == set(OWN.positions)
    assert [(line["log_level"], line["records"], line["offset"]) for line in logged] == [("warning", 2, 42)]


def test_a_plan_whose_own_progress_cannot_be_read_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError, match="a record of plan own at offset 42 that cannot be read"):
        past_of(monkeypatch, encode_progress(OTHER), (encode_progress(OWN)[0], b"\xff"))


class NewTopicAdmin(TopicAdmin):
    """A cluster whose leader serves the topic some calls after the controller has created it."""

    def __init__(self, *failures: KafkaError, created_by_another: str = "") -> None:
        """`created_by_another`: whether it is `listed` already, or its creation finds out that it `exists`."""
        super().__init__({})
        self.failures = list(failures)
        self.by_another = created_by_another
        self.created: list[str] = []

    @property
    def client(self) -> Any:
        return self

    def list_topics(self, **_: object) -> SimpleNamespace:
        return SimpleNamespace(topics={PROGRESS_TOPIC} if self.by_another == "listed" else {}, brokers={1: None})

    def create_topics(self, wanted: list[NewTopic], **_: object) -> dict[str, Future[None]]:
        self.created += [one.topic for one in wanted]
        done: Future[None] = Future()
        if self.by_another:
            done.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
        else:
            done.set_result(None)
        return {one.topic: done for one in wanted}

    def bounds(self, *_: object, **__: object) -> dict[int, tuple[int, int]]:
        if self.failures:
            raise KafkaException(self.failures.pop(0))
        return {0: (0, 0)}


def test_a_new_topic_is_used_when_its_leader_serves_it() -> None:
    no_leader = KafkaError(KafkaError._NOENT)
    admin = NewTopicAdmin(no_leader, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    ensure_progress_topic(admin)
    assert (admin.created, admin.failures) == ([PROGRESS_TOPIC], [])


@pytest.mark.parametrize("state", ["listed", "exists"])
def test_a_topic_that_another_process_has_just_created_is_waited_for(state: str) -> None:
    admin = NewTopicAdmin(KafkaError(KafkaError._NOENT), created_by_another=state)
    ensure_progress_topic(admin)
    assert admin.failures == []


def test_a_missing_right_is_not_waited_for() -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    admin = NewTopicAdmin(refused, refused)
    ensure_progress_topic(admin)
    assert admin.failures == [refused]


def test_records_of_two_topics_without_ids_are_two_records(monkeypatch: pytest.MonkeyPatch) -> None:
    past = past_of(monkeypatch, encode_progress(replace(OTHER, topic="orders", topic_id="")))
    place = {"topic_id": "", "partition": OTHER.partitions[0], "offset": OTHER.offsets[0]}
    orders, bills = (plan_record(topic=topic, **place) for topic in ("orders", "bills"))
    assert (past.other_plan(orders), past.other_plan(bills)) == ("other", None)


def test_texts_that_no_table_can_hold_do_not_end_the_audit() -> None:
    rows = list(audit_rows(replace(PROGRESS, plan="p\udcff"), "c"))
    written = pa.Table.from_pylist(rows, schema=TABLES["replay_audit"].columns)
    assert set(written["plan"].to_pylist()) == {"p\\udcff"}
