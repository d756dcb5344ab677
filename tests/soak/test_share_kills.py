"""Twenty times kill -9 of the gateway under load with a tenth rejected, judged offset by offset."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.soak.page import table, write_section
from tests.support.cluster import Cluster
from tests.support.share_blows import Aftermath, campaign
from tests.support.share_consumers import ShareJvm
from tests.support.share_scene import ShareScene, share_scene, until

pytestmark = pytest.mark.timeout(1800)
KILLS, WHOLE_EVERY = 20, 5


@pytest.fixture
def scene(cluster: Cluster, tmp_path: Path) -> Iterator[ShareScene]:
    with share_scene(cluster, tmp_path) as running:
        yield running


def test_twenty_kills(scene: ShareScene, tmp_path: Path) -> None:
    with ShareJvm("broker", tmp_path / "4.3.1.log") as old, ShareJvm("clients", tmp_path / "4.4.0.log") as new:
        blows = [whole(scene) if at % WHOLE_EVERY == WHOLE_EVERY - 1 else one(scene) for at in range(KILLS)]
        aftermath = campaign(scene, [old, new], blows, between_s=(1.0, 5.0))
    write(f"{KILLS} kills of the gateway", aftermath)
    assert aftermath.problems == ()


def one(scene: ShareScene) -> Callable[[str], None]:
    """A worker; its supervisor starts another."""

    def kill(_group: str) -> None:
        for worker in scene.gateway.workers():
            os.kill(worker, signal.SIGKILL)

    return kill


def whole(scene: ShareScene) -> Callable[[str], None]:
    """Supervisor and worker; an operator starts it again."""

    def kill(_group: str) -> None:
        workers = scene.gateway.workers()
        scene.gateway.kill()
        until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
        scene.gateway.start()

    return kill


def write(name: str, aftermath: Aftermath, *more: str) -> None:
    figures = {key.replace("_", " "): value for key, value in asdict(aftermath).items() if key != "problems"}
    what = (
        "Five members: kafka-clients 4.3.1 and 4.4.0, each with and without commits, and librdkafka. Each offset is "
        "judged by the broker's own log of states: archived is dead-lettered, acknowledged meets "
        "dead-lettered only where that was withdrawn."
    )
    lines = [what, "", *table(tuple(figures), [tuple(figures.values())]), ""]
    broken = "; ".join(aftermath.problems) or "none"
    write_section(f"Share groups: {name}", [*lines, *(f"- {line}" for line in more), f"- promises broken: {broken}"])
