"""Nothing is lost silently: what a version cannot carry is refused, and unknown tags are written back."""

import re

import pytest

from headgate.base.errors import WireError
from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeature, MetadataRequest
from headgate.wire.messages.data import ProduceResponse
from headgate.wire.messages.groups import HeartbeatRequest
from headgate.wire.messages.share import ShareFetchRequest, ShareFetchTopic
from headgate.wire.schema import Message


@pytest.mark.parametrize(
    ("message", "version", "text"),
    [
        (HeartbeatRequest(group_instance_id="i"), 2, "group_instance_id: this version has no such field"),
        (MetadataRequest(topics=None), 0, "topics: null"),
        (ApiVersionsResponse(error_code=40_000), 0, "error_code"),
        (HeartbeatRequest(group_id="\ud800"), 4, "group_id"),
        (ApiVersionsResponse(finalized_features_epoch=7, unknown_tags=((1, b""),)), 3, "unknown_tags: tag 1 twice"),
        (ProduceResponse(unknown_tags=((9, b""),)), 8, "unknown_tags"),
        (ShareFetchRequest(topics=(ShareFetchTopic(topic_id=b"short"),)), 1, "topics.topic_id: an id has 16 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_version_cannot_carry_is_refused(message: Message, version: int, text: str) -> None:
    with pytest.raises(WireError, match=re.escape(f"{type(message).__name__} v{version}, {text}")):
        encode(message, version)


def test_a_value_that_kafka_calls_ignorable_is_left_out() -> None:
    assert encode(ApiVersionsRequest(cluster_id="c", node_id=3), 0) == b""


def test_unknown_tags_are_kept_and_written_back_in_order_among_known_ones() -> None:
    message = ApiVersionsResponse(
        finalized_features_epoch=7,
        finalized_features=(FinalizedFeature(name="f", max_version_level=1, unknown_tags=((5, b"x"),)),),
        unknown_tags=((10_000, b"late"), (4, b"early")),
    )
    written = encode(message, 4)
    back = decode(ApiVersionsResponse, 4, written)
    assert back.unknown_tags == ((4, b"early"), (10_000, b"late"))
    assert back.finalized_features[0].unknown_tags == ((5, b"x"),)
    assert encode(back, 4) == written
    tail = written[7:]  # behind error code, empty array and throttle time
    assert tail[:2] == bytes((4, 1))
    assert [tail.index(b"\x01\x08"), tail.index(b"early"), tail.index(b"late")] == sorted(
        [tail.index(b"\x01\x08"), tail.index(b"early"), tail.index(b"late")]
    )
