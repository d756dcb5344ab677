"""What is read by hand of share calls is what the codec reads of them, and a splice changes only what it should."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import WireError
from headgate.wire import share_requests
from headgate.wire.codec import decode, encode
from headgate.wire.messages.share import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareAcknowledgePartition,
    ShareAcknowledgePartitionResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopic,
    ShareAcknowledgeTopicResponse,
    ShareFetchPartition,
    ShareFetchPartitionResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    ShareFetchTopicResponse,
)

VERSIONS = (1, 2)
ids = st.binary(min_size=16, max_size=16)
small = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**62)
codes = st.integers(-1, 140)
texts = st.none() | st.text(max_size=300)
names = st.none() | st.text(st.characters(codec="utf-8"), max_size=200)
batches = st.builds(
    AcknowledgementBatch,
    first_offset=offsets,
    last_offset=offsets,
    acknowledge_types=st.lists(st.integers(0, 4), max_size=20).map(tuple),
)
acquired = st.builds(
    AcquiredRecords, first_offset=offsets, last_offset=offsets, delivery_count=st.integers(0, 2**15 - 1)
)


def up_to(element: st.SearchStrategy[object], most: int = 4) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(element, max_size=most).map(tuple)


fetch_requests = st.builds(
    ShareFetchRequest,
    group_id=names,
    member_id=names,
    share_session_epoch=st.integers(-1, 2**31 - 1),
    max_wait_ms=small,
    min_bytes=small,
    max_bytes=small,
    max_records=small,
    batch_size=small,
    topics=up_to(
        st.builds(
            ShareFetchTopic,
            topic_id=ids,
            partitions=up_to(
                st.builds(ShareFetchPartition, partition_index=small, acknowledgement_batches=up_to(batches))
            ),
        )
    ),
)
acknowledge_requests = st.builds(
    ShareAcknowledgeRequest,
    group_id=names,
    member_id=names,
    share_session_epoch=st.integers(-1, 2**31 - 1),
    topics=up_to(
        st.builds(
            ShareAcknowledgeTopic,
            topic_id=ids,
            partitions=up_to(
                st.builds(ShareAcknowledgePartition, partition_index=small, acknowledgement_batches=up_to(batches))
            ),
        )
    ),
)
fetch_answers = st.builds(
    ShareFetchResponse,
    throttle_time_ms=small,
    error_code=codes,
    error_message=texts,
    acquisition_lock_timeout_ms=small,
    responses=up_to(
        st.builds(
            ShareFetchTopicResponse,
            topic_id=ids,
            partitions=up_to(
                st.builds(
                    ShareFetchPartitionResponse,
                    partition_index=small,
                    error_code=codes,
                    error_message=texts,
                    acknowledge_error_code=codes,
                    acknowledge_error_message=texts,
                    records=st.binary(max_size=400),
                    acquired_records=up_to(acquired),
                )
            ),
        )
    ),
)
acknowledge_answers = st.builds(
    ShareAcknowledgeResponse,
    error_code=codes,
    error_message=texts,
    responses=up_to(
        st.builds(
            ShareAcknowledgeTopicResponse,
            topic_id=ids,
            partitions=up_to(
                st.builds(
                    ShareAcknowledgePartitionResponse, partition_index=small, error_code=codes, error_message=texts
                )
            ),
        )
    ),
)


Acks = dict[tuple[bytes, int], list[tuple[int, int, tuple[int, ...]]]]


def acks_of(request: ShareFetchRequest | ShareAcknowledgeRequest) -> Acks:
    """Of a partition that is named twice, what comes last."""
    last = {(topic.topic_id, one.partition_index): one for topic in request.topics for one in topic.partitions}
    return {
        place: [(b.first_offset, b.last_offset, b.acknowledge_types) for b in one.acknowledgement_batches]
        for place, one in last.items()
        if one.acknowledgement_batches
    }


def read_acks(request: share_requests.ShareRequest) -> Acks:
    found = {
        (one.topic_id, one.partition): [(b.first, b.last, tuple(b.types)) for b in one.batches] for one in request.acks
    }
    assert len(found) == len(request.acks)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@given(message=fetch_requests)
def test_a_fetch_is_read_as_the_codec_reads_it(version: int, message: ShareFetchRequest) -> None:
    body = encode(message, version)
    read = share_requests.read_fetch(body, version)
    assert (read.group, read.member, read.session_epoch, read.max_wait_ms) == (
        message.group_id,
        message.member_id,
        message.share_session_epoch,
        message.max_wait_ms,
    )
    assert read_acks(read) == acks_of(message)
    paused = share_requests.without_bytes(memoryview(body))
    assert paused == encode(replace(message, max_bytes=0), version)
    sooner = share_requests.with_wait(memoryview(body), 5)
    assert sooner == encode(replace(message, max_wait_ms=5), version)


@pytest.mark.parametrize("version", VERSIONS)
@given(message=acknowledge_requests)
def test_an_acknowledge_is_read_as_the_codec_reads_it(version: int, message: ShareAcknowledgeRequest) -> None:
    read = share_requests.read_acknowledge(encode(message, version), version)
    assert (read.group, read.member, read.session_epoch) == (
        message.group_id,
        message.member_id,
        message.share_session_epoch,
    )
    assert read_acks(read) == acks_of(message)


@pytest.mark.parametrize("version", VERSIONS)
@given(message=fetch_answers)
def test_an_answer_to_a_fetch_is_read_as_the_codec_reads_it(version: int, message: ShareFetchResponse) -> None:
    body = encode(message, version)
    read = share_requests.read_fetch_response(body, version)
    assert (read.error_code, read.lock_timeout_ms) == (message.error_code, message.acquisition_lock_timeout_ms)
    assert [
        (one.topic_id, one.partition, one.error_code, one.acknowledge_error_code, list(one.acquired))
        for one in read.partitions
    ] == [
        (
            topic.topic_id,
            one.partition_index,
            one.error_code,
            one.acknowledge_error_code,
            [(a.first_offset, a.last_offset, a.delivery_count) for a in one.acquired_records],
        )
        for topic in message.responses
        for one in topic.partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
@given(message=fetch_answers, most=st.integers(0, 2**15 - 1))
def test_stripping_takes_the_ranges_out_and_the_records_of_partitions_that_keep_none(
    version: int, message: ShareFetchResponse, most: int
) -> None:
    body = encode(message, version)
    answer = share_requests.read_fetch_response(body, version)
    kept = {
        index: [one for one in fetched.acquired if one.delivery_count <= most]
        for index, fetched in enumerate(answer.partitions)
        if any(one.delivery_count > most for one in fetched.acquired)
    }

    def strip(one: ShareFetchPartitionResponse) -> ShareFetchPartitionResponse:
        left = tuple(a for a in one.acquired_records if a.delivery_count <= most)
        if left == one.acquired_records:
            return one
        return replace(one, acquired_records=left, records=one.records if left else b"")

    expected = replace(
        message, responses=tuple(replace(t, partitions=tuple(map(strip, t.partitions))) for t in message.responses)
    )
    assert decode(ShareFetchResponse, version, share_requests.stripped(memoryview(body), kept, answer)) == expected


@pytest.mark.parametrize("version", VERSIONS)
@given(message=acknowledge_answers)
def test_an_answer_to_an_acknowledge_is_read_as_the_codec_reads_it(
    version: int, message: ShareAcknowledgeResponse
) -> None:
    read = share_requests.read_acknowledge_response(encode(message, version), version)
    assert read.error_code == message.error_code
    assert list(read.partitions) == [
        (topic.topic_id, one.partition_index, one.error_code) for topic in message.responses for one in topic.partitions
    ]


@given(data=st.binary(max_size=300), version=st.sampled_from(VERSIONS))
def test_whatever_the_bytes_are_reading_ends_in_an_answer_or_a_wire_error(data: bytes, version: int) -> None:
    for read in (
        share_requests.read_fetch,
        share_requests.read_acknowledge,
        share_requests.read_fetch_response,
        share_requests.read_acknowledge_response,
    ):
        with contextlib.suppress(WireError):
            read(data, version)


@given(group=st.text(max_size=300), before=st.binary(max_size=9), cut=st.integers(0, 400))
def test_the_group_of_a_request_is_seen_without_reading_it(group: str, before: bytes, cut: int) -> None:
    body = before + encode(ShareFetchRequest(group_id=group, member_id="m", share_session_epoch=1), 1)
    end = min(len(body), len(before) + cut)
    found = share_requests.group_bytes(memoryview(body), len(before), end)
    if found is not None:
        assert found == group.encode()
    else:
        assert len(group.encode()) > 126 or cut <= len(group.encode())
