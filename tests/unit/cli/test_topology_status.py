"""`headgate topology status`: usage, texts, JSON, and servers that cannot say it."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from headgate.base.errors import ClusterError
from headgate.cli import main as cli
from headgate.cli import topology_status as command
from headgate.kafka.connections import Connections
from headgate.kafka.group_admin import TopologyStatus
from headgate.topologies.admin import DescribedStatus, description_status
from headgate.topologies.model.group_status import STATUS_TAG, BackoffStatus, DescriptionStatus, LastPush
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    DescribedTopology,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from tests.support.scripted_cluster import NEWEST, ScriptedCluster

DESCRIBE = 89
STATUS = DescriptionStatus(
    selected=True,
    available=True,
    version="9f2c/0/ab12",
    pushed_by="m\x1b[2J",
    unconfirmed=True,
    failed_epoch=None,
    backoff=BackoffStatus(epoch=0, active=True, until=1794731901727, attempts=3),
    last_push=LastPush(at=1794731801727, member="m\x1b[2J", epoch=0, error_code=135),
    worker=1,
)
FOUND = DescribedStatus(
    group="g", state="Stable", topology_epoch=0, shown=TopologyStatus.NOT_STORED, description=STATUS
)
GROUP = DescribedStreamsGroup(
    group_id="g", group_state="Stable", topology=DescribedTopology(epoch=0), topology_description_status=1
)

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are in the zone of the reader."""
    monkeypatch.setattr(command, "_time", lambda value: "-" if value is None else f"T{value}")


def test_the_json_has_the_brokers_part_and_the_gateways() -> None:
    assert command.status_json(FOUND) == {
        "group": "g",
        "state": "Stable",
        "status": "NOT_STORED",
        "topology_epoch": 0,
        "selected": True,
        "available": True,
        "version": "9f2c/0/ab12",
        "pushed_by": "m\x1b[2J",
        "unconfirmed": True,
        "failed_epoch": None,
        "backoff": {"epoch": 0, "active": True, "until": 1794731901727, "attempts": 3},
        "last_push": {"at": 1794731801727, "member": "m\x1b[2J", "epoch": 0, "error_code": 135},
        "worker": 1,
    }


def test_the_text_is_a_table_and_sentences_with_names_escaped() -> None:
    assert command.status_text(FOUND).splitlines() == [
        "GROUP STATE  STATUS     TOPOLOGY-EPOCH VERSION     UNCONFIRMED FAILED-EPOCH",
        "g     Stable NOT_STORED 0              9f2c/0/ab12 yes         -",
        "",
        "The stored description was pushed by member m\\x1b[2J.",
        "Last push: T1794731801727 by member m\\x1b[2J at epoch 0, failed with error code 135, see the log.",
        (
            "Back-off: no member is asked before T1794731901727, attempt 3 at epoch 0. Other workers and gateways have "
            "a back-off of their own; this is that of worker 1."
        ),
    ]


def test_names_in_the_table_are_escaped() -> None:
    group = replace(FOUND, group="g\x1b[2J", description=replace(STATUS, version="9f2c\n/0"))
    [_, row, *_] = command.status_text(group).splitlines()
    assert row.split()[0] == "g\\x1b[2J"
    assert "9f2c\\n/0" in row


@pytest.mark.parametrize(
    ("backoff", "words"),
    [
        (None, "Back-off: none."),
        (BackoffStatus(epoch=0, active=False, until=5, attempts=1), "Back-off: none."),
        (
            BackoffStatus(active=True, until=5, attempts=2),
            "not asked to delete for a classic join before T5, attempt 2.",
        ),
    ],
)
def test_a_back_off_that_has_ended_or_is_of_deletions(backoff: BackoffStatus | None, words: str) -> None:
    shown = command.status_text(replace(FOUND, description=replace(STATUS, backoff=backoff)))
    assert words in shown
    assert "no member is asked" not in shown


def test_a_group_without_anything() -> None:
    nothing = DescriptionStatus(selected=True, available=True, unconfirmed=False, worker=0)
    shown = command.status_text(replace(FOUND, description=nothing))
    assert shown.splitlines()[1].split() == ["g", "Stable", "NOT_STORED", "0", "-", "no", "-"]
    assert "Last push: none since worker 0 started." in shown
    accepted = replace(nothing, last_push=LastPush(at=5, member="m", epoch=0, error_code=0))
    assert "by member m at epoch 0, accepted." in command.status_text(replace(FOUND, description=accepted))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([""], "GROUP must not be empty"),
        (["g", "--timeout", "0"], "--timeout must be from 1"),
        (["g", "--bootstrap-server", "nowhere"], "--bootstrap-server nowhere"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], words: str, capsys: Capture) -> None:
    where = [] if "--bootstrap-server" in arguments else ["--bootstrap-server", "127.0.0.1:1"]
    assert cli.main(["topology", "status", *arguments, *where]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err


def test_the_help_says_whose_back_off_it_is(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        cli.main(["topology", "status", "--help"])
    assert "those of the worker that answers" in " ".join(capsys.readouterr().out.split())


# --- servers


async def asked(group: DescribedStreamsGroup, versions: Mapping[int, tuple[int, int]] = NEWEST) -> DescribedStatus:
    def describe(_: int, __: object) -> StreamsGroupDescribeResponse:
        return StreamsGroupDescribeResponse(groups=(group,))

    async with ScriptedCluster({DESCRIBE: describe}, versions=versions) as cluster:
        async with Connections(cluster.dialler()) as connections:
            found = await description_status(connections, "g")
        [request] = [one.request for one in cluster.asked if one.key == DESCRIBE]
        assert isinstance(request, StreamsGroupDescribeRequest)
        assert request.unknown_tags == ((STATUS_TAG, b""),)
        return found


async def test_the_status_is_asked_for_by_the_tag_and_read_from_it() -> None:
    assert await asked(replace(GROUP, unknown_tags=((STATUS_TAG, STATUS.encode()),))) == FOUND


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (GROUP, "is missing: the server does not store topology descriptions itself: connect to the gateway"),
        (replace(GROUP, unknown_tags=((STATUS_TAG, b"[]"),)), "is not a JSON object"),
        (
            replace(GROUP, unknown_tags=((STATUS_TAG, b"{}"),), topology_description_status=9),
            "unknown TopologyDescriptionStatus: 9",
        ),
        (
            DescribedStreamsGroup(group_id="g", error_code=69, error_message="Group g not found."),
            "streams group 'g' cannot be described: Group g not found.",
        ),
        (
            DescribedStreamsGroup(group_id="g", error_code=30),
            "streams group 'g' cannot be described: Group authorization failed.",
        ),
    ],
)
async def test_a_server_that_cannot_say_it_is_one_sentence(group: DescribedStreamsGroup, words: str) -> None:
    with pytest.raises(ClusterError, match=r".") as failure:
        await asked(group)
    assert words in str(failure.value)


async def test_a_broker_before_4_4_is_said_to_be_without() -> None:
    with pytest.raises(ClusterError, match="does not support topology descriptions"):
        await asked(GROUP, {**NEWEST, DESCRIBE: (0, 0)})


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (replace(STATUS, selected=False), "the gateway stores no description of this group"),
        (replace(STATUS, available=False), "the status is incomplete"),
    ],
)
def test_a_status_that_is_not_whole_has_a_note(
    status: DescriptionStatus, words: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    async def found(_: Connections, __: str) -> DescribedStatus:
        return replace(FOUND, description=status)

    monkeypatch.setattr(command, "description_status", found)
    arguments = ["topology", "status", "g", "--bootstrap-server", "127.0.0.1:1"]
    assert cli.main(arguments) == 0
    assert words in capsys.readouterr().err
    assert cli.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["group"] == "g"
