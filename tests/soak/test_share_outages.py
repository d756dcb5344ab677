"""45 s outages of a dead-letter topic at default settings: five kinds, each also with kills.

The longest commit is at most a second, the throughput at least 0.8 of that of the same run's healthy phase, and when
the topic is back every record that the broker archived has its dead letter. The integration tests run a part of it for
a few seconds (`tests/integration/breaker/test_outages.py`).
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.soak.page import table, write_section
from tests.support.cluster import Cluster, start_test_cluster
from tests.support.outage_kinds import deleted, guarded, logged_in, revoked, stopped_and_too_few, too_large
from tests.support.share_consumers import ShareJvm
from tests.support.share_outages import RATE, REJECTS_PERCENT, Endured, endure
from tests.support.share_scene import ShareScene, share_scene, until

pytestmark = pytest.mark.timeout(900)
HEALTHY_S, OUTAGE_S = 20.0, 45.0
# Of each of the three groups, without kills and with one broker. Two cores carry nine partitions in all (1.6 cores for
# three of them, brokers, clients and load included); three brokers, or gateways that start again, need more of them.
PARTITIONS = 2
HEAD = (
    "outage",
    "partitions",
    "sent",
    "healthy records/s",
    "outage records/s",
    "ratio",
    "longest commit s, healthy",
    "outage",
    "archived",
    "letters",
    "repeated",
    "timed out",
    "late",
    "lost",
    "all letters after s",
)


@pytest.fixture(scope="module")
def jvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ShareJvm]]:
    folder = tmp_path_factory.mktemp("jvms")
    with ShareJvm("broker", folder / "4.3.1.log") as old, ShareJvm("clients", folder / "4.4.0.log") as new:
        yield [old, new]


def test_outages_of_a_topic(cluster: Cluster, tmp_path: Path, jvms: list[ShareJvm]) -> None:
    with guarded(cluster, tmp_path) as scene:
        outages = [deleted(scene), too_large(scene), revoked(scene)]
        found = endure(
            scene,
            outages,
            jvms,
            healthy_s=HEALTHY_S,
            outage_s=OUTAGE_S,
            partitions=PARTITIONS,
            addresses=[logged_in(scene)],
        )
    report("one broker", found)
    assert [one.problems for one in found] == [()] * len(found)


def test_outages_of_a_broker(tmp_path_factory: pytest.TempPathFactory, jvms: list[ShareJvm]) -> None:
    with (
        start_test_cluster(tmp_path_factory, brokers=3) as cluster,
        share_scene(cluster, tmp_path_factory.mktemp("three"), gateway__nodes="0-2") as scene,
    ):
        found = endure(scene, stopped_and_too_few(scene, 1), jvms, healthy_s=HEALTHY_S, outage_s=OUTAGE_S)
    report("three brokers", found)
    assert [one.problems for one in found] == [()] * len(found)


def test_outages_with_kills(cluster: Cluster, tmp_path: Path, jvms: list[ShareJvm]) -> None:
    """Two gateways: workers, the leader and whole gateways are killed in the outage and while letters are moved.

    One partition of each group: gateways that start again need a core, and what waited meanwhile is caught up.
    """
    one_folder, other_folder = tmp_path / "one", tmp_path / "other"
    one_folder.mkdir()
    other_folder.mkdir()
    with guarded(cluster, one_folder) as scene, guarded(cluster, other_folder, facts__prefix=scene.facts) as other:
        scenes = [scene, other]
        found = endure(
            scene,
            [deleted(scene), too_large(scene), revoked(scene)],
            jvms,
            healthy_s=HEALTHY_S / 2,
            outage_s=OUTAGE_S,
            addresses=[logged_in(one) for one in scenes],
            blows=kills(scenes),
            blows_after=[(0.5, lambda: kill_worker(leading(scenes)))],
        )
    report("with kills", found)
    assert [one.problems for one in found] == [()] * len(found)


def test_outages_of_a_broker_with_kills(tmp_path_factory: pytest.TempPathFactory, jvms: list[ShareJvm]) -> None:
    """The same kills, while a broker of three is stopped: the leader may have lost it too."""
    folders = [tmp_path_factory.mktemp(name) for name in ("three-one", "three-other")]
    with (
        start_test_cluster(tmp_path_factory, brokers=3) as cluster,
        share_scene(cluster, folders[0], gateway__nodes="0-2") as scene,
        share_scene(cluster, folders[1], gateway__nodes="0-2", facts__prefix=scene.facts) as other,
    ):
        scenes = [scene, other]
        found = endure(
            scene,
            stopped_and_too_few(scene, 1),
            jvms,
            healthy_s=HEALTHY_S / 2,
            outage_s=OUTAGE_S,
            addresses=[one.bootstrap for one in scenes],
            blows=kills(scenes),
            blows_after=[(0.5, lambda: kill_worker(leading(scenes)))],
        )
    report("three brokers, with kills", found)
    assert [one.problems for one in found] == [()] * len(found)


def kills(scenes: Sequence[ShareScene]) -> list[tuple[float, Callable[[], object]]]:
    """When in an outage which worker or gateway is killed."""
    return [
        (8.0, lambda: kill_worker(scenes[0])),
        (16.0, lambda: kill_worker(leading(scenes))),
        (26.0, lambda: kill_gateway(scenes[0])),
        (36.0, lambda: kill_gateway(leading(scenes))),
    ]


def leading(scenes: Sequence[ShareScene]) -> ShareScene:
    """The one whose worker leads, as soon as there is one."""
    found: list[ShareScene] = []

    def is_there() -> bool:
        found[:] = [one for one in scenes if leads(one)]
        return bool(found)

    until(is_there)
    return found[0]


def leads(scene: ShareScene) -> bool:
    try:
        return scene.gateway.metric("headgate_share_groups_leading") == 1
    except OSError:
        return False


def kill_worker(scene: ShareScene) -> None:
    """Its supervisor starts another."""
    for worker in scene.gateway.workers():
        os.kill(worker, signal.SIGKILL)


def kill_gateway(scene: ShareScene) -> None:
    """Supervisor and worker; an operator starts it again."""
    workers = scene.gateway.workers()
    scene.gateway.kill()
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    scene.gateway.start()


def report(name: str, found: Sequence[Endured]) -> None:
    rows = [
        (
            one.kind,
            one.partitions,
            one.sent,
            f"{one.healthy_rate:.0f}",
            f"{one.outage_rate:.0f}",
            f"{one.throughput:.2f}",
            f"{one.healthy_commit_s:.2f}",
            f"{one.outage_commit_s:.2f}",
            one.archived,
            one.dead_letters,
            one.repeated_dead_letters,
            one.timed_out,
            one.late,
            one.lost,
            f"{one.dead_letters_after_s:.0f}",
        )
        for one in found
    ]
    what = (
        f"{OUTAGE_S:.0f} s without dead letters, default settings and locks, {RATE} records/s for each partition, "
        f"{REJECTS_PERCENT} % rejected, groups side by side, two members each (kafka-clients 4.3.1 and 4.4.0, commits "
        "after each poll). *Lost*: archived by the broker and without a dead letter at the end. *All letters after*: "
        "seconds from the end of the load until every dead letter was in its topic. A group whose topic does not fail "
        "is the control of a stopped broker: commits take a second at most, or as long as the longest of the control."
    )
    states = sum(one.states_read for one in found)
    broken = "; ".join(f"{one.kind}: {problem}" for one in found for problem in one.problems) or "none"
    lines = [what, "", *table(HEAD, rows), ""]
    lines += [f"- states also compared with ReadShareGroupState: {states:,}", f"- promises broken: {broken}"]
    print("\n".join(lines))
    write_section(f"Dead-letter outages: {name}", lines)
