"""Real Connect 4.3.1 and `headgate web`: both return the same topics after every step.

A second worker of the group may not reset. Each test has its own connectors and topics.
"""

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, TopicPartition

from headgate.activity.connect_status_topic import ConnectStatusTopic
from headgate.activity.model.connect_records import TopicUsed, read_status, status_key, status_value
from headgate.web.tokens import TokenScope, add_token
from tests.support.clients.connect import file_sink, file_source
from tests.support.cluster import Cluster
from tests.support.connect_worker import ConnectWorker
from tests.support.gateway import HEADGATE
from tests.support.ports import port_block
from tests.support.status_topics import TopicTools, status_records
from tests.support.web import Web, running_web

_DEADLINE_S = 90.0
_JSON = "org.apache.kafka.connect.json.JsonConverter"


class Place:
    """A Connect worker and `headgate web` for one Connect cluster."""

    def __init__(self, cluster: Cluster, worker: ConnectWorker, web: Web, folder: Path, token: Path) -> None:
        self.worker = worker
        self.web = web
        self.token_file = token
        self.settings = dict(cluster.client_config())
        self._folder = folder
        self._tools = TopicTools(cluster)
        self.topic = self._tools.create

    def name(self) -> str:
        return uuid.uuid4().hex[:8]

    def write(self, topic: str, *values: str) -> None:
        self._tools.write(topic, *((None, value.encode()) for value in values))

    def tombstone(self, topic: str, connector: str) -> None:
        self._tools.write(self.worker.status_topic, (status_key(topic, connector), None))

    def file(self, name: str, *lines: str) -> Path:
        """A file, with these lines appended."""
        path = self._folder / name
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        return path

    def of_connect(self, connector: str, worker: ConnectWorker | None = None) -> set[str]:
        return set((worker or self.worker).ask("GET", f"/connectors/{connector}/topics")[connector]["topics"])

    def agree(self, connector: str, expected: set[str]) -> None:
        """Wait until Connect and Headgate return the expected topics."""
        by = time.monotonic() + _DEADLINE_S
        while not (self.of_connect(connector) == self.web.topics(connector) == expected):
            found = f"Connect {self.of_connect(connector)}, Headgate {self.web.topics(connector)}"
            assert time.monotonic() < by, f"{connector} should use {expected}: {found}"
            time.sleep(0.05)

    def raw(self, connector: str) -> list[tuple[int, bytes, bytes | None]]:
        """The records of the status topic about the topics of a connector: partition, key, value."""
        records = status_records(self.settings, self.worker.status_topic)
        suffix = f":connector-{connector}".encode()
        return [one for one in records if one[1].startswith(b"status-topic-") and one[1].endswith(suffix)]


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("connect")
    tokens, token_file = folder / "tokens.toml", folder / "token"
    token = add_token(tokens, name="test", scope=TokenScope.OPERATE, expires=datetime.now(UTC) + timedelta(days=1))
    token_file.write_text(token + "\n")
    with ExitStack() as stack:
        group = f"on-{uuid.uuid4().hex[:6]}"
        worker = stack.enter_context(ConnectWorker(cluster.bootstrap, group, folder / "worker", port_block()))
        worker.wait()
        keys = {
            "web.tokens_file": str(tokens),
            "connect.main.status_topic": worker.status_topic,
            "connect.main.config_topic": worker.config_topic,
            "connect.frozen.status_topic": worker.status_topic,
            "connect.frozen.tracking_allow_reset": False,
            "activity.enable": False,
        }
        web = stack.enter_context(running_web(folder / "web", cluster.bootstrap, keys, token=token))
        yield Place(cluster, worker, web, folder, token_file)


def run(*arguments: str | Path) -> tuple[int, Any]:
    command = [HEADGATE, "connectors", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def test_the_life_of_a_source(place: Place) -> None:
    """Created, reset by either side, reconfigured, restarted, deleted, reset after that, created again."""
    source = place.name()
    first, second = place.topic(f"{source}.first"), place.topic(f"{source}.second")
    place.agree(source, set())  # any name has an answer
    file = place.file(source, "one")
    place.worker.put(source, file_source(file, first))
    place.agree(source, {first})
    assert place.web.call("PUT", f"/connectors/{source}/topics/reset") == (202, None)
    place.agree(source, set())
    place.file(source, "two")
    place.agree(source, {first})  # and fills again with the next record
    assert place.worker.call("PUT", f"/connectors/{source}/topics/reset") == (202, None)
    place.agree(source, set())
    place.file(source, "three")
    place.agree(source, {first})
    place.worker.put(source, file_source(file, second))
    place.file(source, "four")
    place.agree(source, {first, second})  # what an earlier configuration used stays
    place.worker.ask("POST", f"/connectors/{source}/restart?includeTasks=true")
    place.file(source, "five")
    place.agree(source, {first, second})
    place.worker.ask("DELETE", f"/connectors/{source}")
    place.agree(source, set())
    assert place.worker.call("PUT", f"/connectors/{source}/topics/reset") == (202, None)
    assert place.web.call("PUT", f"/connectors/{source}/topics/reset") == (202, None)
    place.agree(source, set())
    other = place.file(f"{source}-again", "six")
    place.worker.put(source, file_source(other, first))
    place.agree(source, {first})
    # Whoever wrote it, everything about one topic lies in one partition, in one order.
    where: dict[bytes, set[int]] = {}
    for partition, key, _ in place.raw(source):
        where.setdefault(key, set()).add(partition)
    assert set(where) == {status_key(first, source), status_key(second, source)}
    assert all(len(partitions) == 1 for partitions in where.values())


def test_a_sink_of_several_tasks_with_a_pattern_and_a_router_in_front(place: Place) -> None:
    name = place.name()
    sink, source = f"{name}-sink", f"{name}-source"
    topics = {place.topic(f"{name}.in-{number}", partitions=3) for number in range(3)}
    routed = place.topic(f"{name}.in-routed")
    router = {
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": r".*\.before",
        "transforms.route.replacement": routed,
    }
    place.worker.put(source, file_source(place.file(source, "one"), f"{name}.before", **router))
    pattern = {"topics.regex": rf"{name}\.in-.*", "tasks.max": "3"}
    place.worker.put(sink, file_sink(place.file(sink), **pattern))
    place.agree(source, {routed})  # the topic after the transformation
    for topic in sorted(topics):
        place.write(topic, *map(str, range(30)))
    place.agree(sink, topics | {routed})
    # A partial reset, then a second attempt for the rest.
    place.tombstone(routed, sink)
    place.agree(sink, topics)
    assert place.web.call("PUT", f"/connectors/{sink}/topics/reset") == (202, None)
    place.agree(sink, set())
    place.write(min(topics), "again")
    place.agree(sink, {min(topics)})
    place.agree(source, {routed})


def test_dead_letters_of_a_tolerant_sink_are_not_its_topics(place: Place) -> None:
    sink = place.name()
    good, bad = place.topic(f"{sink}.good"), place.topic(f"{sink}.bad")
    letters = place.topic(f"{sink}.letters")
    tolerant = {
        "topics": f"{good},{bad}",
        "value.converter": _JSON,
        "value.converter.schemas.enable": "false",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": letters,
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    place.worker.put(sink, file_sink(place.file(sink), **tolerant))
    place.write(bad, "{nonsense")
    consumer = Consumer({**place.settings, "group.id": sink, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(letters, 0, 0)])
    letter = consumer.poll(_DEADLINE_S)
    assert letter is not None
    assert letter.value() == b"{nonsense"
    consumer.close()
    place.write(good, "1")
    place.agree(sink, {good})


async def test_connect_reads_what_headgate_wrote_and_reset(place: Place) -> None:
    name = place.name()
    source = await asyncio.to_thread(_source_with_one_line, place, name)
    status = ConnectStatusTopic(place.settings, status_topic=place.worker.status_topic)
    async with status.running():
        await asyncio.wait_for(status.ready(), _DEADLINE_S)
        written = TopicUsed(topic=f"{name}.seen", connector=source, task=7, discover_timestamp_ms=1_794_731_901_727)
        assert await status.record(written)
        await asyncio.to_thread(place.agree, source, {f"{name}.lines", f"{name}.seen"})
        # Real records and ours are of one shape, byte for byte.
        for _, key, value in await asyncio.to_thread(place.raw, source):
            read = read_status(key, value)
            assert isinstance(read, TopicUsed)
            assert value == status_value(read)
        assert await status.reset(source) == (f"{name}.lines", f"{name}.seen")
        await asyncio.to_thread(place.agree, source, set())


def _source_with_one_line(place: Place, name: str) -> str:
    source = f"{name}-source"
    place.worker.put(source, file_source(place.file(source, "one"), place.topic(f"{name}.lines")))
    place.agree(source, {f"{name}.lines"})
    return source


def test_a_second_worker_that_may_not_reset(place: Place, cluster: Cluster, tmp_path: Path) -> None:
    """A rebalance changes nothing; its refusal is ours; a deletion clears all the same."""
    name, other = place.name(), place.name()
    source, stays = _source_with_one_line(place, name), _source_with_one_line(place, other)
    settings = {"topic.tracking.allow.reset": "false"}
    with ConnectWorker(cluster.bootstrap, place.worker.group, tmp_path, port_block(), settings) as second:
        second.wait()
        second.until("tasks on both workers", lambda: len(_workers(second)) == 2)
        place.agree(source, {f"{name}.lines"})
        assert place.of_connect(source, second) == {f"{name}.lines"}
        place.file(stays, "two")
        path = f"/connectors/{source}/topics"
        refused = second.call("PUT", f"{path}/reset")
        assert refused[0] == 403
        assert place.web.call("PUT", f"/connect/frozen{path}/reset") == refused
        assert place.web.call("GET", f"/connect/frozen{path}") == second.call("GET", path)
        # Errors of either side have one form.
        for method, wrong in (("GET", "/nonsense"), ("POST", path), ("GET", f"{path}/reset")):
            assert place.web.call(method, wrong) == second.call(method, wrong)
        odd = f"/connectors/{quote('a b:ü+')}/topics"
        assert place.web.call("GET", odd) == second.call("GET", odd) == (200, {"a b:ü+": {"topics": []}})
        second.ask("DELETE", f"/connectors/{source}")
        place.agree(source, set())
        second.stop()
    place.worker.until("tasks on the first worker", lambda: len(_workers(place.worker)) == 1)
    place.agree(stays, {f"{other}.lines"})


def _workers(worker: ConnectWorker) -> set[str]:
    """Those that run a task or a connector."""
    found = worker.ask("GET", "/connectors?expand=status").values()
    return {part["worker_id"] for one in found for part in (one["status"]["connector"], *one["status"]["tasks"])}


def test_the_command_works_with_connect_and_with_headgate(place: Place) -> None:
    name = place.name()
    source = _source_with_one_line(place, name)
    expected = (0, {source: {"topics": [f"{name}.lines"]}})
    for url in (place.worker.url, f"{place.web.url}/connect/main"):
        assert run("--url", url, "topics", source) == expected
    reset = (0, {"connector": source, "reset": True})
    assert run("--url", place.web.url, "reset", source, "--token-file", place.token_file) == reset
    place.agree(source, set())
    assert run("--url", place.worker.url, "reset", source) == reset
