"""Every message in every version survives the way to bytes and back; what a version cannot carry is refused."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.base.errors import WireError
from headgate.wire.codec import decode, decode_prefix, encode
from headgate.wire.messages.data import FetchRequest
from headgate.wire.messages.groups import HeartbeatRequest
from headgate.wire.messages.streams import StreamsGroupDescribeRequest, StreamsGroupHeartbeatResponse, TaskIds
from headgate.wire.schema import Message
from tests.support.messages import VERSIONED, instances, name_of


@pytest.mark.parametrize("case", VERSIONED, ids=name_of)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_reads_back_equal(case: tuple[type[Message], int], data: st.DataObject) -> None:
    cls, version = case
    message = data.draw(instances(cls, version))
    written = encode(message, version)
    assert decode(cls, version, written) == message
    assert encode(decode(cls, version, written), version) == written


@pytest.mark.parametrize("case", VERSIONED, ids=name_of)
def test_a_message_of_defaults_reads_back_equal(case: tuple[type[Message], int]) -> None:
    cls, version = case
    assert decode(cls, version, encode(cls(), version)) == cls()


# Bytes seen on the wire of Kafka 4.4.0 (KAFKA-FACTS, section 3).
def test_the_describe_request_has_the_bytes_that_kafka_writes() -> None:
    message = StreamsGroupDescribeRequest(
        group_ids=("g",), include_authorized_operations=True, include_topology_description=True
    )
    assert encode(message, 1) == bytes.fromhex("020267010100")


@pytest.mark.parametrize(
    ("version", "tail"),
    [
        (0, "00000002 000003e8 00000000 00000000 01 02023003000000000000000100 01 01 00000000 01 00"),
        (1, "00000002 000003e8 00000000 ffffffffffffffff 01 02023003000000000000000100 01 01 01 00000000 01 00"),
    ],
)
def test_the_heartbeat_answer_has_the_bytes_that_kafka_writes(version: int, tail: str) -> None:
    message = StreamsGroupHeartbeatResponse(
        member_id="m",
        member_epoch=2,
        heartbeat_interval_ms=1000,
        active_tasks=(TaskIds(subtopology_id="0", partitions=(0, 1)),),
        standby_tasks=(),
        warmup_tasks=(),
        topology_description_required=version == 1,
        partitions_by_user_endpoint=(),
    )
    assert encode(message, version).endswith(bytes.fromhex(tail))


def test_a_field_that_the_version_lacks_reads_as_its_default() -> None:
    written = encode(FetchRequest(max_wait_ms=5), 4)
    assert decode(FetchRequest, 4, written).session_epoch == -1


def test_a_text_over_32767_bytes_is_refused_in_both_directions() -> None:
    with pytest.raises(WireError, match="32768 bytes"):
        encode(HeartbeatRequest(group_id="x" * 32768), 4)
    with pytest.raises(WireError, match="32768 bytes"):
        decode(HeartbeatRequest, 4, b"\x81\x80\x02" + b"x" * 40_000)


def test_a_version_that_the_message_does_not_have_is_refused() -> None:
    with pytest.raises(WireError, match=re.escape("FetchRequest has versions 4 to 18, not 19")):
        decode(FetchRequest, 19, b"")
    with pytest.raises(WireError, match=re.escape("FetchRequest has versions 4 to 18, not 3")):
        encode(FetchRequest(), 3)


def test_bytes_behind_the_message_are_refused_unless_the_end_is_asked_for() -> None:
    written = encode(HeartbeatRequest(group_id="g"), 4)
    with pytest.raises(WireError, match="2 bytes behind"):
        decode(HeartbeatRequest, 4, written + b"ab")
    message, stop = decode_prefix(HeartbeatRequest, 4, b"zz" + written + b"ab", 2)
    assert message == HeartbeatRequest(group_id="g")
    assert stop == 2 + len(written)


def test_buffers_of_every_kind_are_read() -> None:
    written = encode(HeartbeatRequest(group_id="g"), 4)
    for buffer in (written, bytearray(written), memoryview(written)):
        assert decode(HeartbeatRequest, 4, buffer).group_id == "g"
