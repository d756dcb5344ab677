"""`headgate topology publish`: usage, texts, JSON, and servers that keep no published versions."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from headgate.base.errors import ClusterError
from headgate.cli import main as cli
from headgate.cli import topology_publish as command
from headgate.facts.topology import Description, SourceNode, Subtopology, content_hash
from headgate.kafka.connections import Connections
from headgate.topologies.admin import publish_topology
from headgate.topologies.wire_descriptions import PASTED, PASTED_TAG, to_wire
from headgate.wire.messages.streams import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from tests.support.scripted_cluster import NEWEST, ScriptedCluster
from tests.unit.topologies.topologies import FIXTURES, generated

PUSH = 93
GATEWAY = {**NEWEST, PUSH: (0, 0)}
TEXT = str(FIXTURES / "generated" / "orders-v1.txt")
SERVER = ["--group", "shop", "--bootstrap-server", "127.0.0.1:1"]

Capture = pytest.CaptureFixture[str]
Response = StreamsGroupTopologyDescriptionUpdateResponse


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Description, int]]:
    """What the command publishes."""
    found: list[tuple[str, Description, int]] = []

    async def publish(_: Connections, group: str, description: Description, *, epoch: int) -> str:
        await asyncio.sleep(0)
        found.append((group, description, epoch))
        return "9f2c/0/ab12"

    monkeypatch.setattr(command, "publish_topology", publish)
    return found


def test_a_published_version_is_named(sent: list[tuple[str, Description, int]], capsys: Capture) -> None:
    assert cli.main(["topology", "publish", TEXT, *SERVER, "--epoch", "2"]) == 0
    [(group, description, epoch)] = sent
    assert (group, content_hash(description), epoch) == ("shop", content_hash(generated("orders-v1")), 2)
    assert capsys.readouterr().out == "Published version 9f2c/0/ab12 of the topology of streams group 'shop'.\n"


def test_the_json_has_the_version_and_the_hash(sent: list[object], capsys: Capture) -> None:
    assert cli.main(["topology", "publish", TEXT, *SERVER, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "group": "shop",
        "published": True,
        "version": "9f2c/0/ab12",
        "hash": content_hash(generated("orders-v1")),
        "provenance": "pasted",
    }
    assert len(sent) == 1


def test_a_dry_run_reads_the_text_and_sends_nothing(sent: list[object], capsys: Capture) -> None:
    assert cli.main(["topology", "publish", TEXT, *SERVER, "--dry-run"]) == 0
    assert content_hash(generated("orders-v1")) in capsys.readouterr().out
    assert cli.main(["topology", "publish", TEXT, *SERVER, "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["published"], found["version"]) == (False, None)
    assert sent == []


def test_an_error_in_the_text_has_its_place_and_nothing_is_sent(
    tmp_path: Path, sent: list[object], capsys: Capture
) -> None:
    file = tmp_path / "orders.txt"
    file.write_text("Topologies:\n   Sub-topology: 0\n    Source: S (topics: [orders\n")
    assert cli.main(["topology", "publish", str(file), *SERVER]) == 1
    assert f"{file}, line 3, column " in capsys.readouterr().err
    assert sent == []


def test_the_hash_is_that_of_a_push_which_has_no_patterns(tmp_path: Path, sent: list[object], capsys: Capture) -> None:
    file = tmp_path / "orders.txt"
    file.write_text("Topologies:\n   Sub-topology: 0\n    Source: S (topics: orders-.*)\n      --> none\n")
    assert cli.main(["topology", "publish", str(file), *SERVER, "--dry-run", "--json"]) == 0
    source = Subtopology(id="0", nodes=(SourceNode(name="S"),))
    assert json.loads(capsys.readouterr().out)["hash"] == content_hash(Description(subtopologies=(source,)))
    assert sent == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--group", ""], "--group must not be empty"),
        (["--group", "g", "--epoch", "-1"], "--epoch must be from 0"),
        (["--group", "g", "--timeout", "0"], "--timeout must be from 1"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], words: str, sent: list[object], capsys: Capture) -> None:
    assert cli.main(["topology", "publish", TEXT, *arguments, "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert words in capsys.readouterr().err
    assert sent == []


# --- servers


async def published(response: Response, versions: Mapping[int, tuple[int, int]] = GATEWAY) -> str:
    async with ScriptedCluster({PUSH: lambda *_: response}, versions=versions) as cluster:
        async with Connections(cluster.dialler()) as connections:
            version = await publish_topology(connections, "g", generated("orders-v1"), epoch=2)
        [request] = [one.request for one in cluster.requests(PUSH)]
        assert isinstance(request, StreamsGroupTopologyDescriptionUpdateRequest)
        assert (request.group_id, request.member_id, request.topology_epoch) == ("g", "", 2)
        assert request.unknown_tags == ((PASTED_TAG, PASTED),)
        assert request.topology_description == to_wire(generated("orders-v1"))
        return version


def tagged(document: bytes = b"{}") -> tuple[tuple[int, bytes], ...]:
    return ((PASTED_TAG, document),)


async def test_the_gateway_names_the_version() -> None:
    assert await published(Response(unknown_tags=tagged(b'{"version":"9f2c/0/ab12"}'))) == "9f2c/0/ab12"


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (Response(error_code=42, error_message="MemberId can't be empty."), "connect to a Headgate gateway"),
        (Response(error_code=25), "connect to a Headgate gateway"),
        (Response(error_code=69), "connect to a Headgate gateway"),
        (Response(), "connect to a Headgate gateway"),
        (Response(unknown_tags=tagged(b"[]")), "connect to a Headgate gateway"),
        (Response(unknown_tags=tagged(b'{"version":1}')), "connect to a Headgate gateway"),
        (Response(error_code=30), "'g' is not published: Group authorization failed."),
        (Response(error_code=42, error_message="GroupId can't be empty.", unknown_tags=tagged()), "GroupId can't be"),
        (Response(error_code=135, error_message="too often", unknown_tags=tagged()), "is not published: too often"),
    ],
)
async def test_why_a_version_is_not_published_is_said(response: Response, words: str) -> None:
    with pytest.raises(ClusterError) as failure:
        await published(response)
    assert words in str(failure.value)


async def test_a_broker_without_the_request_is_no_gateway() -> None:
    with pytest.raises(ClusterError, match="connect to a Headgate gateway"):
        await published(Response(), NEWEST)
