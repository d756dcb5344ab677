"""The cleanup of descriptions whose groups are gone, and that it never mistakes silence for an end."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from structlog.typing import EventDict

from headgate.base.errors import ClusterError
from headgate.kafka.group_admin import GroupOutline
from headgate.topologies.feature import Cleanup, TopologyFeature
from tests.unit.proxy.stage import turns, until
from tests.unit.topologies.scene import NEVER_S, NOT_FOUND, Scene, pushed, scene
from tests.unit.topologies.test_delete_interceptor import classic, failing, joins
from tests.unit.topologies.topic_store import FakeTopic


async def cleanups(it: Scene, cluster: "Cluster", *, interval_s: float) -> None:
    """Three cycles, and what they count."""
    running = asyncio.create_task(Cleanup(it.service, cluster.describe, interval_s=interval_s).run())
    try:
        await until(lambda: it.service.metrics.cleanup_cycles >= 3)
    finally:
        running.cancel()


class Cluster:
    """What the service account is told of each group; those that are not named are Stable."""

    def __init__(self, **codes: int) -> None:
        self.codes = codes
        self.asked: list[str] = []
        self.away = False

    async def describe(self, groups: Sequence[str]) -> Mapping[str, GroupOutline]:
        if self.away:
            raise ClusterError("no broker answers")
        self.asked += groups
        return {group: GroupOutline(group=group, error_code=self.codes.get(group, 0)) for group in groups}


async def stored(it: Scene, *groups: str) -> None:
    for group in groups:
        await it.join(group=group)
        assert await it.pushes(pushed(group=group)) == 0


async def test_a_group_that_two_cycles_do_not_find_is_deleted_and_the_others_stay() -> None:
    cluster = Cluster(gone=NOT_FOUND)
    async with scene() as it:
        await stored(it, "gone", "here")
        cleanup = Cleanup(it.service, cluster.describe, interval_s=NEVER_S)
        await cleanup.cycle()
        assert it.service.must_delete("gone")
        await cleanup.cycle()
        assert not it.service.must_delete("gone")
        assert it.service.must_delete("here")
        assert (it.service.metrics.cleanup_cycles, it.service.metrics.cleanup_eligible) == (2, 1)
        await cleanup.cycle()
        assert cluster.asked == ["gone", "here"] * 2 + ["here"]


async def test_a_classic_join_before_the_store_was_opened_is_forwarded_and_the_description_left_to_the_cleanup(
    tmp_path: Path,
) -> None:
    """A store that cannot be opened must not keep consumers from joining; the group is not a Streams group then."""
    records, opens = FakeTopic(), asyncio.Event()
    for folder in ("earlier", "later"):
        (tmp_path / folder).mkdir()
    async with scene(topic=(records, tmp_path / "earlier")) as it:
        await stored(it, "g")
    async with scene(topic=(records, tmp_path / "later"), opens=opens) as it:
        joined = classic(it)
        await joins(it)
        assert (await joined).error_code == 0
        opens.set()
        await until(lambda: it.service.is_ready)
        assert it.service.must_delete("g")
        cleanup = Cleanup(it.service, Cluster(g=NOT_FOUND).describe, interval_s=NEVER_S)
        await cleanup.cycle()
        await cleanup.cycle()
        assert not it.service.must_delete("g")


async def test_the_cleanup_runs_at_its_interval() -> None:
    async with scene() as it:
        await stored(it, "gone", "here")
        await cleanups(it, Cluster(gone=NOT_FOUND), interval_s=0.001)
        assert not it.service.must_delete("gone")
        assert it.service.must_delete("here")


async def test_the_cleanup_waits_for_its_interval() -> None:
    cluster = Cluster(gone=NOT_FOUND)
    async with scene() as it:
        await stored(it, "gone")
        running = asyncio.create_task(Cleanup(it.service, cluster.describe, interval_s=NEVER_S).run())
        await turns(50)
        running.cancel()
        assert cluster.asked == []


@pytest.mark.parametrize("code", [14, 15, 16, 29, 30, -1])
async def test_what_cannot_tell_never_counts_and_begins_the_count_anew(code: int) -> None:
    cluster = Cluster(g=NOT_FOUND)
    async with scene() as it:
        await stored(it, "g")
        cleanup = Cleanup(it.service, cluster.describe, interval_s=NEVER_S)
        for seen in (NOT_FOUND, code, NOT_FOUND, code, code, NOT_FOUND):
            cluster.codes["g"] = seen
            await cleanup.cycle()
            assert it.service.must_delete("g")
        await cleanup.cycle()
        assert not it.service.must_delete("g")


async def test_a_cluster_that_is_away_ends_the_cycle_and_nothing_else() -> None:
    cluster = Cluster(g=NOT_FOUND)
    async with scene() as it:
        await stored(it, "g")
        cleanup = Cleanup(it.service, cluster.describe, interval_s=NEVER_S)
        await cleanup.cycle()
        cluster.away = True
        await cleanup.cycle()
        assert it.service.must_delete("g")
        assert (it.service.metrics.cleanup_cycles, it.service.metrics.cleanup_eligible) == (1, 0)


async def test_a_store_that_fails_is_tried_again_by_the_next_cycle() -> None:
    store, cluster = failing(), Cluster(g=NOT_FOUND)
    async with scene(store) as it:
        await stored(it, "g")
        cleanup = Cleanup(it.service, cluster.describe, interval_s=NEVER_S)
        for _ in range(3):
            await cleanup.cycle()
        assert it.service.must_delete("g")
        assert store.deletes == 2
        assert it.service.metrics.cleanup_eligible == 0
        store.on_delete = None
        await cleanup.cycle()
        assert it.service.metrics.cleanup_eligible == 1
        assert not it.service.must_delete("g")
        calls = it.service.metrics.store_calls
        assert (calls["delete", "error"], calls["delete", "success"]) == (2, 1)


async def test_many_groups_are_asked_about_in_batches() -> None:
    sizes: list[int] = []

    async def describe(groups: Sequence[str]) -> Mapping[str, GroupOutline]:
        sizes.append(len(groups))
        return {group: GroupOutline(group=group) for group in groups}

    async with scene() as it:
        await stored(it, *(f"g{i}" for i in range(150)))
        await Cleanup(it.service, describe, interval_s=NEVER_S).cycle()
    assert sizes == [100, 50]


@pytest.mark.parametrize("has_store", [True, False])
async def test_without_a_store_there_is_no_cleanup(has_store: bool) -> None:
    class Service:
        def __init__(self) -> None:
            self.has_store = has_store
            self.tasks: list[str] = []

        def running(self) -> nullcontext[None]:
            return nullcontext()

        def keep_running(self, work: Any) -> None:
            self.tasks.append(work.__qualname__)

    tasks = ["AssignmentRecorder.run", "MismatchReporter.run", "Cleanup.run"]
    service: Any = Service()
    async with TopologyFeature(service, max_bytes=1, describe=Cluster().describe).running():
        assert service.tasks == (tasks if has_store else [])


async def test_a_background_loop_that_fails_is_counted_logged_and_started_again(logs: list[EventDict]) -> None:
    cluster, problems = Cluster(gone=NOT_FOUND), [RuntimeError("a defect"), RuntimeError("another")]

    async def describe(groups: Sequence[str]) -> Mapping[str, GroupOutline]:
        if problems:
            raise problems.pop()
        return await cluster.describe(groups)

    async with scene(retry_s=0.001, describe=describe, cleanup_interval_s=0.001) as it:
        await stored(it, "gone")
        await until(lambda: not it.service.must_delete("gone"))
        assert it.service.samples()["headgate_topologies_failures", ()] == 2
    errors = [str(one["exc_info"]) for one in logs if one["event"] == "topologies task failed"]
    assert errors == ["another", "a defect"]
