"""A quarter of all records rejected for as long as the argument says: the group pauses and resumes again and again."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.processes import resident_mb, tree
from tests.soak.test_share_kills import write
from tests.support.cluster import Cluster
from tests.support.share_blows import campaign
from tests.support.share_consumers import ShareJvm
from tests.support.share_scene import (
    AUTO_RESUME,
    AUTO_RESUME_MS,
    BREAKER,
    MINIMUM,
    THRESHOLD,
    WINDOW,
    ShareScene,
    share_scene,
)

pytestmark = pytest.mark.timeout(0)  # as long as it was told
BELOW = {
    BREAKER: "true",
    THRESHOLD: "20",
    MINIMUM: "50",
    WINDOW: "10000",
    AUTO_RESUME: "true",
    AUTO_RESUME_MS: "5000",
}
MOST_GROWTH_MB = 64.0
_SHARE = 0.15  # of the minutes of the run


@pytest.fixture
def scene(cluster: Cluster, tmp_path: Path) -> Iterator[ShareScene]:
    with share_scene(cluster, tmp_path) as running:
        yield running


def test_a_quarter_rejected(scene: ShareScene, tmp_path: Path, minutes: float) -> None:
    sizes: list[float] = []
    seconds = 60 * minutes * _SHARE

    def look(_group: str) -> None:
        """Half way and at the end: what is held after a warm-up must not grow."""
        time.sleep(seconds / 2)
        sizes.append(sum(resident_mb(pid) for pid in tree(scene.gateway.pid)))

    with ShareJvm("broker", tmp_path / "4.3.1.log") as old, ShareJvm("clients", tmp_path / "4.4.0.log") as new:
        aftermath = campaign(scene, [old, new], [look, look], rejects_percent=25, configs=BELOW, rate=50)
    grown = sizes[1] - sizes[0]
    held = f"the gateway held {sizes[0]:.0f} MB half way and {sizes[1]:.0f} MB at the end"
    write("a quarter rejected", aftermath, f"{seconds:.0f} s", held)
    assert aftermath.problems == ()
    assert aftermath.trips > 0
    assert grown < MOST_GROWTH_MB
