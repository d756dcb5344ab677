"""Headers and acks are found in whole frames and in cut ones, whatever stands behind the cut in the shared buffer."""

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.base.errors import WireError
from headgate.wire import frames
from headgate.wire.codec import encode
from headgate.wire.messages.data import ProducePartition, ProduceRequest, ProduceTopic
from headgate.wire.primitives import write_uvarint

PRODUCE = 0
FEW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
STALE = [b"\x00" * 64, b"\xff" * 64, b"\x01" * 64, b"\x7f" * 64, b"\x80" * 64, b""]
UNKNOWN_TAGS = st.lists(st.binary(max_size=3), max_size=2).map(
    lambda contents: (
        write_uvarint(len(contents))
        + b"".join(write_uvarint(10_000 + at) + write_uvarint(len(one)) + one for at, one in enumerate(contents))
    )
)


def is_flexible(version: int) -> bool:
    return version >= 9


def produce_frame(
    version: int, acks: int, *, client_id: bytes | None, tags: bytes, transactional_id: str | None
) -> bytes:
    topic = ProduceTopic(topic_id=bytes(16), partition_data=(ProducePartition(records=b"records"),))
    body = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=(topic,))
    header = frames.RequestHeader(
        api_key=PRODUCE,
        api_version=version,
        correlation_id=7,
        client_id=client_id,
        tags=tags if is_flexible(version) else b"",
    )
    return frames.frame(header.encode(), encode(body, version))


@pytest.mark.parametrize("version", range(3, 14))
@FEW
@given(
    acks=st.sampled_from([-1, 0, 1]),
    client_id=st.one_of(st.none(), st.binary(max_size=6)),
    tags=UNKNOWN_TAGS,
    transactional_id=st.one_of(st.none(), st.text("abc", max_size=6)),
    stale=st.sampled_from(STALE),
)
def test_acks_are_read_as_soon_as_they_are_there(
    version: int, acks: int, client_id: bytes | None, tags: bytes, transactional_id: str | None, stale: bytes
) -> None:
    frame = produce_frame(version, acks, client_id=client_id, tags=tags, transactional_id=transactional_id)
    front = b"another request"
    found: list[int | None] = []
    for cut in range(frames.REQUEST_START.size, len(frame) + 1):
        buffer = front + frame[:cut] + stale
        found.append(frames.produce_acks(buffer, len(front), len(front) + cut, flexible=is_flexible(version)))
    first = found.index(acks)
    assert set(found[:first]) <= {None}
    assert set(found[first:]) == {acks}
    flexible_id = 1 + len(transactional_id or "")
    plain_id = 2 + len(transactional_id or "")
    ids = len(client_id or b"") + (len(tags) + flexible_id if is_flexible(version) else plain_id)
    assert first == ids + 2  # and no byte later


@pytest.mark.parametrize("version", [3, 13])
def test_a_produce_request_whose_acks_do_not_come_is_refused(version: int) -> None:
    start = pack(">ihhih", 1_000_000, PRODUCE, version, 1, 32_767) + bytes(32_767)
    endless = start + (b"\x00" + b"\xff\xff\xff\x7f" if is_flexible(version) else b"\x7f\xff") + bytes(100_000)
    if is_flexible(version):
        assert frames.produce_acks(endless, 0, frames.LONGEST_ACKS_PREFIX, flexible=True) is None
        with pytest.raises(WireError, match="without acks"):
            frames.produce_acks(endless, 0, frames.LONGEST_ACKS_PREFIX + 1, flexible=True)
    else:  # both ids have int16 lengths: acks cannot be so far away
        assert frames.produce_acks(endless, 0, len(endless), flexible=False) == 0


def test_a_header_with_many_tags_is_refused_before_they_are_read() -> None:
    start = pack(">ihhih", 40_000_000, PRODUCE, 13, 1, -1)
    many = start + write_uvarint(20_000_000)
    with pytest.raises(WireError, match="20000000 fields"):
        frames.request_header(many, flexible=True)
    assert frames.produce_acks(many, 0, len(many), flexible=True) is None
    few = start + write_uvarint(frames.MOST_HEADER_TAGS) + b"\x05\x00" * frames.MOST_HEADER_TAGS
    _, body_at = frames.request_header(few, flexible=True)
    assert body_at == len(few)
    behind = b"\x00" + b"\x00\x01"  # no transactional id, acks=1
    assert frames.produce_acks(few + behind, 0, len(few + behind), flexible=True) == 1
    more = start + write_uvarint(frames.MOST_HEADER_TAGS + 1) + b"\x05\x00" * (frames.MOST_HEADER_TAGS + 1) + behind
    assert frames.produce_acks(more, 0, len(more), flexible=True) is None


@FEW
@given(
    key=st.integers(0, 2**15 - 1),
    version=st.integers(0, 2**15 - 1),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.one_of(st.none(), st.text(max_size=8)),
    tags=UNKNOWN_TAGS,
    flexible=st.booleans(),
    body=st.binary(max_size=8),
)
def test_a_header_reads_back_equal(
    key: int, version: int, correlation_id: int, client_id: str | None, tags: bytes, flexible: bool, body: bytes
) -> None:
    header = frames.RequestHeader(
        api_key=key,
        api_version=version,
        correlation_id=correlation_id,
        client_id=None if client_id is None else client_id.encode(),
        tags=tags if flexible else b"",
    )
    frame = frames.frame(header.encode(), body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    read, body_at = frames.request_header(frame, flexible=flexible)
    assert read == header
    assert frame[body_at:] == body


@FEW
@given(hostile=st.binary(min_size=10, max_size=40), flexible=st.booleans())
def test_hostile_headers_are_read_or_refused(hostile: bytes, flexible: bool) -> None:
    frame = pack(">i", len(hostile)) + hostile
    try:
        header, body_at = frames.request_header(frame, flexible=flexible)
    except WireError:
        pass
    else:
        assert frame[4:body_at] == header.encode()
    with suppress(WireError):
        assert 4 <= frames.response_body(hostile, flexible=flexible) <= len(hostile)
    acks = frames.produce_acks(frame, 0, len(frame), flexible=flexible)
    assert acks is None or -(2**15) <= acks < 2**15


@pytest.mark.parametrize("length", [-2, -(2**15), 1, 2**15 - 1])
def test_a_client_id_that_is_not_there_is_refused(length: int) -> None:
    with pytest.raises(WireError, match="client id"):
        frames.request_header(pack(">ihhih", 10, 3, 9, 1, length), flexible=False)


def test_the_header_of_an_answer() -> None:
    assert frames.response_header(b"\x00\x00\x00\x07", flexible=False) == b"\x00\x00\x00\x07"
    flexible = frames.response_header(b"\x00\x00\x00\x07", flexible=True)
    assert flexible == b"\x00\x00\x00\x07\x00"
    assert frames.response_body(flexible + b"body", flexible=True) == 5
    assert frames.response_body(b"\x00\x00\x00\x07body", flexible=False) == 4
