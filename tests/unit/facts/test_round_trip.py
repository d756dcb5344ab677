"""Facts come back as they went, whatever the names in them are."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.facts import Ended, Fact, JsonText, Rejected, decode, encode, identity
from headgate.facts.codec import FORMS
from tests.unit.facts.strategies import FACTS, JSON, texts


@given(FACTS)
@settings(max_examples=300, deadline=None)
def test_a_fact_comes_back_equal_with_one_encoding_and_one_identity(fact: Fact | Ended) -> None:
    record = encode(fact)
    copy = decode(*record)
    assert copy == fact
    assert not isinstance(copy, Rejected)
    assert encode(copy) == record
    assert identity(copy) == identity(fact)
    assert hash(copy) == hash(fact)


@given(FACTS)
@settings(max_examples=100, deadline=None)
def test_records_are_compact_json_that_any_reader_can_parse(fact: Fact | Ended) -> None:
    _, key, value = encode(fact)
    for part in (key, value):
        if part is not None:
            parsed = json.loads(part.decode("utf-8"))
            again = json.dumps(parsed, ensure_ascii=False, separators=(",", ":"))
            assert again.encode("utf-8", "backslashreplace") == part
            assert b"\n" not in part


@given(FACTS, texts(), JSON)
@settings(max_examples=100, deadline=None)
def test_a_field_of_a_later_release_is_kept_and_written_back(fact: Fact | Ended, name: str, later: Any) -> None:
    topic, key, value = encode(fact)
    if value is None:
        return
    fields = json.loads(value)
    if name in fields or name in {"cluster", "writer", "boot", "seq"}:
        return
    fields[name] = later
    read = decode(topic, key, json.dumps(fields).encode())
    assert isinstance(read, Fact)
    _, _, written = encode(read)
    assert written is not None
    assert json.loads(written) == fields


@given(st.sampled_from([form.topic for form in FORMS]), st.none() | st.binary(), st.none() | st.binary())
def test_any_bytes_are_a_fact_or_rejected(topic: str, key: bytes | None, value: bytes | None) -> None:
    assert isinstance(decode(topic, key, value), Fact | Ended | Rejected)


@given(FACTS, JSON, JSON, st.data())
@settings(max_examples=200, deadline=None)
def test_any_json_in_place_of_key_value_or_a_field_is_a_fact_or_rejected(
    fact: Fact | Ended, one: Any, other: Any, data: st.DataObject
) -> None:
    topic, key, value = encode(fact)
    one_bytes, other_bytes = json.dumps(one).encode(), json.dumps(other).encode()
    records = [(one_bytes, value), (key, other_bytes), (one_bytes, other_bytes)]
    if value is not None:
        fields = json.loads(value)
        fields[data.draw(st.sampled_from(sorted(fields)))] = other
        records.append((key, json.dumps(fields).encode()))
    for record in records:
        assert isinstance(decode(topic, *record), Fact | Ended | Rejected)


@given(JSON)
def test_json_text_is_equal_when_the_values_are(value: Any) -> None:
    assert JsonText.of(value).value() == value
    assert JsonText.of(JsonText.of(value).value()) == JsonText.of(value)
