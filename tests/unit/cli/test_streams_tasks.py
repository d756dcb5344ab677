"""`headgate streams-groups --describe --tasks`: the matrix fits the terminal, and the JSON has every task."""

import json
from typing import Any

import pytest

from headgate.cli import main as cli
from headgate.cli import streams_groups as command
from headgate.cli.streams_tasks_text import tasks_json, tasks_text
from headgate.wire.messages.streams import (
    Assignment,
    DescribedStreamsGroup,
    DescribedSubtopology,
    DescribedTopology,
    Endpoint,
    StreamsGroupMember,
    TaskIds,
    TaskOffset,
    TopicInfo,
)

Capture = pytest.CaptureFixture[str]


def ids(*tasks: tuple[str, tuple[int, ...]]) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in tasks)


def member(number: int, **more: Any) -> StreamsGroupMember:
    known = {
        "member_id": f"m-{number}",
        "process_id": f"p-{number}",
        "client_id": "c",
        "client_host": "/10.0.0.1",
        "user_endpoint": Endpoint(host=f"10.0.0.{number}", port=8080),
    }
    return StreamsGroupMember(**{**known, **more})


def offset(value: int) -> tuple[TaskOffset, ...]:
    return (TaskOffset(subtopology_id="1", partition=0, offset=value),)


TOPOLOGY = DescribedTopology(
    epoch=0,
    subtopologies=(
        DescribedSubtopology(subtopology_id="0"),
        DescribedSubtopology(
            subtopology_id="1", state_changelog_topics=(TopicInfo(name="orders-app-counts-changelog"),)
        ),
    ),
)
GROUP = DescribedStreamsGroup(
    group_id="orders-app",
    group_state="Stable",
    topology=TOPOLOGY,
    members=(
        member(7, assignment=Assignment(active_tasks=ids(("1", (0,)), ("0", (0,))))),
        member(
            8,
            assignment=Assignment(active_tasks=ids(("0", (1,))), standby_tasks=ids(("1", (0,)))),
            task_offsets=offset(30),
            task_end_offsets=offset(42),
        ),
    ),
)


def test_hosts_are_rows_and_tasks_are_columns() -> None:
    assert tasks_text(GROUP, width=120).splitlines() == [
        "GROUP orders-app (Stable): 2 members, 2 processes, 3 tasks",
        "Stores of 1: counts",
        "A active, S standby, W warm-up; behind it the lag, where it is known",
        "",
        "HOST          PROCESS 0_0 0_1 1_0",
        "10.0.0.7:8080 p-7     A   .   A",
        "10.0.0.8:8080 p-8     .   A   S:12",
    ]


def test_the_json_has_each_task_with_its_stores() -> None:
    found = tasks_json(GROUP)
    assert (found["group"], found["state"]) == ("orders-app", "Stable")
    assert [one["host"] for one in found["members"]] == ["10.0.0.7:8080", "10.0.0.8:8080"]
    assert found["members"][1]["tasks"] == [
        {"task": "0_1", "subtopology": "0", "partition": 1, "role": "active", "stores": [], "lag": None},
        {"task": "1_0", "subtopology": "1", "partition": 0, "role": "standby", "stores": ["counts"], "lag": 12},
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_no_task_is_lost(width: int) -> None:
    wide = Assignment(active_tasks=ids(("0", tuple(range(100)))), warmup_tasks=ids(("name\x1b" * 20, (3,))))
    shown = tasks_text(DescribedStreamsGroup(group_id="g" * 90, members=(member(1, assignment=wide),)), width=width)
    assert max(map(len, shown.splitlines())) <= max(width, 62)  # two names and one column always stand
    assert "\x1b" not in shown
    heads = [line.split()[2:] for line in shown.splitlines() if line.startswith("HOST")]
    assert [name for head in heads for name in head][:100] == [f"0_{number}" for number in range(100)]


def test_members_of_one_process_share_a_row_and_a_member_without_an_endpoint_has_its_address() -> None:
    members = (
        member(1, user_endpoint=None, assignment=Assignment(active_tasks=ids(("0", (0,))))),
        member(1, member_id="m-2", user_endpoint=None, assignment=Assignment(active_tasks=ids(("0", (1,))))),
    )
    lines = tasks_text(DescribedStreamsGroup(group_id="g", members=members), width=80).splitlines()
    assert lines[-1].split() == ["10.0.0.1", "p-1", "A", "A"]


def test_the_command_prints_it(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    async def describe(*_: object, **__: object) -> DescribedStreamsGroup:
        return GROUP

    monkeypatch.setattr(command, "describe_group", describe)
    arguments = [
        "streams-groups",
        "--bootstrap-server",
        "127.0.0.1:1",
        "--describe",
        "--tasks",
        "--group",
        "orders-app",
    ]
    assert cli.main(arguments) == 0
    assert "10.0.0.8:8080 p-8     .   A   S:12" in capsys.readouterr().out
    assert cli.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == tasks_json(GROUP)


@pytest.mark.parametrize("arguments", [["--list", "--tasks"], ["--delete", "--group", "g", "--tasks"]])
def test_it_is_a_view_of_describe(arguments: list[str], capsys: Capture) -> None:
    assert cli.main(["streams-groups", "--bootstrap-server", "127.0.0.1:1", *arguments]) == 2
    assert "can only be used with --describe" in capsys.readouterr().err


def test_a_group_without_members_is_said_so(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    async def describe(*_: object, **__: object) -> DescribedStreamsGroup:
        return DescribedStreamsGroup(group_id="g", group_state="Empty")

    monkeypatch.setattr(command, "describe_group", describe)
    assert (
        cli.main(["streams-groups", "--bootstrap-server", "127.0.0.1:1", "--describe", "--tasks", "--group", "g"]) == 0
    )
    said = capsys.readouterr()
    assert (said.out, "has no active members" in said.err) == ("", True)
