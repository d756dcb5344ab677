"""The records of the spool: round trips, hostile bytes, partitions and sequences."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.share_groups.model.dead_letter_records import topic_id_of, topic_id_text
from headgate.share_groups.spool.model.records import (
    DEADLINE,
    PARKED,
    SEQUENCE,
    TARGET,
    DeadlinesReported,
    SpooledDeadLetter,
    SpoolLane,
    SpoolSequence,
    SpoolTombstone,
    decode_spooled,
    encode_identity,
    encode_reported,
    encode_spooled,
    spool_partition,
    spool_partitions,
)

TOPIC_ID = b"t" * 16
DEAD_LETTER = SpooledDeadLetter(
    group="g",
    topic_id=TOPIC_ID,
    partition=3,
    offset=4711,
    key=b"k",
    value=None,
    headers=(("__dlq.errors.topic", b"orders"), ("__headgate.member", b"m")),
    target="dlq.g",
    deadline=1_794_731_901_727,
    sequence=7,
)
own_headers = [(TARGET, b"dlq.g"), (DEADLINE, b"1"), (SEQUENCE, b"1")]
KEY = encode_identity(DEAD_LETTER.identity)
dead_letters = st.builds(
    SpooledDeadLetter,
    group=st.text(st.characters(), max_size=20),
    topic_id=st.binary(min_size=16, max_size=16),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.sampled_from(("a", "__dlq.errors.topic")), st.binary(max_size=5))).map(tuple),
    target=st.text(st.characters(codec="utf-8"), max_size=10),
    deadline=st.integers(0, 2**63 - 1),
    sequence=st.integers(0, 2**63 - 1),
    parked=st.none() | st.text(st.characters(codec="utf-8"), max_size=10),
)


@given(dead_letters)
def test_a_dead_letter_is_decoded_as_it_was_encoded(dead_letter: SpooledDeadLetter) -> None:
    assert decode_spooled(*encode_spooled(dead_letter)) == dead_letter


@pytest.mark.parametrize(("value", "until"), [(b"1794730000000", 1794730000000), (b"0", 0)])
def test_the_time_up_to_which_deadlines_are_reported_has_the_documented_form(value: bytes, until: int) -> None:
    assert encode_reported(DeadlinesReported(until)) == (b'["deadlines_reported"]', value)
    assert decode_spooled(b'["deadlines_reported"]', value, None) == DeadlinesReported(until)


@pytest.mark.parametrize("value", [None, b"", b"-1", b"1.5", b"\xff", b"9" * 30, "\u0663".encode()])
def test_a_time_of_another_form_is_no_record_of_the_spool(value: bytes | None) -> None:
    assert decode_spooled(b'["deadlines_reported"]', value, None) is None


@given(dead_letters)
def test_a_null_value_is_a_tombstone_of_the_same_identity(dead_letter: SpooledDeadLetter) -> None:
    key, _, _ = encode_spooled(dead_letter)
    tombstone = decode_spooled(key, None, None)
    assert tombstone == SpoolTombstone(dead_letter.identity)
    assert tombstone.lane == dead_letter.lane


def test_the_record_has_the_documented_form() -> None:
    key, value, headers = encode_spooled(replace(DEAD_LETTER, parked="too large"))
    assert json.loads(key) == ["g", "dHR0dHR0dHR0dHR0dHR0dA", 3, 4711]
    assert value == b"\x01" + b"\x00\x00\x00\x01k" + b"\xff\xff\xff\xff"
    assert headers[2:] == [
        (TARGET, b"dlq.g"),
        (DEADLINE, b"1794731901727"),
        (SEQUENCE, b"7"),
        (PARKED, b"too large"),
    ]
    assert PARKED not in dict(encode_spooled(DEAD_LETTER)[2])


@given(
    st.none() | st.binary(max_size=40) | st.just(KEY),
    st.none() | st.binary(max_size=40).map(lambda some: b"\x01" + some),
    st.none() | st.lists(st.tuples(st.sampled_from((TARGET, DEADLINE, SEQUENCE, "x")), st.none() | st.binary())),
)
def test_hostile_records_never_raise(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> None:
    found = decode_spooled(key, value, headers)
    assert found is None or isinstance(found, SpooledDeadLetter | SpoolTombstone)


EMPTY = b"\x01\xff\xff\xff\xff\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"[" * 100_000, EMPTY, own_headers),
        (b'["g","short",0,0]', EMPTY, own_headers),
        (b'["g","dHR0dHR0dHR0dHR0dHR0dB",0,0]', EMPTY, own_headers),  # bits that no topic id has
        (b'["g","dHR0dHR0dHR0dHR0dHR0dA",true,0]', EMPTY, own_headers),
        (b'["g","dHR0dHR0dHR0dHR0dHR0dA",-1,0]', EMPTY, own_headers),
        (b'["g","dHR0dHR0dHR0dHR0dHR0dA",0,9223372036854775808]', EMPTY, own_headers),
        (KEY, b"", own_headers),
        (KEY, b"\x02" + EMPTY[1:], own_headers),
        (KEY, EMPTY + b"more", own_headers),
        (KEY, b"\x01\x7f\xff\xff\xff", own_headers),
        (KEY, b"\x01\xff\xff\xff\xfe\xff\xff\xff\xff", own_headers),
        (KEY, EMPTY, own_headers[1:]),
        (KEY, EMPTY, own_headers[:2]),
        (KEY, EMPTY, [*own_headers, own_headers[0]]),
        (KEY, EMPTY, [own_headers[0], (DEADLINE, b"9" * 5_000), own_headers[2]]),
        (KEY, EMPTY, [own_headers[0], (DEADLINE, "\u0661".encode()), own_headers[2]]),
        (KEY, EMPTY, [(TARGET, b"\xff"), *own_headers[1:]]),
        (KEY, EMPTY, None),
    ],
)
def test_another_record_is_not_a_dead_letter(
    key: bytes, value: bytes, headers: list[tuple[str, bytes | None]] | None
) -> None:
    assert decode_spooled(key, value, headers) is None


@given(dead_letters, st.integers(1, 64))
def test_a_lane_has_one_partition_and_two_more_for_when_it_fails(
    dead_letter: SpooledDeadLetter, partitions: int
) -> None:
    usual = spool_partition(dead_letter.lane, partitions)
    choices = spool_partitions(dead_letter.lane, partitions)
    assert choices[0] == usual
    assert len(set(choices)) == len(choices) == min(3, partitions)
    assert all(0 <= one < partitions for one in choices)
    assert spool_partition(replace(dead_letter, offset=0).lane, partitions) == usual


def test_the_partition_of_a_lane_never_changes_between_releases() -> None:
    assert spool_partitions(SpoolLane("g", TOPIC_ID, 3), 8) == (1, 2, 3)


@given(st.lists(st.integers(0, 2**40), max_size=50))
def test_sequences_ascend_although_the_clock_steps_back(times: list[int]) -> None:
    sequence = SpoolSequence()
    made = [sequence.next(at) for at in times]
    assert made == sorted(set(made))


@given(st.binary(min_size=16, max_size=16))
def test_a_topic_id_is_read_from_its_text(topic_id: bytes) -> None:
    assert topic_id_of(topic_id_text(topic_id)) == topic_id
