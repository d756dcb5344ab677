"""The tasks of a Streams group's members, as the broker describes them, and which records say what has changed.

A member's active, standby and warm-up tasks are those of its assignment. The stores of a task are those of its
sub-topology, by their changelog topics; a store without one (not logged, or restored from its source topic) is not
known here. Lags are what members report, the end offset of a task less its offset.

Invariant: everything is bounded: the tasks of a member, the members of a group, and the groups.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headgate.facts import HeldTask, MemberTasksEnded, MemberTasksObserved
from headgate.facts.tasks import TaskRole
from headgate.wire.messages.streams import DescribedStreamsGroup, StreamsGroupMember, TaskIds, TaskOffset

MAX_TASKS: Final = 2_000  # of a member, in one record
MAX_MEMBERS: Final = 50_000  # of all groups
LAGS_EVERY_S: Final = 60.0
_CHANGELOG: Final = "-changelog"
_MAX_BYTES: Final = 512 * 1024  # of the names in one record

Task = tuple[str, int]  # sub-topology and partition
Lags = Mapping[Task, int]


def stores_of(group: DescribedStreamsGroup) -> dict[str, tuple[str, ...]]:
    """The stores of each sub-topology."""
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    prefix = f"{group.group_id}-"
    return {
        one.subtopology_id: tuple(
            topic.name.removeprefix(prefix).removesuffix(_CHANGELOG)
            for topic in one.state_changelog_topics
            if topic.name.endswith(_CHANGELOG)
        )
        for one in subtopologies
    }


def lags_of(offsets: Iterable[TaskOffset], end_offsets: Iterable[TaskOffset]) -> dict[Task, int]:
    """The lags of the tasks whose offset and end offset are both known."""
    ends = {(one.subtopology_id, one.partition): one.offset for one in end_offsets}
    found = ((task, ends.get(task), one.offset) for one in offsets for task in ((one.subtopology_id, one.partition),))
    return {task: max(0, end - offset) for task, end, offset in found if end is not None}


def held_tasks(
    member: StreamsGroupMember, stores: Mapping[str, Sequence[str]], lags: Lags | None = None
) -> tuple[HeldTask, ...]:
    """All tasks of a member, active ones first; without `lags` those that the broker describes."""
    known = lags_of(member.task_offsets, member.task_end_offsets) if lags is None else lags
    assignment = member.assignment
    roles: tuple[tuple[TaskRole, Sequence[TaskIds]], ...] = (
        ("active", assignment.active_tasks),
        ("standby", assignment.standby_tasks),
        ("warmup", assignment.warmup_tasks),
    )
    return tuple(
        HeldTask(
            subtopology=one.subtopology_id,
            partition=partition,
            role=role,
            stores=tuple(stores.get(one.subtopology_id, ())),
            lag=known.get((one.subtopology_id, partition)),
        )
        for role, tasks in roles
        for one in sorted(tasks, key=lambda one: one.subtopology_id)
        for partition in sorted(one.partitions)
        if partition >= 0
    )


class TaskRecords:
    """Which records to write: one for each member whose tasks are others than those that were written last.

    A member of which only lags have changed is written again after `LAGS_EVERY_S`.
    """

    def __init__(self, *, max_members: int = MAX_MEMBERS) -> None:
        self._max_members = max_members
        self._size = 0
        # By group, the group that was described longest ago first.
        self._written: OrderedDict[str, dict[str, tuple[MemberTasksObserved, float]]] = OrderedDict()

    def __len__(self) -> int:
        return self._size

    def on_described(
        self,
        group: DescribedStreamsGroup,
        *,
        at: int,
        now: float,
        hosts: Mapping[str, str],
        lags: Mapping[str, Lags],
    ) -> list[MemberTasksObserved | MemberTasksEnded]:
        """The broker described the group; `hosts` and `lags` are by member, as far as they are known."""
        name, stores = group.group_id, stores_of(group)
        before = self._written.pop(name, {})
        records: list[MemberTasksObserved | MemberTasksEnded] = []
        kept: dict[str, tuple[MemberTasksObserved, float]] = {}
        for member in group.members[: self._max_members]:
            tasks = held_tasks(member, stores, lags.get(member.member_id))
            shown = _fitting(tasks)
            fact = MemberTasksObserved(
                at=at,
                group=name,
                member=member.member_id,
                process=member.process_id,
                client_id=member.client_id,
                host=hosts.get(member.member_id, member.client_host),
                tasks=shown,
                tasks_left_out=len(tasks) - len(shown),
            )
            last = before.get(member.member_id)
            if last is None or _must_write(fact, *last, now):
                records.append(fact)
                last = fact, now
            kept[member.member_id] = last
        records += [MemberTasksEnded(group=name, member=member) for member in before.keys() - kept.keys()]
        self._size += len(kept) - len(before)
        if kept:
            self._written[name] = kept
        self._shrink()
        return records

    def on_left(self, group: str, member: str) -> MemberTasksEnded | None:
        """The member left; None when no record says that it is there."""
        members = self._written.get(group, {})
        if members.pop(member, None) is None:
            return None
        if not members:
            del self._written[group]
        self._size -= 1
        return MemberTasksEnded(group=group, member=member)

    def members(self, group: str) -> tuple[str, ...]:
        """The members of the group that records say are there."""
        return tuple(self._written.get(group, ()))

    def forget(self, group: str) -> None:
        """The records of the group may not have been written: all are written again."""
        self._size -= len(self._written.pop(group, {}))

    def _shrink(self) -> None:
        while self._size > self._max_members and len(self._written) > 1:
            self.forget(next(iter(self._written)))


def _fitting(tasks: tuple[HeldTask, ...]) -> tuple[HeldTask, ...]:
    """The first tasks, as many as a record takes."""
    size = 0
    for place, task in enumerate(tasks[:MAX_TASKS]):
        size += 6 * (len(task.subtopology) + sum(map(len, task.stores)))  # an escape has six characters
        if size > _MAX_BYTES:
            return tasks[:place]
    return tasks[:MAX_TASKS]


def _must_write(fact: MemberTasksObserved, last: MemberTasksObserved, written_at: float, now: float) -> bool:
    if replace(fact, at=0) == replace(last, at=0):
        return False
    return _without_lags(fact) != _without_lags(last) or now - written_at >= LAGS_EVERY_S


def _without_lags(fact: MemberTasksObserved) -> MemberTasksObserved:
    return replace(fact, at=0, tasks=tuple(replace(task, lag=None) for task in fact.tasks))
