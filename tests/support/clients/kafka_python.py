"""kafka-python at work: `python -m tests.support.clients.kafka_python BOOTSTRAP NAME`.

Only the codecs that come with Python are used: kafka-python has no others of its own.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    OffsetSpec,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    TransactionState,
)
from kafka.errors import KafkaError, NonEmptyGroupError, TopicAlreadyExistsError

_DEADLINE_S = 60.0


class Script:
    """All scenarios of one run."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="admin")
        self.waiting = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="wait")

    def run(self) -> None:
        self.topics()
        self.cluster()
        self.produce()
        self.transactions()
        self.consume()
        self.admin.close()
        self.waiting.close()

    def topics(self) -> None:
        topic = f"{self.name}.topics"
        self.create(topic, partitions=2)
        refused(
            TopicAlreadyExistsError,
            lambda: self.admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}}),
        )
        self.admin.list_topics()
        self.admin.describe_topics([topic, f"{self.name}.nowhere"])
        self.admin.describe_topic_partitions([topic])
        change = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": (AlterConfigOp.SET, "3600000")})
        self.admin.alter_configs([change])
        of_topic = ConfigResource(ConfigResourceType.TOPIC, topic)
        self.wait("the config", lambda: "3600000" in str(self.waiting.describe_configs([of_topic])))
        self.admin.describe_configs([of_topic])
        self.admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
        self.admin.create_partitions({topic: 3})
        self.wait_for(topic, 3)
        self.send("admin-producer", topic, ["a", "b", "c"])
        first = TopicPartition(topic, 0)
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP):
            self.admin.list_partition_offsets({first: spec})
        self.admin.delete_records({first: 1})
        self.admin.describe_producers([first])
        self.admin.describe_log_dirs({topic: [0]})
        self.admin.list_partition_reassignments([first])
        self.delete(topic)

    def cluster(self) -> None:
        self.admin.describe_cluster()
        self.admin.describe_features()
        self.admin.describe_metadata_quorum()
        self.admin.list_config_resources(["TOPIC"])
        who = f"User:{self.name}"
        pattern = ResourcePattern(ResourceType.TOPIC, self.name, ACLResourcePatternType.PREFIXED)
        self.admin.create_acls([ACL(who, "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
        ours = ACLFilter(
            who,
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
        )
        self.wait("the ACL", lambda: len(self.waiting.describe_acls(ours)[0]) == 1)
        self.admin.describe_acls(ours)
        self.admin.delete_acls([ours])
        self.wait("no ACL", lambda: not self.waiting.describe_acls(ours)[0])
        self.admin.describe_user_scram_credentials()

    def produce(self) -> None:
        topic = f"{self.name}.produced"
        self.create(topic)
        sent = 0
        for acks in (0, 1, "all"):
            for codec in (None, "gzip"):
                producer = KafkaProducer(
                    bootstrap_servers=self.bootstrap,
                    client_id=f"producer-{acks}-{codec}",
                    acks=acks,
                    compression_type=codec,
                    enable_idempotence=False,
                )
                producer.send(topic, b"word " * 40, b"key", [("origin", b"headgate")], 0).get(_DEADLINE_S)
                producer.send(topic, None, b"key", partition=0).get(_DEADLINE_S)
                producer.close()
                sent += 2
                self.wait(f"{sent} records", lambda end=sent: self.end_of(topic) == end)  # type: ignore[misc]
        self.send("idempotent", topic, [f"v{number}" for number in range(5)])
        self.read(topic, sent + 5)
        self.delete(topic)

    def transactions(self) -> None:
        topic, group = f"{self.name}.transactions", f"{self.name}-transactions"
        self.create(topic)
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap, client_id="transactional", transactional_id=self.name
        )
        producer.init_transactions()
        for value, commit in ((b"kept", True), (b"lost", False), (b"kept-too", True)):
            producer.begin_transaction()
            producer.send(topic, value, partition=0).get(_DEADLINE_S)
            if commit:
                producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)}, group)
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        self.wait("the markers", self.is_complete)
        self.admin.list_transactions(transactional_id_pattern=self.name)
        self.admin.describe_transactions([self.name])
        producer.close()
        values = self.read(topic, 2, isolation_level="read_committed")
        assert values == [b"kept", b"kept-too"], values
        self.admin.delete_groups([group])
        self.delete(topic)

    def consume(self) -> None:
        topic, group = f"{self.name}.read", f"{self.name}-group"
        self.create(topic)
        self.send("producer", topic, [f"v{number}" for number in range(10)])
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            client_id="consumer",
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
        )
        poll(consumer, 10)
        first = TopicPartition(topic, 0)
        consumer.commit({first: OffsetAndMetadata(4, "by hand", -1)})
        consumer.committed(first)
        consumer.beginning_offsets([first])
        consumer.end_offsets([first])
        consumer.offsets_for_times({first: 1})
        consumer.seek(first, 7)
        poll(consumer, 3)
        consumer.commit()
        self.admin.list_groups()
        self.admin.describe_groups([group])
        error = next(iter(self.admin.delete_groups([group]).values()))
        assert NonEmptyGroupError.__name__ in repr(error), error
        consumer.close()
        self.admin.list_group_offsets({group: [first]})
        self.admin.alter_group_offsets(group, {first: OffsetAndMetadata(2, "", -1)})
        self.admin.delete_group_offsets(group, [first])
        self.admin.delete_groups([group])
        self.delete(topic)

    def send(self, client_id: str, topic: str, values: list[str]) -> None:
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, client_id=client_id)
        now_ms = int(time.time() * 1000)
        for place, value in enumerate(values):
            # The youngest record is asked for, so no two may be of the same age.
            key, timestamp_ms = f"k-{value}".encode(), now_ms + place
            producer.send(topic, value.encode(), key, partition=0, timestamp_ms=timestamp_ms).get(_DEADLINE_S)
        producer.close()

    def read(self, topic: str, count: int, **own: Any) -> list[bytes | None]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            client_id="reader",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            **own,
        )
        consumer.assign([TopicPartition(topic, 0)])
        values = poll(consumer, count)
        consumer.close()
        return values

    def create(self, topic: str, partitions: int = 1) -> None:
        self.admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})
        self.wait_for(topic, partitions)

    def wait_for(self, topic: str, partitions: int) -> None:
        """Until its leaders answer, which is later than when metadata names them; the client itself tries again."""
        self.wait(topic, lambda: self.partitions_of(topic) == partitions)
        for number in range(partitions):
            self.waiting.list_partition_offsets({TopicPartition(topic, number): OffsetSpec.LATEST})

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])
        self.wait(f"the end of {topic}", lambda: self.partitions_of(topic) == 0)

    def partitions_of(self, topic: str) -> int:
        [described] = self.waiting.describe_topics([topic])
        return len([one for one in described["partitions"] if one["leader_id"] >= 0])

    def is_complete(self) -> bool:
        described = self.waiting.describe_transactions([self.name])[self.name]
        return described.state is TransactionState.COMPLETE_COMMIT

    def end_of(self, topic: str) -> int:
        first = TopicPartition(topic, 0)
        end: int = self.waiting.list_partition_offsets({first: OffsetSpec.LATEST})[first].offset
        return end

    @staticmethod
    def wait(what: str, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + _DEADLINE_S
        while not reached():
            assert time.monotonic() < until, f"waited for {what}"
            time.sleep(0.02)


def poll(consumer: KafkaConsumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    until = time.monotonic() + _DEADLINE_S
    while len(values) < count:
        assert time.monotonic() < until, f"{len(values)} of {count} records"
        for records in consumer.poll(timeout_ms=500).values():
            values += [record.value for record in records]
    return values


def refused(error: type[KafkaError], call: Callable[[], object]) -> None:
    """The call must fail, and with this very error."""
    try:
        call()
    except error:
        return
    raise AssertionError(f"the call succeeded; expected was {error.__name__}")


if __name__ == "__main__":
    Script(*sys.argv[1:3]).run()
