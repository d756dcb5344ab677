"""The store kafka: on the run's real cluster, with topics of its own for each test; and one JVM of 4.4 members."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headgate.base.clock import SystemClock
from headgate.facts.topics import message_limit
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.shared_clients import SharedClients
from headgate.kafka.topics import Origin, Settings, ensure_topics
from headgate.plugin.conformance import settings_in
from headgate.topologies.model.group_state import DeletedVersion, StoredVersion
from headgate.topologies.stores.kafka_store import KafkaStore
from tests.support.cluster import Cluster
from tests.support.members import Members, member_jvm

MAX_BYTES = 4 * 1024 * 1024


@dataclass
class Place:
    """Where the stores of one test keep things: a prefix of topics, and a folder for the cache."""

    settings: Settings
    prefix: str
    folder: Path
    records: list[tuple[str, StoredVersion | DeletedVersion | None]] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, *, folder: Path | None = None, replay: bool = True) -> AsyncIterator[KafkaStore]:
        """A store as one worker has it; another folder is another gateway."""
        await ensure_topics(self.settings, prefix=self.prefix, max_bytes=MAX_BYTES)
        origin = Origin(cluster="test", writer="gw/0", boot=uuid.uuid4().hex)
        writer = FactWriter(self.settings, prefix=self.prefix, origin=origin, largest=message_limit(MAX_BYTES))
        clients = SharedClients(lambda: self.settings, largest=message_limit(MAX_BYTES))
        store = KafkaStore(
            clients,
            prefix=self.prefix,
            writer=writer,
            clock=SystemClock(),
            on_record=lambda group, record: self.records.append((group, record)),
        )
        try:
            await writer.open("topologies")
            await store.configure(settings_in(folder or self.folder))
            if replay:
                await asyncio.wait_for(store.replayed(), 60)
            yield store
        finally:
            await store.close()
            await writer.close()
            await clients.close()


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path) -> Place:
    return Place(dict(cluster.client_config()), f"headgate-{uuid.uuid4().hex[:8]}.", tmp_path)


@pytest.fixture(scope="session")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """One JVM for all modules: a test closes its members."""
    with member_jvm(tmp_path_factory.mktemp("members") / "members.log") as running:
        yield running
