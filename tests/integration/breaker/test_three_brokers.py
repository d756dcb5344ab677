"""Brokers that are stopped: the one of the dead-letter topic, one of too few replicas, the group's coordinator.

In one file, so that one cluster of three serves all of it; a test that stops a broker starts it again.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from headgate.kafka.topics import ensure_topics
from headgate.share_groups.spool.model.records import SpooledDeadLetter
from headgate.share_groups.spool.writer import SpoolWriter
from tests.integration.breaker.test_outages import DEAD_LETTERS_S, WIDE
from tests.support.cluster import start_test_cluster
from tests.support.outage_kinds import start_broker, stopped_and_too_few
from tests.support.share_blows import PARTITIONS as LOADED
from tests.support.share_blows import campaign
from tests.support.share_consumers import ShareJvm
from tests.support.share_outages import endure
from tests.support.share_scene import ShareScene, share_scene
from tests.support.share_truth import Reading

_KILLED = 1


@pytest.fixture(scope="module")
def before_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    with (
        start_test_cluster(tmp_path_factory, brokers=3) as cluster,
        share_scene(cluster, tmp_path_factory.mktemp("three"), gateway__nodes="0-2") as scene,
    ):
        yield scene


def test_a_broker_that_is_stopped_and_too_few_replicas_are_not_felt_and_lose_no_dead_letter(
    before_three: ShareScene, java_431: ShareJvm, java_440: ShareJvm
) -> None:
    scene = before_three
    found = endure(
        scene,
        stopped_and_too_few(scene, 1),
        [java_431, java_440],
        healthy_s=3.0,
        outage_s=5.0,
        rate=200,
        limits=WIDE,
        dead_letters_s=DEAD_LETTERS_S,
    )
    print(*found, sep="\n")
    assert [one.problems for one in found] == [(), (), ()]


def test_a_broker_that_is_killed_costs_no_write_to_the_spool(before_three: ShareScene) -> None:
    # Not a coroutine test: clients of the scene connect to the broker again, which is no socket that is left behind.
    asyncio.run(_write_while_a_broker_is_killed(before_three))


async def _write_while_a_broker_is_killed(scene: ShareScene) -> None:
    """It is among the in-sync replicas of every partition until the cluster has noticed its death, after 9 s."""
    dead_letter = SpooledDeadLetter(
        group="none",
        topic_id=bytes(16),
        partition=0,
        offset=0,
        key=None,
        value=b"v" * 500,
        headers=(),
        target="dlq.none",
        deadline=2**60,
        sequence=1,
        parked="a test",
    )
    prefix = f"killed-{scene.facts}"
    await ensure_topics(scene.direct, prefix=prefix, max_bytes=1024)
    writer = SpoolWriter(scene.direct, prefix=prefix)
    await writer.open()
    numbers, failures, took, is_over = count(), [], [], False

    async def write(lane: int) -> None:
        while not is_over:
            began = time.monotonic()
            offset = next(numbers)
            failures.extend(
                await writer.write([replace(dead_letter, partition=lane, offset=offset, sequence=offset)], 10.0)
            )
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        for lane in range(16):
            group.create_task(write(lane))
        await asyncio.sleep(1)
        scene.cluster.kafka.nodes[_KILLED].kill()
        await asyncio.sleep(11)
        is_over = True
    await writer.close()
    await asyncio.to_thread(start_broker, scene, _KILLED)
    print(f"{len(took)} writes, the longest took {max(took) * 1000:.0f} ms")
    assert [one for one in failures if one is not None] == []
    reader = Reading(scene.direct, f"{prefix}spool")
    found = {key for _, key, value, _ in reader.to_the_end() if value is not None}
    reader.close()
    assert len(found) == len(took), "each is in the spool"


def test_a_coordinator_that_moves_in_mid_window_loses_nothing_and_trips_nothing(
    before_three: ShareScene, java_431: ShareJvm, java_440: ShareJvm
) -> None:
    scene = before_three
    everywhere = [[(first + more) % 3 for more in range(3)] for first in range(LOADED)]
    topic, dlq = scene.new_topic(replicas=everywhere), scene.new_topic("dlq", replicas=everywhere[:2])
    stopped: list[int] = []

    def stop(group: str) -> None:
        stopped.append(scene.coordinator(group))
        scene.cluster.kafka.nodes[stopped[0]].stop()

    def restart() -> None:
        for node in stopped:
            start_broker(scene, node)

    try:
        aftermath = campaign(scene, [java_431, java_440], [stop], topic=topic, dlq=dlq, mend=restart)
    finally:
        restart()
    print(aftermath)
    assert aftermath.dead_letters > 0
    assert aftermath.problems == ()
