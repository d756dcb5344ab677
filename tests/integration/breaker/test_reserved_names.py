"""Clients that use the names of Headgate's own leader, through a gateway in front of a real broker."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headgate.wire.messages.share import (
    AlteredShareOffset,
    AlteredShareTopic,
    AlterShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)
from tests.support.raw_client import RawClient
from tests.support.share_scene import ShareScene, until

LEADING = "headgate_share_groups_leading"
WAIT_S = 30.0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_cannot_join_the_leaders_group_and_the_leader_stays(scene: ShareScene, protocol: str) -> None:
    until(lambda: scene.gateway.metric(LEADING) == 1)
    consumer = Consumer({**scene.clients, "group.id": f"{scene.facts}leader", "group.protocol": protocol})
    errors: list[str] = []
    try:
        consumer.subscribe([f"{scene.facts}leader"])

        def is_refused() -> bool:
            message = consumer.poll(0.2)
            if message is not None and (error := message.error()) is not None:
                errors.append(str(error))
            return any("Group authorization failed" in text for text in errors)

        until(is_refused, what=lambda: str(errors))
        assert consumer.assignment() == []
    finally:
        consumer.close()
    assert scene.gateway.metric(LEADING) == 1
    members = scene.admin().describe_consumer_groups([f"{scene.facts}leader"])
    [described] = [one.result(WAIT_S) for one in members.values()]
    assert len(described.members) == 1, "the worker that leads"


def test_no_offset_is_committed_to_the_leaders_group(scene: ShareScene) -> None:
    consumer = Consumer({**scene.clients, "group.id": f"{scene.facts}leader"})
    try:
        with pytest.raises(KafkaException) as refused:
            consumer.commit(offsets=[TopicPartition(f"{scene.facts}leader", 0, 5)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()


def test_the_leaders_group_cannot_be_deleted_beside_others(scene: ShareScene) -> None:
    other = f"{scene.name}-other"
    deleted = scene.admin(through=True).delete_consumer_groups([other, f"{scene.facts}leader"])
    codes = {}
    for group, future in deleted.items():
        with pytest.raises(KafkaException) as failure:
            future.result(WAIT_S)
        codes[group] = failure.value.args[0].code()
    assert codes == {
        other: KafkaError.GROUP_ID_NOT_FOUND,
        f"{scene.facts}leader": KafkaError.GROUP_AUTHORIZATION_FAILED,
    }


def test_no_share_group_takes_the_name_of_the_leaders_group(scene: ShareScene) -> None:
    """AlterShareGroupOffsets makes a share group of a name that no group has: then no worker could join."""
    partition = AlteredShareOffset(partition_index=0, start_offset=0)
    topics = (AlteredShareTopic(topic_name=scene.new_topic(), partitions=(partition,)),)
    unused = f"{scene.name}-unused"
    with RawClient(scene.gateway.address(scene.coordinator(unused))) as client:

        def is_made() -> bool:
            altered = client.call(AlterShareGroupOffsetsRequest(group_id=unused, topics=topics), 0)
            [described] = client.call(ShareGroupDescribeRequest(group_ids=(unused,)), 1).groups
            return (altered.error_code, described.error_code) == (0, 0)

        until(is_made)
    leader = f"{scene.facts}leader"
    with RawClient(scene.gateway.address(scene.coordinator(leader))) as client:
        refused = client.call(AlterShareGroupOffsetsRequest(group_id=leader, topics=topics), 0)
    assert refused.error_code == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_producer_cannot_fence_the_leader(scene: ShareScene) -> None:
    producer = Producer({**scene.clients, "transactional.id": f"{scene.facts}trips"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    another = Producer({**scene.clients, "transactional.id": f"{scene.facts}trips2"})
    another.init_transactions(WAIT_S)
