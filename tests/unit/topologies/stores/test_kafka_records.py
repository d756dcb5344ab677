"""Records of headgate.topologies: read quickly, whole when asked, and never raising whatever lies in the topic."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.facts import TopologyDeleted, encode
from headgate.facts.topology import TopologyDescribed
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.plugin.conformance import HOSTILE_NAMES, pushed, topology
from headgate.plugin.topology_store import TransientFailure
from headgate.topologies.fact_mapping import described_fact
from headgate.topologies.stores.kafka_cache import Current
from headgate.topologies.stores.kafka_records import description_of, pack, read

LARGEST = 64 * 1024 * 1024


def record(fact: TopologyDescribed | TopologyDeleted, offset: int = 7) -> ConsumedRecord:
    _, key, value = encode(fact)
    return ConsumedRecord(offset, key, value)


def described(group: str = "g", **changes: object) -> TopologyDescribed:
    return dataclasses.replace(described_fact(pushed(group), at=1), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("group", HOSTILE_NAMES)
def test_a_description_is_read_by_its_key_and_who_pushed_it(group: str) -> None:
    current = read(record(described(group)))
    assert current is not None
    assert (current.group, current.offset, current.incarnation, current.epoch) == (group, 7, "9f2c", 0)
    assert (current.hash, current.member) == (described().hash, "m-1")
    assert description_of(current, largest=LARGEST) == topology()


def test_a_deletion_is_read() -> None:
    found = read(record(TopologyDeleted(at=1, group="g", incarnation="9f2c")))
    assert found == Current(group="g", offset=7, incarnation="9f2c")


def test_what_nobody_pushed_is_not_the_stores() -> None:
    assert read(record(described(provenance="pasted", member=None))) is None


def test_a_member_that_is_called_like_the_field_is_no_trap() -> None:
    found = read(record(described(member=',"description":{}')))
    assert found is not None
    assert found.member == ',"description":{}'


def test_another_writers_order_of_fields_is_read_whole() -> None:
    _, key, value = encode(described())
    assert value is not None
    turned = json.dumps(dict(reversed(json.loads(value).items()))).encode()
    found = read(ConsumedRecord(1, key, turned))
    assert found is not None
    assert found.member == "m-1"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b'["g","9f2c",0,"h","pushed"]', None),
        (b"not json", b"{}"),
        (b'{"a":1}', b'{"v":1}'),
        (b'["g","9f2c",0,"h","pushed"]', b'{"v":2}'),
        (b'["g","9f2c",0,"h","pushed"]', b'{"v":true}'),
        (b'["g","9f2c",-1,"h","pushed"]', b'{"v":1}'),
        (b'["g","9f2c",true,"h","pushed"]', b'{"v":1}'),
        (b'["g","9f2c",99999999999,"h","pushed"]', b'{"v":1}'),
        (b'["g",1,0,"h","pushed"]', b'{"v":1}'),
        (b'["g","deleted"]', b'{"v":1}'),
        (b'["g","other"]', b'{"v":1,"incarnation":"x"}'),
        (b"[" * 100_000, b"{}"),
        (b'["g","deleted"]', b"[" * 100_000),
    ],
)
def test_what_is_none_of_ours_is_passed_over(key: bytes | None, value: bytes | None) -> None:
    assert read(ConsumedRecord(1, key, value)) is None


@settings(deadline=None)
@given(st.binary() | st.none(), st.binary() | st.none())
def test_no_bytes_raise(key: bytes | None, value: bytes | None) -> None:
    read(ConsumedRecord(1, key, value))


def test_a_record_that_is_no_description_after_all_fails_when_it_is_wanted() -> None:
    found = read(ConsumedRecord(1, b'["g","9f2c",0,"h","pushed"]', b'{"v":1,"member":null}'))
    assert found is not None
    with pytest.raises(TransientFailure, match="at offset 1"):
        description_of(found, largest=LARGEST)


@pytest.mark.parametrize("damaged", [b"", b"not packed", None])
def test_a_record_that_cannot_be_unpacked_fails_when_it_is_wanted(damaged: bytes | None) -> None:
    found = read(record(described()))
    assert found is not None
    with pytest.raises(TransientFailure, match="cannot be unpacked"):
        description_of(dataclasses.replace(found, record=damaged), largest=LARGEST)


def test_a_record_that_unpacks_to_more_than_there_can_be_is_not_unpacked() -> None:
    found = read(record(described()))
    assert found is not None
    with pytest.raises(TransientFailure, match="cannot be unpacked"):
        description_of(dataclasses.replace(found, record=pack(b" " * 100_000)), largest=1000)
