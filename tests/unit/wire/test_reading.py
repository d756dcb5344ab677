"""Whatever bytes come, a reader answers with a message or with `WireError`, and allocates no more than they pay for."""

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.base.errors import WireError
from headgate.wire.codec import decode, decode_prefix, encode
from headgate.wire.messages.cluster import ApiVersionsResponse, MetadataRequest
from headgate.wire.messages.data import FetchResponse
from headgate.wire.messages.groups import HeartbeatRequest, JoinGroupRequest, ListGroupsRequest
from headgate.wire.messages.streams import StreamsGroupHeartbeatRequest
from headgate.wire.reading import least_size
from headgate.wire.schema import Message
from tests.support.messages import VERSIONED, instances, name_of

# An element costs a byte at least on the wire and an object here: this many bytes of memory for one of the wire.
MEMORY_FACTOR = 250
MEMORY_FLOOR = 50_000

SPLICES = st.sampled_from(
    [b"", b"\0", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"]
)


def reads_or_refuses(cls: type[Message], version: int, hostile: bytes) -> None:
    tracemalloc.start()
    try:
        message, stop = decode_prefix(cls, version, hostile)
    except WireError:
        message, stop = None, 0
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MEMORY_FLOOR + MEMORY_FACTOR * len(hostile)
    assert 0 <= stop <= len(hostile)
    if message is not None:
        assert decode(cls, version, encode(message, version)) == message


@pytest.mark.parametrize("case", VERSIONED, ids=name_of)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), noise=st.binary(max_size=64))
def test_mutated_and_random_bytes_are_read_or_refused(
    case: tuple[type[Message], int], data: st.DataObject, noise: bytes
) -> None:
    cls, version = case
    whole = encode(data.draw(instances(cls, version)), version)
    assert decode_prefix(cls, version, whole)[1] == len(whole)  # and the reader is compiled: memory is counted now
    reads_or_refuses(cls, version, noise)
    for _ in range(3):
        start = data.draw(st.integers(0, len(whole)))
        gone = data.draw(st.integers(0, 4))
        reads_or_refuses(cls, version, whole[:start] + data.draw(SPLICES) + whole[start + gone :])
        reads_or_refuses(cls, version, whole[:start])


@pytest.mark.parametrize(
    ("cls", "version", "hostile", "text"),
    [
        (ListGroupsRequest, 5, "ffffffff0f", "states_filter: 4294967294 elements of at least 1 bytes announced"),
        (JoinGroupRequest, 0, "0001670000000000016d0001 70 7fffffff", "protocols: 2147483647 elements of at least 6"),
        (HeartbeatRequest, 4, "ff01", "group_id: 254 bytes announced, 0 left"),
        (HeartbeatRequest, 4, "00", "group_id: null, where this version has no null"),
        (HeartbeatRequest, 0, "ffff", "group_id: null, where this version has no null"),
        (HeartbeatRequest, 0, "fffe", "group_id: length -2"),
        (HeartbeatRequest, 3, "0001670000000100016dfffe", "group_instance_id: length -2"),
        (MetadataRequest, 1, "fffffffe", "topics: length -2"),
        (HeartbeatRequest, 4, "ffffffffffff01", "group_id: varint longer than five bytes"),
        (HeartbeatRequest, 4, "ffffffff7f", "group_id: varint over 32 bits"),
        (HeartbeatRequest, 4, "02ff", "group_id: text that is not UTF-8"),
        (HeartbeatRequest, 4, "02670000", "generation_id: the message ends inside this field"),
        (HeartbeatRequest, 4, "0267 00000000 026d 00 ffffffff0f", "unknown_tags: message ends inside a varint"),
        (HeartbeatRequest, 4, "0267 00000000 026d 00 02 0500 0500", "unknown_tags: tag 5 behind tag 5"),
        (HeartbeatRequest, 4, "0267 00000000 026d 00 01 057f", "unknown_tags: 127 bytes announced, 0 left"),
        (ApiVersionsResponse, 3, "0000 01 00000000 01 01 02 0000", "finalized_features_epoch"),
        (
            ApiVersionsResponse,
            3,
            "0000 01 00000000 01 01 07 0000000000000001",
            "finalized_features_epoch: a tagged field ends 1 bytes behind its announced size",
        ),
        (StreamsGroupHeartbeatRequest, 0, "0267 026d 00000000 00000000 00 00 00000000 02", "topology: a struct that"),
        (FetchResponse, 12, "00000000 0000 00000000 02 0274 ffffffff0f", "responses.partitions: 4294967294 elements"),
    ],
    ids=lambda value: value if isinstance(value, str) and ":" in value else "",
)
def test_the_refusal_names_the_field(cls: type[Message], version: int, hostile: str, text: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(cls, version, bytes.fromhex(hostile))
    assert f"{cls.__name__} v{version}, {text}" in str(caught.value)


def test_a_length_of_gigabytes_allocates_nothing() -> None:
    hostile = bytes.fromhex("00000000 0000 00000000 02 0274 02 00000000 0000") + bytes(24) + b"\x01" + bytes(4)
    with pytest.raises(WireError):  # and now the reader is compiled
        decode(FetchResponse, 12, hostile + b"\xff\xff\xff\xff\x07")
    tracemalloc.start()
    with pytest.raises(WireError, match=r"responses.partitions.records: \d+ bytes announced"):
        decode(FetchResponse, 12, hostile + b"\xff\xff\xff\xff\x07")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY_FLOOR


@pytest.mark.parametrize("case", VERSIONED, ids=name_of)
def test_the_least_size_is_the_size_of_the_smallest_message(case: tuple[type[Message], int]) -> None:
    cls, version = case
    least = least_size(cls, version, flexible=version in cls.flexible)
    with pytest.raises(WireError) if least else pytest.MonkeyPatch.context():
        decode(cls, version, bytes(max(least - 1, 0)))
