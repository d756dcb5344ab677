"""Who is in which group, as far as this worker has heard: the members whose heartbeats succeeded through it.

One rule: a successful heartbeat of a member on a connection proves that the connection's principal may READ the group
and that the member is in it, for as long as the member's session lasts. Nothing else here proves anything.

A join is by a *newcomer* unless another member of its process is here now: then it is one more thread of a program that
is known. A process id alone says too little: Kafka Streams keeps it in the state directory, so that a redeployed
application comes back under its old one. The member's own past says too little as well: if the coordinator dropped it,
the group may have been re-created since.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

# group.streams.session.timeout.ms as brokers ship it. A shorter time than the real one is safe: it costs a request too
# many. A longer one lets a dead member vouch for what it pushed.
SESSION_S = 45.0

# A member takes about 700 bytes. What is dropped costs a probe for its right before its next push, and one request
# too many at its next join.
MOST_MEMBERS_OF_A_GROUP = 5_000
MOST_MEMBERS = 100_000


@dataclass(frozen=True, slots=True)
class Heard:
    """`connection` is None when it has ended; `process` is None until a join or a describe told it."""

    connection: int | None
    process: str | None
    at: float


class Roster:
    """Bounded: the member that was silent longest goes first, within its group; over all, the whole group."""

    __slots__ = ("_connections", "_groups", "_most", "_most_of_a_group", "_session_s", "_size")

    def __init__(
        self,
        *,
        session_s: float = SESSION_S,
        most_of_a_group: int = MOST_MEMBERS_OF_A_GROUP,
        most: int = MOST_MEMBERS,
    ) -> None:
        self._session_s = session_s
        self._most_of_a_group = most_of_a_group
        self._most = most
        self._groups: OrderedDict[str, OrderedDict[str, Heard]] = OrderedDict()
        self._connections: dict[int, set[tuple[str, str]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def has_beside(self, group: str, member: str, process: str | None, now: float) -> bool:
        """Whether another member of this process is here: its connection open, its session not over."""
        members = self._groups.get(group)
        if not members or process is None:
            return False
        return any(
            heard.process == process
            and heard.connection is not None
            and now - heard.at <= self._session_s
            and other != member
            for other, heard in members.items()
        )

    def heard(self, group: str, member: str, connection: int, now: float, process: str | None = None) -> None:
        """A heartbeat of the member succeeded on this connection; a process that is not told stays what it was."""
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = OrderedDict()
        before = members.get(member)
        if before is None:
            self._size += 1
        elif before.connection != connection:
            self._unlink(before, group, member)
        members[member] = Heard(connection, process or (before.process if before else None), now)
        members.move_to_end(member)
        self._groups.move_to_end(group)
        self._connections.setdefault(connection, set()).add((group, member))
        if before is None:
            self._shrink(group, members)

    def proves(self, connection: int, group: str, member: str, now: float) -> bool:
        """Whether this member's READ right and membership are proven on this connection."""
        heard = self._find(group, member)
        return heard is not None and heard.connection == connection and now - heard.at <= self._session_s

    def alive(self, group: str, members: Iterable[str], now: float) -> bool:
        """Whether one of these members was heard within its session."""
        here = self._groups.get(group)
        if not here:
            return False
        return any((heard := here.get(member)) is not None and now - heard.at <= self._session_s for member in members)

    def silent(self, group: str, members: Collection[str], now: float) -> bool:
        """Whether one of these was heard once, and none within its session; of those never heard nobody can tell."""
        heard = [one for member in members if (one := self._find(group, member)) is not None]
        return bool(heard) and all(now - one.at > self._session_s for one in heard)

    def process_of(self, group: str, member: str) -> str | None:
        heard = self._find(group, member)
        return heard.process if heard else None

    def fenced(self, group: str, member: str) -> None:
        """The coordinator refused its heartbeat, and it will join again: it proves nothing, and lives on."""
        heard = self._find(group, member)
        if heard is not None:
            self._unlink(heard, group, member)
            self._groups[group][member] = Heard(None, heard.process, heard.at)

    def refused(self, connection: int, group: str, member: str) -> None:
        """The connection's principal may not READ the group; what another proved of the member stays."""
        heard = self._find(group, member)
        if heard is not None and heard.connection == connection:
            self.fenced(group, member)

    def left(self, group: str, member: str) -> None:
        """It left, or the coordinator does not have it."""
        members = self._groups.get(group)
        if members is None or (heard := members.pop(member, None)) is None:
            return
        self._unlink(heard, group, member)
        self._size -= 1
        if not members:
            del self._groups[group]

    def closed(self, connection: int) -> None:
        """The connection ended: its members prove nothing any more, and are alive until their session ends."""
        for group, member in self._connections.pop(connection, ()):
            members = self._groups[group]
            heard = members[member]
            members[member] = Heard(None, heard.process, heard.at)

    def forget(self, group: str) -> None:
        """The group is gone, and everybody with it."""
        members = self._groups.pop(group, None)
        if members is None:
            return
        self._size -= len(members)
        for member, heard in members.items():
            self._unlink(heard, group, member)

    def _find(self, group: str, member: str) -> Heard | None:
        members = self._groups.get(group)
        return None if members is None else members.get(member)

    def _shrink(self, group: str, members: OrderedDict[str, Heard]) -> None:
        if len(members) > self._most_of_a_group:
            self.left(group, next(iter(members)))
        while self._size > self._most and len(self._groups) > 1:
            self.forget(next(iter(self._groups)))

    def _unlink(self, heard: Heard, group: str, member: str) -> None:
        if heard.connection is None:
            return
        mine = self._connections.get(heard.connection)
        if mine is not None:
            mine.discard((group, member))
            if not mine:
                del self._connections[heard.connection]
