"""What a call of the data plane used is found wherever its answer is cut, and a broken answer only ends the walk."""

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.base.errors import WireError
from headgate.wire.codec import encode
from headgate.wire.messages.data import (
    AbortedTransaction,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from headgate.wire.messages.share import ShareFetchResponse
from headgate.wire.schema import Message
from headgate.wire.topic_use import FETCH, PRODUCE, SHARE_FETCH, ResponseUsage, produce_start, topic_layout
from tests.support.fake_upstream import answer
from tests.support.messages import instances

ID_1, ID_2 = b"1" * 16, b"2" * 16
ANSWERS: list[tuple[int, type[Message], int]] = [
    *((PRODUCE, ProduceResponse, version) for version in range(3, 14)),
    *((FETCH, FetchResponse, version) for version in range(4, 19)),
    *((SHARE_FETCH, ShareFetchResponse, version) for version in (1, 2)),
]
FEW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


def batch(records: int = 3, *, control: bool = False, size: int = 80) -> bytes:
    """As much of a record batch as anybody reads, then filling."""
    head = struct.pack(">qiibIhi", 0, size - 12, 0, 2, 0, 0x20 if control else 0, records - 1)
    return head + bytes(size - len(head))


def walked(key: int, version: int, frame: bytes, step: int = 0) -> ResponseUsage:
    use = ResponseUsage(topic_layout(key, version))
    for at in range(0, len(frame), step or len(frame)):
        use.feed(memoryview(frame)[at : at + (step or len(frame))])
    use.feed(memoryview(b""))
    return use


def key_of(topic: Any, key: int, version: int) -> bytes:
    if key == SHARE_FETCH or version >= 13:
        return bytes(topic.topic_id)
    return str(topic.topic if key == FETCH else topic.name).encode()


def data_in(records: bytes | None) -> int:
    """The oracle: bytes of batches behind leading control batches."""
    rest = records or b""
    while len(rest) >= 27:
        _, length, _, _, _, attributes, _ = struct.unpack_from(">qiibIhi", rest)
        if not attributes & 0x20:
            return len(rest)
        rest = rest[12 + max(length, 27) :]
    return 0


def expected(message: Any, key: int, version: int) -> dict[bytes, int]:
    used: dict[bytes, int] = {}
    for topic in message.responses:
        for partition in topic.partition_responses if key == PRODUCE else topic.partitions:
            size = 1 if key == PRODUCE else data_in(partition.records)
            if size and not partition.error_code:
                name = key_of(topic, key, version)
                used[name] = used.get(name, 0) + size
    return used


@pytest.mark.parametrize(("key", "cls", "version"), ANSWERS)
@FEW
@given(st.data())
def test_of_any_answer_the_same_is_found_however_it_is_cut(
    key: int, cls: type[Message], version: int, data: st.DataObject
) -> None:
    message = data.draw(instances(cls, version))
    frame = answer(key, version, 7, message)
    whole = walked(key, version, frame)
    assert whole.is_done
    assert whole.used == expected(message, key, version)
    assert whole.topics == len(message.responses)  # type: ignore[attr-defined]
    assert walked(key, version, frame, data.draw(st.integers(1, 40))).used == whole.used


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
@pytest.mark.parametrize("step", [0, 1, 7, 64])
def test_a_fetch_uses_the_topics_of_which_it_brings_records(version: int, step: int) -> None:
    def topic(name: str, number: bytes, *partitions: FetchPartitionResponse) -> FetchTopicResponse:
        return FetchTopicResponse(topic=name, topic_id=number, partitions=partitions)

    aborted = (AbortedTransaction(producer_id=1, first_offset=2),) * 3
    message = FetchResponse(
        responses=(
            topic(
                "a",
                ID_1,
                FetchPartitionResponse(records=batch(size=100)),
                FetchPartitionResponse(records=b""),
                FetchPartitionResponse(records=None, error_code=6),
                FetchPartitionResponse(records=batch(control=True) + batch(size=90), aborted_transactions=aborted),
            ),
            topic("b", ID_2, FetchPartitionResponse(records=batch(control=True) * 2)),
        )
    )
    use = walked(FETCH, version, answer(FETCH, version, 7, message), step)
    assert use.used == {ID_1 if version >= 13 else b"a": 190}
    assert use.topics == 2


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_a_produce_uses_the_topics_that_took_something(version: int) -> None:
    message = ProduceResponse(
        responses=(
            ProduceTopicResponse(
                name="a",
                topic_id=ID_1,
                partition_responses=(ProducePartitionResponse(error_code=29), ProducePartitionResponse()),
            ),
            ProduceTopicResponse(
                name="b", topic_id=ID_2, partition_responses=(ProducePartitionResponse(error_code=29),)
            ),
        )
    )
    use = walked(PRODUCE, version, answer(PRODUCE, version, 7, message))
    assert use.used == {ID_1 if version >= 13 else b"a": 1}


@pytest.mark.parametrize(("key", "cls", "version"), ANSWERS)
@FEW
@given(st.data())
def test_an_answer_that_is_broken_is_refused_or_walked_but_nothing_worse(
    key: int, cls: type[Message], version: int, data: st.DataObject
) -> None:
    frame = bytearray(answer(key, version, 7, data.draw(instances(cls, version))))
    for _ in range(data.draw(st.integers(1, 5))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with suppress(WireError):
        walked(key, version, bytes(frame), data.draw(st.integers(0, 30)))


def test_an_answer_of_nothing_but_partitions_or_tags_does_not_keep_the_loop() -> None:
    partition = ProducePartitionResponse(error_code=29)
    topic = ProduceTopicResponse(topic_id=ID_1, partition_responses=(partition,) * 3000)
    use = walked(PRODUCE, 13, answer(PRODUCE, 13, 7, ProduceResponse(responses=(topic,))))
    assert use.is_done
    tags = bytes((0xFF, 0x7F)) + bytes(3 * 16383)
    with pytest.raises(WireError):
        walked(PRODUCE, 13, struct.pack(">ii", 4 + len(tags), 7) + tags)


# The beginning of a Produce request.


def produce(version: int, *topics: ProduceTopic, transactional_id: str | None = None) -> bytes:
    return encode(ProduceRequest(transactional_id=transactional_id, acks=-1, topic_data=topics), version)


def one_topic(records: bytes | None, partitions: int = 1) -> ProduceTopic:
    data = tuple(ProducePartition(index=index, records=records) for index in range(partitions))
    return ProduceTopic(name="orders", topic_id=ID_1, partition_data=data)


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("transactional_id", [None, "tx-1"])
def test_a_produce_of_one_topic_says_which_and_how_many_records(version: int, transactional_id: str | None) -> None:
    body = produce(version, one_topic(batch(records=7), partitions=2), transactional_id=transactional_id)
    start = produce_start(body, version)
    assert start is not None
    assert start.topic == (ID_1 if version >= 13 else b"orders")
    assert body[: start.end].endswith(start.topic)
    assert (start.topics, start.partitions, start.records) == (1, 2, 7)
    assert start.transactional_id == (None if transactional_id is None else b"tx-1")


@pytest.mark.parametrize("version", [3, 9, 13])
def test_of_a_produce_that_is_only_partly_here_nothing_wrong_is_said(version: int) -> None:
    body = produce(version, one_topic(batch(records=7)))
    whole = produce_start(body, version)
    assert whole is not None
    for size in range(len(body)):
        start = produce_start(memoryview(body)[:size], version)
        assert (start is None) == (size < whole.end)
        assert start is None or (start.topic, start.end) == (whole.topic, whole.end)
        assert start is None or start.records in (None, 7)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_of_a_produce_of_several_topics_only_their_number_is_said(version: int) -> None:
    start = produce_start(produce(version, one_topic(batch()), one_topic(batch())), version)
    assert start is not None
    assert (start.topics, start.topic) == (2, None)


@given(st.binary(max_size=60), st.sampled_from([3, 9, 13]))
def test_whatever_is_sent_as_a_produce_is_read_or_not(body: bytes, version: int) -> None:
    start = produce_start(body, version)
    assert start is None or start.end <= len(body) or start.topic is None
