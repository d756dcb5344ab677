"""A record that matches the exact form of a fact is one that `encode` writes: it can be read without `decode`."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.facts import (
    ActivityObserved,
    DispositionsCounted,
    Fact,
    GroupLagsObserved,
    Rejected,
    TopologyDescribed,
    decode,
    encode,
)
from headgate.facts.codec import form_of
from headgate.facts.exact_form import SEPARATOR, exact_pattern
from tests.unit.facts.hostile_records import LARGE, hostile, plain_record
from tests.unit.facts.test_golden import GOLDEN

PATTERNS = {cls: re.compile(exact_pattern(form_of(cls)) or "") for cls in LARGE}


def is_exact(cls: type[Fact], key: bytes, value: bytes) -> bool:
    """What Spark asks about a record."""
    try:
        text = key.decode() + SEPARATOR + value.decode()
    except UnicodeDecodeError:
        return False
    return PATTERNS[cls].fullmatch(text) is not None


@given(st.sampled_from(LARGE), st.data())
@settings(max_examples=200, deadline=None)
def test_a_record_that_matches_is_what_encode_writes_of_its_fact(cls: type[Fact], data: st.DataObject) -> None:
    key, value = data.draw(hostile(cls))
    if not is_exact(cls, key, value):
        return
    topic = form_of(cls).topic
    fact = decode(topic, key, value)
    assert not isinstance(fact, Rejected), fact
    assert isinstance(fact, cls)
    assert encode(fact) == (topic, key, value)


@pytest.mark.parametrize("cls", LARGE)
def test_the_examples_of_the_large_facts_match(cls: type[Fact]) -> None:
    """Most records take the short way, or there would be no gain."""
    lines = [line for _, line in GOLDEN if line["fact"] == cls.__name__]
    assert lines
    for line in lines:
        fact = decode(form_of(cls).topic, *(json.dumps(line[part]).encode() for part in ("key", "value")))
        assert isinstance(fact, cls)
        if not fact.extra:
            _, key, value = encode(fact)
            assert value is not None
            assert is_exact(cls, key, value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"v":1', b'"v":2'),
        (b'"v":1', b'"v":1,"later":null'),
        (b'"v":1', b'"v":1,"v":1'),
        (b'"accepted":10', b'"accepted":9223372036854775808'),
        (b'"accepted":10', b'"accepted":10.0'),
        (b'"accepted":10', b'"accepted":-1'),
        (b'"accepted":10', b'"accepted":"10"'),
        (b'"accepted":10', b'"accepted":null'),
        (b'"accepted":10', b'"accepted": 10'),
        (b'"partition":3', b'"partition":2147483648'),
        (b'{"1":11,"2":2}', b'{"1":11,"1":2}'),
        (b'{"1":11,"2":2}', b'{"2":2,"1":11}'),
        (b'{"1":11,"2":2}', b'{"1":11,}'),
        (b'{"1":11,"2":2}', b'{"01":11}'),
        (b'"sg"', b'"s\\u0067"'),
        (b'"sg"', b'"other"'),
        (b'"sg"', b'"s\xff"'),
        (b'"sg"', b'"s\ng"'),
        (b'"sg"', b"'sg'"),
        (b',"writer":"gw/0"', b""),
    ],
)
def test_a_record_in_doubt_is_left_to_decode(old: bytes, new: bytes) -> None:
    key, value = plain_record(DispositionsCounted)
    assert is_exact(DispositionsCounted, key, value)
    assert old in value
    assert not is_exact(DispositionsCounted, key, value.replace(old, new, 1))
    assert not is_exact(DispositionsCounted, key, value + b"\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"[0,12]", b"[0,012]"),
        (b"[0,12]", b"[0,]"),
        (b"[0,12]", b"[,0]"),
        (b"[0,12]", b"[0,,12]"),
        (b"[0,12]", b"[0 12]"),
        (b"[0,12]", b"[0,12"),
        (b"[0,12]", b"[0,null]"),
        (b"[0,12]", b"[0,2147483648]"),
        (b"[0,12]", b"null"),
        (b"[0,12]", b"[[0,12]]"),
        (b"[20,4]", b'[20,"4"]'),
        (b"[20,4]", b"[20,-4]"),
        (b"[20,4]", b"[20,nul]"),
        (b"[20,4]", b"[20,9223372036854775808]"),
    ],
)
def test_a_list_in_doubt_is_left_to_decode(old: bytes, new: bytes) -> None:
    key, value = plain_record(GroupLagsObserved)
    assert is_exact(GroupLagsObserved, key, value)
    assert is_exact(GroupLagsObserved, key, value.replace(b"[0,12]", b"[]"))
    assert old in value
    assert not is_exact(GroupLagsObserved, key, value.replace(old, new, 1))


def test_a_long_list_matches_without_recursion() -> None:
    key, value = plain_record(GroupLagsObserved)
    for item in (b"0", b"null"):
        text = value.replace(b"[20,4]", b"[" + b",".join([item] * 150_000) + b"]")
        assert is_exact(GroupLagsObserved, key, text)
        assert not is_exact(GroupLagsObserved, key, text.replace(b",0]", b",]").replace(b",null]", b",]"))


def test_a_fact_with_nested_lists_has_no_exact_form() -> None:
    assert exact_pattern(form_of(TopologyDescribed)) is None


@given(st.text(max_size=40) | st.just("x" * 900_000))
@example("é😀")
@settings(max_examples=30, deadline=None)
def test_a_long_text_matches_without_recursion(name: str) -> None:
    key, value = plain_record(ActivityObserved)
    fields: dict[str, Any] = json.loads(value) | {"host": name}
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    assert is_exact(ActivityObserved, key, text) == (b"\\" not in text)
