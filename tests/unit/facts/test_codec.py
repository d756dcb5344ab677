"""Limits, versions, duplicates and odd names at the edge of the codec."""

import dataclasses
import json
from dataclasses import replace

import pytest

from headgate.facts import (
    ActivityObserved,
    EventHappened,
    Fact,
    GroupPaused,
    GroupPauseEnded,
    JsonText,
    Rejected,
    decode,
    encode,
    identity,
)
from headgate.facts.json_form import MisfitError
from tests.support.activity_facts import USE

PAUSED = GroupPaused(group="sg", at=1, reason="deploy", by="User:ops")
PAUSE_KEY = b'["pause","sg"]'


def paused(**fields: object) -> bytes:
    return json.dumps({"v": 1, "at": 1, "reason": "r", "by": "b"} | fields).encode()


def reason(topic: str, key: bytes, value: bytes | None, max_bytes: int = 1 << 20) -> str:
    rejected = decode(topic, key, value, max_bytes=max_bytes)
    assert isinstance(rejected, Rejected)
    return rejected.reason


def test_a_record_over_the_limit_is_rejected_before_it_is_parsed() -> None:
    topic, key, value = encode(PAUSED)
    assert value is not None
    size = len(key) + len(value)
    assert decode(topic, key, value, max_bytes=size) == PAUSED
    assert f"{size} bytes" in reason(topic, key, value, max_bytes=size - 1)
    assert "bytes" in reason(topic, b"[" * 2_000_000, value)


def test_a_long_key_counts_towards_the_limit_of_a_tombstone() -> None:
    topic, key, value = encode(GroupPauseEnded(group="g" * 2_000_000))
    assert value is None
    assert "bytes" in reason(topic, key, None)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"v":' * 100_000, "9" * 5_000], ids=["lists", "objects", "digits"])
def test_text_that_python_cannot_parse_is_rejected(text: str) -> None:
    assert reason("state", PAUSE_KEY, text.encode())
    assert reason("state", text.encode(), paused())


def test_bytes_that_are_not_utf8_are_rejected_with_their_place() -> None:
    assert reason("state", PAUSE_KEY, b'{"v":1,"by":"\xff"}') == "not UTF-8 at byte 13"
    assert reason("state", b'["pause","\xed\xa0\x80"]', paused()) == "key: not UTF-8 at byte 10"
    assert "not" in reason("state", '["pause","sg"]'.encode("utf-16"), paused())


def test_two_lone_surrogates_that_spell_a_character_come_back_as_it() -> None:
    fact = dataclasses.replace(PAUSED, group="\ud83d\ude00")
    assert decode(*encode(fact)) == dataclasses.replace(PAUSED, group="😀")


def test_a_higher_version_is_rejected_and_new_fields_within_the_version_are_kept() -> None:
    value = paused(later={"deep": [1, {"b": 2, "a": 1}]}, v=1)
    read = decode("state", PAUSE_KEY, value)
    assert isinstance(read, GroupPaused)
    assert read.extra == (("later", JsonText.of({"deep": [1, {"a": 1, "b": 2}]})),)
    assert json.loads(encode(read)[2] or b"")["later"] == {"deep": [1, {"a": 1, "b": 2}]}
    assert "upgrade this reader" in reason("state", PAUSE_KEY, paused(v=2))


def test_the_order_of_fields_in_a_record_does_not_matter_and_ours_is_fixed() -> None:
    value = b' { "by" : "User:ops" , "z" : 1 , "reason" : "deploy" , "a" : 2 , "at" : 1 , "v" : 1 } '
    read = decode("state", b'[ "pause" , "sg" ]', value)
    assert isinstance(read, Fact)
    assert encode(read) == ("state", PAUSE_KEY, b'{"v":1,"at":1,"reason":"deploy","by":"User:ops","a":2,"z":1}')


def test_a_field_that_may_be_null_may_be_absent() -> None:
    value = json.dumps({"v": 1, "id": "e", "at": 1, "event": "paused", "detail": {}}).encode()
    read = decode("events", b'["share_group","sg"]', value)
    assert read == EventHappened(subject_kind="share_group", subject="sg", id="e", at=1, event="paused", by=None)


def activity(seq: int, *, boot: str = "b1", cluster: str | None = "c") -> ActivityObserved:
    return replace(USE, cluster=cluster, writer="gw-a/0", boot=boot, seq=seq)


def test_a_copy_has_the_identity_of_its_fact_and_a_similar_fact_has_another() -> None:
    written = [activity(1), activity(2), activity(1), activity(1, boot="b2"), activity(1, cluster="d"), activity(2)]
    read = [decode(*encode(fact)) for fact in written]
    kept = {identity(fact): fact for fact in read if not isinstance(fact, Rejected)}
    assert list(kept.values()) == [activity(1), activity(2), activity(1, boot="b2"), activity(1, cluster="d")]


def test_an_event_is_identified_by_its_id_for_every_writer() -> None:
    event = EventHappened(subject_kind="share_group", subject="sg", id="e1", at=1, event="resumed", by=None)
    again = dataclasses.replace(event, writer="gw-b/0", boot="b", seq=4)
    assert identity(event) == identity(again)
    assert identity(event) != identity(dataclasses.replace(event, id="e2"))


def test_a_fact_without_an_origin_has_no_identity() -> None:
    assert identity(PAUSED) is None
    assert identity(GroupPauseEnded(group="sg")) is None
    assert identity(dataclasses.replace(PAUSED, writer="w", boot="b", seq=0)) == (None, "w", "b", 0)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"x", 10**5000], ids=["nan", "set", "bytes", "huge"])
def test_a_detail_that_is_not_json_is_refused_where_it_is_made(value: object) -> None:
    with pytest.raises(MisfitError):
        JsonText.of({"x": value})
