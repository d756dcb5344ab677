"""The tasks that members of Streams groups hold: the facts of `tasks`, one record for each member.

A group of a thousand members is a thousand small records, of which only those are written that have changed.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from headgate.facts.codec import Ended, Fact, fact
from headgate.facts.json_form import INT32_MAX, Extra, Whole

TaskRole = Literal["active", "standby", "warmup"]
_Group = Annotated[str, "the Streams group"]
_Member = Annotated[str, "its member"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTask:
    """A task of a member, with the stores of its sub-topology; `lag` is None where the member does not report it."""

    subtopology: str
    partition: Annotated[int, "the partition of the task", Whole(0, INT32_MAX)]
    role: TaskRole
    stores: tuple[str, ...] = ()
    lag: int | None = None
    extra: Extra = ()

    @property
    def name(self) -> str:
        return f"{self.subtopology}_{self.partition}"


@fact(topic="tasks", key=("group", "member"), key_in_value=True)
class MemberTasksObserved(Fact):
    """The tasks of one member, since they changed; lags are written again at most once a minute."""

    group: _Group
    member: _Member
    process: Annotated[str, "its process, which may have several members"]
    client_id: Annotated[str, "its client id"]
    host: Annotated[str, "its address, or where the gateway has not seen it join, the one that the broker sees"]
    tasks: Annotated[tuple[HeldTask, ...], "its tasks, see below"]
    tasks_left_out: Annotated[int, "how many further tasks it has, beyond those that a record takes"] = 0


@fact(topic="tasks", key=("group", "member"))
class MemberTasksEnded(Ended):
    """The member is not in the group any more."""

    group: _Group
    member: _Member
