"""`headgate streams-groups` against a real 4.3.1 broker, beside the tool that Kafka ships."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headgate.cli.main import main
from headgate.config.addresses import parse_address
from headgate.embedded import SecurityProtocol
from headgate.facts.topology import DESCRIPTION, content_hash
from headgate.kafka.connections import Connections, Dialler
from headgate.kafka.group_admin import GroupOutline, describe_streams_groups, find_coordinators
from tests.integration.gateway.exercise import until
from tests.support.cluster import MECHANISMS, USERS, Cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.streams_apps import streams_groups
from tests.support.streams_client import Member, StreamsClient
from tests.support.topics import create_topics
from tests.unit.topologies.topologies import FIXTURES, golden

RECORDS, COMMITTED = 10, 4

Capture = pytest.CaptureFixture[str]


@contextmanager
def joined(bootstrap: str, group: str, topic: str, *, version: int = 0) -> Iterator[Member]:
    """A member with all tasks, in a group whose sessions outlast a test module; it leaves when the block ends."""
    with StreamsClient(bootstrap) as client:
        client.lengthen_session(group)
        member = Member(client=client, group=group, topic=topic)
        member.join_and_take_tasks(version=version)
        yield member
        member.leave(version=version)


@contextmanager
def heartbeats(member: Member) -> Iterator[None]:
    """Keep the member in its group: on a busy machine the tests take longer than its session."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(3.0):
            member.beat(version=0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class Groups:
    """`stable` has one member and a commit on partition 0 of two; `empty` has nobody."""

    cluster: Cluster
    stable: str
    empty: str
    topic: str

    def run(self, *arguments: str) -> int:
        return main(["streams-groups", "--bootstrap-server", self.cluster.bootstrap, *arguments])


@pytest.fixture(scope="module")
def groups(cluster: Cluster) -> Iterator[Groups]:
    name = f"command-{uuid.uuid4().hex[:8]}"
    made = Groups(cluster, f"{name}-stable", f"{name}-empty", f"{name}-in")
    admin = AdminClient(cluster.client_config())
    create_topics(cluster, [made.topic], partitions=2)
    _produce(cluster, made.topic)
    asyncio.run(_find_coordinator(cluster, made.stable))  # the broker creates __consumer_offsets for the first one
    for group in (made.empty, made.stable):
        with joined(cluster.bootstrap, group, made.topic):
            pass
    commit = ConsumerGroupTopicPartitions(made.stable, [TopicPartition(made.topic, 0, COMMITTED)])
    for done in admin.alter_consumer_group_offsets([commit]).values():
        done.result(60)
    with joined(cluster.bootstrap, made.stable, made.topic) as member, heartbeats(member):
        yield made


async def _find_coordinator(cluster: Cluster, group: str) -> None:
    async with Connections(Dialler(bootstrap=(parse_address(cluster.bootstrap),))) as connections:
        await find_coordinators(connections, [group])


def _produce(cluster: Cluster, topic: str) -> None:
    producer = Producer(cluster.client_config())
    for partition in range(2):
        for number in range(RECORDS):
            producer.produce(topic, f"{number}", partition=partition)
    assert producer.flush(60) == 0


QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "list": ("--list",),
    "states": ("--list", "--state", "empty,Stable"),
    "offsets": ("--describe", "--group", "STABLE"),
    "members": ("--describe", "--group", "STABLE", "--members"),
    "offsets-verbose": ("--describe", "--group", "STABLE", "--offsets", "--verbose"),
    "members-verbose": ("--describe", "--group", "STABLE", "--members", "--verbose"),
    "state": ("--describe", "--group", "STABLE", "--state"),
    "state-of-empty": ("--describe", "--group", "EMPTY", "--state", "--verbose"),
}


def question(groups: Groups, name: str) -> list[str]:
    return [{"STABLE": groups.stable, "EMPTY": groups.empty}.get(word, word) for word in QUESTIONS[name]]


@pytest.fixture(scope="module")
def shipped(groups: Groups) -> dict[str, str]:
    """What Kafka's own tool prints; two at a time, because most of it is the start of a JVM."""
    with ThreadPoolExecutor(2) as pool:
        asked = {
            name: pool.submit(streams_groups, groups.cluster.bootstrap, *question(groups, name)) for name in QUESTIONS
        }
        return {name: future.result() for name, future in asked.items()}


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name not in {"list", "states"}])
def test_a_group_is_described_as_the_shipped_tool_describes_it(
    groups: Groups, shipped: dict[str, str], name: str, capsys: Capture
) -> None:
    assert groups.run(*question(groups, name)) == 0
    ours = capsys.readouterr().out
    assert sorted(ours.splitlines(keepends=True)) == sorted(shipped[name].splitlines(keepends=True))
    if "empty" not in name:
        assert groups.stable in ours


@pytest.mark.parametrize("name", ["list", "states"])
def test_groups_are_listed_as_the_shipped_tool_lists_them(
    groups: Groups, shipped: dict[str, str], name: str, capsys: Capture
) -> None:
    assert groups.run(*question(groups, name)) == 0
    # Groups of other tests come and go, and with them the width of the column.
    ours, theirs = (
        sorted(line.split() for line in said.splitlines() if line.startswith("command-"))
        for said in (capsys.readouterr().out, shipped[name])
    )
    assert ours == theirs
    expected = {groups.stable: "Stable", groups.empty: "Empty"}
    assert ours == sorted([group] if name == "list" else [group, state] for group, state in expected.items())


def test_the_lag_is_counted_from_the_commit(groups: Groups, capsys: Capture) -> None:
    assert groups.run("--describe", "--group", groups.stable, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [(one["partition"], one["current_offset"], one["lag"]) for one in said["offsets"]] == [
        (0, COMMITTED, RECORDS - COMMITTED),
        (1, None, RECORDS),
    ]


def test_the_json_of_a_list_is_the_contracts(groups: Groups, capsys: Capture) -> None:
    assert groups.run("--list", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said) == {"groups"}
    assert {"group": groups.stable, "state": "Stable"} in said["groups"]
    assert {"group": groups.empty, "state": "Empty"} in said["groups"]


def test_a_broker_without_topology_descriptions_is_said_to_be_without(groups: Groups, capsys: Capture) -> None:
    assert groups.run("--describe", "--group", groups.stable, "--topology") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "the server does not support topology descriptions" in said.err


@pytest.mark.parametrize("view", ["--offsets", "--members", "--state"])
def test_a_group_that_is_not_there_is_one_sentence(groups: Groups, view: str, capsys: Capture) -> None:
    assert groups.run("--describe", "--group", "absent-s", view) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "headgate: streams group 'absent-s' cannot be described: Group absent-s not found.\n"


@pytest.mark.parametrize("view", ["--offsets", "--members"])
def test_of_a_group_without_members_there_is_nothing_to_print_but_a_note(
    groups: Groups, view: str, capsys: Capture
) -> None:
    assert groups.run("--describe", "--group", groups.empty, view) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"Streams group '{groups.empty}' has no active members." in said.err


def properties(cluster: Cluster, folder: Path, protocol: SecurityProtocol, **more: str) -> list[str]:
    """The arguments for a listener, as an operator of the shipped tool has them."""
    keys = {**cluster.java_config(protocol, user=more.pop("user", "admin"), mechanism=more.pop("mechanism", "PLAIN"))}
    del keys["bootstrap.servers"]
    keys |= more
    file = folder / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return ["--bootstrap-server", cluster.kafka.bootstrap_of(protocol), "--command-config", str(file)]


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        *((SecurityProtocol.SASL_PLAINTEXT, mechanism) for mechanism in MECHANISMS),
        (SecurityProtocol.SSL, "PLAIN"),
        (SecurityProtocol.SASL_SSL, "SCRAM-SHA-512"),
    ],
)
def test_every_listener_is_reached_with_the_properties_of_a_java_client(
    groups: Groups, tmp_path: Path, protocol: SecurityProtocol, mechanism: str, capsys: Capture
) -> None:
    where = properties(groups.cluster, tmp_path, protocol, mechanism=mechanism)
    assert main(["streams-groups", *where, "--describe", "--group", groups.stable]) == 0
    said = capsys.readouterr()
    assert groups.stable in said.out
    assert said.err == ""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_one_sentence_and_not_shown(
    groups: Groups, tmp_path: Path, mechanism: str, capsys: Capture
) -> None:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    login = f'org.apache.kafka.common.security.{module} required username="alice" password="not-for-anybody";'
    where = properties(
        groups.cluster,
        tmp_path,
        SecurityProtocol.SASL_PLAINTEXT,
        mechanism=mechanism,
        **{"sasl.jaas.config": login},
    )
    assert main(["streams-groups", *where, "--list"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "as User:alice failed: " in said.err
    assert "Authentication failed" in said.err
    assert "not-for-anybody" not in said.err


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (SecurityProtocol.SASL_PLAINTEXT, "requires SASL (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)"),
        (SecurityProtocol.SSL, "or expects TLS"),
    ],
)
def test_a_listener_that_requires_more_says_what(
    groups: Groups, protocol: SecurityProtocol, words: str, capsys: Capture
) -> None:
    address = groups.cluster.kafka.bootstrap_of(protocol)
    assert main(["streams-groups", "--bootstrap-server", address, "--list"]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert words in said.err


def test_a_user_without_rights_is_refused_in_kafkas_words(groups: Groups, tmp_path: Path, capsys: Capture) -> None:
    where = properties(groups.cluster, tmp_path, SecurityProtocol.SASL_PLAINTEXT, user="bob")
    assert main(["streams-groups", *where, "--describe", "--group", groups.stable]) == 1
    said = capsys.readouterr()
    assert said.err == (f"headgate: streams group '{groups.stable}' cannot be described: Group authorization failed.\n")
    assert USERS["bob"] not in said.err + said.out


def test_a_group_with_members_is_not_deleted(groups: Groups, capsys: Capture) -> None:
    assert groups.run("--delete", "--group", groups.stable) == 1
    said = capsys.readouterr()
    assert said.out == (
        "\nError: Deletion of some streams groups failed:\n"
        f"* Group '{groups.stable}' could not be deleted due to: Streams group '{groups.stable}' is not EMPTY.\n"
    )
    assert groups.run("--describe", "--group", groups.stable) == 0


def test_a_group_of_another_kind_is_not_deleted(groups: Groups, capsys: Capture) -> None:
    group = f"consumers-{uuid.uuid4().hex[:8]}"
    consumer = Consumer({**groups.cluster.client_config(), "group.id": group})
    consumer.commit(offsets=[TopicPartition(groups.topic, 0, 3)], asynchronous=False)
    consumer.close()
    assert groups.run("--delete", "--group", group, "--json") == 1
    assert json.loads(capsys.readouterr().out) == {
        "group": group,
        "deleted": False,
        "error_code": 69,
        "error": f"Group '{group}' does not exist or is not a streams group.",
    }
    admin = AdminClient(groups.cluster.client_config())
    [future] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert [partition.offset for partition in future.result(60).topic_partitions] == [3]


def test_an_empty_group_is_deleted_once(groups: Groups, capsys: Capture) -> None:
    group = f"short-lived-{uuid.uuid4().hex[:8]}"
    with joined(groups.cluster.bootstrap, group, groups.topic):
        pass
    assert groups.run("--delete", "--group", group) == 0
    assert capsys.readouterr().out == f"Deletion of requested streams groups ('{group}') was successful.\n"
    assert groups.run("--delete", "--group", group) == 1
    assert "does not exist or is not a streams group." in capsys.readouterr().out


def test_many_groups_are_outlined_at_once_with_what_is_missing(groups: Groups) -> None:
    dialler = Dialler(bootstrap=(parse_address(groups.cluster.bootstrap),))
    outlines = asyncio.run(describe_streams_groups(dialler, [groups.stable, groups.empty, "absent-s"]))
    stable = outlines.pop(groups.stable)
    assert (stable.error_code, stable.state, stable.topology_epoch, len(stable.member_ids)) == (0, "Stable", 0, 1)
    assert outlines == {
        groups.empty: GroupOutline(group=groups.empty, state="Empty", topology_epoch=0),
        "absent-s": GroupOutline(group="absent-s", error_code=69, error_text="Group absent-s not found."),
    }


# --- through Headgate, which gives a 4.3.1 broker the topology descriptions of 4.4 ------------------------------------


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running_gateway(
        tmp_path_factory.mktemp("streams-groups"),
        cluster.bootstrap,
        topologies__owner="gateway",
        topologies__store="kafka:",
        facts__prefix=f"{uuid.uuid4().hex[:8]}.",
    ) as running:
        # Before it knows what is stored it answers ERROR.
        until(lambda: running.metric("headgate_topologies_ready") == 1)
        yield running


def test_a_group_looks_the_same_through_headgate(groups: Groups, gateway: GatewayProcess, capsys: Capture) -> None:
    assert groups.run("--describe", "--group", groups.stable, "--verbose") == 0
    direct = capsys.readouterr().out
    where = ["streams-groups", "--bootstrap-server", gateway.bootstrap]
    assert main([*where, "--describe", "--group", groups.stable, "--verbose"]) == 0
    assert capsys.readouterr().out == direct


def test_a_group_that_pushed_nothing_has_no_topology(groups: Groups, gateway: GatewayProcess, capsys: Capture) -> None:
    where = ["streams-groups", "--bootstrap-server", gateway.bootstrap, "--describe", "--group", groups.stable]
    assert main([*where, "--topology"]) == 1
    assert capsys.readouterr().out == f"No topology description is stored for streams group '{groups.stable}'.\n"
    assert main([*where, "--topology", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["status"] == "NOT_STORED"


def test_a_topology_that_was_pushed_is_shown_until_its_group_is_deleted(
    groups: Groups, gateway: GatewayProcess, capsys: Capture
) -> None:
    group, description = f"pushing-{uuid.uuid4().hex[:8]}", golden("wordcount")
    where = ["streams-groups", "--bootstrap-server", gateway.bootstrap]
    with joined(gateway.bootstrap, group, groups.topic, version=1) as member:
        assert member.push(description).error_code == 0
        assert main([*where, "--describe", "--group", group, "--topology"]) == 0
        assert capsys.readouterr().out == (FIXTURES / "tool" / "wordcount.txt").read_text("utf-8")
        assert main([*where, "--describe", "--group", group, "--topology", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "group": group,
            "status": "AVAILABLE",
            "topology_epoch": 0,
            "version": f"-/0/{content_hash(description).removeprefix('sha256:')[:12]}",
            "provenance": "pushed",
            "description": DESCRIPTION.write(description),
        }
    assert main([*where, "--delete", "--group", group]) == 0
    assert main([*where, "--describe", "--group", group, "--topology"]) == 1
    assert "not found" in capsys.readouterr().err


def test_a_topology_that_is_forgotten_is_gone_and_asked_for_again(
    groups: Groups, gateway: GatewayProcess, capsys: Capture
) -> None:
    group = f"forgetting-{uuid.uuid4().hex[:8]}"
    config = ["--config", str(gateway.setup.folder / "headgate.toml")]
    describe = ["streams-groups", "--bootstrap-server", gateway.bootstrap, "--describe", "--group", group, "--topology"]
    with joined(gateway.bootstrap, group, groups.topic, version=1) as member:
        assert member.push(golden("wordcount")).error_code == 0
        assert main(describe) == 0
        assert main(["topology", "forget", group, *config]) == 0
        assert capsys.readouterr().out.endswith("Its members are asked for it again.\n")
        until(lambda: main(describe) == 1)
        assert f"No topology description is stored for streams group '{group}'." in capsys.readouterr().out
        assert main(["topology", "forget", group, *config, "--json"]) == 1
        assert json.loads(capsys.readouterr().out) == {"group": group, "forgotten": False}
        assert member.push(golden("filter")).error_code == 0
        assert main(describe) == 0


def test_the_status_of_a_topology_follows_its_group(groups: Groups, gateway: GatewayProcess, capsys: Capture) -> None:
    group, description = f"status-{uuid.uuid4().hex[:8]}", golden("wordcount")
    command = ["topology", "status", group, "--bootstrap-server", gateway.bootstrap]

    def status() -> dict[str, Any]:
        assert main([*command, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    with joined(gateway.bootstrap, group, groups.topic, version=1) as member:
        asked = status()
        assert (asked["status"], asked["version"], asked["last_push"]) == ("NOT_STORED", None, None)
        assert (asked["backoff"]["epoch"], asked["backoff"]["attempts"] >= 1) == (0, True)
        assert abs(asked["backoff"]["until"] - time.time() * 1000) < 3_600_000  # the longest window
        assert main(command) == 0
        assert "NOT_STORED" in capsys.readouterr().out
        # A member that is slower than the window is asked again.
        until(lambda: member.beat().error_code == 0 and gateway.metric("headgate_topologies_backing_off_groups") >= 1)
        assert member.push(description).error_code == 0
        stored = status()
        assert (stored["group"], stored["status"], stored["topology_epoch"]) == (group, "AVAILABLE", 0)
        assert stored["version"].split("/")[1:] == ["0", content_hash(description).removeprefix("sha256:")[:12]]
        assert stored["pushed_by"] == stored["last_push"]["member"] == member.member
        assert (stored["unconfirmed"], stored["failed_epoch"], stored["backoff"]) == (False, None, None)
        assert stored["last_push"]["error_code"] == 0
        other = Member(client=member.client, group=group, topic=groups.topic)
        assert other.join().error_code == 0
        assert status()["unconfirmed"] is True
        other.leave()


def test_the_status_of_what_is_not_there_is_one_sentence(
    groups: Groups, gateway: GatewayProcess, capsys: Capture
) -> None:
    assert main(["topology", "status", "absent-s", "--bootstrap-server", gateway.bootstrap]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "headgate: streams group 'absent-s' cannot be described: Group absent-s not found.\n"
    assert main(["topology", "status", groups.stable, "--bootstrap-server", groups.cluster.bootstrap]) == 1
    assert "the server does not support topology descriptions" in capsys.readouterr().err
