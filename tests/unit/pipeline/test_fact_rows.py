"""Records as rows of facts: what the worker does with one record, without Spark around it."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from headgate.facts import EventHappened, Fact, JsonText, TopologyDescribed, encode
from headgate.facts.topology import Description, Node, SinkNode, SourceNode, Subtopology
from headgate.pipeline.fact_rows import (
    ARROW_SCHEMA,
    ReadSettings,
    description_text,
    description_weight,
    fact_row,
    parse_description,
)
from headgate.topologies.model.topology_graph import app_io, edge_rows, node_rows
from tests.unit.facts.strategies import FACTS
from tests.unit.topologies.topologies import descriptions

SETTINGS = ReadSettings(prefix="hg.", cluster="own", max_bytes={"topologies": 1_000_000})


def record(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    return {"topic": f"hg.{topic}", "partition": 3, "offset": 7, "recorded_at": 1500, "key": key, "value": value}


@given(FACTS)
def test_every_fact_is_a_row_that_arrow_takes(fact: Any) -> None:
    row = fact_row(record(*encode(fact)), SETTINGS)
    table = pa.Table.from_pylist([row], ARROW_SCHEMA)
    (read,) = table.to_pylist()
    if read["reason"] is not None:  # only for its size
        assert "bytes, and at most" in read["reason"]
        return
    assert read["kind"] == type(fact).__name__
    assert read["at"] == (fact.at if isinstance(fact, Fact) else 1500)
    if isinstance(fact, Fact) and fact.cluster is None:
        assert read["cluster_id"] == "own"


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
    row = pa.Table.from_pylist([fact_row(record(*encode(fact)), SETTINGS)], ARROW_SCHEMA).to_pylist()[0]
    assert parse_description(row["description"]) == description


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"{}", "the record has no key"),
        (b"\xff", b"{}", "key: not UTF-8 at byte 0"),
        (b'["pause","g"]', b"x" * 2_000_000, "the record has 2000013 bytes"),
    ],
)
def test_a_rejected_record_has_a_reason(key: bytes | None, value: bytes, reason: str) -> None:
    row = fact_row(record("state", key, value), SETTINGS)
    assert (row["kind"], row["cluster_id"], row["recorded_at"]) == ("Rejected", "own", 1500)
    assert row["reason"].startswith(reason)


def test_the_detail_of_an_event_is_kept_to_the_letter() -> None:
    detail = JsonText.of({"b": 1, "a": ["\x1b", "é"]})
    fact = EventHappened(at=1, subject_kind="k", subject="s", id="e", event="operation", by=None, detail=detail)
    assert json.loads(fact_row(record(*encode(fact)), SETTINGS)["fields"])["detail"] == detail.text


@given(descriptions())
def test_a_description_weighs_more_than_its_rows_take(description: Description) -> None:
    name = "an application with a long name " * 10
    rows = [*node_rows(description, name), *edge_rows(description, name), *app_io(description, name).pairs]
    takes = sum(len(name) + sum(len(str(value)) for value in row) for row in rows)
    assert description_weight(description_text(description), name) >= takes / 4


def test_pairs_of_topics_count_towards_the_weight() -> None:
    """Few names, and as many pairs as there are sources times sinks."""
    names = [str(number) for number in range(200)]
    sinks = tuple(f"k{name}" for name in names)
    nodes: list[Node] = [SourceNode(name=f"s{name}", topics=(name,), successors=sinks) for name in names]
    nodes += [SinkNode(name=name, topic=name) for name in sinks]
    text = description_text(Description(subtopologies=(Subtopology(id="0", nodes=tuple(nodes)),)))
    assert description_weight(text, "app") > 40_000 * 300
