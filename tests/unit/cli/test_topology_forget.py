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
FAILED = TopologyEpochsSet(at=1, group="failed", incarnation="i", stored_epoch=-1, failed_epoch=3)
FORGOTTEN = replace(FAILED, at=0, failed_epoch=-1)
NOT_STORED, AVAILABLE = 1, 3
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def opened() -> list[str]:
    """The schemes of the stores that were opened."""
    return []


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> FakeEpochs:
    """The state topic, with one description and one that failed; it is the only thing that is opened."""
    topic = FakeEpochs()

    async def opening(config: Config, groups: StreamsGroups, _: AsyncExitStack, **__: object) -> TopologyResources:
        opened.append(config.topologies.store.scheme)
        topic.groups = groups
        groups.on_epochs_read(STORED, is_own=False)
        groups.on_epochs_read(FAILED, is_own=False)
        return TopologyResources(StoreCalls(MemoryStore(), timeout_s=30.0), topic.write)

    monkeypatch.setattr(topology, "open_resources", opening)
    return topic


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "headgate.toml"
    file.write_text(f'[topologies]\nstore = "sqlite:{tmp_path / "t.db"}"\n[gateway]\nnodes = [0]\n')
    return file


def forget_beside_a_gateway(config: Path, group: str, *options: str) -> int:
    async def forget() -> int:
        store = SqliteStore()  # the gateway's
        await store.configure(replace(settings_in(config.parent), target=str(config.parent / "t.db")))
        try:
            return await asyncio.to_thread(main, ["topology", "forget", group, "--config", str(config), *options])
        finally:
            await store.close()

    return asyncio.run(forget())


def test_the_description_in_a_file_that_is_in_use_is_not_shown_any_more(
    config: Path, epochs: FakeEpochs, opened: list[str], capsys: Capture
) -> None:
    assert forget_beside_a_gateway(config, "g", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"group": "g", "forgotten": True}
    assert epochs.written == [replace(STORED, at=0, stored_epoch=-2)]
    assert forget_beside_a_gateway(config, "other", "--json") == 1
    assert opened == ["memory", "memory"]


def test_a_purge_of_a_file_that_is_in_use_is_refused(config: Path, epochs: FakeEpochs, capsys: Capture) -> None:
    """The records say that the description in the file is not to be shown: they must stay."""
    assert forget_beside_a_gateway(config, "g", "--purge") == 2
    assert "leave out --purge" in capsys.readouterr().err
    assert (epochs.written, epochs.removed) == ([], [])


def test_a_purge_removes_the_records_too_and_says_how_many(
    config: Path, epochs: FakeEpochs, opened: list[str], capsys: Capture
) -> None:
    assert main(["topology", "forget", "g", "--config", str(config), "--purge"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Deleted the topology description of streams group 'g'. Its members are asked for it again.",
        "Records of 'g' removed from Headgate's topics: 1. Tables keep their rows.",
    ]
    assert epochs.removed == ["g"]
    assert opened == ["sqlite"]


def test_a_purge_of_a_group_without_records_ends_with_1(config: Path, epochs: FakeEpochs, capsys: Capture) -> None:
    assert main(["topology", "forget", "other", "--config", str(config), "--purge", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"group": "other", "forgotten": False, "records": 0}
    assert epochs.removed == []


def test_a_description_that_failed_permanently_and_is_not_stored_is_forgotten(
    config: Path, epochs: FakeEpochs, capsys: Capture
) -> None:
    assert main(["topology", "forget", "failed", "--config", str(config)]) == 0
    assert capsys.readouterr().out == (
        "Deleted the permanent failure of the topology description of streams group 'failed'. "
        "Its members are asked for it again.\n"
    )
    assert epochs.written == [FORGOTTEN]


def test_a_description_that_failed_permanently_is_forgotten_beside_a_gateway(config: Path, epochs: FakeEpochs) -> None:
    assert forget_beside_a_gateway(config, "failed", "--json") == 0
    assert epochs.written == [FORGOTTEN]


def test_a_purge_removes_the_record_of_a_description_that_failed_permanently(
    config: Path, epochs: FakeEpochs, capsys: Capture
) -> None:
    assert main(["topology", "forget", "failed", "--config", str(config), "--purge", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"group": "failed", "forgotten": True, "records": 1}
    assert epochs.removed == ["failed"]


async def test_a_gateway_that_reads_that_a_failure_is_forgotten_solicits_again() -> None:
    async with scene(max_bytes=100_000) as it:
        await it.join()
        assert await it.pushes(pushed(nodes=10_000)) != 0
        assert not (await it.heartbeat(beating()))[1].topology_description_required
        failed = it.epochs.written[-1]
        assert (failed.stored_epoch, failed.failed_epoch) == (-1, 0)
        it.service.groups.on_epochs_read(replace(failed, failed_epoch=-1), is_own=False)
        assert (await it.heartbeat(beating()))[1].topology_description_required


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
