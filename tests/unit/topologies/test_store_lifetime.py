"""A worker has one instance of its store at a time, and every instance is closed once, however the start fails."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError
from headgate.cli.features import check_features
from headgate.config.model import Config, TablesConfig, TopologiesConfig
from headgate.config.values import Store
from headgate.plugin import StoreSettings
from headgate.topologies import resources
from headgate.topologies.model.push_gate import HeartbeatResult, MemberHeartbeat
from headgate.topologies.resources import open_resources
from headgate.topologies.service import TopologyService
from headgate.topologies.stores.memory_store import MemoryStore
from tests.unit.proxy.stage import config, until

Step = Callable[[], Awaitable[None]]


async def _succeed() -> None:
    pass


class Life:
    """What happened to the instances of `CountedStore`, and what their next calls do."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.made = 0
        self.configures: list[Step] = []  # of the next instances; those after them succeed
        self.replays: list[Step] = []
        self.closes: Step = _succeed


life = Life()


class CountedStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        life.made += 1
        self.number = life.made
        life.events.append(f"made {self.number}")

    async def configure(self, settings: StoreSettings) -> None:
        await (life.configures.pop(0) if life.configures else _succeed)()
        await super().configure(settings)
        life.events.append(f"configured {self.number}")

    async def close(self) -> None:
        life.events.append(f"closed {self.number}")
        await life.closes()


class FakeClient:
    """Stands for the fact writer and for the epochs' topic."""

    problem = None

    def __init__(self, *_: object, **__: object) -> None:
        pass

    async def open(self, *topics: str) -> None:
        if not topics:
            await (life.replays.pop(0) if life.replays else _succeed)()

    async def write(self, _: object) -> None:
        pass

    async def close(self) -> None:
        life.events.append("client closed")


@pytest.fixture(autouse=True)
def _kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    async def origin(*_: object) -> None:
        pass

    life.__init__()  # type: ignore[misc]
    monkeypatch.setattr(resources, "FactWriter", FakeClient)
    monkeypatch.setattr(resources, "EpochsTopic", FakeClient)
    monkeypatch.setattr(resources, "find_origin", origin)


def configured(folder: Path) -> Config:
    store = Store("plugin", f"{__name__}:CountedStore")
    return replace(config(1), topologies=TopologiesConfig(store=store), tables=TablesConfig(path=folder / "tables"))


@asynccontextmanager
async def started(folder: Path, *, join: bool = False) -> AsyncIterator[TopologyService]:
    """The service; `join`: a member joins before the topics are read."""
    whole = configured(folder)
    opening = partial(open_resources, whole, clock=SystemClock(), environment={})
    service = TopologyService(whole, opening, retry_s=0.001)
    if join:
        beat = MemberHeartbeat(api_version=1, group="g", member="m", member_epoch=0, process="p", topology_epoch=0)
        service.on_heartbeat(cast("Any", None), beat, HeartbeatResult())
    async with service.running():
        yield service


async def fail() -> None:
    raise ClusterError("not yet")


def stores() -> list[str]:
    return [event for event in life.events if event != "client closed"]


async def test_a_worker_makes_one_instance_and_closes_it(tmp_path: Path) -> None:
    async with started(tmp_path) as service:
        await until(lambda: service.is_ready)
    assert stores() == ["made 1", "configured 1", "closed 1"]


@pytest.mark.parametrize("step", ["configures", "replays"])
async def test_a_start_that_fails_closes_its_instance_before_the_next_one_is_made(tmp_path: Path, step: str) -> None:
    setattr(life, step, [fail, fail])
    async with started(tmp_path) as service:
        await until(lambda: service.is_ready)
        tried = ["made {0}", "closed {0}"] if step == "configures" else ["made {0}", "configured {0}", "closed {0}"]
        failed = [event.format(number) for number in (1, 2) for event in tried]
        assert stores() == [*failed, "made 3", "configured 3"]
    assert stores()[-1] == "closed 3"
    assert life.events.count("client closed") == 2 * 3


async def test_a_start_that_fails_after_the_store_is_open_closes_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(tmp_path, join=True) as service:
        record = service.groups.on_heartbeat

        def fail_once(*_: object, **__: object) -> None:
            monkeypatch.setattr(service.groups, "on_heartbeat", record)
            raise RuntimeError("a bug")

        monkeypatch.setattr(service.groups, "on_heartbeat", fail_once)
        await until(lambda: service.is_ready)
        assert stores() == ["made 1", "configured 1", "closed 1", "made 2", "configured 2"]
    assert stores()[-1] == "closed 2"


@pytest.mark.parametrize("step", ["configures", "replays"])
async def test_a_worker_that_stops_while_it_starts_closes_its_instance(tmp_path: Path, step: str) -> None:
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    setattr(life, step, [hang])
    async with started(tmp_path):
        await reached.wait()
    assert stores()[-1] == "closed 1"
    assert life.made == 1


async def test_a_store_that_cannot_be_closed_does_not_keep_the_clients_open(tmp_path: Path) -> None:
    life.closes = fail
    async with started(tmp_path) as service:
        await until(lambda: service.is_ready)
    assert life.events[-3:] == ["closed 1", "client closed", "client closed"]


def test_the_check_before_workers_start_makes_no_instance(tmp_path: Path) -> None:
    check_features(configured(tmp_path))
    assert life.made == 0
