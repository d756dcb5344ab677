"""aiokafka at work: `python -m tests.support.clients.aio BOOTSTRAP NAME`."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndMetadata, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

_DEADLINE_S = 60.0


class Script:
    """All scenarios of one run."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, client_id="admin")
        self.waiting = AIOKafkaAdminClient(bootstrap_servers=bootstrap, client_id="wait")

    async def run(self) -> None:
        await self.admin.start()
        await self.waiting.start()
        await self.topics()
        await self.produce()
        await self.transactions()
        await self.consume()
        await self.admin.close()
        await self.waiting.close()

    async def topics(self) -> None:
        topic = f"{self.name}.topics"
        await self.create(topic, partitions=2)
        again = await self.admin.create_topics([NewTopic(topic, 2, 1)])
        assert again.topic_errors[0][1] == 36, again
        await self.admin.list_topics()
        await self.admin.describe_topics([topic, f"{self.name}.nowhere"])
        await self.admin.describe_cluster()
        change = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "3600000"})
        await self.admin.alter_configs([change])
        await self.wait("the config", lambda: self.has_retention(topic, "3600000"))
        await self.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        await self.admin.create_partitions({topic: NewPartitions(3)})
        await self.wait_for(topic, 3)
        await self.send("admin-producer", topic, ["a", "b", "c"])
        await self.admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=1)})
        await self.delete(topic)

    async def produce(self) -> None:
        topic = f"{self.name}.produced"
        await self.create(topic)
        sent = 0
        for acks in (0, 1, "all"):
            for codec in (None, "gzip", "snappy", "lz4", "zstd"):
                producer = AIOKafkaProducer(
                    bootstrap_servers=self.bootstrap,
                    client_id=f"producer-{acks}-{codec}",
                    acks=acks,
                    compression_type=codec,
                )
                await producer.start()
                await producer.send_and_wait(topic, b"word " * 40, b"key", 0, headers=[("origin", b"headgate")])
                await producer.send_and_wait(topic, None, b"key", 0)
                await producer.stop()
                sent += 2
                # Without acknowledgements nothing else keeps two producers' records in order.
                await self.read(topic, sent)
        await self.send("idempotent", topic, [f"v{number}" for number in range(5)], enable_idempotence=True)
        await self.read(topic, sent + 5)
        await self.delete(topic)

    async def transactions(self) -> None:
        topic, group = f"{self.name}.transactions", f"{self.name}-transactions"
        await self.create(topic)
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, client_id="transactional", transactional_id=self.name
        )
        await producer.start()
        for value, commit in ((b"kept", True), (b"lost", False), (b"kept-too", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, partition=0)
            if commit:
                await producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(1, "")}, group)
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        await producer.stop()
        values = await self.read(topic, 2, isolation_level="read_committed")
        assert values == [b"kept", b"kept-too"], values
        await self.delete(topic)

    async def consume(self) -> None:
        topic, group = f"{self.name}.read", f"{self.name}-group"
        await self.create(topic)
        await self.send("producer", topic, [f"v{number}" for number in range(10)])
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            client_id="consumer",
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
        )
        await consumer.start()
        await poll(consumer, 10)
        first = TopicPartition(topic, 0)
        await consumer.commit({first: OffsetAndMetadata(4, "by hand")})
        await consumer.committed(first)
        await consumer.beginning_offsets([first])
        await consumer.end_offsets([first])
        await consumer.offsets_for_times({first: 1})
        consumer.seek(first, 7)
        await poll(consumer, 3)
        await consumer.commit()
        await self.admin.list_consumer_groups()
        await self.admin.describe_consumer_groups([group])
        await consumer.stop()
        await self.admin.list_consumer_group_offsets(group)
        await self.delete(topic)

    async def send(self, client_id: str, topic: str, values: list[str], **own: Any) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, client_id=client_id, **own)
        await producer.start()
        for value in values:
            await producer.send_and_wait(topic, value.encode(), f"k-{value}".encode(), 0)
        await producer.stop()

    async def read(self, topic: str, count: int, **own: Any) -> list[bytes | None]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            client_id="reader",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            **own,
        )
        await consumer.start()
        consumer.assign([TopicPartition(topic, 0)])
        values = await poll(consumer, count)
        await consumer.stop()
        return values

    async def create(self, topic: str, partitions: int = 1) -> None:
        answer = await self.admin.create_topics([NewTopic(topic, partitions, 1)])
        assert answer.topic_errors[0][1] == 0, answer
        await self.wait_for(topic, partitions)

    async def wait_for(self, topic: str, partitions: int) -> None:
        """Until its leaders answer, which is later than when metadata names them; the consumer itself tries again."""
        await self.wait(topic, lambda: self.has_partitions(topic, partitions))
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, client_id="wait")
        await consumer.start()
        for number in range(partitions):
            await consumer.end_offsets([TopicPartition(topic, number)])
        await consumer.stop()

    async def delete(self, topic: str) -> None:
        await self.admin.delete_topics([topic])
        await self.wait(f"the end of {topic}", lambda: self.has_partitions(topic, 0))

    async def has_partitions(self, topic: str, count: int) -> bool:
        [described] = await self.waiting.describe_topics([topic])
        return len([one for one in described["partitions"] if one["leader"] >= 0]) == count

    async def has_retention(self, topic: str, value: str) -> bool:
        described = await self.waiting.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return value in str(described)

    @staticmethod
    async def wait(what: str, reached: Callable[[], Awaitable[bool]]) -> None:
        until = time.monotonic() + _DEADLINE_S
        while not await reached():
            assert time.monotonic() < until, f"waited for {what}"
            await asyncio.sleep(0.02)


async def poll(consumer: AIOKafkaConsumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    until = time.monotonic() + _DEADLINE_S
    while len(values) < count:
        assert time.monotonic() < until, f"{len(values)} of {count} records"
        for records in (await consumer.getmany(timeout_ms=500)).values():
            values += [record.value for record in records]
    return values


async def main(bootstrap: str, name: str) -> None:
    """Clients are made where a loop runs."""
    await Script(bootstrap, name).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
