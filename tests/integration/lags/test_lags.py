"""Lags of real groups of every kind, read by gateways with the election of the breakers and with one of their own."""

import base64
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition

from headgate.facts import GroupLagsObserved
from headgate.wire.messages.groups import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster
from tests.support.fact_records import read_facts
from tests.support.gateway import running_gateway
from tests.support.raw_client import RawClient
from tests.support.share_member import ACCEPT, RawShareMember
from tests.support.share_scene import kafka
from tests.support.share_truth import lag as share_lag
from tests.support.streams_client import Member, StreamsClient

SECONDS = 90.0
RECORDS = 10  # in each of two partitions
Row = tuple[int, int | None, int | None, int | None]  # partition, committed, end, lag


def make_topic(cluster: Cluster, topic: str) -> bytes:
    """A topic with records, and its id."""
    client = kafka.AdminClient(cluster.client_config())
    client.create_topics([kafka.NewTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer(cluster.client_config())
    for number in range(2 * RECORDS):
        producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(30) == 0
    described = client.describe_topics(TopicCollection([topic]))[topic].result(30)
    return base64.urlsafe_b64decode(f"{described.topic_id}==")


def commit_classic(cluster: Cluster, group: str, topic: str) -> None:
    consumer = Consumer({**cluster.client_config(), "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, RECORDS)], asynchronous=False)
    consumer.close()


@contextmanager
def consumer_of(cluster: Cluster, group: str, topic: str) -> Iterator[None]:
    """A member of the consumer protocol, which has committed."""
    settings = {**cluster.client_config(), "group.id": group, "group.protocol": "consumer", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2, SECONDS)
        consumer.commit(offsets=[TopicPartition(topic, 1, 1)], asynchronous=False)
        yield
    finally:
        consumer.close()


def share_some(cluster: Cluster, client: RawClient, group: str, topic: str, topic_id: bytes) -> None:
    entry = kafka.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=kafka.AlterConfigOpType.SET)
    resource = kafka.ConfigResource(kafka.ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    altering = kafka.AdminClient(cluster.client_config())
    altering.incremental_alter_configs([resource])[resource].result(30)
    member = RawShareMember(group=group, topic=topic, topic_id=topic_id)
    member.join(client)
    member.acquire(client)
    assert member.acknowledge(client, 0, 2, (ACCEPT,) * 3) == 0


def commit_streams(client: StreamsClient, raw: RawClient, group: str, topic: str) -> None:
    member = Member(client=client, group=group, topic=topic)
    member.join_and_take_tasks(version=0)
    partition = OffsetCommitPartition(partition_index=0, committed_offset=6)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.member,
        topics=(OffsetCommitTopic(name=topic, partitions=(partition,)),),
    )
    [answer] = raw.call(request, 9).topics
    assert [one.error_code for one in answer.partitions] == [0]


def observed(cluster: Cluster, prefix: str, topic: str) -> dict[tuple[str, str], list[Row]]:
    """The rows of each group and its kind, from the last fact."""
    facts = [one for one in read_facts(cluster.client_config(), prefix, "lags") if isinstance(one, GroupLagsObserved)]
    return {
        (fact.group, fact.kind): list(zip(fact.partitions, fact.committed, fact.ends, fact.lags, strict=True))
        for fact in facts
        if fact.topic == topic
    }


def test_the_lags_of_groups_of_all_kinds_are_facts(cluster: Cluster, tmp_path: Path) -> None:
    name = uuid.uuid4().hex[:8]
    topic, classic, consumer, share, streams = (
        f"{what}-{name}" for what in ("lags", "classic", "consumer", "share", "streams \N{SNOWMAN} \"'")
    )
    topic_id = make_topic(cluster, topic)
    commit_classic(cluster, classic, topic)

    def has_all(prefix: str) -> bool:
        return len(observed(cluster, prefix, topic)) == 4

    with (
        RawClient(cluster.bootstrap) as raw,
        StreamsClient(cluster.bootstrap) as client,
        consumer_of(cluster, consumer, topic),
    ):
        share_some(cluster, raw, share, topic, topic_id)
        commit_streams(client, raw, streams, topic)
        wanted = {
            (classic, "classic"): [(0, 4, RECORDS, 6), (1, RECORDS, RECORDS, 0)],
            (consumer, "consumer"): [(1, 1, RECORDS, 9)],
            (streams, "streams"): [(0, 6, RECORDS, 4)],
        }
        prefixes = {f"lags-{name}.": True, f"own-{name}.": False}
        with ExitStack() as running:
            for prefix, is_enabled in prefixes.items():
                running.enter_context(
                    running_gateway(
                        tmp_path / prefix,
                        cluster.bootstrap,
                        facts__prefix=prefix,
                        lags__enable=True,
                        share_groups__enable=is_enabled,
                    )
                )
            for prefix in prefixes:
                until(partial(has_all, prefix), SECONDS)
        for prefix in prefixes:
            found = observed(cluster, prefix, topic)
            shared, other = found.pop((share, "share"))
            assert found == wanted
            assert (shared[2:], other) == ((RECORDS, 7), (1, None, RECORDS, None)), "the other one was not fetched yet"
            assert shared[3] == share_lag(cluster.bootstrap, share, topic)
