"""What Connect says against what was seen on the wire: facts of all partitions, through the web, by the command."""

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.activity.model.connect_records import TopicUsed, status_key, status_value
from headgate.facts import ActivityObserved, Actor
from headgate.facts.observations import ActorKind
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.topics import Origin, ensure_topics
from tests.support.activity_facts import USE
from tests.support.cluster import Cluster
from tests.support.gateway import HEADGATE
from tests.support.web import Web, running_web

_DEADLINE_S = 60.0


class Place:
    """A status topic and Headgate's own topics, written to by the test."""

    def __init__(self, cluster: Cluster) -> None:
        self.settings = dict(cluster.client_config())
        name = uuid.uuid4().hex[:8]
        self.prefix, self.status = f"headgate-{name}.", f"{name}.status"
        admin = AdminClient(self.settings)
        admin.create_topics([NewTopic(self.status, 5, 1)])[self.status].result(30)

    def say(self, connector: str, *topics: str) -> None:
        """As Connect."""
        producer = Producer({**self.settings, "partitioner": "murmur2_random"})
        for topic in topics:
            used = TopicUsed(topic=topic, connector=connector, task=0, discover_timestamp_ms=1)
            producer.produce(self.status, key=status_key(topic, connector), value=status_value(used))
        assert producer.flush(30) == 0

    def see(self, kind: ActorKind, name: str, *topics: str) -> None:
        """As a gateway."""
        asyncio.run(self._see(kind, name, topics))

    async def _see(self, kind: ActorKind, name: str, topics: tuple[str, ...]) -> None:
        await ensure_topics(self.settings, prefix=self.prefix, max_bytes=1024 * 1024)
        origin = Origin(cluster="c", writer="gw/0", boot=uuid.uuid4().hex)
        writer = FactWriter(self.settings, prefix=self.prefix, origin=origin, delivery_timeout_s=30.0)
        try:
            for topic in topics:
                await writer.write(_observed(kind, name, topic))
        finally:
            await writer.close()


def _observed(kind: ActorKind, name: str, topic: str) -> ActivityObserved:
    actor = Actor(kind=kind, name=name, rule="test", confidence="certain")
    return replace(USE, actor=actor, topic=topic, direction="write")


@pytest.fixture
def place(cluster: Cluster) -> Place:
    return Place(cluster)


@pytest.fixture
def web(place: Place, cluster: Cluster, tmp_path: Path) -> Iterator[Web]:
    place.see("connector", "src", *(f"t{number}" for number in range(20)))
    place.see("streams", "src", "not-a-connectors")
    place.say("src", *(f"t{number}" for number in range(20)))
    keys = {"facts.prefix": place.prefix, "connect.main.status_topic": place.status}
    with running_web(tmp_path, cluster.bootstrap, keys) as running:
        yield running


def compare(web: Web, name: str) -> tuple[int, Any]:
    command: list[str | Path] = [HEADGATE, "connectors", "--url", web.url, "compare", name, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def both(web: Web) -> dict[str, list[str]]:
    """The two sets, as the command is told them."""
    status, answer = web.call("GET", "/api/v1/connectors?name=src")
    assert status == 200
    row: dict[str, list[str]] = answer["connectors"][0]
    return row


def test_both_views_are_compared_and_a_difference_is_named(place: Place, web: Web) -> None:
    topics = sorted(f"t{number}" for number in range(20))
    agreed = {"connector": "src", "connect": topics, "wire": topics, "only_connect": [], "only_wire": []}
    assert compare(web, "src") == (0, agreed)
    place.say("src", "only-said")
    place.see("connector", "src", "only-seen")
    by = time.monotonic() + _DEADLINE_S
    while "only-said" not in both(web)["connect"] or "only-seen" not in both(web)["wire"]:
        assert time.monotonic() < by
        time.sleep(0.05)
    code, found = compare(web, "src")
    assert (code, found["only_connect"], found["only_wire"]) == (1, ["only-said"], ["only-seen"])
    # Without a tokens file whoever is on this machine may reset; the wire keeps what it saw.
    assert web.call("PUT", "/connectors/src/topics/reset") == (202, None)
    assert (both(web)["connect"], len(both(web)["wire"])) == ([], 21)


def test_facts_that_cannot_be_read_are_not_a_difference(place: Place, cluster: Cluster, tmp_path: Path) -> None:
    """Nobody has made headgate.activity: the web says so, serves what it has, and compares nothing."""
    place.say("src", "t")
    keys = {"facts.prefix": place.prefix, "connect.main.status_topic": place.status}
    with running_web(tmp_path, cluster.bootstrap, keys) as web:
        assert web.topics("src") == {"t"}
        code, said = compare(web, "src")
        assert code == 1
        assert f"{place.prefix}activity" in said
        assert "activity" in web.log.read_text()
