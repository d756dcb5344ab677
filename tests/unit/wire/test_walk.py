"""A walker finds the tail wherever a frame is cut, lets nothing of it out, and refuses lengths that cannot be."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.base.errors import WireError
from headgate.wire import walk
from headgate.wire.codec import encode
from headgate.wire.messages.data import (
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)
from headgate.wire.messages.share import ShareAcknowledgeResponse, ShareFetchResponse
from headgate.wire.primitives import write_uvarint
from headgate.wire.schema import Message
from tests.support.messages import instances, name_of

Case = tuple[type[Message], int]

ANSWERS: tuple[Case, ...] = tuple(
    (cls, version)
    for cls in (ProduceResponse, FetchResponse, ShareFetchResponse, ShareAcknowledgeResponse)
    for version in cls.valid
)
CORRELATION_ID = b"\x00\x00\x00\x2a"
FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
HOSTILE = [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 7, b"\x00"]


def header_tags(flexible: bool) -> st.SearchStrategy[bytes]:
    """The tag section of an answer's header: nearly always empty, but it need not be."""
    if not flexible:
        return st.just(b"")
    field = st.binary(max_size=3).map(lambda content: b"\x90\x4e" + write_uvarint(len(content)) + content)
    return st.one_of(st.just(b"\x00"), field.map(lambda one: b"\x01" + one))


def tail_of(message: Message, version: int) -> int:
    """How long the tail is, by the codec: what is left out when the last fields are left out."""
    whole = encode(message, version)
    if version not in message.flexible:
        return 0
    empty: dict[str, Any] = {"unknown_tags": ()}
    if any(spec.name == "node_endpoints" and version in spec.versions for spec in message.layout.fields):
        empty["node_endpoints"] = ()
    plain_array = isinstance(message, ShareFetchResponse | ShareAcknowledgeResponse)
    return len(whole) - len(encode(replace(message, **empty), version)) + (2 if plain_array else 1)


def pieces(content: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    for begin, end in zip((0, *cuts), (*cuts, len(content)), strict=True):
        yield content[begin:end]


def walked(walker: walk.Walker, content: bytes, cuts: Sequence[int] = ()) -> bytes:
    """Feed the content as a link does, cut at these places: what was let out before the tail."""
    out = kept = b""
    for piece in pieces(content, cuts):
        buffer = kept + piece
        if walker.at_tail:
            break
        used = walker.feed(b"?" + buffer + b"?", 1, 1 + len(buffer)) - 1
        assert 0 <= used <= len(buffer)
        out += buffer[:used]
        kept = buffer[used:]
        assert walker.left == len(content) - len(out)
    return out


@pytest.mark.parametrize("case", ANSWERS, ids=name_of)
@FEW
@given(data=st.data())
def test_the_tail_is_found_wherever_the_frame_is_cut(case: Case, data: st.DataObject) -> None:
    cls, version = case
    program = walk.response_program(cls, version)
    message = data.draw(instances(cls, version))
    front = CORRELATION_ID + data.draw(header_tags(version in cls.flexible))
    content = front + encode(message, version)
    before_tail = content[: len(content) - tail_of(message, version)]
    for cut in range(1, len(content)):
        walker = walk.Walker(program, len(content))
        assert walked(walker, content, [cut]) == before_tail
        assert walker.at_tail
    walker = walk.Walker(program, len(content))
    assert walked(walker, content, range(1, len(content))) == before_tail
    walker = walk.Walker(program, len(content))
    assert walked(walker, content) == before_tail


@pytest.mark.parametrize("case", ANSWERS, ids=name_of)
@FEW
@given(data=st.data())
def test_mutated_frames_are_walked_or_refused_alike_wherever_they_are_cut(case: Case, data: st.DataObject) -> None:
    cls, version = case
    program = walk.response_program(cls, version)
    content = CORRELATION_ID + b"\x00" * (version in cls.flexible) + encode(data.draw(instances(cls, version)), version)
    for _ in range(5):
        at = data.draw(st.integers(0, len(content)))
        gone = data.draw(st.integers(0, 5))
        hostile = content[:at] + data.draw(st.sampled_from(HOSTILE)) + content[at + gone :]
        results: set[bytes | None] = set()
        for cuts in ([], data.draw(st.lists(st.integers(1, len(hostile) - 1), max_size=4)), range(1, len(hostile))):
            walker = walk.Walker(program, len(hostile))
            try:
                results.add(walked(walker, hostile, sorted(set(cuts))))
                assert walker.at_tail
            except WireError:
                results.add(None)
        assert len(results) == 1


@pytest.mark.parametrize(
    ("cls", "version", "content", "text"),
    [
        (FetchResponse, 12, "0000002a 00 00000000 0000 00000000", "ends before"),
        (FetchResponse, 12, "0000002a 00 00000000 0000 00000000 ffffffff0f", "ends before"),  # 2^32 topics
        (FetchResponse, 12, "0000002a 00 00000000 0000 00000000 ffffffffff01", "more than five bytes"),
        (FetchResponse, 12, "0000002a ffffffff0f 0000 0000 0000", "more than 1000"),  # 2^32 tags in the header
        (FetchResponse, 12, "0000002a 01 00 ffffffff0f", "past the end"),  # a tag of 4 GiB
        (FetchResponse, 4, "0000002a 00000000 7fffffff", "ends before"),
        (FetchResponse, 4, "0000002a 00000000 fffffffe", "negative"),
        (FetchResponse, 4, "0000002a 00000000 00000001 8000", "negative"),
        (FetchResponse, 4, "0000002a", "past the end"),
        (FetchResponse, 12, "0000002a 80", "ends before"),  # the frame ends inside a number
        (ProduceResponse, 3, "0000002a 00000000 0000", "past the end"),
    ],
)
def test_a_length_that_the_frame_does_not_hold_is_refused(
    cls: type[Message], version: int, content: str, text: str
) -> None:
    program = walk.response_program(cls, version)
    frame = bytes.fromhex(content)
    for cuts in (range(0), range(1, len(frame))):
        with pytest.raises(WireError, match=text):
            walked(walk.Walker(program, len(frame)), frame, cuts)


def test_records_are_jumped_over_and_never_looked_at() -> None:
    head = bytes.fromhex("0000002a 00 00000000 0000 00000000 02") + bytes(16) + b"\x02"
    partition = bytes(4 + 2 + 8 + 8 + 8) + b"\x00" + bytes(4)
    size = 50_000_000
    behind = b"\x00\x00" + b"\x00"  # tags of partition and topic, and the tail
    front = head + partition + write_uvarint(size + 1)
    walker = walk.Walker(walk.response_program(FetchResponse, 16), len(front) + size + len(behind))
    assert walker.feed(front, 0, len(front)) == len(front)
    records = bytes(1_000_000)
    for _ in range(size // len(records)):
        assert walker.feed(records, 0, len(records)) == len(records)
    assert walker.feed(behind, 0, len(behind)) == 2
    assert walker.at_tail
    assert walker.left == 1


def test_a_frame_that_ends_exactly_at_a_cut_is_at_its_tail() -> None:
    # Version 3 is not flexible: the tail is empty, and the last field ends with the frame.
    content = CORRELATION_ID + encode(ProduceResponse(), 3)
    for cut in range(1, len(content)):
        walker = walk.Walker(walk.response_program(ProduceResponse, 3), len(content))
        assert walked(walker, content, [cut]) == content
        assert walker.at_tail
        assert not walker.left


def plain(cls: type[Message], version: int, content: bytes) -> tuple[tuple[int, int] | None, bytes]:
    """The mask of a frame without its size, and the frame."""
    frame = len(content).to_bytes(4, "big") + content
    walker = walk.Walker(walk.response_program(cls, version), len(content))
    walker.lengths = []
    at = walker.feed(frame, 4, len(frame))
    return walk.plain_mask(walker, frame, at), frame


@pytest.mark.parametrize("case", ANSWERS, ids=name_of)
@FEW
@given(data=st.data())
def test_a_frame_under_the_mask_of_another_has_the_same_walk_and_the_same_tail(case: Case, data: st.DataObject) -> None:
    cls, version = case
    message = data.draw(instances(cls, version))
    front = CORRELATION_ID + data.draw(header_tags(version in cls.flexible))
    learned, frame = plain(cls, version, front + encode(message, version))
    if learned is None:
        return
    mask, value = learned
    own = int.from_bytes(frame)
    assert own & mask == value
    program = walk.response_program(cls, version)
    walker = walk.Walker(program, len(frame) - 4)
    at = walker.feed(frame, 4, len(frame))
    assert own & ((1 << 8 * (len(frame) - at)) - 1) == value & ((1 << 8 * (len(frame) - at)) - 1)
    for _ in range(5):
        noise = int.from_bytes(data.draw(st.binary(min_size=len(frame), max_size=len(frame))))
        other = (value | noise & ~mask).to_bytes(len(frame))  # all that is not under the mask is something else
        walker = walk.Walker(program, len(frame) - 4)
        assert walker.feed(other, 4, len(other)) == at
        assert walker.at_tail
        assert other[at:] == frame[at:]
    for place, byte in enumerate(mask.to_bytes(len(frame))):
        assert byte in (0, 0xFF)
        if byte:
            flipped = own ^ data.draw(st.integers(1, 0xFF)) << 8 * (len(frame) - 1 - place)
            assert flipped & mask != value


@pytest.mark.parametrize("case", ANSWERS, ids=name_of)
@FEW
@given(data=st.data())
def test_every_byte_that_changes_the_walk_is_under_the_mask(case: Case, data: st.DataObject) -> None:
    cls, version = case
    content = CORRELATION_ID + b"\x00" * (version in cls.flexible) + encode(data.draw(instances(cls, version)), version)
    learned, frame = plain(cls, version, content)
    if learned is None:
        return
    program = walk.response_program(cls, version)
    walker = walk.Walker(program, len(content))
    at = walker.feed(frame, 4, len(frame))
    for place in range(4, len(frame)):
        other = bytearray(frame)
        other[place] ^= data.draw(st.sampled_from((0x01, 0x80, 0xFF)))
        walker = walk.Walker(program, len(content))
        try:
            is_alike = walker.feed(other, 4, len(other)) == at and other[at:] == frame[at:]
        except WireError:
            is_alike = False
        assert is_alike or learned[0] >> 8 * (len(frame) - 1 - place) & 0xFF == 0xFF


def test_frames_with_tagged_fields_or_with_room_for_an_address_have_no_mask() -> None:
    partition = ProducePartitionResponse(index=1)
    topic = ProduceTopicResponse(topic_id=bytes(16), partition_responses=(partition,))
    front = CORRELATION_ID + b"\x00"
    assert plain(ProduceResponse, 13, front + encode(ProduceResponse(responses=(topic,)), 13))[0] is not None
    node = NodeEndpoint(node_id=1, host="b", port=9092)
    assert plain(ProduceResponse, 13, front + encode(ProduceResponse(node_endpoints=(node,)), 13))[0] is None
    assert plain(ShareFetchResponse, 2, front + encode(ShareFetchResponse(node_endpoints=(node,)), 2))[0] is None
    tagged = replace(partition, current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=3))
    topic = replace(topic, partition_responses=(tagged,))
    assert plain(ProduceResponse, 13, front + encode(ProduceResponse(responses=(topic,)), 13))[0] is None
    assert plain(ProduceResponse, 13, CORRELATION_ID + b"\x01\x05\x00" + encode(ProduceResponse(), 13))[0] is None
