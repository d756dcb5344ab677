"""The active topics of Connect compared with those on the wire: through the web, by the command."""

import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.facts import Actor, encode
from headgate.facts.observations import ActorKind
from tests.support.activity_facts import USE
from tests.support.cluster import Cluster
from tests.support.gateway import HEADGATE
from tests.support.status_topics import TopicTools, status_record
from tests.support.web import Web, running_web

_DEADLINE_S = 60.0


class Place:
    """A status topic and `headgate.activity`, written to by the test."""

    def __init__(self, cluster: Cluster) -> None:
        self.tools = TopicTools(cluster)
        name = uuid.uuid4().hex[:8]
        self.prefix, self.status = f"headgate-{name}.", f"{name}.status"
        self.tools.create(self.status, 5)

    def write_status(self, connector: str, *topics: str) -> None:
        """Write what Connect writes."""
        self.tools.write(self.status, *(status_record(topic, connector) for topic in topics))

    def write_activity(self, kind: ActorKind, name: str, *topics: str) -> None:
        """Write what a gateway writes."""
        actor = Actor(kind=kind, name=name, rule="test", confidence="certain")
        boot = uuid.uuid4().hex
        facts = (
            replace(USE, cluster="c", writer="gw/0", boot=boot, seq=seq, actor=actor, topic=topic, direction="write")
            for seq, topic in enumerate(topics)
        )
        self.tools.write(f"{self.prefix}activity", *(encode(one)[1:] for one in facts))


@pytest.fixture
def place(cluster: Cluster) -> Place:
    return Place(cluster)


@pytest.fixture
def web(place: Place, cluster: Cluster, tmp_path: Path) -> Iterator[Web]:
    place.tools.create(f"{place.prefix}activity", 8)
    place.write_activity("connector", "src", *(f"t{number}" for number in range(20)))
    place.write_activity("streams", "src", "not-a-connectors")
    place.write_status("src", *(f"t{number}" for number in range(20)))
    # No gateway has made the topics of share groups, and the web would wait for them.
    keys = {"facts.prefix": place.prefix, "connect.main.status_topic": place.status, "share_groups.enable": False}
    with running_web(tmp_path, cluster.bootstrap, keys) as running:
        yield running


def compare(web: Web, name: str) -> tuple[int, Any]:
    command: list[str | Path] = [HEADGATE, "connectors", "--url", web.url, "compare", name, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def both(web: Web) -> dict[str, list[str]]:
    """The two sets, as the web returns them."""
    status, answer = web.call("GET", "/api/v1/connectors?name=src")
    assert status == 200
    row: dict[str, list[str]] = answer["connectors"][0]
    return row


def test_both_views_are_compared_and_a_difference_is_named(place: Place, web: Web) -> None:
    topics = sorted(f"t{number}" for number in range(20))
    agreed = {"connector": "src", "connect": topics, "wire": topics, "only_connect": [], "only_wire": []}
    assert compare(web, "src") == (0, agreed)
    place.write_status("src", "only-said")
    place.write_activity("connector", "src", "only-seen")
    by = time.monotonic() + _DEADLINE_S
    while "only-said" not in both(web)["connect"] or "only-seen" not in both(web)["wire"]:
        assert time.monotonic() < by
        time.sleep(0.05)
    code, found = compare(web, "src")
    assert (code, found["only_connect"], found["only_wire"]) == (1, ["only-said"], ["only-seen"])
    # A reset does not change the wire.
    assert web.call("PUT", "/connectors/src/topics/reset") == (202, None)
    assert (both(web)["connect"], len(both(web)["wire"])) == ([], 21)


def test_facts_that_cannot_be_read_are_not_a_difference(place: Place, cluster: Cluster, tmp_path: Path) -> None:
    """Without `headgate.activity` the web names the problem, serves what it has, and compares nothing."""
    place.write_status("src", "t")
    keys = {"facts.prefix": place.prefix, "connect.main.status_topic": place.status}
    with running_web(tmp_path, cluster.bootstrap, keys) as web:
        assert web.topics("src") == {"t"}
        code, said = compare(web, "src")
        assert code == 1
        assert f"{place.prefix}activity" in said
        assert "activity" in web.log.read_text()
