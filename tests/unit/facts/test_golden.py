"""Every example of the contract as a line of a file: it is read as its fact, and written back byte for byte."""

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.facts import Rejected, decode, encode
from headgate.facts.codec import FORMS
from headgate.facts.json_form import ObjectType, OneOf, Variant, dumps

FIXTURES = Path(__file__).parents[2] / "fixtures" / "facts"
TOPICS = ("state", "trips", "topologies", "tasks", "activity", "dispositions", "events", "lags")


def lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text("utf-8").splitlines()]


GOLDEN = [(topic, line) for topic in TOPICS for line in lines(topic)]


@pytest.mark.parametrize(("topic", "line"), GOLDEN, ids=[f"{topic}-{line['fact']}" for topic, line in GOLDEN])
def test_an_example_is_read_as_its_fact_and_written_back_byte_for_byte(topic: str, line: Any) -> None:
    key = dumps(line["key"])
    value = None if line["value"] is None else dumps(line["value"])
    fact = decode(topic, key, value)
    assert type(fact).__name__ == line["fact"], fact
    assert not isinstance(fact, Rejected)
    assert encode(fact) == (topic, key, value)


def test_every_fact_has_an_example() -> None:
    assert {line["fact"] for _, line in GOLDEN} == {form.cls.__name__ for form in FORMS}


def _closed_sets(kind: Any, where: str) -> dict[str, set[str]]:
    if isinstance(kind, OneOf):
        return {where: set(kind.names)}
    if isinstance(kind, ObjectType):
        found: dict[str, set[str]] = {}
        for member in kind.members:
            found |= _closed_sets(member.type, f"{where}.{member.name}")
        return found
    if isinstance(kind, Variant):
        return {f"{where}.type": set(kind.objects)}
    return _closed_sets(kind.item, where) if hasattr(kind, "item") else {}


def _seen(value: Any, path: list[str]) -> set[str]:
    if isinstance(value, list):
        return {found for item in value for found in _seen(item, path)}
    if not path:
        return {value} if isinstance(value, str) else set()
    return _seen(value[path[0]], path[1:]) if isinstance(value, dict) and path[0] in value else set()


def test_every_name_of_every_closed_set_has_an_example() -> None:
    for form in FORMS:
        values = [line["value"] for _, line in GOLDEN if line["fact"] == form.cls.__name__]
        for where, names in _closed_sets(form.value, "").items():
            seen = {found for value in values for found in _seen(value, where.split(".")[1:])}
            assert seen == names, (form.cls.__name__, where)


REJECTED = lines("rejected")


@pytest.mark.parametrize("line", REJECTED, ids=[line["why"] for line in REJECTED])
def test_an_invalid_record_is_rejected_with_its_reason(line: Any) -> None:
    key = None if line["key"] is None else line["key"].encode()
    value = None if line["value"] is None else line["value"].encode()
    rejected = decode(line["topic"], key, value)
    assert isinstance(rejected, Rejected)
    assert line["reason"] in rejected.reason
