"""`headgate streams-groups` from the outside: flags, topologies, and exit codes.

The tables, and what needs a server, are compared with Kafka's own tool in tests/integration/topologies.
"""

import argparse
import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.base.errors import ClusterError, UsageError
from headgate.cli import cluster_calls
from headgate.cli import main as cli
from headgate.cli import streams_groups as command
from headgate.cli import streams_groups_text as text
from headgate.cli.cluster_calls import Outcome, dialler_of
from headgate.cli.columns import json_text
from headgate.facts.topology import DESCRIPTION, Description, content_hash
from headgate.kafka.group_admin import GroupError, GroupListing
from headgate.topologies.wire_descriptions import to_wire
from headgate.wire.codec import decode, encode
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    DescribedTopology,
    StreamsGroupDescribeResponse,
    TopologyDescription,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from tests.unit.topologies.topologies import FIXTURES, GOLDEN, golden

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
    return cli.parse_arguments(["streams-groups", "--bootstrap-server", "127.0.0.1:1", *arguments])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--describe"], "specify --group or --all-groups with --describe"),
        (["--delete"], "specify --group or --all-groups with --delete"),
        (["--describe", "--group", "a", "--all-groups"], "specify --group or --all-groups with --describe"),
        (["--list", "--all-groups"], "--list lists all groups: remove --group and --all-groups"),
        (["--list", "--group", "a"], "--list lists all groups: remove --group"),
        (["--list", "--members"], "can only be used with --describe"),
        (["--list", "--verbose"], "--verbose can only be used with --describe"),
        (["--list", "--state", "Stable,Nonsense"], "Invalid state list 'Stable,Nonsense'. Valid states are: Empty"),
        (["--describe", "--group", "a", "--state", "Stable"], "--describe does not take a value for --state"),
        (["--delete", "--group", "a", "--topology"], "can only be used with --describe"),
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
    with pytest.raises(ClusterError, match="unknown TopologyDescriptionStatus: 9"):
        command.topology_outcome(described(9))
    with pytest.raises(ClusterError, match="without a topology description"):
        command.topology_outcome(described(AVAILABLE))
    broken = replace(
        described(AVAILABLE),
        topology_description=TopologyDescription(
            subtopologies=(TopologyDescriptionSubtopology(nodes=(TopologyDescriptionNode(node_type=9),)),)
        ),
    )
    with pytest.raises(ClusterError, match="invalid topology description: Unknown topology node type: 9"):
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


# --- several groups -------------------------------------------------------------------------------------------------


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The streams groups of a cluster; `empty` has no description, `denied` may not be described or deleted."""
    names = ["a", "b", "empty", "denied"]

    async def list_all(*_: object) -> tuple[GroupListing, ...]:
        return tuple(GroupListing(group=name, state="Stable") for name in names)

    async def describe(_: object, group: str, *, with_topology: bool) -> DescribedStreamsGroup | GroupError:
        assert with_topology
        if group == "denied":
            return GroupError(30, "Group authorization failed.")
        found = described(NOT_STORED) if group == "empty" else described(AVAILABLE, golden("filter"))
        return replace(found, group_id=group)

    async def delete(_: object, group: str) -> GroupError | None:
        return GroupError(30, "Group authorization failed.") if group == "denied" else None

    monkeypatch.setattr(command, "list_streams_groups", list_all)
    monkeypatch.setattr(command, "describe_group", describe)
    monkeypatch.setattr(command, "delete_group", delete)
    return names


def run(*arguments: str) -> int:
    return cli.main(["streams-groups", "--bootstrap-server", "127.0.0.1:1", *arguments])


def test_several_groups_are_described_one_after_the_other(groups: list[str], capsys: Capture) -> None:
    one = [command.topology_outcome(replace(described(AVAILABLE, golden("filter")), group_id=name)) for name in "ab"]
    assert run("--describe", "--topology", "--group", "b", "--group", "a", "--group", "b") == 0
    assert capsys.readouterr().out == one[1].text + "\n" + one[0].text
    assert run("--describe", "--topology", "--group", "a", "--group", "b", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"groups": [outcome.document for outcome in one]}
    assert groups


def test_one_group_of_all_that_fails_does_not_hide_the_others(groups: list[str], capsys: Capture) -> None:
    assert run("--describe", "--topology", "--all-groups", "--json") == 1
    found = json.loads(capsys.readouterr().out)["groups"]
    assert [one["group"] for one in found] == groups
    assert found[3]["error"] == "streams group 'denied' cannot be described: Group authorization failed."
    assert run("--describe", "--topology", "--all-groups") == 1
    out, err = capsys.readouterr()
    assert "No topology description is stored for streams group 'empty'." in out
    assert err == f"headgate: {found[3]['error']}\n"


def test_all_groups_are_deleted_that_can_be(groups: list[str], capsys: Capture) -> None:
    assert run("--delete", "--all-groups") == 1
    out = capsys.readouterr().out
    assert all(f"'{name}'" in out for name in groups)
    groups.remove("denied")
    assert run("--delete", "--all-groups") == 0
    groups.clear()
    capsys.readouterr()
    assert run("--delete", "--all-groups", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"groups": []}


def test_what_takes_long_is_told_on_standard_error(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    told = ""

    async def slow(*_: object) -> Outcome:
        nonlocal told
        while not told:
            await asyncio.sleep(0.001)
            told = capsys.readouterr().err
        return Outcome("done\n", {})

    monkeypatch.setattr(command, "_answer", slow)
    monkeypatch.setattr(cluster_calls, "_SILENCE_S", 0.01)
    assert cli.main(["streams-groups", "--bootstrap-server", "127.0.0.1:1", "--list"]) == 0
    assert capsys.readouterr().out == "done\n"
    assert re.match(r"headgate: still asking 127\.0\.0\.1:1 \(\d+ s\)\n", told)
