"""Whether the members of each Streams group run the same topology, as far as this worker has seen them join and push.

| kind | there is a mismatch while |
|---|---|
| `refused` | the broker has refused the topology of a member within the last `REFUSED_S` |
| `assignment` | members that are alive have joined with different topologies |
| `description` | these are equal, and processes that are alive have pushed different descriptions |

A member is alive until it leaves, or until its session is over after its connection closed. A member that is refused
ends, or is restarted and refused again, so it counts for a time instead. The members of a group are connected to the
port of its coordinator, which belongs to one worker of a gateway; members at another gateway are not seen. Nothing of
this survives a restart: members do not join again, so an open mismatch is then forgotten without an end.

Bounded: over `max_members` the group that was heard of longest ago is dropped, and over `max_per_group` the member.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from headgate.topologies.model.group_members import MAX_MEMBERS, MAX_MEMBERS_PER_GROUP, SESSION_S

REFUSED_S: Final = 60.0
MAX_LISTED: Final = 20


class MismatchKind(StrEnum):
    REFUSED = "refused"
    ASSIGNMENT = "assignment"
    DESCRIPTION = "description"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMember:
    """`until`: when it stops to count; None while its connection is open."""

    member: str
    process: str | None
    host: str | None
    connection: int | None
    fingerprint: str
    is_refused: bool = False
    pushed_hash: str | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchSide:
    """The members that run one topology: how many, and the first of them; `fingerprint` is None if it is not known."""

    fingerprint: str | None
    is_refused: bool = False
    count: int = 0
    members: tuple[SeenMember, ...] = ()


@dataclass(frozen=True, slots=True)
class Mismatch:
    kind: MismatchKind
    sides: tuple[MismatchSide, ...]

    @property
    def identity(self) -> tuple[object, ...]:
        """Two mismatches with the same identity are one: the members of the sides may have changed."""
        return self.kind, *((side.fingerprint, side.is_refused) for side in self.sides)


@dataclass(frozen=True, slots=True)
class MismatchChange:
    """A mismatch of a group that began, or became another one; `mismatch` None: the one before it has ended."""

    group: str
    mismatch: Mismatch | None


class TopologyMismatches:
    """Synchronous and without I/O; `changes` says what has become of the groups since it was called last."""

    def __init__(self, *, max_members: int = MAX_MEMBERS, max_per_group: int = MAX_MEMBERS_PER_GROUP) -> None:
        self._max_members = max_members
        self._max_per_group = max_per_group
        self._groups: OrderedDict[str, OrderedDict[str, SeenMember]] = OrderedDict()  # heard of longest ago first
        self._connections: dict[int, set[tuple[str, str]]] = {}
        self._ending: dict[tuple[str, str], float] = {}
        self._open: dict[str, Mismatch] = {}
        self._touched: dict[str, None] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def open_counts(self) -> Mapping[MismatchKind, int]:
        """How many groups have a mismatch, by its kind, as of the last `changes`."""
        found = Counter(mismatch.kind for mismatch in self._open.values())
        return {kind: found[kind] for kind in MismatchKind}

    # --- what happens

    def on_join(self, group: str, seen: SeenMember, *, now: float) -> None:
        """A member joined, or was refused because of its topology."""
        self._remove(group, seen.member)
        members = self._groups.setdefault(group, OrderedDict())
        self._groups.move_to_end(group)
        if seen.is_refused:
            seen = replace(seen, connection=None, until=now + REFUSED_S)
        self._put(group, members, seen)
        self._size += 1
        if len(members) > self._max_per_group:
            self._remove(group, next(iter(members)))
        while self._size > self._max_members and len(self._groups) > 1:
            self.remove_group(next(iter(self._groups)))

    def on_push(self, group: str, member: str, content_hash: str) -> None:
        """The description of a member was stored, or was the stored one."""
        members = self._groups.get(group)
        if members is not None and (seen := members.get(member)) is not None:
            self._put(group, members, replace(seen, pushed_hash=content_hash))

    def on_leave(self, group: str, member: str) -> None:
        self._remove(group, member)

    def close_connection(self, connection: int, *, now: float) -> None:
        for group, member in self._connections.pop(connection, ()):
            seen = self._groups[group][member]
            self._groups[group][member] = replace(seen, connection=None, until=now + SESSION_S)
            self._ending[group, member] = now + SESSION_S

    def remove_group(self, group: str) -> None:
        for member in list(self._groups.get(group, ())):
            self._remove(group, member)

    # --- what follows

    def changes(self, *, now: float) -> list[MismatchChange]:
        """Mismatches that began, changed or ended."""
        for (group, member), until in list(self._ending.items()):
            if until <= now:
                self._remove(group, member)
        touched, self._touched = self._touched, {}
        changes: list[MismatchChange] = []
        for group in touched:
            found = _mismatch_of(self._groups.get(group, {}))
            before = self._open.get(group)
            if (found and found.identity) == (before and before.identity):
                continue
            changes.append(MismatchChange(group, found))
            if found is None:
                del self._open[group]
            else:
                self._open[group] = found
        return changes

    def _put(self, group: str, members: OrderedDict[str, SeenMember], seen: SeenMember) -> None:
        members[seen.member] = seen
        self._touched[group] = None
        if seen.until is not None:
            self._ending[group, seen.member] = seen.until
        if seen.connection is not None:
            self._connections.setdefault(seen.connection, set()).add((group, seen.member))

    def _remove(self, group: str, member: str) -> None:
        members = self._groups.get(group)
        if members is None or (seen := members.pop(member, None)) is None:
            return
        self._size -= 1
        self._touched[group] = None
        self._ending.pop((group, member), None)
        if seen.connection is not None and (on_connection := self._connections.get(seen.connection)) is not None:
            on_connection.discard((group, member))
            if not on_connection:
                del self._connections[seen.connection]
        if not members:
            del self._groups[group]


def _mismatch_of(members: Mapping[str, SeenMember]) -> Mismatch | None:
    sides: dict[tuple[bool, str], list[SeenMember]] = {}
    for seen in members.values():
        sides.setdefault((seen.is_refused, seen.fingerprint), []).append(seen)
    if any(is_refused for is_refused, _ in sides):
        # Of a group that was there before this worker, the topology is not known.
        accepted = () if not all(is_refused for is_refused, _ in sides) else (MismatchSide(fingerprint=None),)
        return Mismatch(MismatchKind.REFUSED, (*accepted, *_sides(sides)))
    if len(sides) > 1:
        return Mismatch(MismatchKind.ASSIGNMENT, _sides(sides))
    pushed: dict[tuple[bool, str], list[SeenMember]] = {}
    for seen in members.values():
        if seen.pushed_hash is not None:
            pushed.setdefault((False, seen.pushed_hash), []).append(seen)
    return Mismatch(MismatchKind.DESCRIPTION, _sides(pushed)) if len(pushed) > 1 else None


def _sides(found: dict[tuple[bool, str], list[SeenMember]]) -> tuple[MismatchSide, ...]:
    return tuple(
        MismatchSide(fingerprint=fingerprint, is_refused=is_refused, count=len(seen), members=tuple(seen[:MAX_LISTED]))
        for (is_refused, fingerprint), seen in sorted(found.items())
    )
