"""What a replay takes of `headgate-replay.progress`, where everyone who replays may write.

The records are made here, because a replay writes none that cannot be read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from headgate.base.errors import ClusterError
from headgate.dead_letters import progress_topic
from headgate.dead_letters.audit import audit_rows
from headgate.dead_letters.progress_topic import PastReplays, read_past
from headgate.facts.replays import encode_progress
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


def test_texts_that_no_table_can_hold_do_not_end_the_audit() -> None:
    rows = list(audit_rows(replace(PROGRESS, plan="p\udcff"), "c"))
    written = pa.Table.from_pylist(rows, schema=TABLES["replay_audit"].columns)
    assert set(written["plan"].to_pylist()) == {"p\\udcff"}
