"""A real Connect worker with tracking off, behind a gateway that records the topics of its connectors (KIP-558)."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.activity.connect_status_topic import ConnectStatusTopic
from tests.support.activity_facts import ActivityFacts
from tests.support.clients.connect import file_sink, file_source
from tests.support.cluster import Cluster
from tests.support.connect_worker import ConnectWorker
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.ports import port_block
from tests.support.status_topics import TopicTools

_DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def name() -> str:
    return f"rec{uuid.uuid4().hex[:6]}"


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    tools = TopicTools(cluster)
    for topic, partitions in ((f"{name}.status", 5), (f"{name}.configs", 1)):
        tools.create(topic, partitions, cleanup_policy="compact")
    with running_gateway(
        tmp_path_factory.mktemp("recording"),
        cluster.bootstrap,
        activity__enable=True,
        facts__prefix=f"{name}.facts.",
        connect__main__record=True,
        connect__main__status_topic=f"{name}.status",
        connect__main__config_topic=f"{name}.configs",
        connect__main__principals=["User:ANONYMOUS"],
    ) as running:
        yield running


@pytest.fixture(scope="module")
def worker(gateway: GatewayProcess, name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    settings = {"topic.tracking.enable": "false"}
    folder = tmp_path_factory.mktemp("worker")
    with ConnectWorker(gateway.bootstrap, name, folder, port_block(), settings) as running:
        running.wait()
        yield running
        running.stop()


async def until(what: str, reached: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(_DEADLINE_S):
            while not reached():  # noqa: ASYNC110 - it comes from another process
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"waited {_DEADLINE_S:.0f} s for {what}") from None


def test_what_connectors_use_is_recorded_and_comes_back_after_a_reset_until_they_are_deleted(
    cluster: Cluster, worker: ConnectWorker, name: str, gateway: GatewayProcess, tmp_path: Path
) -> None:
    asyncio.run(_life(cluster, worker, name, gateway, tmp_path))


async def _life(cluster: Cluster, worker: ConnectWorker, name: str, gateway: GatewayProcess, tmp_path: Path) -> None:
    lines, source, sink = f"{name}.lines", f"{name}-the-source", f"{name}-the-sink"
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    status = ConnectStatusTopic(dict(cluster.client_config()), status_topic=worker.status_topic)
    async with status.running():
        await asyncio.wait_for(status.ready(), _DEADLINE_S)
        await asyncio.to_thread(worker.put, source, file_source(file, lines))
        await asyncio.to_thread(worker.put, sink, file_sink(tmp_path / "out.txt", topics=lines))
        for connector in (source, sink):
            await until(f"the topics of {connector}", lambda: status.topics.of(connector) == (lines,))  # noqa: B023
        assert set(status.topics.connectors()) == {source, sink}
        path = f"/connectors/{source}/topics"
        refused = (403, {"error_code": 403, "message": "Topic tracking is disabled."})
        assert worker.call("GET", path) == worker.call("PUT", f"{path}/reset") == refused
        assert await status.reset(source) == (lines,)
        assert status.topics.of(source) == ()
        with file.open("a", encoding="utf-8") as more:
            more.write("three\n")
        await until("its next use", lambda: status.topics.of(source) == (lines,))
        for connector in (source, sink):
            await asyncio.to_thread(worker.ask, "DELETE", f"/connectors/{connector}")
            await until(f"the end of {connector}", lambda: status.topics.of(connector) == ())  # noqa: B023
    await until("its uses to be reported", lambda: gateway.metric("headgate_activity_recorded_total") >= 3)
    facts = ActivityFacts(cluster.client_config(), f"{name}.facts.")
    wrote, read = facts.of(lines, "write"), facts.of(lines, "read")
    facts.close()
    assert (wrote.actor.kind, wrote.actor.name, wrote.actor.confidence) == ("connector", source, "certain")
    assert (read.actor.kind, read.actor.name, read.actor.rule) == ("connector", sink, "connector-client-id")
