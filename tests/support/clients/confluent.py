"""confluent-kafka (librdkafka) at work: `python -m tests.support.clients.confluent BOOTSTRAP NAME PART...`.

It leaves nothing behind, so that its second run meets the cluster that its first run met.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import admin as typed_admin

kafka: Any = typed_admin  # it does not export its types
_DEADLINE_S = 60.0


class Script:
    """All scenarios of one run."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.admin = kafka.AdminClient(self.settings("admin"))
        self.waiting = kafka.AdminClient(self.settings("wait"))

    def settings(self, client_id: str, **own: object) -> dict[str, object]:
        dotted = {key.replace("_", "."): value for key, value in own.items()}
        # A broker that is away would flood the output of a failing test.
        return {"bootstrap.servers": self.bootstrap, "client.id": client_id, "log_level": 0, **dotted}

    def run(self, parts: list[str]) -> None:
        scenarios: dict[str, Callable[[], None]] = {
            "topics": self.topics,
            "cluster": self.cluster,
            "produce": self.produce,
            "transactions": self.transactions,
            "classic": lambda: self.consume("classic"),
            "consumer": lambda: self.consume("consumer"),
            "share": self.share,
            "large": self.large,
        }
        for part in parts:
            scenarios[part]()

    # Admin calls.

    def topics(self) -> None:
        topic = f"{self.name}.topics"
        self.create(topic, partitions=2)
        refused(KafkaError.TOPIC_ALREADY_EXISTS, self.admin.create_topics([kafka.NewTopic(topic, 2, 1)]))
        self.admin.list_topics(timeout=_DEADLINE_S)
        done(self.admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True))
        refused(KafkaError.UNKNOWN_TOPIC_OR_PART, self.admin.describe_topics(TopicCollection([f"{self.name}.nowhere"])))
        change = kafka.ConfigEntry("retention.ms", "3600000", incremental_operation=kafka.AlterConfigOpType.SET)
        of_topic = kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
        done(self.admin.incremental_alter_configs([of_topic]))
        self.wait("the config", lambda admin: retention_of(admin, topic) == "3600000")
        done(self.admin.describe_configs([kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, topic)]))
        done(self.admin.create_partitions([kafka.NewPartitions(topic, 3)]))
        self.wait_for(topic, partitions=3)
        first = TopicPartition(topic, 0)
        self.send("admin-producer", topic, ["a", "b", "c"])
        for spec in (kafka.OffsetSpec.earliest(), kafka.OffsetSpec.latest(), kafka.OffsetSpec.max_timestamp()):
            done(self.admin.list_offsets({first: spec}, isolation_level=IsolationLevel.READ_COMMITTED))
        done(self.admin.delete_records([TopicPartition(topic, 0, 1)]))
        elected = self.admin.elect_leaders(ElectionType.PREFERRED, [first]).result(_DEADLINE_S)
        assert elected[first].code() == KafkaError.ELECTION_NOT_NEEDED
        self.delete(topic)

    def cluster(self) -> None:
        self.admin.describe_cluster(include_authorized_operations=True).result(_DEADLINE_S)
        who = f"User:{self.name}"
        binding = kafka.AclBinding(
            kafka.ResourceType.TOPIC,
            self.name,
            kafka.ResourcePatternType.PREFIXED,
            who,
            "*",
            kafka.AclOperation.READ,
            kafka.AclPermissionType.ALLOW,
        )
        ours = kafka.AclBindingFilter(
            kafka.ResourceType.ANY,
            None,
            kafka.ResourcePatternType.ANY,
            who,
            None,
            kafka.AclOperation.ANY,
            kafka.AclPermissionType.ANY,
        )
        done(self.admin.create_acls([binding]))
        self.wait("the ACL", lambda admin: len(admin.describe_acls(ours).result(_DEADLINE_S)) == 1)
        done(self.admin.delete_acls([ours]))
        self.wait("no ACL", lambda admin: not admin.describe_acls(ours).result(_DEADLINE_S))
        mechanism = kafka.ScramMechanism.SCRAM_SHA_512
        credential = kafka.UserScramCredentialUpsertion(
            self.name, kafka.ScramCredentialInfo(mechanism, 4096), b"not a secret", b"salt for a test"
        )
        done(self.admin.alter_user_scram_credentials([credential]))
        self.wait(
            "the credential", lambda admin: self.name in admin.describe_user_scram_credentials().result(_DEADLINE_S)
        )
        done(self.admin.describe_user_scram_credentials([self.name]))
        done(self.admin.alter_user_scram_credentials([kafka.UserScramCredentialDeletion(self.name, mechanism)]))
        self.wait(
            "no credential", lambda admin: self.name not in admin.describe_user_scram_credentials().result(_DEADLINE_S)
        )

    # Producers.

    def produce(self) -> None:
        topic = f"{self.name}.produced"
        self.create(topic)
        sent = 0
        for acks in ("0", "1", "all"):
            for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
                producer = Producer(self.settings(f"producer-{acks}-{codec}", acks=acks, compression_type=codec))
                producer.produce(topic, "word " * 40, codec, partition=0, headers={"origin": b"headgate"})
                assert producer.flush(_DEADLINE_S) == 0
                producer.produce(topic, None, None, partition=0)
                assert producer.flush(_DEADLINE_S) == 0
                producer.close()
                sent += 2
                self.wait_for_end(topic, sent)
        idempotent = Producer(self.settings("idempotent", enable_idempotence=True, linger_ms=20))
        for number in range(100):
            idempotent.produce(topic, f"v{number}", partition=0)
        assert idempotent.flush(_DEADLINE_S) == 0
        idempotent.close()
        self.read(topic, sent + 100)
        self.delete(topic)

    def transactions(self) -> None:
        topic, group = f"{self.name}.transactions", f"{self.name}-transactions"
        self.create(topic)
        producer = Producer(self.settings("transactional", transactional_id=self.name))
        consumer = Consumer(self.settings("in-transaction", group_id=group, auto_offset_reset="earliest"))
        producer.init_transactions(_DEADLINE_S)
        for value, commit in (("kept", True), ("lost", False), ("kept-too", True)):
            producer.begin_transaction()
            producer.produce(topic, value, partition=0)
            assert producer.flush(_DEADLINE_S) == 0
            if commit:
                producer.send_offsets_to_transaction(
                    [TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata(), _DEADLINE_S
                )
                producer.commit_transaction(_DEADLINE_S)
            else:
                producer.abort_transaction(_DEADLINE_S)
        producer.close()
        consumer.close()
        values = self.read(topic, 2, isolation_level="read_committed")
        assert values == ["kept", "kept-too"], values
        self.wait("the group", lambda admin: admin.delete_consumer_groups([group])[group].exception() is None)
        self.delete(topic)

    def send(self, client_id: str, topic: str, values: list[str]) -> None:
        producer = Producer(self.settings(client_id, acks="all"))
        now_ms = int(time.time() * 1000)
        for place, value in enumerate(values):
            # The youngest record is asked for, so no two may be of the same age.
            producer.produce(topic, value, f"k-{value}", partition=0, timestamp=now_ms + place)
            assert producer.flush(_DEADLINE_S) == 0
        producer.close()

    # Consumers.

    def read(self, topic: str, count: int, **own: object) -> list[str]:
        quick = {"enable_auto_commit": False, "fetch_wait_max_ms": 100}
        consumer = Consumer(self.settings("reader", group_id=f"{self.name}-reader", **quick, **own))
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = [text(message) for message in poll(consumer.poll, count)]
        consumer.get_watermark_offsets(TopicPartition(topic, 0), _DEADLINE_S)
        consumer.close()
        return values

    def large(self) -> None:
        """Batches of 400 KB in several partitions: a proxy may carry the records of such a response in another way."""
        topic, partitions, each = f"{self.name}.large", 3, 2
        self.create(topic, partitions)
        wanted = {
            (place, number): f"{place}-{number} " * 100_000 for place in range(partitions) for number in range(each)
        }
        producer = Producer(self.settings("producer", acks="all"))
        for (place, _), value in wanted.items():  # one by one, so that each record is a batch
            producer.produce(topic, value, partition=place)
            assert producer.flush(_DEADLINE_S) == 0
        producer.close()
        consumer = Consumer(
            self.settings(
                "reader",
                group_id=f"{self.name}-reader",
                enable_auto_commit=False,
                fetch_wait_max_ms=100,
                fetch_message_max_bytes=4 << 20,
            )
        )
        consumer.assign([TopicPartition(topic, place, 0) for place in range(partitions)])
        read = {(one.partition(), one.offset()): text(one) for one in poll(consumer.poll, len(wanted))}
        consumer.close()
        assert read == wanted, "another value"
        self.delete(topic)

    def consume(self, protocol: str) -> None:
        topic, group = f"{self.name}.{protocol}", f"{self.name}-{protocol}"
        self.create(topic)
        self.send("producer", topic, [f"v{number}" for number in range(10)])
        consumer = Consumer(
            self.settings(
                f"{protocol}-consumer",
                group_id=group,
                group_protocol=protocol,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_wait_max_ms=100,
            )
        )
        consumer.subscribe([topic])
        poll(consumer.poll, 10)
        first = TopicPartition(topic, 0)
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        consumer.committed([first], _DEADLINE_S)
        consumer.offsets_for_times([TopicPartition(topic, 0, 1)], _DEADLINE_S)
        consumer.seek(TopicPartition(topic, 0, 7))
        poll(consumer.poll, 3)
        consumer.commit(asynchronous=False)
        self.admin.list_consumer_groups().result(_DEADLINE_S)
        done(self.admin.describe_consumer_groups([group]))
        refused(KafkaError.NON_EMPTY_GROUP, self.admin.delete_consumer_groups([group]))
        consumer.close()
        done(self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [first])]))
        moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
        done(self.admin.alter_consumer_group_offsets([moved]))
        done(self.admin.delete_consumer_groups([group]))
        self.delete(topic)

    def share(self) -> None:
        topic, group = f"{self.name}.shared", f"{self.name}-share"
        self.create(topic)
        self.set_group_config(group, kafka.AlterConfigOpType.SET)
        self.send("producer", topic, [f"v{number}" for number in range(8)])
        member = ShareConsumer(self.settings("member", group_id=group, share_acknowledgement_mode="explicit"))
        member.subscribe([topic])
        seen = 0
        until = time.monotonic() + _DEADLINE_S
        while seen < 10:  # two are released once and come again
            assert time.monotonic() < until, f"{seen} of 10 deliveries"
            for message in member.poll(0.5):
                again = (message.delivery_count() or 1) > 1
                release = message.offset() in {1, 5} and not again
                member.acknowledge(message, AcknowledgeType.RELEASE if release else AcknowledgeType.ACCEPT)
                seen += 1
            member.commit_sync(_DEADLINE_S)
        member.close()
        self.wait("the group", lambda admin: admin.delete_consumer_groups([group])[group].exception() is None)
        self.set_group_config(group, kafka.AlterConfigOpType.DELETE)
        self.delete(topic)

    def set_group_config(self, group: str, operation: Any) -> None:
        change = kafka.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=operation)
        of_group = kafka.ConfigResource(kafka.ConfigResource.Type.GROUP, group, incremental_configs=[change])
        done(self.admin.incremental_alter_configs([of_group]))

    # Waiting, with a client id of its own.

    def create(self, topic: str, partitions: int = 1) -> None:
        done(self.admin.create_topics([kafka.NewTopic(topic, partitions, 1)]))
        self.wait_for(topic, partitions)

    def delete(self, topic: str) -> None:
        done(self.admin.delete_topics([topic]))
        self.wait(f"the end of {topic}", lambda admin: partitions_of(admin, topic) == 0)

    def wait_for(self, topic: str, partitions: int) -> None:
        """Until its leaders answer, which is later than when metadata names them."""
        self.wait(topic, lambda admin: partitions_of(admin, topic) == partitions)
        for number in range(partitions):
            one = TopicPartition(topic, number)
            self.wait(
                f"the leader of {one}",
                lambda admin, one=one: succeeds(admin.list_offsets({one: kafka.OffsetSpec.latest()})[one]),
            )

    def wait_for_end(self, topic: str, end: int) -> None:
        first = TopicPartition(topic, 0)
        self.wait(
            f"{end} records",
            lambda admin: (
                admin.list_offsets({first: kafka.OffsetSpec.latest()})[first].result(_DEADLINE_S).offset == end
            ),
        )

    def wait(self, what: str, reached: Callable[..., bool]) -> None:
        until = time.monotonic() + _DEADLINE_S
        while not reached(self.waiting):
            assert time.monotonic() < until, f"waited for {what}"
            time.sleep(0.02)


def partitions_of(admin: Any, topic: str) -> int:
    try:
        described = admin.describe_topics(TopicCollection([topic]))[topic].result(_DEADLINE_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return 0
        raise
    return len([partition for partition in described.partitions if partition.leader is not None])


def retention_of(admin: Any, topic: str) -> str:
    of_topic = kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, topic)
    value: str = admin.describe_configs([of_topic])[of_topic].result(_DEADLINE_S)["retention.ms"].value
    return value


def succeeds(future: "Future[Any]") -> bool:
    return future.exception(_DEADLINE_S) is None


def done(futures: "dict[Any, Future[Any]]") -> None:
    """Every call of these must succeed."""
    for future in futures.values():
        future.result(_DEADLINE_S)


def refused(code: int, futures: "dict[Any, Future[Any]]") -> None:
    """Every call of these must fail, and with this very error."""
    for future in futures.values():
        error = future.exception(_DEADLINE_S)
        assert isinstance(error, KafkaException), f"the call succeeded; expected was error {code}"
        assert error.args[0].code() == code, error


def poll(source: Callable[[float], Message | None], count: int) -> list[Message]:
    messages: list[Message] = []
    until = time.monotonic() + _DEADLINE_S
    while len(messages) < count:
        assert time.monotonic() < until, f"{len(messages)} of {count} records"
        message = source(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def text(message: Message) -> str:
    value = message.value()
    return "" if value is None else value.decode()


if __name__ == "__main__":
    Script(*sys.argv[1:3]).run(sys.argv[3:])
