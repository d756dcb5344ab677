"""`headgate dev` as a newcomer runs it: one ready line, a sample that can be looked at, and nothing left at the end."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headgate.cli.main import main
from headgate.kafka.topics import quiet
from headgate.sample.shop import (
    APPLICATION,
    ARCHIVE,
    BILLING,
    CATALOG,
    COUNTS,
    CUSTOMERS,
    FULFILMENT,
    LARGE,
    MAP_EDGES,
    NOTICES,
    ORDERS,
    ORDERS_DLQ,
    PRODUCTS,
    SHIPMENTS,
    SHIPMENTS_DLQ,
)
from tests.support.gateway import HEADGATE
from tests.support.openlineage_events import read_event
from tests.support.ports import port_block

_START_S, _JOIN_S, _TABLES_S, _END_S = 90.0, 60.0, 180.0, 60.0
Capture = pytest.CaptureFixture[str]
# Uses of topics by the real parts of the sample, as the gateway sees them.
USED = {
    ("connector", CATALOG, "write", PRODUCTS),
    ("connector", ARCHIVE, "read", SHIPMENTS),
    ("streams", FULFILMENT, "write", SHIPMENTS),
    ("share_group", NOTICES, "read", SHIPMENTS),
}


@contextmanager
def started(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """The command as soon as it is started, and the ports of its gateway and its Kafka."""
    port, kafka_port = port_block(), port_block()
    ports = ["--gateway-port", str(port), "--kafka-port", str(kafka_port), "--web-port", str(port + 14)]
    # In the environment, because the metrics' port has no option: two of these may run at a time.
    environment = {**os.environ, "HEADGATE_METRICS_LISTEN": f"127.0.0.1:{port + 15}", "HEADGATE_GATEWAY_NODES": "0-0"}
    with (folder / "dev.log").open("w") as log:
        process = subprocess.Popen(
            [HEADGATE, "dev", *ports, "--data-dir", folder / "data", *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
    try:
        yield process, port, kafka_port
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


@contextmanager
def dev(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command and the address of its gateway, from its ready line on."""
    with started(folder, *options) as (process, port, kafka_port):
        web = "" if "--no-web" in options else f" web=http://127.0.0.1:{port + 14}"
        assert process.stdout
        began = time.monotonic()
        line = process.stdout.readline()
        assert time.monotonic() - began < _START_S
        assert line == f"ready gateway=127.0.0.1:{port} kafka=127.0.0.1:{kafka_port}{web}\n", (
            folder / "dev.log"
        ).read_text()
        yield process, f"127.0.0.1:{port}"


class Headgate:
    """Commands in this process: a new one for each look would take the cores from what is waited for."""

    def __init__(self, capsys: Capture) -> None:
        self._capsys = capsys

    def _run(self, *arguments: str) -> tuple[int, str]:
        self._capsys.readouterr()
        return main(list(arguments)), self._capsys.readouterr().out

    def groups(self, gateway: str, *arguments: str) -> tuple[int, str]:
        return self._run("streams-groups", "--bootstrap-server", gateway, *arguments)

    def rows(self, tables: Path, name: str) -> list[dict[str, Any]]:
        """The newest rows of a table, read without Spark."""
        _, out = self._run("tables", "show", name, "--path", str(tables), "--limit", "1000", "--json")
        return [json.loads(line) for line in out.splitlines()]

    def pairs_of(self, tables: Path) -> set[tuple[str, str]]:
        """What the application reads and writes."""
        rows = self.rows(tables, "app_io")
        return {(row["in_topic"], row["out_topic"]) for row in rows if row["app_id"] == APPLICATION}


@pytest.fixture
def headgate(capsys: Capture) -> Headgate:
    return Headgate(capsys)


def until(condition: Callable[[], bool], seconds: float) -> None:
    by = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < by
        time.sleep(0.3)


def resource(gateway: str, path: str) -> dict[str, Any]:
    """A resource of the web, whose port belongs to the gateway's block."""
    host, port = gateway.split(":")
    with urllib.request.urlopen(f"http://{host}:{int(port) + 14}/api/v1/{path}", timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def breakers(gateway: str) -> dict[str, tuple[bool, str]]:
    """Whether the breaker of each share group is on, and its dead-letter topic, as the web has read them."""
    rows = resource(gateway, "share-groups")["share_groups"]
    return {row["name"]: (row["breaker_enabled"], row["dlq_topic"]) for row in rows}


def those_with(text: str) -> list[int]:
    """The processes that have this text in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if text in (entry / "cmdline").read_text(errors="replace"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def used_topics(gateway: str) -> dict[str, tuple[list[str], list[str]]]:
    """The topics of each connector of the sample, in Connect and on the wire."""
    rows = resource(gateway, "connectors")["connectors"]
    return {row["connector"]: (row["connect"], row["wire"]) for row in rows if row["cluster"] == "sample"}


def edges(gateway: str) -> set[tuple[str, str]]:
    """The edges of the map, each by the names of its ends."""
    found = resource(gateway, "graph")
    names = [node["name"] for node in found["nodes"]]
    return {(names[edge["from"]], names[edge["to"]]) for edge in found["edges"]}


def derive_tables(data: Path, folder: Path) -> Path:
    """All tables of the facts so far, which a pipeline of its own makes: that of the sample derives minutes later.

    It sends the estate to a file, `events`, too.
    """
    folder.mkdir()
    catalogue = folder / "openlineage.yml"
    catalogue.write_text(f"transport:\n  type: file\n  log_file_path: {folder / 'events'}\n  append: true\n", "utf-8")
    places = {
        "HEADGATE_TABLES_PATH": folder / "tables",
        "HEADGATE_PIPELINE_CHECKPOINT": folder / "checkpoints",
        "HEADGATE_PIPELINE_OPENLINEAGE": catalogue,
    }
    done = subprocess.run(
        [HEADGATE, "pipeline", "run", "--once", "--config", data / "pipeline.toml"],
        env={**os.environ, **{name: str(place) for name, place in places.items()}},
        capture_output=True,
        text=True,
        timeout=_TABLES_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "tables"


def sent_uses(file: Path) -> tuple[set[tuple[str, str, str]], set[tuple[str, str, str]]]:
    """By OpenLineage events, valid ones: what each job reads and writes, and the topics that flow into others."""
    uses, flows = set(), set()
    for line in file.read_text("utf-8").splitlines():
        event = read_event(line)
        uses |= {(event.job.name, "read", one.name) for one in event.inputs or ()}
        uses |= {(event.job.name, "write", one.name) for one in event.outputs or ()}
        facet: Any = (event.job.facets or {}).get("lineage")
        for entry in () if facet is None else facet.entries:
            flows |= {(event.job.name, source.name, entry.name) for source in entry.inputs}
    return uses, flows


def test_the_sample_runs_by_itself_and_all_of_it_ends_with_one_signal(tmp_path: Path, headgate: Headgate) -> None:
    groups, pairs_of = headgate.groups, headgate.pairs_of
    log = tmp_path / "dev.log"
    with dev(tmp_path, "--outage-every", "60") as (process, gateway):
        topology = ("--describe", "--group", APPLICATION, "--topology", "--json")
        until(lambda: groups(gateway, *topology)[0] == 0, _JOIN_S)
        described = json.loads(groups(gateway, *topology)[1])
        nodes = [node["name"] for node in described["description"]["subtopologies"][0]["nodes"]]
        assert described["status"] == "AVAILABLE"
        assert sorted(nodes) == ["by-customer", "large", "orders", "to-counts", "to-large-orders"]
        until(lambda: f"{FULFILMENT} " in groups(gateway, "--describe", "--group", FULFILMENT, "--members")[1], _JOIN_S)
        # A 4.3.1 client is never asked for its topology.
        assert groups(gateway, "--describe", "--group", FULFILMENT, "--topology")[0] == 1
        health = resource(gateway, "health")
        assert (health["ready"], health["problems"]) == (True, {})
        managed = {BILLING: (True, ORDERS_DLQ), NOTICES: (True, SHIPMENTS_DLQ)}
        until(lambda: breakers(gateway) == managed, _JOIN_S)
        assert resource(gateway, f"share-groups/{BILLING}")["problem"] is None
        until(lambda: edges(gateway) >= MAP_EDGES, _JOIN_S)
        tables = tmp_path / "data" / "tables"
        until(lambda: (ORDERS, LARGE) in pairs_of(tables), _TABLES_S)
        assert pairs_of(tables) == {(ORDERS, LARGE), (ORDERS, COUNTS), (CUSTOMERS, "")}
        connectors = {CATALOG: ([PRODUCTS],) * 2, ARCHIVE: ([SHIPMENTS],) * 2}
        until(lambda: used_topics(gateway) == connectors, _JOIN_S)
        # Its downstream fails by itself, and its breaker pauses it.
        until(lambda: resource(gateway, f"share-groups/{NOTICES}")["generation"] > 0, _JOIN_S)
        derived = derive_tables(tmp_path / "data", tmp_path / "derived")
        names = ("actor_kind", "app_id", "direction", "topic")
        found = headgate.rows(derived, "lineage_edges")
        observed = {tuple(row[name] for name in names) for row in found if row["observed"]}
        assert observed >= USED, found
        uses, flows = sent_uses(derived.parent / "events")
        assert uses >= {(f"{kind}.{name}", direction, topic) for kind, name, direction, topic in USED}
        application = f"streams.{APPLICATION}"
        assert {(source, to) for job, source, to in flows if job == application} == {(ORDERS, LARGE), (ORDERS, COUNTS)}
        causes = {(row["group"], row["cause_kind"], row["what"]) for row in headgate.rows(derived, "breaker_causes")}
        assert (NOTICES, "config", "config_changed") in causes
        (failing,) = set(those_with("headgate.shop.Fulfilment")) & set(those_with(str(tmp_path)))
        os.kill(failing, signal.SIGKILL)
        report = "headgate: sample-fulfilment ended with code -9; everything else goes on. Its logs are "
        until(lambda: report in log.read_text(), _JOIN_S)
        assert len(those_with(str(tmp_path))) >= 5  # dev itself, Kafka, the member, Connect, the pipeline
        process.send_signal(signal.SIGTERM)
        assert process.wait(_END_S) == 0
        assert those_with(str(tmp_path)) == []
    assert "Traceback" not in log.read_text()
    assert log.read_text().count(report) == 1
    assert f"--describe --group {APPLICATION} --topology" in log.read_text()


def test_a_signal_during_the_start_leaves_nothing_behind(tmp_path: Path) -> None:
    with started(tmp_path) as (process, _, _):
        until(lambda: len(those_with(str(tmp_path))) >= 2, _START_S)  # dev itself and Kafka
        process.send_signal(signal.SIGINT)
        assert process.wait(_END_S) == 130
        assert those_with(str(tmp_path)) == []
        assert process.stdout
        assert process.stdout.read() == ""
    assert "Traceback" not in (tmp_path / "dev.log").read_text()


def test_without_the_pipeline_the_map_comes_from_the_topics(tmp_path: Path) -> None:
    with dev(tmp_path, "--no-pipeline", "--no-sample") as (_, gateway):
        assert resource(gateway, "graph")["nodes"] == []
        producer = Producer(quiet({"bootstrap.servers": gateway, "client.id": "till"}))
        producer.produce("orders", value="one")
        producer.flush(_JOIN_S)
        until(lambda: edges(gateway) == {("till", "orders")}, _JOIN_S)
        assert resource(gateway, "graph")["provisional"] is True
    assert not (tmp_path / "data" / "tables").exists()


def test_without_the_sample_there_is_nothing_but_kafka_and_the_gateway(tmp_path: Path, headgate: Headgate) -> None:
    with dev(tmp_path, "--no-sample", "--no-web", "--no-pipeline") as (process, gateway):
        assert headgate.groups(gateway, "--list") == (0, "")
        with pytest.raises(urllib.error.URLError):
            resource(gateway, "health")
        process.send_signal(signal.SIGINT)
        assert process.wait(_END_S) == 130
    assert those_with(str(tmp_path)) == []
