"""The members of each group whose heartbeats succeeded through this worker.

Invariant: a successful heartbeat of a member on a connection proves that the connection's principal may READ the group
and that the member is in it, until the member's session ends. Nothing else here proves anything.

A join is by a *new member* unless another member of its process is alive: then it is one more thread of a running
program. A process id alone does not show that: Kafka Streams keeps it in the state directory, so that a redeployed
application comes back under its old one. Nor does the member's own past: if the coordinator removed it, the group may
have been re-created since.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

# group.streams.session.timeout.ms as brokers ship it. A shorter time than the real one is safe: it costs one
# solicitation too many. A longer one lets a dead member confirm what it pushed.
SESSION_S = 45.0

# A member takes about 700 bytes. Dropping one costs a probe of its right before its next push, and one solicitation
# too many at its next join.
MAX_MEMBERS_PER_GROUP = 5_000
MAX_MEMBERS = 100_000


@dataclass(frozen=True, slots=True)
class MemberSession:
    """`connection` is None when it has closed; `process` is None until a join says it."""

    connection: int | None
    process: str | None
    last_heartbeat: float


class GroupMembers:
    """Bounded: within a group the member that was silent longest is dropped first; over all groups, the whole group."""

    __slots__ = ("_connections", "_groups", "_max", "_max_per_group", "_session_s", "_size")

    def __init__(
        self,
        *,
        session_s: float = SESSION_S,
        max_per_group: int = MAX_MEMBERS_PER_GROUP,
        max_members: int = MAX_MEMBERS,
    ) -> None:
        self._session_s = session_s
        self._max_per_group = max_per_group
        self._max = max_members
        self._groups: OrderedDict[str, OrderedDict[str, MemberSession]] = OrderedDict()
        self._connections: dict[int, set[tuple[str, str]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def has_other_of_process(self, group: str, member: str, process: str | None, now: float) -> bool:
        """Whether another member of this process is alive: its connection open, its session not over."""
        members = self._groups.get(group)
        if not members or process is None:
            return False
        return any(
            session.process == process
            and session.connection is not None
            and now - session.last_heartbeat <= self._session_s
            and other != member
            for other, session in members.items()
        )

    def record_heartbeat(
        self, group: str, member: str, connection: int, now: float, process: str | None = None
    ) -> None:
        """A heartbeat of the member succeeded on this connection; without `process` the known one stays."""
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = OrderedDict()
        before = members.get(member)
        if before is None:
            self._size += 1
        elif before.connection != connection:
            self._unlink(before, group, member)
        members[member] = MemberSession(connection, process or (before.process if before else None), now)
        members.move_to_end(member)
        self._groups.move_to_end(group)
        self._connections.setdefault(connection, set()).add((group, member))
        if before is None:
            self._shrink(group, members)

    def is_proven(self, connection: int, group: str, member: str, now: float) -> bool:
        """Whether this member's membership and READ right are proven on this connection."""
        session = self._find(group, member)
        return session is not None and session.connection == connection and not self._is_over(session, now)

    def is_any_alive(self, group: str, members: Iterable[str], now: float) -> bool:
        """Whether the session of one of these members is not over."""
        known = self._groups.get(group)
        if not known:
            return False
        return any((session := known.get(member)) is not None and not self._is_over(session, now) for member in members)

    def are_all_expired(self, group: str, members: Collection[str], now: float) -> bool:
        """Whether the sessions of these members are over, as far as they are known; False if none is known."""
        sessions = [session for member in members if (session := self._find(group, member)) is not None]
        return bool(sessions) and all(self._is_over(session, now) for session in sessions)

    def process_of(self, group: str, member: str) -> str | None:
        session = self._find(group, member)
        return session.process if session else None

    def fence(self, group: str, member: str) -> None:
        """The coordinator fenced the member, which will join again: it proves nothing, and stays alive."""
        session = self._find(group, member)
        if session is not None:
            self._unlink(session, group, member)
            self._groups[group][member] = MemberSession(None, session.process, session.last_heartbeat)

    def revoke(self, connection: int, group: str, member: str) -> None:
        """The connection's principal may not READ the group; proofs of other connections stay."""
        session = self._find(group, member)
        if session is not None and session.connection == connection:
            self.fence(group, member)

    def remove(self, group: str, member: str) -> None:
        """The member left, or the coordinator does not have it."""
        members = self._groups.get(group)
        if members is None or (session := members.pop(member, None)) is None:
            return
        self._unlink(session, group, member)
        self._size -= 1
        if not members:
            del self._groups[group]

    def close_connection(self, connection: int) -> None:
        """Its members prove nothing any more, and are alive until their sessions end."""
        for group, member in self._connections.pop(connection, ()):
            members = self._groups[group]
            session = members[member]
            members[member] = MemberSession(None, session.process, session.last_heartbeat)

    def remove_group(self, group: str) -> None:
        members = self._groups.pop(group, None)
        if members is None:
            return
        self._size -= len(members)
        for member, session in members.items():
            self._unlink(session, group, member)

    def _is_over(self, session: MemberSession, now: float) -> bool:
        return now - session.last_heartbeat > self._session_s

    def _find(self, group: str, member: str) -> MemberSession | None:
        members = self._groups.get(group)
        return None if members is None else members.get(member)

    def _shrink(self, group: str, members: OrderedDict[str, MemberSession]) -> None:
        if len(members) > self._max_per_group:
            self.remove(group, next(iter(members)))
        while self._size > self._max and len(self._groups) > 1:
            self.remove_group(next(iter(self._groups)))

    def _unlink(self, session: MemberSession, group: str, member: str) -> None:
        if session.connection is None:
            return
        on_connection = self._connections.get(session.connection)
        if on_connection is not None:
            on_connection.discard((group, member))
            if not on_connection:
                del self._connections[session.connection]
