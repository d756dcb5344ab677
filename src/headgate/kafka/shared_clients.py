"""The librdkafka clients that the features of one worker share: an AdminClient, two consumers, and two producers.

Each client has a thread for every broker and two or three more, and connections of its own, so a worker has as few as
it can. A client is made when it is first used. `docs/architecture.md` lists those that stand alone, and why.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from headgate.config.model import Config
from headgate.facts.topics import LARGEST_DEAD_LETTER, MIB, message_limit
from headgate.kafka.fact_writer import FactNotWrittenError, RecordProducer
from headgate.kafka.topic_consumer import TopicConsumer
from headgate.kafka.topics import Settings, TopicAdmin, client_settings

_DELIVERY_TIMEOUT_S: Final = 5.0
_FACT_WRITERS: Final = 5  # topologies, share groups, activity, lags; and one that was closed with records under way
_JAVA_PARTITIONER: Final = "murmur2_random"  # the default of librdkafka is another


class SharedClients:
    """Made on the event loop that it serves. Used before `open`, it reads the settings at once, which blocks.

    `largest` bounds the facts in bytes. `delivery_timeout_s` is the longest that a writer of facts has.
    """

    def __init__(
        self,
        read_settings: Callable[[], Mapping[str, Any]],
        *,
        largest: int = MIB,
        delivery_timeout_s: float = _DELIVERY_TIMEOUT_S,
        connect_clusters: int = 1,
    ) -> None:
        self._read_settings = read_settings
        self._largest = largest
        self._delivery_timeout_s = max(delivery_timeout_s, _DELIVERY_TIMEOUT_S)
        self._connect_clusters = max(1, connect_clusters)
        self._settings: Settings | None = None
        self._admin: TopicAdmin | None = None
        self._consumer: TopicConsumer | None = None
        self._bulk_consumer: TopicConsumer | None = None
        self._producer: RecordProducer | None = None
        self._connect_producer: RecordProducer | None = None

    async def open(self) -> None:
        """Read the settings, and apply them to clients that have others: a password may have been replaced."""
        settings = dict(await asyncio.to_thread(self._read_settings))
        if settings == self._settings:
            return
        self._settings = settings
        for client in (self._admin, self._consumer, self._bulk_consumer, self._producer):
            if client is not None:
                client.replace_settings(settings)
        if self._connect_producer is not None:
            self._connect_producer.replace_settings(self._for_connect())

    @property
    def settings(self) -> Settings:
        """The settings of clients that are not shared."""
        if self._settings is None:
            self._settings = dict(self._read_settings())
        return self._settings

    @property
    def admin(self) -> TopicAdmin:
        if self._admin is None:
            self._admin = TopicAdmin(self.settings)
        return self._admin

    @property
    def consumer(self) -> TopicConsumer:
        """Reads topics of small records, which are to be read at once: decisions and counts."""
        if self._consumer is None:
            self._consumer = TopicConsumer(self.settings, admin=self.admin)
        return self._consumer

    @property
    def bulk_consumer(self) -> TopicConsumer:
        """Reads topics of large records, and those of others: decisions must not wait for them."""
        if self._bulk_consumer is None:
            largest = max(self._largest, LARGEST_DEAD_LETTER + MIB)  # with what the spool adds
            self._bulk_consumer = TopicConsumer(self.settings, admin=self.admin, largest=largest)
        return self._bulk_consumer

    @property
    def producer(self) -> RecordProducer:
        """Writes to the headgate.* topics."""
        if self._producer is None:
            self._producer = RecordProducer(
                self.settings,
                largest=self._largest,
                delivery_timeout_s=self._delivery_timeout_s,
                shares=_FACT_WRITERS,
                error=FactNotWrittenError,
            )
        return self._producer

    @property
    def connect_producer(self) -> RecordProducer:
        """Writes to Connect's topics, which may be missing or forbidden, to the partitions of a Java producer."""
        if self._connect_producer is None:
            self._connect_producer = RecordProducer(
                self._for_connect(), shares=self._connect_clusters, error=FactNotWrittenError
            )
        return self._connect_producer

    def _for_connect(self) -> Settings:
        return {**self.settings, "partitioner": _JAVA_PARTITIONER}

    async def close(self) -> None:
        """Called when their users are closed."""
        for client in (self._consumer, self._bulk_consumer, self._producer, self._connect_producer):
            if client is not None:
                await client.close()
        if self._admin is not None:
            self._admin.close()


def clients_of(config: Config) -> SharedClients:
    return SharedClients(
        lambda: client_settings(config.upstream),
        largest=message_limit(config.topologies.max_bytes),
        delivery_timeout_s=config.topologies.call_timeout_ms / 1000,
        connect_clusters=len(config.connect),
    )


async def open_clients(config: Config, clients: SharedClients | None, stack: AsyncExitStack) -> SharedClients:
    """Open the given clients, or without any new ones, which are closed with the stack."""
    if clients is None:
        clients = clients_of(config)
        stack.push_async_callback(clients.close)
    await clients.open()
    return clients
