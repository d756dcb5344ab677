"""Tracks the uses of one worker: connections, the groups of their clients, and the intervals of use.

Invariant: the data plane calls this, so every method is a few dictionary operations on the event loop and never
waits. `on_change` wakes the service, which does the rest.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from headgate.activity.fast_path import ProduceFastPath
from headgate.activity.model.identity import ClientKey, Evidence, GroupMemberships, GroupRef, identify, related_keys
from headgate.activity.model.intervals import MOST_INTERVALS, Interval, Intervals
from headgate.activity.topic_resolver import TopicResolver
from headgate.base.clock import Clock
from headgate.facts import Actor
from headgate.facts.observations import Direction
from headgate.proxy.interceptor import Session
from headgate.proxy.principals import Principals

LONGEST_NAME: Final = 256  # of a client id or a group
_MOST_USES: Final = 4096  # of one connection; the rest is added up
_MOST_CLIENT_IDS: Final = 8  # of one connection


@dataclass(slots=True, eq=False)
class ConnectionUsage:
    """The client of one connection, and the intervals that it contributes to."""

    client: ClientKey
    client_id: str | None  # of the last request
    clients: list[ClientKey] = field(default_factory=list)  # with every client id that it has had
    uses: dict[tuple[bytes, Direction, str | None], Interval] = field(default_factory=dict)
    former: list[Interval] = field(default_factory=list)  # the intervals of other client ids
    actors: dict[tuple[Direction, str | None], Actor] = field(default_factory=dict)  # until it is stale
    produce: ProduceFastPath | None = None
    is_stale: bool = False  # its actors have to be identified again


class UsageTracker:
    """The uses of one worker."""

    def __init__(
        self,
        principals: Principals,
        topics: TopicResolver,
        clock: Clock,
        *,
        connect_principals: Collection[str] = (),
        most_intervals: int = MOST_INTERVALS,
        most_uses: int = _MOST_USES,
    ) -> None:
        """`most_uses` is the bound for one connection."""
        self._principals = principals
        self._clock = clock
        self._connect_principals = frozenset(connect_principals)
        self._most_uses = most_uses
        self.topics = topics
        self.intervals = Intervals(most_intervals)
        self.groups = GroupMemberships()
        self._connections: dict[int, ConnectionUsage] = {}
        self._related: dict[ClientKey, set[ConnectionUsage]] = {}  # by client and by Streams instance
        self._stale: deque[ConnectionUsage] = deque()
        self._memberships: dict[int, set[tuple[ClientKey, GroupRef]]] = {}  # by connection
        self._touched: list[Interval] = []
        self.on_change: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        """The number of entries in all tables: 0 without connections."""
        tables = (self._connections, self._related, self._memberships, self.intervals, self.groups)
        return sum(len(table) for table in tables)

    def _client_of(self, session: Session, client_id: str | None) -> ClientKey:
        short = None if client_id is None else client_id[:LONGEST_NAME]
        return ClientKey(self._principals.principal_of(session), short, session.peer)

    def connection(self, session: Session, client_id: str | None) -> ConnectionUsage:
        """The usage of this connection, under the client id of its current request."""
        usage = self._connections.get(session.number)
        if usage is None:
            usage = self._connections[session.number] = ConnectionUsage(self._client_of(session, client_id), client_id)
            self._add_client(usage)
        elif usage.client_id != client_id and len(usage.clients) < _MOST_CLIENT_IDS:
            usage.former += usage.uses.values()
            usage.uses.clear()
            usage.actors.clear()
            usage.client_id = client_id
            usage.client = self._client_of(session, client_id)
            self._add_client(usage)
        return usage

    def use(
        self,
        session: Session,
        usage: ConnectionUsage,
        topic: bytes,
        direction: Direction,
        *,
        by_id: bool,
        transactional_id: str | None = None,
        group: GroupRef | None = None,
    ) -> Interval:
        """The interval of a topic that this connection has just used; `topic` is the id or the name in the request."""
        qualifier = transactional_id if group is None else group.name
        key = (topic, direction, qualifier)
        if key not in usage.uses and len(usage.uses) >= self._most_uses:
            key = (b"", direction, None)
        interval = usage.uses.get(key)
        if interval is None:
            ref = self.topics.ref(topic, by_id=by_id)
            if not key[0] or len(usage.clients) >= _MOST_CLIENT_IDS:
                interval = self.intervals.other(ref if key[0] else self.topics.rest, direction)
            else:
                actor = usage.actors.get((direction, qualifier))
                if actor is None:
                    actor = self._identify(usage.client, direction, transactional_id=transactional_id, group=group)
                    usage.actors[direction, qualifier] = actor
                interval = self.intervals.open(usage.client, ref, direction, actor, qualifier=qualifier)
                if interval.software is None and (software := self._principals.software_of(session)) is not None:
                    interval.software = (software.name, software.version)
            usage.uses[key] = interval
        return interval

    def touch(self, interval: Interval) -> None:
        """Note the use of an interval that is not `touched` yet."""
        interval.touched = True
        self._touched.append(interval)
        if not interval.is_waiting:
            self.on_change()

    def sweep(self) -> list[Interval]:
        """Set the times of the intervals that were used since the last sweep, and return them."""
        touched, self._touched = self._touched, []
        self.intervals.mark_used(touched, self._clock.epoch_ms())
        return touched

    def on_membership(self, session: Session, client_id: str | None, group: GroupRef) -> None:
        """The broker accepted a heartbeat of this client."""
        client = self._client_of(session, client_id)
        memberships = self._memberships.setdefault(session.number, set())
        is_first = (client, group) not in memberships
        if is_first and len(memberships) >= _MOST_CLIENT_IDS:
            return
        memberships.add((client, group))
        if self.groups.add(client, group, self._clock.monotonic(), is_first=is_first):
            for key in related_keys(client):
                self._mark_stale(self._related.get(key, ()))

    def on_close(self, session: Session) -> None:
        for client, group in self._memberships.pop(session.number, ()):
            self.groups.remove(client, group)
        usage = self._connections.pop(session.number, None)
        if usage is not None:
            self._release(usage)

    def identify_again(self, most: int) -> bool:
        """Identify the actors of some stale connections again; False if none is left."""
        for _ in range(min(most, len(self._stale))):
            usage = self._stale.popleft()
            usage.is_stale = False
            usage.actors.clear()
            for interval in (*usage.uses.values(), *usage.former):
                group = None
                if interval.actor.kind == "share_group" and interval.qualifier is not None:
                    group = GroupRef("share_group", interval.qualifier)
                transactional_id = interval.qualifier if group is None else None
                actor = self._identify(
                    interval.client, interval.direction, transactional_id=transactional_id, group=group
                )
                self.intervals.attribute(interval, actor)
        return bool(self._stale)

    def _add_client(self, usage: ConnectionUsage) -> None:
        usage.clients.append(usage.client)
        for key in related_keys(usage.client):
            self._related.setdefault(key, set()).add(usage)
        if self.groups.add_client(usage.client):
            principal = usage.client.principal
            self._mark_stale(one for one in self._connections.values() if one.client.principal == principal)

    def _release(self, usage: ConnectionUsage) -> None:
        now_ms = self._clock.epoch_ms()
        for interval in (*usage.uses.values(), *usage.former):
            self.intervals.release(interval, now_ms)
        usage.uses.clear()
        usage.former.clear()
        for key in (key for client in usage.clients for key in related_keys(client)):
            related = self._related.get(key)
            if related is not None:
                related.discard(usage)
                if not related:
                    del self._related[key]

    def _mark_stale(self, connections: Iterable[ConnectionUsage]) -> None:
        for usage in connections:
            usage.actors.clear()
            if not usage.is_stale and usage.uses:
                usage.is_stale = True
                self._stale.append(usage)
        if self._stale:
            self.on_change()

    def _identify(
        self, client: ClientKey, direction: Direction, *, transactional_id: str | None, group: GroupRef | None
    ) -> Actor:
        now = self._clock.monotonic()
        return identify(
            Evidence(
                client=client,
                direction=direction,
                groups=self.groups.groups_of(client, now),
                instance_groups=self.groups.instance_groups_of(client, now),
                group=group,
                transactional_id=transactional_id,
                is_worker=client.principal in self._connect_principals,
                principal_is_shared=self.groups.is_shared_principal(client.principal),
            )
        )
