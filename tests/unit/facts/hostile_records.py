"""Records of the large facts for Hypothesis: valid ones, and ones that differ from them in one place or more."""

import json
from typing import Any

from hypothesis import strategies as st

from headgate.facts import ActivityObserved, Actor, DispositionsCounted, Fact, GroupLagsObserved, Software, encode
from headgate.facts.codec import form_of
from tests.unit.facts.strategies import JSON, of_form

LARGE: tuple[type[Fact], ...] = (ActivityObserved, DispositionsCounted, GroupLagsObserved)

_PLAIN: dict[type[Fact], Fact] = {
    ActivityObserved: ActivityObserved(
        at=1_794_731_900_000,
        cluster="c",
        writer="gw/0",
        boot="b1",
        seq=17,
        actor=Actor(kind="client", name="service-1", rule="client-id", confidence="likely"),
        topic="orders",
        topic_id=None,
        direction="write",
        since=1_794_731_840_000,
        until=1_794_731_900_000,
        bytes=10,
        records=None,
        principal="User:a",
        client_id="service-1-0",
        group=None,
        transactional_id=None,
        software=Software(name="apache-kafka-java", version=None),
        host="10.0.0.7",
    ),
    DispositionsCounted: DispositionsCounted(
        at=1_794_731_900_000,
        cluster="c",
        writer="gw/0",
        boot="b1",
        seq=17,
        group="sg",
        member="m",
        topic="orders",
        topic_id="id",
        partition=3,
        second=1_794_731_900,
        generation=4,
        accepted=10,
        released=1,
        rejected=2,
        over_limit=0,
        dead_lettered=2,
        write_timeouts=0,
        by_delivery_count=((1, 11), (2, 2)),
    ),
    GroupLagsObserved: GroupLagsObserved(
        at=1_794_731_900_000,
        cluster="c",
        writer="gw/0",
        boot="b1",
        seq=17,
        group="billing",
        topic="orders",
        kind="consumer",
        topic_id="id",
        partitions=(0, 12),
        committed=(17, None),
        ends=(20, 4),
        lags=(3, None),
    ),
}
_PIECES = [
    "",
    "0",
    "1",
    "-1",
    "1e3",
    "1.0",
    "null",
    "true",
    '""',
    '"x"',
    "[]",
    "{}",
    ",",
    ":",
    "}",
    "]",
    " ",
    "\n",
    "\\",
]
_PIECES += ['\\"', "\\u0041", "\\ud800", "\x7f", "\u2028", "99999999999999999", "9223372036854775808", "'x'", "01"]
_BYTES = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x00", b"\xef\xbb\xbf"]
# Texts without an escape, so that the record may still be as `encode` writes it.
_PLAIN_TEXTS = st.sampled_from(["", "x", "é😀", "null", "17", "a,b:{}[]", "\x7f", "\u2028", "\ufffd", "\U0010ffff"])
_NUMBERS = st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**18 - 1, 10**18, -1, 0])
_ODD_VALUES = JSON | _NUMBERS


def plain_record(cls: type[Fact]) -> tuple[bytes, bytes]:
    """The record of a fact in which no text needs an escape."""
    _, key, value = encode(_PLAIN[cls])
    assert value is not None
    return key, value


def hostile(cls: type[Fact]) -> st.SearchStrategy[tuple[bytes, bytes]]:
    """Key and value of a fact, most of them changed somewhere."""
    facts = st.just(_PLAIN[cls]) | of_form(form_of(cls))
    return facts.flatmap(_changed)


def hostile_lists(cls: type[Fact], count: int) -> st.SearchStrategy[list[tuple[bytes, bytes]]]:
    """So many records of one fact, each changed in its own way: drawing a fact takes longer than changing it."""
    facts = st.just(_PLAIN[cls]) | of_form(form_of(cls))
    return facts.flatmap(lambda fact: st.lists(_changed(fact), min_size=count, max_size=count))


def _changed(fact: Fact) -> st.SearchStrategy[tuple[bytes, bytes]]:
    _, key, value = encode(fact)
    assert value is not None
    names = list(json.loads(value))
    valid = st.just((key, value))
    return st.one_of(
        valid,
        st.tuples(st.just(key), _spliced(value)),
        st.tuples(_spliced(key), st.just(value)),
        st.tuples(st.just(key), _field_set(value, names, _ODD_VALUES)),
        st.tuples(st.just(key), _field_set(value, names, _PLAIN_TEXTS)),
        st.tuples(st.just(key), st.permutations(names).map(lambda order: _reordered(value, order))),
        st.tuples(st.just(key), st.sampled_from(names).map(lambda name: _doubled(value, name))),
    )


def _spliced(text: bytes) -> st.SearchStrategy[bytes]:
    pieces = st.sampled_from([piece.encode() for piece in _PIECES] + _BYTES)
    return st.builds(
        lambda start, length, piece: text[:start] + piece + text[start + length :],
        st.integers(0, len(text)),
        st.integers(0, 3),
        pieces,
    )


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _field_set(value: bytes, names: list[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda name, new: _compact(json.loads(value) | {name: new}),
        st.sampled_from([*names, "later", "writer", "boot", "seq", "cluster"]),
        values,
    )


def _reordered(value: bytes, order: list[str]) -> bytes:
    fields = json.loads(value)
    return _compact({name: fields[name] for name in order})


def _doubled(value: bytes, name: str) -> bytes:
    return value[:-1] + b"," + _compact({name: json.loads(value)[name]})[1:]
