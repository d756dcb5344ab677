"""Records as rows of facts: what the worker does with one record, without Spark around it."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from headgate.facts import EventHappened, Fact, JsonText, TopologyDescribed, encode
from headgate.pipeline.parsing import ARROW_SCHEMA, Reading, description_of, fact_row
from tests.unit.facts.strategies import FACTS
from tests.unit.topologies.topologies import descriptions, patient

READING = Reading(prefix="hg.", cluster="own", largest={"topologies": 1_000_000})


def record(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    return {"topic": f"hg.{topic}", "partition": 3, "offset": 7, "recorded_at": 1500, "key": key, "value": value}


@patient
@given(FACTS)
def test_every_fact_is_a_row_that_arrow_takes(fact: Any) -> None:
    row = fact_row(record(*encode(fact)), READING)
    table = pa.Table.from_pylist([row], ARROW_SCHEMA)
    (read,) = table.to_pylist()
    if read["reason"] is not None:  # only for its size
        assert "bytes, and at most" in read["reason"]
        return
    assert read["kind"] == type(fact).__name__
    assert read["at"] == (fact.at if isinstance(fact, Fact) else 1500)
    if isinstance(fact, Fact) and fact.cluster is None:
        assert read["cluster_id"] == "own"


@patient
@given(descriptions())
def test_a_description_is_carried_whole(description: Any) -> None:
    fact = TopologyDescribed(
        at=1,
        group="g",
        incarnation="1",
        epoch=0,
        hash="h",
        provenance="pushed",
        member=None,
        process=None,
        description=description,
    )
    row = pa.Table.from_pylist([fact_row(record(*encode(fact)), READING)], ARROW_SCHEMA).to_pylist()[0]
    assert description_of(row["description"]) == description


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"{}", "the record has no key"),
        (b"\xff", b"{}", "key: not UTF-8 at byte 0"),
        (b'["pause","g"]', b"x" * 2_000_000, "the record has 2000013 bytes"),
    ],
)
def test_what_is_no_fact_has_a_reason(key: bytes | None, value: bytes, reason: str) -> None:
    row = fact_row(record("state", key, value), READING)
    assert (row["kind"], row["cluster_id"], row["recorded_at"]) == ("Rejected", "own", 1500)
    assert row["reason"].startswith(reason)


def test_the_detail_of_an_event_is_kept_to_the_letter() -> None:
    detail = JsonText.of({"b": 1, "a": ["\x1b", "é"]})
    fact = EventHappened(at=1, subject_kind="k", subject="s", id="e", event="operation", by=None, detail=detail)
    assert json.loads(fact_row(record(*encode(fact)), READING)["fields"])["detail"] == detail.text
