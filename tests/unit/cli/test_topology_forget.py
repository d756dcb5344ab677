"""`headgate topology forget` beside a gateway that has the file of its store open."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.cli import topology
from headgate.cli.main import main
from headgate.config.model import Config
from headgate.facts import TopologyEpochsSet
from headgate.plugin.conformance import settings_in
from headgate.topologies.model.streams_groups import StreamsGroups
from headgate.topologies.resources import TopologyResources
from headgate.topologies.store_calls import StoreCalls
from headgate.topologies.stores.memory_store import MemoryStore
from headgate.topologies.stores.sqlite_store import SqliteStore
from tests.unit.topologies.scene import FakeEpochs, beating, pushed, scene

STORED = TopologyEpochsSet(at=1, group="g", incarnation="i", stored_epoch=0, failed_epoch=-1)
NOT_STORED, AVAILABLE = 1, 3
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch) -> FakeEpochs:
    """The state topic, with one description; it is the only thing that is opened."""
    topic = FakeEpochs()

    async def opening(config: Config, groups: StreamsGroups, _: AsyncExitStack, **__: object) -> TopologyResources:
        assert config.topologies.store.scheme == "memory"
        topic.groups = groups
        groups.on_epochs_read(STORED, is_own=False)
        return TopologyResources(StoreCalls(MemoryStore(), timeout_s=30.0), topic.write)

    monkeypatch.setattr(topology, "open_resources", opening)
    return topic


def test_the_description_in_a_file_that_is_in_use_is_not_shown_any_more(
    tmp_path: Path, epochs: FakeEpochs, capsys: Capture
) -> None:
    file, config = tmp_path / "t.db", tmp_path / "headgate.toml"
    config.write_text(f'[topologies]\nstore = "sqlite:{file}"\n[gateway]\nnodes = [0]\n')

    async def forget(group: str) -> int:
        store = SqliteStore()  # the gateway's
        await store.configure(replace(settings_in(tmp_path), target=str(file)))
        try:
            return await asyncio.to_thread(main, ["topology", "forget", group, "--config", str(config), "--json"])
        finally:
            await store.close()

    assert asyncio.run(forget("g")) == 0
    assert json.loads(capsys.readouterr().out) == {"group": "g", "forgotten": True}
    assert epochs.written == [replace(STORED, at=0, stored_epoch=-2)]
    assert asyncio.run(forget("other")) == 1


async def test_a_gateway_that_reads_it_shows_nothing_and_solicits_again() -> None:
    async with scene() as it:
        await it.join()
        assert await it.pushes(pushed()) == 0
        assert await it.status() == AVAILABLE
        it.service.groups.on_epochs_read(replace(it.epochs.written[-1], stored_epoch=-2), is_own=False)
        assert await it.status() == NOT_STORED
        assert (await it.heartbeat(beating()))[1].topology_description_required
        assert await it.pushes(pushed()) == 0
        assert await it.status() == AVAILABLE
