"""Writing and reading facts with a real broker: read back, replayed, secured, and through an outage."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headgate.config.addresses import Address
from headgate.config.model import UpstreamConfig
from headgate.embedded import SecurityProtocol
from headgate.facts import GroupPaused, GroupPauseEnded, decode
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.fact_writer import FactNotWrittenError, FactWriter
from headgate.kafka.topics import Origin, Settings, client_settings, ensure_topics
from tests.support.cluster import USERS, Cluster, start_test_cluster

ORIGIN = Origin(cluster="test", writer="gw/0", boot="b1")
WAIT_S = 60.0


def new_prefix() -> str:
    return f"headgate-{uuid.uuid4().hex[:8]}."


def paused(reason: str) -> GroupPaused:
    return GroupPaused(at=1, group="g", reason=reason, by="User:ops")


class Clients:
    """A writer and a reader of `state`, and what was read."""

    def __init__(self, settings: Settings, prefix: str, *, timeout_s: float, start: int = 0) -> None:
        self.writer = FactWriter(settings, prefix=prefix, origin=ORIGIN, delivery_timeout_s=timeout_s)
        self.found: list[object] = []
        self.forgotten: list[bool] = []
        self.reader: FactReader[list[object]] = FactReader(
            settings,
            topic=f"{prefix}state",
            start=start,
            digest=_facts,
            forget=self._forget,
            take=self.found.extend,
        )

    def _forget(self, another: bool) -> list[object]:
        self.forgotten.append(another)
        return []

    def reasons(self) -> list[str]:
        return [fact.reason for fact in self.found if isinstance(fact, GroupPaused)]


def _facts(records: Sequence[ConsumedRecord]) -> list[object]:
    return [decode("state", record.key, record.value) for record in records]


@asynccontextmanager
async def opened(settings: Settings, prefix: str, *, timeout_s: float = 30.0, start: int = 0) -> AsyncIterator[Clients]:
    await ensure_topics(settings, prefix=prefix, max_bytes=1024 * 1024)
    clients = Clients(settings, prefix, timeout_s=timeout_s, start=start)
    try:
        await clients.writer.open("state")
        clients.reader.start()
        await asyncio.wait_for(clients.reader.replayed.wait(), WAIT_S)
        yield clients
    finally:
        await clients.reader.close()
        await clients.writer.close()


async def test_what_was_written_can_be_awaited_by_its_reader(cluster: Cluster) -> None:
    async with opened(dict(cluster.client_config()), new_prefix()) as clients:
        position = await clients.writer.write(paused("deploy"))
        await asyncio.wait_for(clients.reader.reached(position.offset), WAIT_S)
        assert clients.reasons() == ["deploy"]


async def test_facts_are_numbered_and_known_as_ones_own(cluster: Cluster) -> None:
    async with opened(dict(cluster.client_config()), new_prefix()) as clients:
        for reason in ("a", "b"):
            position = await clients.writer.write(paused(reason))
        await asyncio.wait_for(clients.reader.reached(position.offset), WAIT_S)
        facts = [fact for fact in clients.found if isinstance(fact, GroupPaused)]
        assert [(fact.writer, fact.boot, fact.seq) for fact in facts] == [("gw/0", "b1", 0), ("gw/0", "b1", 1)]
        assert all(map(clients.writer.is_own, facts))


async def test_the_end_of_a_fact_is_a_null(cluster: Cluster) -> None:
    async with opened(dict(cluster.client_config()), new_prefix()) as clients:
        position = await clients.writer.write(GroupPauseEnded(group="g"))
        await asyncio.wait_for(clients.reader.reached(position.offset), WAIT_S)
        assert clients.found == [GroupPauseEnded(group="g")]


async def test_a_reader_goes_on_where_another_stopped(cluster: Cluster) -> None:
    settings, prefix = dict(cluster.client_config()), new_prefix()
    async with opened(settings, prefix) as clients:
        for reason in ("a", "b", "c"):
            await clients.writer.write(paused(reason))
    async with opened(settings, prefix, start=1) as clients:
        assert clients.reasons() == ["b", "c"]


async def test_a_position_that_the_topic_does_not_have_begins_again(cluster: Cluster) -> None:
    settings, prefix = dict(cluster.client_config()), new_prefix()
    async with opened(settings, prefix) as clients:
        await clients.writer.write(paused("a"))
    async with opened(settings, prefix, start=500) as clients:
        assert clients.forgotten == [True]
        assert clients.reasons() == ["a"]


async def test_a_topic_that_is_written_all_the_time_is_replayed(cluster: Cluster) -> None:
    settings, prefix = dict(cluster.client_config()), new_prefix()
    async with opened(settings, prefix) as clients:
        await clients.writer.write(paused("first"))

        async def write_on() -> None:
            while True:
                await clients.writer.write(paused("more"))
                await asyncio.sleep(0.02)

        writing = asyncio.create_task(write_on())
        try:
            async with opened(settings, prefix) as others:
                assert others.reasons()[0] == "first"
        finally:
            writing.cancel()
            await asyncio.wait({writing})


async def test_a_thousand_facts_at_once_arrive_in_order(cluster: Cluster) -> None:
    async with opened(dict(cluster.client_config()), new_prefix()) as clients:
        positions = await asyncio.gather(*(clients.writer.write(paused(str(number))) for number in range(1000)))
        await asyncio.wait_for(clients.reader.reached(max(one.offset for one in positions)), WAIT_S)
        assert clients.reasons() == [str(number) for number in range(1000)]


async def test_the_service_account_logs_in_with_tls_and_scram(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(USERS["admin"] + "\n")
    host, port = cluster.kafka.bootstrap_of(SecurityProtocol.SASL_SSL).split(",")[0].rsplit(":", 1)
    upstream = UpstreamConfig(
        bootstrap=(Address(host, int(port)),),
        tls=True,
        tls_ca=cluster.certificates.ca,
        service_user="admin",
        service_password_file=tmp_path / "password",
        service_mechanism="SCRAM-SHA-256",
    )
    async with opened(client_settings(upstream), new_prefix()) as clients:
        position = await clients.writer.write(paused("secured"))
        await asyncio.wait_for(clients.reader.reached(position.offset), WAIT_S)
        assert clients.reasons() == ["secured"]


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of this module's own, which it may stop."""
    with start_test_cluster(tmp_path_factory) as running:
        yield running


async def test_an_outage_fails_what_is_written_in_it_and_nothing_after(fragile: Cluster) -> None:
    async with opened(dict(fragile.client_config()), new_prefix(), timeout_s=2.0) as clients:
        await clients.writer.write(paused("before"))
        await asyncio.to_thread(fragile.kafka.stop)
        with pytest.raises(FactNotWrittenError):
            await asyncio.wait_for(clients.writer.write(paused("during")), WAIT_S)
        assert not _is_well(clients)
        await asyncio.to_thread(fragile.kafka.start)
        async with asyncio.timeout(2 * WAIT_S):
            while not _is_well(clients):  # noqa: ASYNC110 - nothing comes that would say so
                await asyncio.sleep(0.1)
            position = await _written(clients, "after")
            await clients.reader.reached(position)
        assert [reason for reason in clients.reasons() if reason != "during"] == ["before", "after"]


def _is_well(clients: Clients) -> bool:
    return clients.reader.problem is None


async def _written(clients: Clients, reason: str) -> int:
    while True:
        try:
            return (await clients.writer.write(paused(reason))).offset
        except FactNotWrittenError:
            await asyncio.sleep(0.2)
