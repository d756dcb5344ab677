"""Nothing is lost silently: what a version cannot carry is refused, and unknown tags are written back."""

import pytest

from headgate.base.errors import WireError
from headgate.wire.codec import decode, encode
from headgate.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeature, MetadataRequest
from headgate.wire.messages.data import ProduceResponse
from headgate.wire.messages.groups import HeartbeatRequest
from headgate.wire.messages.share import ShareFetchRequest, ShareFetchTopic


def test_a_value_that_the_version_lacks_is_refused() -> None:
    with pytest.raises(WireError, match=r"HeartbeatRequest v2, group_instance_id: this version has no such field"):
        encode(HeartbeatRequest(group_instance_id="i"), 2)


def test_a_value_that_kafka_calls_ignorable_is_left_out() -> None:
    assert encode(ApiVersionsRequest(cluster_id="c", node_id=3), 0) == b""


def test_a_null_that_the_version_lacks_is_refused() -> None:
    with pytest.raises(WireError, match=r"MetadataRequest v0, topics: null"):
        encode(MetadataRequest(topics=None), 0)


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(WireError, match=r"ApiVersionsResponse v0, error_code"):
        encode(ApiVersionsResponse(error_code=40_000), 0)


def test_text_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(WireError, match=r"HeartbeatRequest v4, group_id"):
        encode(HeartbeatRequest(group_id="\ud800"), 4)


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


def test_an_unknown_tag_that_is_a_known_one_is_refused() -> None:
    with pytest.raises(WireError, match="tag 1 twice"):
        encode(ApiVersionsResponse(finalized_features_epoch=7, unknown_tags=((1, b""),)), 3)


def test_unknown_tags_are_refused_in_a_version_without_tags() -> None:
    with pytest.raises(WireError, match="ProduceResponse v8, unknown_tags"):
        encode(ProduceResponse(unknown_tags=((9, b""),)), 8)


def test_an_id_of_another_size_than_sixteen_bytes_is_refused() -> None:
    message = ShareFetchRequest(topics=(ShareFetchTopic(topic_id=b"short"),))
    with pytest.raises(WireError, match=r"ShareFetchRequest v1, topics.topic_id: an id has 16 bytes"):
        encode(message, 1)
