"""The estate as the `headgate.*` topics describe it, folded fact by fact: what `lineage_edges` and `app_io` will have.

It is for the time before the pipeline has made the tables, and for uses that are newer than these. The rules are those
of the tables (`docs/tables.md`), with these differences: only the present is kept; an interval counts in the hour in
which it ends, and a copy of it counts again; edges to dead-letter topics are declared and never observed.

Memory is bounded: of further edges and applications nothing is kept, and `is_full` says so. Facts are folded on one
thread; `rows` may run on another, because it copies what it iterates and values are replaced, not changed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from headgate.facts import ActivityObserved, TopologyDeleted, TopologyDescribed
from headgate.lineage.edge_periods import (
    DAY_MS,
    HOUR_MS,
    Edge,
    Period,
    Use,
    edge_rows,
    first_hour_of_day,
    is_internal_name,
)
from headgate.lineage.estate import SPARK, STREAMS, is_own_topic
from headgate.lineage.estate_map import MapRow, MapUse
from headgate.lineage.graph import READ, SHARE_GROUP, WRITE, LineageFlow
from headgate.topologies.model import topology_graph
from headgate.topologies.model.topology_graph import TOPIC

MAX_EDGES: Final = 20_000
_MAX_CHARACTERS: Final = 16 * 1024 * 1024  # of names; a client id alone may have 32 KiB
_MAX_STEPS: Final = 200_000  # to find what flows where in one description
_LONGEST_INTERVAL_MS: Final = 31 * DAY_MS
_LAST_TIME: Final = 2**60
_END_OFFSETS: Final = "end-offsets"  # growth of a topic: no use by a client
_HOURS: Final = 24
# Which description of an application counts, as in the pipeline (`topology_builds.py`).
_RANKS: Final = {"pushed": 3, "spark": 3, "assignment": 2, "pasted": 1}


class HourSum(NamedTuple):
    bytes: int
    records: int | None


class ObservedUse(NamedTuple):
    """A use without a long pause up to now, and what was used in each of the last hours."""

    first_seen: int
    last_seen: int
    hours: Mapping[int, HourSum]


class UsedTopic(NamedTuple):
    """An edge and one interval of its use."""

    edge: Edge
    since: int
    until: int
    used: HourSum


class DeclaredTopics(NamedTuple):
    """Declared topics of an application; `open_ended` are the directions with topics that it does not name."""

    kind: str
    at: int
    topics: tuple[tuple[str, str, bool], ...]  # topic, direction, is internal
    open_ended: frozenset[str]
    flows: tuple[LineageFlow, ...]


class DescribedApplication(NamedTuple):
    cluster: str
    name: str
    rank: int
    declared: DeclaredTopics | None  # None: the group was deleted


def used_topic(fact: ActivityObserved) -> UsedTopic | None:
    """The use that a fact reports; None for one that leads to no edge."""
    is_use = fact.actor.rule != _END_OFFSETS and fact.topic is not None and fact.cluster is not None
    if not is_use or fact.topic is None or fact.cluster is None or not 0 <= fact.until < _LAST_TIME:
        return None
    if is_own_topic(fact.topic):
        return None
    since = fact.since if 0 <= fact.until - fact.since <= _LONGEST_INTERVAL_MS else fact.until
    edge = Edge(fact.cluster, fact.actor.kind, _utf8(fact.actor.name), _utf8(fact.topic), fact.direction)
    return UsedTopic(edge, since, fact.until, HourSum(fact.bytes, fact.records))


def described_application(fact: TopologyDescribed | TopologyDeleted) -> DescribedApplication | None:
    """The topics that a fact of `topologies` declares."""
    if fact.cluster is None:
        return None
    name = _utf8(fact.group)
    if isinstance(fact, TopologyDeleted):
        return DescribedApplication(fact.cluster, name, 0, None)
    kind = SPARK if fact.provenance == "spark" else STREAMS
    rows = topology_graph.edge_rows(fact.description, fact.group)
    reads = ((row.from_node, READ, row.is_internal) for row in rows if row.from_kind == TOPIC)
    writes = ((row.to_node, WRITE, row.is_internal) for row in rows if row.to_kind == TOPIC)
    topics = {
        (_own_name(fact.group, topic, is_internal=is_internal), direction, is_internal)
        for topic, direction, is_internal in (*reads, *writes)
    }
    pairs = topology_graph.app_io(fact.description, fact.group, max_pairs=MAX_EDGES, max_steps=_MAX_STEPS).pairs
    flows = (LineageFlow(kind, name, *map(_utf8, pair)) for pair in pairs)
    declared = DeclaredTopics(kind, fact.at, tuple(sorted(topics)), frozenset(_open_ends(fact, rows)), tuple(flows))
    return DescribedApplication(fact.cluster, name, _RANKS[fact.provenance], declared)


def _open_ends(fact: TopologyDescribed, rows: Iterable[topology_graph.EdgeRow]) -> Iterator[str]:
    """The directions in which it reads by a pattern, or writes to topics that it chooses for each record."""
    named = {row.from_node for row in rows if row.from_kind == "sink" and row.to_kind == TOPIC}
    for node in topology_graph.node_rows(fact.description, fact.group):
        if node.kind == "source" and node.pattern is not None:
            yield READ
        elif node.kind == "sink" and node.node not in named:
            yield WRITE


def _own_name(application: str, topic: str, *, is_internal: bool) -> str:
    """A description names internal topics without the application id, with which the cluster has them."""
    is_short = is_internal and not topic.startswith(f"{application}-")
    return _utf8(f"{application}-{topic}" if is_short else topic)


def _utf8(name: str) -> str:
    """The name with lone surrogates in backslash form, as tables have it."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


class EstateFacts:
    """The known facts of all clusters; `changes` is another number after each new edge and each other description."""

    def __init__(self, *, quiet_ms: int, most_edges: int = MAX_EDGES) -> None:
        self._quiet_ms = quiet_ms
        self._most_edges = most_edges
        self._uses: dict[Edge, ObservedUse] = {}
        self._applications: dict[tuple[str, str], DescribedApplication] = {}
        self._dead_letter_topics: tuple[tuple[str, str], ...] = ()
        self._characters = 0
        self._declared = 0
        self.is_full = False
        self.changes = 0

    def use(self, found: UsedTopic) -> None:
        before = self._uses.get(found.edge)
        if before is None and not self._has_room(len(self._uses), sum(map(len, found.edge))):
            return
        hour = found.until - found.until % HOUR_MS
        if before is None or found.since - before.last_seen > self._quiet_ms:
            self.changes += 1
            self._uses[found.edge] = ObservedUse(found.since, found.until, {hour: found.used})
            return
        hours = {**before.hours, hour: _sum((before.hours.get(hour), found.used))}
        while len(hours) > _HOURS:
            del hours[min(hours)]
        first, last = min(before.first_seen, found.since), max(before.last_seen, found.until)
        self._uses[found.edge] = ObservedUse(first, last, hours)

    def describe(self, found: DescribedApplication) -> None:
        key = (found.cluster, found.name)
        before = self._applications.get(key)
        if found.declared is None:
            if before is not None:
                self._forget_application(key)
            return
        if before is not None and found.rank < before.rank:
            return  # outranked
        size = _size(found.declared)
        if before is not None:
            self._forget_application(key)
        if self._has_room(self._declared + size, len(found.name)):
            self._declared += size
            self._applications[key] = found
            self.changes += 1

    def name_dead_letter_topics(self, topics: tuple[tuple[str, str], ...]) -> None:
        """The share groups with the dead-letter topics that their configs name, instead of those named before."""
        if topics != self._dead_letter_topics:
            self._dead_letter_topics = topics
            self.changes += 1

    def forget_uses(self) -> None:
        self._uses = {}
        self._characters = sum(len(name) for _, name in self._applications)
        self.changes += 1

    def forget_applications(self) -> None:
        for key in list(self._applications):
            self._forget_application(key)

    def clusters(self) -> set[str]:
        return {edge.cluster_id for edge in list(self._uses)} | {cluster for cluster, _ in list(self._applications)}

    def rows(self, cluster: str, now_ms: int) -> tuple[list[MapRow], list[LineageFlow]]:
        """The rows that `lineage_edges` and `app_io` would have of this cluster now."""
        uses = {edge: use for edge, use in list(self._uses.items()) if edge.cluster_id == cluster}
        applications = [one for one in list(self._applications.values()) if one.cluster == cluster]
        declared: dict[Edge, tuple[int, bool]] = {}
        open_ended: dict[tuple[str, str, str], int] = {}
        flows: list[LineageFlow] = []
        for application in applications:
            if (described := application.declared) is None:
                continue
            for topic, direction, is_internal in described.topics:
                declared[Edge(cluster, described.kind, application.name, topic, direction)] = (
                    described.at,
                    is_internal,
                )
            open_ended |= {
                (described.kind, application.name, direction): described.at for direction in described.open_ended
            }
            flows += described.flows
        for group, topic in self._dead_letter_topics:
            declared[Edge(cluster, SHARE_GROUP, group, topic, WRITE)] = (0, False)
        found = (
            self._row(edge, uses.get(edge), declared.get(edge), open_ended, now_ms)
            for edge in sorted(uses.keys() | declared.keys())
        )
        return [row for row in found if row is not None], sorted(flows)

    def _row(
        self,
        edge: Edge,
        use: ObservedUse | None,
        declared: tuple[int, bool] | None,
        open_ended: Mapping[tuple[str, str, str], int],
        now_ms: int,
    ) -> MapRow | None:
        """The row of an edge that is valid now; None when it is not used any more."""
        is_internal = is_internal_name(edge)
        since = None if is_internal else open_ended.get((edge.actor_kind, edge.app_id, edge.direction))
        periods = edge_rows(
            [] if use is None else [_day_of(use, now_ms)],
            [] if declared is None else [Period(declared[0], None)],
            [] if since is None else [Period(since, None)],
            now_ms=now_ms,
            quiet_ms=self._quiet_ms,
        )
        last = periods[-1] if periods else None
        if last is None or last.valid_to is not None:
            return None
        is_internal = is_internal or (declared is not None and declared[1])
        counted = (last.bytes_day, last.records_day, last.last_seen)
        shown = MapUse(last.declared, last.observed, last.filled, is_internal, *counted)
        return MapRow(edge.actor_kind, edge.app_id, edge.topic, edge.direction, shown)

    def _forget_application(self, key: tuple[str, str]) -> None:
        described = self._applications.pop(key).declared
        self._declared -= 0 if described is None else _size(described)
        self._characters -= len(key[1])
        self.changes += 1

    def _has_room(self, edges: int, characters: int) -> bool:
        if edges >= self._most_edges or self._characters + characters > _MAX_CHARACTERS:
            self.is_full = True
            return False
        self._characters += characters
        return True


def _size(declared: DeclaredTopics) -> int:
    return len(declared.topics) + len(declared.flows)


def _sum(parts: Iterable[HourSum | None]) -> HourSum:
    found = [part for part in parts if part is not None]
    counted = [part.records for part in found if part.records is not None]
    return HourSum(sum(part.bytes for part in found), sum(counted) if counted else None)


def _day_of(use: ObservedUse, now_ms: int) -> Use:
    """The use with the sums of the last day."""
    first = first_hour_of_day(now_ms)
    return Use(use.first_seen, use.last_seen, *_sum(used for hour, used in use.hours.items() if hour >= first))
