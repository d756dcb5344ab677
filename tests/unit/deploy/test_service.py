"""The systemd unit and the container file fit the program that they start."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.base.ids import NodeId
from headgate.cli.main import parse_arguments
from headgate.config import Config
from headgate.config.model import ConnectConfig, GatewayConfig
from headgate.doctor.limits import descriptors_needed
from headgate.kafka.client_counts import most_clients, most_tasks
from headgate.proxy import supervisor

DEPLOY = Path(__file__).parents[3] / "deploy"
UNIT = (DEPLOY / "headgate.service").read_text("utf-8")
CONTAINER = (DEPLOY / "Containerfile").read_text("utf-8")
PROGRAM = "/opt/headgate/bin/headgate"


def unit() -> configparser.ConfigParser:
    # A key may stand twice in a unit, and then both count; none that is looked at here does.
    read = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(UNIT)
    return read


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        assert set(unit()) >= {"Unit", "Service", "Install"}
        return
    # It looks whether the programs are there: ours is where the tests' is.
    copy = tmp_path / "headgate.service"
    copy.write_text(UNIT.replace(PROGRAM, str(Path(sys.executable).parent / "headgate")))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if "headgate.service" in line]
    assert (done.returncode, complaints) == (0, [])


@pytest.mark.parametrize("key", ["ExecStartPre", "ExecStart"])
def test_the_unit_runs_commands_that_there_are(key: str) -> None:
    program, *arguments = unit()["Service"][key].split()
    assert program == PROGRAM
    assert parse_arguments(arguments).run


def test_the_container_runs_a_command_that_there_is() -> None:
    (command,) = re.findall(r"^CMD (\[.*\])$", CONTAINER, re.MULTILINE)
    assert parse_arguments(re.findall(r'"([^"]+)"', command)).run
    assert "UNTESTED" in CONTAINER.splitlines()[0]


def test_systemd_waits_longer_than_a_worker_may_drain() -> None:
    longest = Config().gateway.drain_ms / 1000 + supervisor.KILL_AFTER_DRAIN_SECONDS
    assert seconds(unit()["Service"]["TimeoutStopSec"]) > longest


def test_the_unit_allows_the_descriptors_that_the_default_cap_needs() -> None:
    assert int(unit()["Service"]["LimitNOFILE"]) >= descriptors_needed(Config())


@pytest.mark.parametrize("file", ["docs/operate.md", "deploy/prometheus/headgate.rules.yml"])
def test_what_operators_are_told_to_set_is_what_the_doctor_asks_for(file: str) -> None:
    text = " ".join((DEPLOY.parent / file).read_text("utf-8").replace("`", "").split()).replace("(see Threads) ", "")
    found = re.findall(
        r"(\d+) x max_connections \+ one for each node \+ (\d+) for the process and its pipes, and for each of the "
        r"worker's own clients (\d+) x brokers \+ (\d+)",
        text,
    )
    [(for_client, own, for_broker, for_own_client)] = (tuple(map(int, one)) for one in found)
    for brokers in (1, 3, 40):
        config = Config(gateway=GatewayConfig(max_connections=1234, nodes=tuple(map(NodeId, range(brokers)))))
        clients = most_clients(config) * (for_broker * brokers + for_own_client)
        assert for_client * 1234 + brokers + own + clients == descriptors_needed(config)


def test_the_unit_allows_the_threads_of_16_workers_and_40_brokers() -> None:
    recorded = ConnectConfig(status_topic="s", config_topic="c", principals=("User:connect",), record=True)
    config = Config(gateway=GatewayConfig(workers=16), connect={"one": recorded})
    needed = most_tasks(config, brokers=40)
    assert int(unit()["Service"]["TasksMax"]) >= needed
    assert f"--pids-limit {unit()['Service']['TasksMax']}" in CONTAINER
    assert f"{needed:,}" in (DEPLOY.parent / "docs" / "operate.md").read_text("utf-8")


def test_the_memory_of_a_worker_that_crashes_is_not_written_to_a_file() -> None:
    assert unit()["Service"]["LimitCORE"] == "0"
    assert "--ulimit core=0" in CONTAINER


def test_both_stages_of_the_container_are_built_from_one_image_that_is_named_by_its_digest() -> None:
    assert re.findall(r"^FROM (\S+)", CONTAINER, re.MULTILINE) == ["${BASE}", "${BASE}"]
    (base,) = re.findall(r"^ARG BASE=(\S+)$", CONTAINER, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.11\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)


def test_a_reload_replaces_the_workers_and_a_stop_goes_to_the_supervisor_alone() -> None:
    service = unit()["Service"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["KillMode"] == "mixed"
    assert service["Type"] == "exec"
