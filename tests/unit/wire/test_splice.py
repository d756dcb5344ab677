"""A splice changes hosts and ports exactly as decoding, replacing and encoding would, and no other byte."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.base.errors import WireError
from headgate.base.ids import NodeId
from headgate.wire import splice
from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import DescribeClusterResponse, FindCoordinatorResponse, MetadataResponse
from headgate.wire.messages.data import FetchResponse, NodeEndpoint, ProduceResponse
from headgate.wire.messages.share import ShareAcknowledgeResponse, ShareFetchResponse
from headgate.wire.primitives import Buffer
from headgate.wire.schema import Message
from tests.support.messages import instances

Rewrite = Callable[[Buffer, int, splice.Lookup], splice.Steps]
Case = tuple[Rewrite, type[Message], int]

CASES: tuple[Case, ...] = (
    *((splice.metadata, MetadataResponse, version) for version in range(14)),
    *((splice.find_coordinator, FindCoordinatorResponse, version) for version in range(7)),
    *((splice.describe_cluster, DescribeClusterResponse, version) for version in range(3)),
)
TAILS: tuple[tuple[splice.TailSplice, type[Message], int], ...] = (
    *((splice.tagged_endpoints, ProduceResponse, version) for version in range(10, 14)),
    *((splice.tagged_endpoints, FetchResponse, version) for version in range(16, 19)),
    *((splice.plain_endpoints, ShareFetchResponse, version) for version in (1, 2)),
    *((splice.plain_endpoints, ShareAcknowledgeResponse, version) for version in (1, 2)),
)
FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
HOST = "gateway.example"
# On both sides of the sizes where a varint needs one byte more.
LENGTHS = (*range(300), *range(16_340, 16_420))


def name_of(case: tuple[Any, type[Message], int]) -> str:
    return f"{case[1].__name__}-v{case[2]}"


def port_of(node: int) -> int:
    return 9000 + node % 1000


def lookup(node: NodeId) -> splice.EncodedAddress:
    return splice.EncodedAddress.of(HOST, port_of(node))


def refused(node: NodeId) -> splice.EncodedAddress:
    raise AssertionError(f"node {node} was looked up")


def moved(node: Any) -> Any:
    """A broker, coordinator or endpoint with the address that the lookup gives; -1 is nobody and stays."""
    number = node.broker_id if hasattr(node, "broker_id") else node.node_id
    return replace(node, host=HOST, port=port_of(number)) if number >= 0 else node


def moved_answer(message: Any, version: int) -> Message:
    match message:
        case FindCoordinatorResponse() if version <= 3:
            changed: Message = moved(message)
        case FindCoordinatorResponse(coordinators=nodes):
            changed = replace(message, coordinators=tuple(map(moved, nodes)))
        case MetadataResponse(brokers=brokers):
            changed = replace(message, brokers=tuple(map(moved, brokers)))
        case DescribeClusterResponse(brokers=cluster):
            changed = replace(message, brokers=tuple(map(moved, cluster)))
        case _:
            changed = replace(message, node_endpoints=tuple(map(moved, message.node_endpoints)))
    return changed


def empty_tail(cls: type[Message]) -> bytes:
    return b"\x00" if cls in {ProduceResponse, FetchResponse} else b"\x01\x00"


def tail_at(message: Any, version: int) -> int:
    """Where the tail begins: behind everything that an answer without endpoints and tags has."""
    without = encode(replace(message, node_endpoints=(), unknown_tags=()), version)
    return len(without) - len(empty_tail(type(message)))


@pytest.mark.parametrize("case", CASES, ids=name_of)
@FEW
@given(data=st.data())
def test_a_splice_equals_decoding_and_encoding(case: Case, data: st.DataObject) -> None:
    rewrite, cls, version = case
    message = data.draw(instances(cls, version))
    expected = encode(moved_answer(message, version), version)
    body = encode(message, version)
    assert splice.finish(rewrite(body, version, lookup)) == expected
    assert splice.finish(rewrite(memoryview(body), version, lookup)) == expected


@pytest.mark.parametrize("case", TAILS, ids=name_of)
@FEW
@given(data=st.data())
def test_endpoints_in_a_tail_are_replaced(
    case: tuple[splice.TailSplice, type[Message], int], data: st.DataObject
) -> None:
    rewrite, cls, version = case
    message = data.draw(instances(cls, version))
    at = tail_at(message, version)
    body = encode(message, version)
    assert body[:at] + rewrite(body[at:], lookup, keep_length=False) == encode(moved_answer(message, version), version)


@pytest.mark.parametrize("case", TAILS, ids=name_of)
@FEW
@given(data=st.data())
def test_with_its_length_kept_an_answer_loses_its_endpoints_and_nothing_else(
    case: tuple[splice.TailSplice, type[Message], int], data: st.DataObject
) -> None:
    rewrite, cls, version = case
    message: Any = data.draw(instances(cls, version))
    at = tail_at(message, version)
    body = encode(message, version)
    changed = rewrite(body[at:], lookup, keep_length=True)
    assert len(changed) == len(body) - at
    answer: Any = decode(cls, version, body[:at] + changed)
    assert answer.node_endpoints == ()
    added = [tag for tag in answer.unknown_tags if tag not in message.unknown_tags]
    assert answer == replace(message, node_endpoints=(), unknown_tags=answer.unknown_tags)
    assert set(message.unknown_tags) <= set(answer.unknown_tags)
    assert all(not any(filling) for _, filling in added)
    assert len(added) == bool(message.node_endpoints)


@pytest.mark.parametrize("cls", [FetchResponse, ShareFetchResponse])
def test_every_size_of_a_tail_can_keep_its_length(cls: type[Message]) -> None:
    version = cls.valid[-1]
    rewrite = splice.tagged_endpoints if cls is FetchResponse else splice.plain_endpoints
    message: Any = cls()
    for length in LENGTHS:
        host = "h" * length
        full = replace(message, node_endpoints=(NodeEndpoint(node_id=1, host=host, port=9092),))
        body = encode(full, version)
        at = tail_at(full, version)
        changed = rewrite(body[at:], refused if cls is FetchResponse else lookup, keep_length=True)
        assert len(changed) == len(body) - at
        answer: Any = decode(cls, version, body[:at] + changed)
        assert replace(answer, unknown_tags=()) == message
        assert b"hhh" not in changed


@pytest.mark.parametrize("tags", range(120, 131))
def test_a_tag_section_may_grow_to_a_longer_count(tags: int) -> None:
    unknown = tuple((20_000 + number, b"x") for number in range(tags))
    full = ShareFetchResponse(node_endpoints=(NodeEndpoint(node_id=1, host="", port=1),), unknown_tags=unknown)
    body = encode(full, 2)
    at = tail_at(full, 2)
    answer = decode(ShareFetchResponse, 2, body[:at] + splice.plain_endpoints(body[at:], lookup, keep_length=True))
    assert answer.node_endpoints == ()
    assert answer.unknown_tags[:tags] == unknown
    assert len(answer.unknown_tags) == tags + 1


@pytest.mark.parametrize("rewrite", [splice.tagged_endpoints, splice.plain_endpoints])
@pytest.mark.parametrize("keep_length", [True, False])
def test_a_tail_without_endpoints_stays_as_it_is(rewrite: splice.TailSplice, keep_length: bool) -> None:
    front = b"" if rewrite is splice.tagged_endpoints else b"\x01"
    for tags in ("00", "01904e02aabb", "020300904e00"):
        tail = front + bytes.fromhex(tags)
        assert rewrite(tail, refused, keep_length=keep_length) == tail


@pytest.mark.parametrize("case", [*CASES, *TAILS], ids=name_of)
@FEW
@given(data=st.data(), noise=st.binary(max_size=24))
def test_hostile_bytes_are_spliced_or_refused(
    case: tuple[Any, type[Message], int], data: st.DataObject, noise: bytes
) -> None:
    rewrite, cls, version = case
    body = encode(data.draw(instances(cls, version)), version)
    at, gone = data.draw(st.integers(0, len(body))), data.draw(st.integers(0, 6))
    for hostile in (body[:at], body[:at] + noise + body[at + gone :], noise):
        try:
            if (rewrite, cls, version) in CASES:
                splice.finish(rewrite(hostile, version, lookup))
            else:
                rewrite(hostile, lookup, keep_length=False)
                kept = rewrite(hostile, lookup, keep_length=True)
                assert len(kept) == len(hostile)
        except WireError:
            pass


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        ("", "inside a varint"),
        ("ff", "inside a varint"),
        ("ffffffff0f", "more than 1000"),
        ("0100ffffffff0f", "past the end"),
        ("010002 0100 00", "behind the last field"),
        ("01 00 8100 01", "shortest form"),  # a size in more bytes than it needs
        ("01 8000 01 01", "shortest form"),
    ],
)
def test_a_tag_section_that_cannot_be_walked_is_refused(tail: str, text: str) -> None:
    with pytest.raises(WireError, match=text):
        splice.tagged_endpoints(bytes.fromhex(tail), lookup, keep_length=True)


def test_a_tail_of_no_bytes_is_refused() -> None:
    for keep_length in (True, False):
        with pytest.raises(WireError):
            splice.plain_endpoints(b"", lookup, keep_length=keep_length)
