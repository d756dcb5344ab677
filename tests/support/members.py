"""Real members of streams groups and the real Admin client: one JVM on kafka-clients 4.4.0 (`headgate.members.Main`).

    with member_jvm(tmp_path / "members.log") as members:
        one = members.join("one", bootstrap, "group", topics=["in"], topology=chain("in", "count"))
        one.wait("pushed")
        assert members.describe(bootstrap, "group", topology=True)["group"].topology == ...

One rule: every wait has a deadline, and what the JVM says after one has passed cannot be taken for the answer to
something else. The JVM ends with its input, or by its id.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from headgate.embedded.java import class_path, find_java
from tests.support.calling_jvm import CallingJvm, Data, client_settings
from tests.support.member_topologies import Topology, read_predecessors

_START_S, _CALL_S, _EVENT_S = 60.0, 90.0, 60.0
_PUSHES = "org.apache.kafka.clients.consumer.internals.StreamsGroupTopologyDescriptionRequestManager"

Settings = str | Mapping[str, str]  # a bootstrap address, or all of a Java client's settings


class MembersError(AssertionError):
    """A call to the JVM failed, or something that was waited for did not happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a member went through.

    `assigned`, `revoked` (with tasks), `lost`; `statuses` of its heartbeats when they change; `asked` for its
    description, `pushing` it, `pushed`, `push-again` (the client will), `push-refused`; `error` from poll; `closed`.
    """

    kind: str
    member: str
    at_ms: int
    text: str = ""
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member as the group's coordinator knows it."""

    member_id: str
    client_id: str
    member_epoch: int
    topology_epoch: int
    process_id: str
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A streams group as Admin describes it; with an `error` nothing else is told."""

    error: str = ""
    message: str = ""
    state: str = ""
    status: str = ""
    group_epoch: int = -1
    topology_epoch: int = -1
    members: tuple[GroupMember, ...] = ()
    operations: tuple[str, ...] = ()
    subtopologies: Mapping[str, Data] | None = None  # in the words of `Members.join`, as the coordinator knows them
    topology: Topology | None = None
    predecessors: Mapping[tuple[str, str], tuple[str, ...]] | None = None

    def as_joined(self) -> dict[str, Data]:
        """Its sub-topologies as Streams sends them: how many partitions internal topics get is not said."""
        joined: dict[str, Data] = deepcopy(dict(self.subtopologies or {}))
        for one in joined.values():
            for topic in (*one["repartition_sources"].values(), *one["changelogs"].values()):
                topic["partitions"] = 0
        return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a group that was to be deleted: the class of the exception and its text, both empty if it was."""

    error: str = ""
    message: str = ""


class Member:
    """One member from its join on, by its name in the JVM, which is its client id too."""

    def __init__(self, jvm: "Members", name: str, first: int) -> None:
        self.name = name
        self._jvm = jvm
        self._first = first

    def events(self, *kinds: str) -> list[Event]:
        """What it went through since it joined, or only what is of these kinds."""
        found = [_event(data) for data in self._jvm.events()[self._first :] if data["member"] == self.name]
        return [event for event in found if event.kind in kinds] if kinds else found

    def wait(self, *kinds: str, count: int = 1, deadline: float = _EVENT_S) -> Event:
        """The `count`th event of one of these kinds, at once if it has been."""

        def found() -> Event | None:
            events = self.events(*kinds)
            return events[count - 1] if len(events) >= count else None

        return self._jvm.wait_until(found, f"{self.name}: {' or '.join(kinds)}", deadline, self._story)

    def wait_for_tasks(self, *tasks: str, deadline: float = _EVENT_S) -> None:
        """Until it has exactly these."""

        def found() -> bool | None:
            events = self.events("assigned")
            return (bool(events) and events[-1].tasks == tasks) or None

        self._jvm.wait_until(found, f"{self.name}: tasks {tasks}", deadline, self._story)

    def wait_for_heartbeats(self, count: int, *, deadline: float = _EVENT_S) -> None:
        """Until so many more have been answered."""
        end = self.seen()["heartbeats"] + count
        by = time.monotonic() + deadline
        while self.seen()["heartbeats"] < end:
            if time.monotonic() > by:
                raise MembersError(f"{self.name}: no {count} heartbeats in {deadline:.0f} s; {self._story()}")
            time.sleep(0.05)

    @property
    def asked(self) -> int:
        """How many heartbeats asked for its description."""
        return len(self.events("asked"))

    @property
    def pushes(self) -> int:
        return len(self.events("pushing"))

    @property
    def errors(self) -> list[str]:
        return [event.text for event in self.events("error")]

    def seen(self) -> Data:
        """`member_id`, `member_epoch`, `process_id`, `alive`, `heartbeats`, `records`, `tasks` and more."""
        data: Data = self._jvm.call("list")[self.name]
        return data

    def close(self) -> None:
        """Leave the group."""
        self._jvm.call("close", member=self.name)

    def kill(self) -> None:
        """End without leaving."""
        self._jvm.call("kill", member=self.name)

    def _story(self) -> str:
        return "; ".join(f"{event.kind} {event.text}{event.tasks or ''}".strip() for event in self.events())


class Members(CallingJvm):
    """The JVM; `member_jvm` starts and ends it."""

    def __init__(self, log: Path) -> None:
        command = [
            str(find_java().command),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            f"-Dorg.slf4j.simpleLogger.log.{_PUSHES}=info",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss,SSS",
            "-cp",
            class_path("clients", "members"),
            "headgate.members.Main",
        ]
        super().__init__(command, log, error=MembersError, start_s=_START_S, call_s=_CALL_S)

    def join(
        self,
        name: str,
        settings: Settings,
        group: str,
        *,
        topics: Sequence[str] = (),
        subtopologies: Mapping[str, Data] | None = None,
        topology: Topology | None = None,
        epoch: int = 0,
        process: str | None = None,
        commits: bool = False,
    ) -> Member:
        """A member that runs until it is told to end, and what it did so far is in its events.

        `topics` make one sub-topology "0"; `subtopologies` say more: by id, `sources`, `repartition_sinks`, and
        `repartition_sources` and `changelogs` with their `partitions`, `replicas` and `configs`. `topology` is what
        it pushes when it is asked: None is an application that has nothing to push.
        """
        first = len(self.events())
        self.call(
            "join",
            member=name,
            settings=client_settings(settings),
            group=group,
            subtopologies=subtopologies or {"0": {"sources": list(topics)}},
            description=None if topology is None else topology.written(),
            epoch=epoch,
            process=process,
            commits=commits,
        )
        return Member(self, name, first)

    def describe(
        self, settings: Settings, *groups: str, topology: bool = False, operations: bool = False
    ) -> dict[str, Group]:
        answer = self.call(
            "describe", settings=client_settings(settings), groups=groups, topology=topology, operations=operations
        )
        return {name: _group(data) for name, data in answer.items()}

    def wait_for_group(
        self,
        settings: Settings,
        group: str,
        condition: Callable[[Group], bool],
        *,
        topology: bool = False,
        deadline: float = _EVENT_S,
    ) -> Group:
        """Describe it until it is so."""
        by = time.monotonic() + deadline
        while True:
            seen = self.describe(settings, group, topology=topology)[group]
            if condition(seen):
                return seen
            if time.monotonic() > by:
                raise MembersError(f"group {group} after {deadline:.0f} s: {seen}")
            time.sleep(0.1)

    def delete(self, settings: Settings, *groups: str) -> dict[str, Outcome]:
        answer = self.call("delete", settings=client_settings(settings), groups=groups)
        return {
            name: Outcome(error=data.get("error", ""), message=data.get("message") or "")
            for name, data in answer.items()
        }

    def groups(self, settings: Settings) -> dict[str, tuple[str, str]]:
        """Type and state of each group of the cluster."""
        answer = self.call("groups", settings=client_settings(settings))
        return {name: (data["type"], data["state"]) for name, data in answer.items()}


@contextmanager
def member_jvm(log: Path) -> Iterator[Members]:
    """A JVM without members until the block ends."""
    with Members(log) as members:
        yield members


def _event(data: Data) -> Event:
    return Event(
        kind=data["event"],
        member=data["member"],
        at_ms=data.get("at_ms", 0),
        text=data.get("text", ""),
        tasks=tuple(data.get("tasks", ())),
    )


def _group(data: Data) -> Group:
    if "error" in data:
        return Group(error=data["error"], message=data["message"] or "")
    described = data["description"]
    return Group(
        state=data["state"],
        status=data["status"],
        group_epoch=data["group_epoch"],
        topology_epoch=data["topology_epoch"],
        members=tuple(GroupMember(**{**member, "tasks": tuple(sorted(member["tasks"]))}) for member in data["members"]),
        operations=tuple(data["operations"]),
        subtopologies=data["subtopologies"],
        topology=None if described is None else Topology.read(described).as_read(),
        predecessors=None if described is None else read_predecessors(described),
    )
