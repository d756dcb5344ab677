"""Requests for plans and their answers, as records of `headgate-replay.progress`."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.facts import Rejected
from headgate.facts.json_form import object_type
from headgate.facts.plan_requests import (
    MAX_REQUEST_BYTES,
    PlanAnswered,
    PlanRequested,
    decode_plan_record,
    encode_plan_record,
)

REQUEST = PlanRequested(
    at=1794731901727,
    request="6a187a28-91c04b1f02aa",
    by="ops",
    group="sg",
    where="partition = 3",
    since=1794731900000,
    to="original",
    options=("accept_fanout",),
)
ANSWER = PlanAnswered(at=1794731903010, request="6a187a28-91c04b1f02aa", state="DONE", plan="6a187a2a-91c0")
OF_A_TOKEN = replace(REQUEST, group=None, dlq_topic="dlq.\udcff", topics=("orders", "shop-*"), tables="an id")
RECORDS = [REQUEST, OF_A_TOKEN, ANSWER]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_is_read_as_it_was_written(record: PlanRequested | PlanAnswered) -> None:
    assert decode_plan_record(*encode_plan_record(record)) == record


def test_other_records_of_the_topic_are_none() -> None:
    assert decode_plan_record(b'["replay","p"]', b"{}") is None
    assert decode_plan_record(None, b"{}") is None
    assert decode_plan_record(encode_plan_record(REQUEST)[0], None) is None


@pytest.mark.parametrize(
    ("record", "change"),
    [
        (REQUEST, {"v": 2}),
        (REQUEST, {"request": "another"}),
        (REQUEST, {"group": None}),
        (REQUEST, {"dlq_topic": "dlq.orders"}),
        (REQUEST, {"options": ["everything"]}),
        (REQUEST, {"where": "x" * MAX_REQUEST_BYTES}),
        (REQUEST, {"where": 1}),
        (ANSWER, {"plan": None}),
        (ANSWER, {"state": "RUNNING"}),
        (ANSWER, {"state": "LOST"}),
    ],
)
def test_a_record_that_does_not_fit_is_rejected(
    record: PlanRequested | PlanAnswered, change: dict[str, object]
) -> None:
    key, value = encode_plan_record(record)
    assert isinstance(decode_plan_record(key, json.dumps(json.loads(value) | change).encode()), Rejected)


def test_a_plan_keeps_what_was_asked_for_by_the_names_of_the_options() -> None:
    where = {"group": "sg", "where": "partition = 3", "since": "2026-11-15T08:38:20Z"}
    assert REQUEST.asked() == where | {"options": "accept_fanout"}
    assert OF_A_TOKEN.asked()["topics"] == "orders, shop-*"
    assert replace(REQUEST, since=10**17).asked()["since"] == str(10**17)


@pytest.mark.parametrize("record", [REQUEST, ANSWER])
def test_the_page_has_the_fields_and_an_example(record: PlanRequested | PlanAnswered) -> None:
    page = (Path(__file__).parents[3] / "docs" / "facts.md").read_text("utf-8")
    section = page.partition(f"**{type(record).__name__}**")[2]
    table, _, after = section.partition("```json\n")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", table, flags=re.MULTILINE)
    members = object_type(PlanRequested if isinstance(record, PlanRequested) else PlanAnswered).members
    assert rows == [(member.name, member.meaning) for member in members]
    key, _ = encode_plan_record(record)
    assert decode_plan_record(key, after.partition("\n")[0].encode()) == record
