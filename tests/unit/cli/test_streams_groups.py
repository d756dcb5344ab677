"""`headgate streams-groups` from the outside: flags, texts, JSON and exit codes."""

import argparse
import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import ClusterError, UsageError
from headgate.base.ids import NodeId
from headgate.cli import cluster_calls
from headgate.cli import main as cli
from headgate.cli import streams_groups as command
from headgate.cli import streams_groups_text as text
from headgate.cli.cluster_calls import Outcome, dialler_of
from headgate.cli.columns import json_text
from headgate.config.addresses import Address
from headgate.facts.topology import DESCRIPTION, Description, content_hash
from headgate.kafka.group_admin import GroupCoordinator, GroupListing
from headgate.topologies.group_offsets import PartitionOffsets
from headgate.topologies.wire_descriptions import to_wire
from headgate.wire.codec import decode, encode
from headgate.wire.messages.groups import DeletedGroup, DeleteGroupsResponse, ListedGroup, ListGroupsResponse
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    DescribedTopology,
    StreamsGroupDescribeResponse,
    TopologyDescription,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from headgate.wire.schema import Message
from tests.contract.test_golden import opened
from tests.support.fake_upstream import BROKER_VERSIONS
from tests.support.scripted_cluster import NEWEST, ScriptedCluster
from tests.unit.topologies.topologies import FIXTURES, GOLDEN, golden

LIST, DELETE, DESCRIBE = 16, 42, 89
NOT_REQUESTED, NOT_STORED, ERROR, AVAILABLE = range(4)

Capture = pytest.CaptureFixture[str]


def described(status: int, description: Description | None = None, *, epoch: int = 0) -> DescribedStreamsGroup:
    """A group as version 1 brings it: written, and read again."""
    group = DescribedStreamsGroup(
        group_id="g",
        group_state="Stable",
        topology=DescribedTopology(epoch=epoch),
        topology_description=None if description is None else to_wire(description),
        topology_description_status=status,
    )
    frame = encode(StreamsGroupDescribeResponse(groups=(group,)), 1)
    [read] = decode(StreamsGroupDescribeResponse, 1, frame).groups
    return read


# --- flags ----------------------------------------------------------------------------------------------------------


def parsed(*arguments: str) -> argparse.Namespace:
    return cli.parser().parse_args(["streams-groups", "--bootstrap-server", "127.0.0.1:1", *arguments])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--describe"], "--describe takes one --group"),
        (["--delete"], "--delete takes one --group"),
        (["--describe", "--group", "a", "--group", "b"], "--describe takes one --group"),
        (["--list", "--group", "a"], "--list takes no --group"),
        (["--list", "--members"], "are for --describe"),
        (["--list", "--verbose"], "--verbose is for --describe"),
        (["--list", "--state", "Stable,Nonsense"], "Invalid state list 'Stable,Nonsense'. Valid states are: Empty"),
        (["--describe", "--group", "a", "--state", "Stable"], "--describe does not take a value for --state"),
        (["--delete", "--group", "a", "--topology"], "are for --describe"),
        (["--list", "--timeout", "0"], "--timeout must be from 1"),
        (["--list", "--command-config", "/nowhere.properties"], "/nowhere.properties cannot be read"),
    ],
)
def test_flags_that_do_not_go_together_are_wrong_usage(arguments: list[str], words: str, capsys: Capture) -> None:
    assert cli.main(["streams-groups", "--bootstrap-server", "127.0.0.1:1", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--list"],
        ["--bootstrap-server", "h:1"],
        ["--bootstrap-server", "h:1", "--list", "--describe"],
        ["--bootstrap-server", "h:1", "--describe", "--group", "g", "--members", "--topology"],
        ["--bootstrap-server", "h:1", "--list", "--timeout", "soon"],
    ],
)
def test_flags_that_the_command_does_not_have_are_wrong_usage(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["streams-groups", *arguments])
    assert ended.value.code == 2
    assert "usage: headgate streams-groups" in capsys.readouterr().err


def test_an_address_that_is_none_is_wrong_usage(capsys: Capture) -> None:
    assert cli.main(["streams-groups", "--bootstrap-server", "localhost", "--list"]) == 2
    assert '--bootstrap-server localhost: must be "HOST:PORT"' in capsys.readouterr().err


def test_a_server_that_is_not_there_is_one_sentence(capsys: Capture) -> None:
    assert cli.main(["streams-groups", "--bootstrap-server", "127.0.0.1:1", "--list"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("headgate: no connection to 127.0.0.1:1: ")
    assert said.err.count("\n") == 1


def test_states_are_written_in_any_case() -> None:
    assert command.states_of("stable, NOTREADY") == ("Stable", "NotReady")
    assert command.states_of("") == ()
    with pytest.raises(UsageError):
        command.states_of("Stable,")


def test_the_file_of_properties_is_named_with_what_is_wrong_in_it(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n")
    assert cli.main(["streams-groups", "--bootstrap-server", "h:1", "--list", "--command-config", str(file)]) == 2
    assert f"headgate: {file}: sasl.mechanism names an unsupported mechanism" in capsys.readouterr().err


def test_keys_that_are_not_used_are_named_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=secret-name\nretries=3\ndefault.api.timeout.ms=100\n")
    dialler = dialler_of(parsed("--list", "--command-config", str(file)))
    assert capsys.readouterr().err == f"headgate: {file}: not used: client.id, retries\n"
    assert dialler.timeout_s == 0.1
    assert dialler_of(parsed("--list", "--timeout", "7000")).timeout_s == 7.0


# --- topologies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({*GOLDEN} - {"pattern"}))  # a push carries no pattern
def test_a_topology_that_is_available_is_printed_as_kafkas_tool_prints_it(name: str) -> None:
    outcome = command.topology_outcome(described(AVAILABLE, golden(name)))
    assert outcome.exit_code == 0
    assert outcome.text == (FIXTURES / "tool" / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (NOT_STORED, "No topology description is stored for streams group 'g'.\n"),
        (
            ERROR,
            (
                "The broker failed to fetch the topology description for streams group 'g'. "
                "See the broker logs for details.\n"
            ),
        ),
    ],
)
def test_a_topology_that_is_not_there_is_told_in_kafkas_words_with_exit_code_1(status: int, words: str) -> None:
    outcome = command.topology_outcome(described(status))
    assert (outcome.text, outcome.exit_code) == (words, 1)


def test_the_json_of_a_topology_is_the_contracts() -> None:
    description = golden("filter")
    outcome = command.topology_outcome(described(AVAILABLE, description, epoch=4))
    digits = content_hash(description).removeprefix("sha256:")[:12]
    assert outcome.document == {
        "group": "g",
        "status": "AVAILABLE",
        "topology_epoch": 4,
        "version": f"-/4/{digits}",
        "provenance": "pushed",
        "description": DESCRIPTION.write(description),
    }
    assert json.loads(json_text(outcome.document)) == outcome.document


@pytest.mark.parametrize(("status", "name"), [(NOT_STORED, "NOT_STORED"), (ERROR, "ERROR")])
def test_the_json_without_a_topology_has_the_same_keys(status: int, name: str) -> None:
    outcome = command.topology_outcome(described(status))
    assert outcome.exit_code == 1
    assert outcome.document == {
        "group": "g",
        "status": name,
        "topology_epoch": 0,
        "version": None,
        "provenance": None,
        "description": None,
    }


def test_an_answer_that_contradicts_itself_is_an_error_of_the_cluster() -> None:
    with pytest.raises(ClusterError, match="unknown status 9"):
        command.topology_outcome(described(9))
    with pytest.raises(ClusterError, match="and sends none"):
        command.topology_outcome(described(AVAILABLE))
    broken = replace(
        described(AVAILABLE),
        topology_description=TopologyDescription(
            subtopologies=(TopologyDescriptionSubtopology(nodes=(TopologyDescriptionNode(node_type=9),)),)
        ),
    )
    with pytest.raises(ClusterError, match="is not understood: Unknown topology node type: 9"):
        command.topology_outcome(broken)


def test_names_that_would_move_the_cursor_are_escaped() -> None:
    listings = [GroupListing(group="a\x1b[2J", state="Empty")]
    assert text.names_text(listings) == "a\\x1b[2J\n"
    assert "\x1b" not in text.states_text(listings)
    assert "\x1b" not in text.deletion_text("a\x1b[2J", None)
    assert text.listings_json(listings) == {"groups": [{"group": "a\x1b[2J", "state": "Empty"}]}


def test_words_that_a_server_chose_are_escaped_in_errors_too(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    async def refused(*_: object) -> Outcome:
        raise ClusterError("no\x1b[2J\nreally")

    monkeypatch.setattr(command, "_answer", refused)
    assert cli.main(["streams-groups", "--bootstrap-server", "127.0.0.1:1", "--list"]) == 1
    assert capsys.readouterr().err == "headgate: no\\x1b[2J\\nreally\n"


def test_what_takes_long_is_told_on_standard_error(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    async def slow(*_: object) -> Outcome:
        await asyncio.sleep(0.3)
        return Outcome("done\n", {})

    monkeypatch.setattr(command, "_answer", slow)
    monkeypatch.setattr(cluster_calls, "_SILENCE_S", 0.1)
    assert cli.main(["streams-groups", "--bootstrap-server", "127.0.0.1:1", "--list"]) == 0
    said = capsys.readouterr()
    assert said.out == "done\n"
    assert re.match(r"headgate: still asking 127\.0\.0\.1:1 \(\d s\)\n", said.err)


# --- tables, as a 4.3.1 tool prints them ----------------------------------------------------------------------------


def word_count() -> DescribedStreamsGroup:
    return opened().groups[0]


def test_members_are_printed_with_their_tasks() -> None:
    lines = text.members_text(word_count(), verbose=False).splitlines()
    assert lines == [
        (
            "GROUP             MEMBER                 PROCESS                              "
            "CLIENT-ID                        ASSIGNMENTS"
        ),
        (
            "golden-word-count HTSmsqu3Q2ua6sCV40Ezag cd6db33a-f70c-4d0e-a86d-67d6a5efe07b "
            "golden-2-StreamThread-1-consumer ACTIVE: 0:[0]; 1:[0]; STANDBY: 1:[1]; "
        ),
        (
            "golden-word-count iqMlPjg0TfK-m7YwGWBdrw 96f18231-01fb-4025-95aa-61a1239b3ecb "
            "golden-1-StreamThread-1-consumer ACTIVE: 0:[1]; 1:[1]; STANDBY: 1:[0]; "
        ),
    ]


def test_verbose_members_have_epochs_and_target_tasks() -> None:
    heading, first, _ = text.members_text(word_count(), verbose=True).splitlines()
    assert heading.startswith(
        "GROUP             TARGET-ASSIGNMENT-EPOCH   TOPOLOGY-EPOCH MEMBER                 MEMBER"
    )
    assert first.startswith("golden-word-count 4                         0              HTSmsqu3Q2ua6sCV40Ezag streams")
    assert first.endswith("STANDBY: 1:[1]; TARGET-ACTIVE: 0:[0]; 1:[0]; TARGET-STANDBY: 1:[1]; ")


def test_the_state_is_printed_with_the_coordinator() -> None:
    coordinator = GroupCoordinator(NodeId(3), Address("broker.example", 9092))
    assert text.state_text(word_count(), coordinator, verbose=False).splitlines() == [
        "GROUP             COORDINATOR (ID)          STATE                     #MEMBERS",
        "golden-word-count broker.example:9092 (3)   Stable                    2",
    ]
    verbose = text.state_text(replace(word_count(), group_state="Empty", members=()), coordinator, verbose=True)
    assert verbose.splitlines() == [
        "",
        "Error: Streams group 'golden-word-count' has no active members.",
        (
            "GROUP             COORDINATOR (ID)          STATE                     GROUP-EPOCH     "
            "TARGET-ASSIGNMENT-EPOCH   #MEMBERS"
        ),
        (
            "golden-word-count broker.example:9092 (3)   Empty                     4               "
            "4                         0"
        ),
    ]


def test_offsets_are_printed_with_their_lag() -> None:
    rows = [
        PartitionOffsets(
            topic="a-topic-with-a-long-name",
            partition=0,
            current_offset=None,
            leader_epoch=None,
            log_end_offset=9,
            lag=9,
        ),
        PartitionOffsets(topic="t", partition=1, current_offset=5, leader_epoch=2, log_end_offset=8, lag=3),
    ]
    group = DescribedStreamsGroup(group_id="g", group_state="Stable")
    assert text.offsets_text(group, rows, verbose=False).splitlines() == [
        "GROUP           TOPIC                    PARTITION  OFFSET-LAG",
        "g               a-topic-with-a-long-name 0          9",
        "g               t                        1          3",
    ]
    verbose = text.offsets_text(group, rows, verbose=True).splitlines()
    assert verbose[0].endswith("PARTITION  CURRENT-OFFSET  LEADER-EPOCH    LOG-END-OFFSET  OFFSET-LAG     ")
    assert verbose[1].endswith("g-name 0          -               -               9               9              ")
    assert verbose[2] == (
        "g               t                        1          5               2               8               3"
        "              "
    )
    assert text.offsets_json(group, rows)["offsets"][1] == {
        "topic": "t",
        "partition": 1,
        "current_offset": 5,
        "leader_epoch": 2,
        "log_end_offset": 8,
        "lag": 3,
    }


def test_states_of_a_list_are_printed_in_columns() -> None:
    listings = [GroupListing(group="g", state="Stable"), GroupListing(group="a-rather-long-name", state="Empty")]
    assert text.states_text(listings).splitlines() == [
        "GROUP              STATE",
        "g                  Stable",
        "a-rather-long-name Empty",
    ]


# --- against a server -----------------------------------------------------------------------------------------------

Answer = Callable[[int, Message], Message | None]


async def outcome_of(answers: dict[int, Answer], *arguments: str, versions: Any = NEWEST) -> Outcome:
    args = parsed(*arguments)
    async with ScriptedCluster(answers, versions=versions) as cluster:
        return await command._answer(args, cluster.dialler())


def describing(group: DescribedStreamsGroup) -> dict[int, Answer]:
    return {DESCRIBE: lambda _node, _request: StreamsGroupDescribeResponse(groups=(group,))}


async def test_a_list_is_names_states_or_json() -> None:
    listed = ListGroupsResponse(groups=(ListedGroup(group_id="g", group_type="Streams", group_state="Stable"),))
    answers: dict[int, Answer] = {LIST: lambda _node, _request: listed}
    outcome = await outcome_of(answers, "--list")
    assert (outcome.text, outcome.exit_code) == ("g\n", 0)
    assert outcome.document == {"groups": [{"group": "g", "state": "Stable"}]}
    assert (await outcome_of(answers, "--list", "--state")).text == "GROUP           STATE\ng               Stable\n"


async def test_a_server_with_version_1_shows_the_topology() -> None:
    group = described(AVAILABLE, golden("filter"))
    outcome = await outcome_of(describing(group), "--describe", "--group", "g", "--topology")
    assert outcome.text.startswith("Topologies:\n   Sub-topology: 0\n")
    assert outcome.exit_code == 0


async def test_a_server_without_version_1_is_said_not_to_support_topologies() -> None:
    with pytest.raises(ClusterError, match=r"'g' cannot be described: the server does not support topology"):
        await outcome_of({}, "--describe", "--group", "g", "--topology", versions=BROKER_VERSIONS)


@pytest.mark.parametrize("view", ["--topology", "--offsets", "--members", "--state"])
async def test_a_missing_group_is_one_sentence(view: str) -> None:
    missing = DescribedStreamsGroup(group_id="g", error_code=69, error_message="Group g not found.")
    with pytest.raises(ClusterError) as failure:
        await outcome_of(describing(missing), "--describe", "--group", "g", view)
    assert str(failure.value) == "streams group 'g' cannot be described: Group g not found."
    assert failure.value.exit_code == 1


@pytest.mark.parametrize("view", ["--offsets", "--members"])
async def test_of_a_group_without_members_there_is_nothing_to_print_but_a_note(view: str) -> None:
    empty = DescribedStreamsGroup(group_id="g", group_state="Empty")
    outcome = await outcome_of(describing(empty), "--describe", "--group", "g", view)
    assert (outcome.text, outcome.exit_code) == ("", 0)
    assert outcome.note == "Streams group 'g' has no active members."


async def test_a_deletion_ends_with_0_and_kafkas_words() -> None:
    deleted = DeleteGroupsResponse(results=(DeletedGroup(group_id="g"),))
    answers = {
        **describing(DescribedStreamsGroup(group_id="g", group_state="Empty")),
        DELETE: lambda _node, _request: deleted,
    }
    outcome = await outcome_of(answers, "--delete", "--group", "g")
    assert (outcome.text, outcome.exit_code) == ("Deletion of requested streams groups ('g') was successful.\n", 0)
    assert outcome.document == {"group": "g", "deleted": True}


async def test_a_deletion_that_fails_ends_with_1_and_the_servers_words() -> None:
    failed = DeleteGroupsResponse(results=(DeletedGroup(group_id="g", error_code=134, error_message="no disk"),))
    answers = {
        **describing(DescribedStreamsGroup(group_id="g", group_state="Empty")),
        DELETE: lambda _node, _request: failed,
    }
    outcome = await outcome_of(answers, "--delete", "--group", "g")
    assert outcome.exit_code == 1
    assert outcome.text == (
        "\nError: Deletion of some streams groups failed:\n* Group 'g' could not be deleted due to: no disk\n"
    )
    assert outcome.document == {"group": "g", "deleted": False, "error_code": 134, "error": "no disk"}
