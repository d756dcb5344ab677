"""A gateway that minds share groups in front of the run's cluster, and the consumers that all modules here drive."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.share_consumers import Commit, LibrdkafkaMember, ShareJvm
from tests.support.share_scene import ShareScene, share_scene

# Every client library, every way in which acknowledgements reach the broker.
KINDS = ("4.3.1 sync", "4.3.1 none", "4.4.0 async", "4.4.0 none", "librdkafka sync")
Consuming = Callable[..., AbstractContextManager[None]]


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("share-clients")


@pytest.fixture(scope="session")
def java_431(logs: Path) -> Iterator[ShareJvm]:
    with ShareJvm("broker", logs / "4.3.1.log") as jvm:
        yield jvm


@pytest.fixture(scope="session")
def java_440(logs: Path) -> Iterator[ShareJvm]:
    with ShareJvm("clients", logs / "4.4.0.log") as jvm:
        yield jvm


@pytest.fixture(scope="session")
def scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareScene]:
    """One gateway for all modules that leave it alive."""
    with share_scene(cluster, tmp_path_factory.mktemp("share")) as running:
        yield running


@pytest.fixture
def consuming(request: pytest.FixtureRequest, scene: ShareScene) -> Consuming:
    """A block with a member of some kind; it closes at the end, and must have had no errors."""

    @contextmanager
    def run(kind: str, group: str, topic: str, *, rejects_percent: int = 0) -> Iterator[None]:
        library, commit = kind.split()
        how: Commit = {"sync": "sync", "async": "async"}.get(commit, "none")  # type: ignore[assignment]
        if library == "librdkafka":
            with LibrdkafkaMember(scene.clients, group, [topic], commit=how, rejects_percent=rejects_percent) as member:
                yield
            assert member.errors == []
            return
        jvm: ShareJvm = request.getfixturevalue("java_" + library.replace(".", ""))
        one = jvm.join(group, scene.bootstrap, group, [topic], commit=how, rejects_percent=rejects_percent)
        try:
            yield
        finally:
            one.close()
        assert one.errors == []

    return run
