"""What was seen, brought together: clients, their groups, and the intervals of their uses.

One rule: everything here is a few dictionary operations on the event loop, called from the data plane; it never waits,
and never calls anything but the domain. What is new wakes the service, which does the rest.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final

from headgate.activity.model.group_members import KnownGroups
from headgate.activity.model.identity import ClientKey, Direction, Evidence, Group, Who, identify, streams_instance
from headgate.activity.model.intervals import Interval, Intervals
from headgate.activity.topic_names import Topics
from headgate.base.clock import Clock
from headgate.proxy.interceptor import Session
from headgate.proxy.principals import Principals

LONGEST_NAME: Final = 256  # of a client id or a group, as it is kept
_MOST_USES: Final = 4096  # of one connection; more are counted together
_MOST_NAMES: Final = 8  # that one connection may call itself


class Sight:
    """What is known of one connection: who it is, and the intervals that it has a part in."""

    __slots__ = ("client", "client_id", "clients", "former", "is_closed", "is_stale", "uses", "who")

    def __init__(self, client: ClientKey, client_id: str | None) -> None:
        self.client = client
        self.client_id = client_id  # as the last call had it
        self.clients = [client]  # all that it has been
        self.former: list[Interval] = []  # what it used under other names
        self.is_closed = False
        self.is_stale = False  # who is behind its uses is to be asked again
        self.uses: dict[tuple[bytes, Direction, str | None], Interval] = {}
        self.who: dict[tuple[Direction, str | None], Who] = {}  # as long as nothing new is known


class Ledger:
    """All that one worker has seen."""

    def __init__(
        self, principals: Principals, topics: Topics, clock: Clock, *, workers: Collection[str] = (), most: int = 0
    ) -> None:
        """`workers` are the principals of Connect workers; `most` bounds the intervals, if given."""
        self._principals = principals
        self._clock = clock
        self._workers = frozenset(workers)
        self.topics = topics
        self.intervals = Intervals(most) if most else Intervals()
        self.groups = KnownGroups()
        self._sights: dict[int, Sight] = {}
        # By client, and by the Streams instance that a client is part of.
        self._related: dict[ClientKey, set[Sight]] = {}
        self._stale: deque[Sight] = deque()
        self._memberships: dict[int, set[tuple[ClientKey, Group]]] = {}  # by connection
        self._touched: list[Interval] = []
        self.on_news: Callable[[], None] = lambda: None

    def client_of(self, session: Session, client_id: str | None) -> ClientKey:
        short = None if client_id is None else client_id[:LONGEST_NAME]
        return ClientKey(self._principals.principal_of(session), short, session.peer)

    def sight(self, session: Session, client_id: str | None) -> Sight:
        """The connection's, under the name that it has now."""
        sight = self._sights.get(session.number)
        if sight is None:
            sight = self._sights[session.number] = Sight(self.client_of(session, client_id), client_id)
            self._meet(sight)
        elif sight.client_id != client_id and len(sight.clients) < _MOST_NAMES:
            sight.former += sight.uses.values()
            sight.uses.clear()
            sight.who.clear()
            sight.client_id = client_id
            sight.client = self.client_of(session, client_id)
            sight.clients.append(sight.client)
            self._meet(sight)
        return sight

    def use(
        self,
        session: Session,
        sight: Sight,
        carried: bytes,
        direction: Direction,
        *,
        by_id: bool,
        transactional_id: str | None = None,
        group: Group | None = None,
    ) -> Interval:
        """The interval of a topic that this connection has just used."""
        named = transactional_id if group is None else group.name
        key = (carried, direction, named)
        if key not in sight.uses and len(sight.uses) >= _MOST_USES:
            key = (b"", direction, None)  # all that is above, together
        interval = sight.uses.get(key)
        if interval is None:
            topic = self.topics.ref(carried, by_id=by_id)
            if not key[0] or len(sight.clients) >= _MOST_NAMES:
                interval = self.intervals.other(topic if key[0] else self.topics.rest, direction)
            else:
                who = sight.who.get((direction, named))
                if who is None:
                    who = self._who(sight.client, direction, transactional_id=transactional_id, group=group)
                    sight.who[direction, named] = who
                interval = self.intervals.open(sight.client, topic, direction, who, named=named)
                if interval.software is None and (software := self._principals.software_of(session)) is not None:
                    interval.software = (software.name, software.version)
            sight.uses[key] = interval
        return interval

    def touch(self, interval: Interval) -> None:
        """It was used; for those that are not `touched` yet."""
        interval.touched = True
        self._touched.append(interval)
        if not interval.is_waiting:
            self.on_news()

    def swept(self) -> list[Interval]:
        """Those that were used since the last time, with their times set."""
        touched, self._touched = self._touched, []
        self.intervals.used(touched, self._clock.epoch_ms())
        return touched

    def joined(self, session: Session, client_id: str | None, group: Group) -> None:
        """The broker has accepted this client as a member."""
        client = self.client_of(session, client_id)
        memberships = self._memberships.setdefault(session.number, set())
        is_first = (client, group) not in memberships
        if is_first and len(memberships) >= _MOST_NAMES:
            return
        memberships.add((client, group))
        if self.groups.joined(client, group, self._clock.monotonic(), is_first=is_first):
            for key in _keys_of(client):
                self._doubt(self._related.get(key, ()))

    def closed(self, session: Session) -> None:
        for client, group in self._memberships.pop(session.number, ()):
            self.groups.left(client, group)
        sight = self._sights.pop(session.number, None)
        if sight is not None:
            self._let_go(sight)

    def identify_again(self, most: int) -> bool:
        """Who is behind the uses of some connections of which something new is known; False when none is left."""
        for _ in range(min(most, len(self._stale))):
            sight = self._stale.popleft()
            sight.is_stale = False
            sight.who.clear()
            for interval in (*sight.uses.values(), *sight.former):
                group = None
                if interval.who.kind == "share_group" and interval.named is not None:
                    group = Group("share_group", interval.named)
                transactional_id = interval.named if group is None else None
                who = self._who(interval.client, interval.direction, transactional_id=transactional_id, group=group)
                self.intervals.turned_out(interval, who)
        return bool(self._stale)

    def _meet(self, sight: Sight) -> None:
        for key in _keys_of(sight.client):
            self._related.setdefault(key, set()).add(sight)
        if self.groups.met(sight.client):
            principal = sight.client.principal
            self._doubt(one for one in self._sights.values() if one.client.principal == principal)

    def _let_go(self, sight: Sight) -> None:
        sight.is_closed = True
        now_ms = self._clock.epoch_ms()
        for interval in (*sight.uses.values(), *sight.former):
            self.intervals.release(interval, now_ms)
        sight.uses.clear()
        sight.former.clear()
        for key in (key for client in sight.clients for key in _keys_of(client)):
            related = self._related.get(key)
            if related is not None:
                related.discard(sight)
                if not related:
                    del self._related[key]

    def _doubt(self, sights: Iterable[Sight]) -> None:
        for sight in sights:
            sight.who.clear()
            if not sight.is_stale and sight.uses:
                sight.is_stale = True
                self._stale.append(sight)
        if self._stale:
            self.on_news()

    def _who(
        self, client: ClientKey, direction: Direction, *, transactional_id: str | None, group: Group | None
    ) -> Who:
        now = self._clock.monotonic()
        return identify(
            Evidence(
                client=client,
                direction=direction,
                groups=self.groups.groups_of(client, now),
                thread_groups=self.groups.thread_groups_of(client, now),
                group=group,
                transactional_id=transactional_id,
                is_worker=client.principal in self._workers,
                principal_is_shared=self.groups.is_shared(client.principal),
            )
        )


def _keys_of(client: ClientKey) -> tuple[ClientKey, ...]:
    instance = streams_instance(client.client_id)
    return (client,) if instance is None else (client, client._replace(client_id=instance))
