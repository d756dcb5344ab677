"""Reading end offsets from scripted brokers, and writing the growth of topics."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headgate.activity import end_offset_poller
from headgate.activity.end_offset_poller import EndOffsetPoller, read_end_offsets
from headgate.activity.model.end_offset_tracker import EndOffsets, TopicKey
from headgate.activity.topic_resolver import topic_id_text
from headgate.base.ids import ApiKey
from headgate.facts import Fact
from headgate.kafka import connections
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import MetadataPartition, MetadataTopic
from headgate.wire.messages.data import ListedPartition, ListedTopic, ListOffsetsRequest, ListOffsetsResponse
from headgate.wire.schema import Message
from tests.support.fake_upstream import BROKER_VERSIONS
from tests.support.scripted_cluster import ScriptedCluster

ID = b"1" * 16
TOPIC = TopicKey("orders", topic_id_text(ID))


class Brokers(ScriptedCluster):
    """One broker with a topic of two partitions; `errors` are those of partition 0, one for each request."""

    def __init__(self, *errors: ErrorCode, topic_error: int = 0) -> None:
        super().__init__(versions={**BROKER_VERSIONS, ApiKey.LIST_OFFSETS: (1, 11)})
        self.answers = {ApiKey.METADATA: self._metadata, ApiKey.LIST_OFFSETS: self._list_offsets}
        self._errors = iter(errors)
        self._topic_error = topic_error

    def _metadata(self, _: int, __: Message) -> Message:
        partitions = tuple(MetadataPartition(partition_index=one, leader_id=0) for one in (0, 1))
        topic = MetadataTopic(name="orders", topic_id=ID, partitions=partitions)
        others = (
            MetadataTopic(name="__internal", topic_id=ID, is_internal=True, partitions=partitions),
            MetadataTopic(name="headgate.facts", topic_id=ID, partitions=partitions),
            MetadataTopic(name="broken", topic_id=ID, error_code=self._topic_error, partitions=()),
        )
        return replace(self.metadata(), topics=(topic, *others[: 3 if self._topic_error else 2]))

    def _list_offsets(self, _: int, request: Message) -> Message:
        assert isinstance(request, ListOffsetsRequest)
        assert [topic.name for topic in request.topics] == ["orders"]
        first = ListedPartition(partition_index=0, error_code=next(self._errors, ErrorCode.NONE), offset=7)
        listed = ListedTopic(name="orders", partitions=(first, ListedPartition(partition_index=1, offset=8)))
        return ListOffsetsResponse(topics=(listed,))

    async def read(self) -> EndOffsets:
        async with self:
            return await read_end_offsets(self.dialler(), without_prefix="headgate.")


async def test_internal_topics_and_those_of_headgate_are_left_out() -> None:
    assert await Brokers().read() == EndOffsets(topics={TOPIC: {0: 7, 1: 8}}, is_complete=True)


class LargeCluster(ScriptedCluster):
    """One broker with a hundred topics of fifty partitions."""

    def __init__(self) -> None:
        super().__init__(versions={**BROKER_VERSIONS, ApiKey.LIST_OFFSETS: (1, 11)})
        self.answers = {ApiKey.METADATA: self._metadata, ApiKey.LIST_OFFSETS: self._list_offsets}

    def _metadata(self, _: int, __: Message) -> Message:
        partitions = tuple(MetadataPartition(partition_index=one, leader_id=0) for one in range(50))
        topics = (MetadataTopic(name=f"t{one}", topic_id=ID, partitions=partitions) for one in range(100))
        return replace(self.metadata(), topics=tuple(topics))

    def _list_offsets(self, _: int, __: Message) -> Message:
        return ListOffsetsResponse()


async def test_the_partitions_of_a_large_cluster_are_decoded_and_sorted_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_loop: list[tuple[str, bool]] = []

    def spy(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*arguments: Any) -> Any:
            what = arguments[0].__name__ if name == "decode" else name
            on_loop.append((what, threading.current_thread() is threading.main_thread()))
            return real(*arguments)

        monkeypatch.setattr(module, name, call)

    spy(connections, "decode")
    spy(end_offset_poller, "_partitions")
    cluster = LargeCluster()
    async with cluster:
        polled = await read_end_offsets(cluster.dialler(), without_prefix="headgate.")
    assert sum(len(one) for one in polled.topics.values()) == 5_000
    assert ("MetadataResponse", False) in on_loop
    assert ("_partitions", False) in on_loop
    assert ("MetadataResponse", True) not in on_loop
    assert ("ApiVersionsResponse", True) in on_loop  # what is small is not worth a thread


async def test_a_leader_that_does_not_know_a_new_partition_yet_is_asked_again() -> None:
    brokers = Brokers(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (await brokers.read()).topics == {TOPIC: {0: 7, 1: 8}}
    assert len(brokers.requests(ApiKey.LIST_OFFSETS)) == 3


async def test_a_partition_with_another_error_has_no_end_offset() -> None:
    brokers = Brokers(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (await brokers.read()).topics == {TOPIC: {0: None, 1: 8}}
    assert len(brokers.requests(ApiKey.LIST_OFFSETS)) == 1


async def test_a_poll_with_the_error_of_a_topic_is_not_complete() -> None:
    assert not (await Brokers(topic_error=ErrorCode.LEADER_NOT_AVAILABLE).read()).is_complete


class TickingClock:
    """A second later with each reading."""

    now_ms = 1000

    def monotonic(self) -> float:
        return 0.0

    def epoch_ms(self) -> int:
        self.now_ms += 1000
        return self.now_ms


async def test_growth_of_a_topic_is_written_as_an_unattributed_use_without_bytes() -> None:
    polled = iter([EndOffsets(topics={TOPIC: {0: 5}}), EndOffsets(topics={TOPIC: {0: 12}})])
    written: list[Any] = []

    async def read() -> EndOffsets:
        return next(polled)

    async def write(facts: Sequence[Fact]) -> None:
        written.extend(facts)

    poller = EndOffsetPoller(read, write, TickingClock())
    await poller.poll()
    await poller.poll()
    [fact] = written
    assert (fact.actor.kind, fact.actor.rule, fact.records, fact.bytes) == ("unattributed", "end-offsets", 7, 0)
    assert (fact.topic, fact.topic_id, fact.since, fact.until) == (*TOPIC, 2000, 3000)
