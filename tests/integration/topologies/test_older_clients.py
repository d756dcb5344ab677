"""Applications that do not push a description: stock Kafka Streams 4.3.1 through the gateway, on a real broker."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.cli.main import main
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster, start_test_cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.streams_apps import COUNTS_OUT, WORDS_IN, word_count_demo

Capture = pytest.CaptureFixture[str]
QUICK = {"group.streams.heartbeat.interval.ms": "200"}
SECONDS = 60.0


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_test_cluster(tmp_path_factory, settings=QUICK) as running:
        admin = AdminClient(running.client_config())
        for future in admin.create_topics([NewTopic(topic, 2, 1) for topic in (WORDS_IN, COUNTS_OUT)]).values():
            future.result(20)
        yield running


@pytest.fixture(scope="module")
def gateway(own: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running_gateway(tmp_path_factory.mktemp("gateway"), own.bootstrap, topologies__owner="gateway") as running:
        until(lambda: running.metric("headgate_topologies_ready") == 1)
        yield running


def config_of(gateway: GatewayProcess) -> list[str]:
    return ["--config", str(gateway.setup.folder / "headgate.toml")]


def versions(gateway: GatewayProcess, group: str, capsys: Capture) -> list[dict[str, Any]]:
    code = main(["topology", "versions", group, *config_of(gateway), "--json"])
    shown = capsys.readouterr().out
    return json.loads(shown)["versions"] if code == 0 else []


def has_recorded(gateway: GatewayProcess, group: str) -> bool:
    return any(f'"partial topology description recorded" group={group} ' in line for line in gateway.log_lines())


def test_a_stock_application_of_4_3_is_on_the_list_and_marked_as_partial(
    gateway: GatewayProcess, capsys: Capture, tmp_path: Path
) -> None:
    group = f"words-{secrets.token_hex(4)}"
    with word_count_demo(gateway.bootstrap, group, tmp_path):
        until(lambda: has_recorded(gateway, group), SECONDS)
        describe = ["--describe", "--group", group, "--topology"]
        assert main(["streams-groups", "--bootstrap-server", gateway.bootstrap, *describe]) == 1
        assert f"No topology description is stored for streams group '{group}'." in capsys.readouterr().out
    [kept] = versions(gateway, group, capsys)
    assert (kept["provenance"], kept["partial"], kept["current"]) == ("assignment", True, True)
    assert (kept["member"], kept["process"], kept["topology_epoch"]) == (None, None, 0)

    assert main(["topology", "versions", group, *config_of(gateway)]) == 0
    assert "current, partial" in capsys.readouterr().out
    assert main(["topology", "show", group, *config_of(gateway)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Partial description: ")
    store = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    assert f"Source: ASSIGNMENT-0-SOURCE (topics: [{WORDS_IN}])" in shown
    assert f"Sink: ASSIGNMENT-0-SINK-0 (topic: {group}-{store}-repartition)" in shown
    assert f"Source: ASSIGNMENT-1-SOURCE (topics: [{group}-{store}-repartition])" in shown
    assert f"Processor: ASSIGNMENT-1-PROCESSOR (stores: [{store}])" in shown
    assert COUNTS_OUT not in shown
