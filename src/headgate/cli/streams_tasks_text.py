"""The output of `headgate streams-groups --describe --tasks`: a row for each process, a column for each task.

A host is what the member calls its endpoint (`application.server`), or else its address as the broker sees it, which
behind a gateway is the gateway's. So the process is shown too. Columns that do not fit the width follow in further
blocks of rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headgate.cli.columns import table
from headgate.cli.escaping import escaped
from headgate.facts import HeldTask
from headgate.topologies.tasks.group_tasks import held_tasks, stores_of
from headgate.wire.messages.streams import DescribedStreamsGroup, StreamsGroupMember

_LETTERS = {"active": "A", "standby": "S", "warmup": "W"}
_LEGEND = "A active, S standby, W warm-up; behind it the lag, where it is known"
_NO_TASK = "."
_LONGEST_NAME = 40

_Row = tuple[str, str]  # host and process
_Task = tuple[str, int]


def tasks_text(group: DescribedStreamsGroup, *, width: int) -> str:
    """The group in one line, the stores of its sub-topologies, and the tasks of its processes."""
    stores = stores_of(group)
    cells: dict[_Row, dict[_Task, list[str]]] = {}
    for member in sorted(group.members, key=_row):
        of_row = cells.setdefault(_row(member), defaultdict(list))
        for task in held_tasks(member, stores):
            of_row[task.subtopology, task.partition].append(_cell(task))
    tasks = sorted({task for of_row in cells.values() for task in of_row}, key=_order)
    name, state = escaped(group.group_id), escaped(group.group_state)
    sizes = f"{len(group.members)} members, {len(cells)} processes, {len(tasks)} tasks"
    lines = [
        f"GROUP {name} ({state}): {sizes}",
        *(f"Stores of {escaped(part)}: {', '.join(map(escaped, found))}" for part, found in stores.items() if found),
        _LEGEND,
    ]
    blocks = [table(rows, widths) for rows, widths in _blocks(cells, tasks, width)]
    return "\n".join(["".join(f"{_cut(line, width)}\n" for line in lines), *map(_without_trailing_spaces, blocks)])


def _blocks(
    cells: Mapping[_Row, Mapping[_Task, Sequence[str]]], tasks: Sequence[_Task], width: int
) -> Iterator[tuple[list[tuple[str, ...]], list[int]]]:
    """Tables of as many task columns as fit; at least one column each."""
    heads = [("HOST", "PROCESS"), *((_cut(escaped(host)), _cut(escaped(process))) for host, process in cells)]
    margins = [max(len(head[place]) for head in heads) for place in range(2)]
    columns = [
        [
            _cut(f"{escaped(task[0])}_{task[1]}"),
            *(",".join(of_row.get(task, ())) or _NO_TASK for of_row in cells.values()),
        ]
        for task in tasks
    ]
    while True:
        left, taken = width - sum(margins) - 2, 0
        for column in columns:
            left -= max(map(len, column)) + 1
            if left < -1 and taken:
                break
            taken += 1
        block, columns = columns[:taken], columns[taken:]
        rows = [(*head, *(column[place] for column in block)) for place, head in enumerate(heads)]
        yield rows, [*margins, *(max(map(len, column)) for column in block)]
        if not columns:
            return


def _row(member: StreamsGroupMember) -> _Row:
    endpoint = member.user_endpoint
    host = member.client_host.removeprefix("/") if endpoint is None else f"{endpoint.host}:{endpoint.port}"
    return host, member.process_id


def _cell(task: HeldTask) -> str:
    return _LETTERS[task.role] if task.lag is None else f"{_LETTERS[task.role]}:{task.lag}"


def _order(task: _Task) -> tuple[int, str, int]:
    """Sub-topologies are numbers, or have any name in named topologies."""
    return len(task[0]), task[0], task[1]


def _cut(text: str, longest: int = _LONGEST_NAME) -> str:
    return text if len(text) <= longest else text[: max(longest - 3, 1)] + "..."


def _without_trailing_spaces(block: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in block.splitlines())


def tasks_json(group: DescribedStreamsGroup) -> dict[str, Any]:
    stores = stores_of(group)
    return {
        "group": group.group_id,
        "state": group.group_state,
        "members": [
            {
                "member": member.member_id,
                "process": member.process_id,
                "client_id": member.client_id,
                "host": _row(member)[0],
                "tasks": _tasks_json(held_tasks(member, stores)),
            }
            for member in group.members
        ],
    }


def _tasks_json(tasks: Iterable[HeldTask]) -> list[dict[str, Any]]:
    return [
        {
            "task": task.name,
            "subtopology": task.subtopology,
            "partition": task.partition,
            "role": task.role,
            "stores": list(task.stores),
            "lag": task.lag,
        }
        for task in tasks
    ]
