"""The jobs of an estate for other catalogues: what each application, connector and share group reads and writes.

Pure. Readers of such catalogues often assume that everything a job reads flows into everything that it writes. So an
application is one job for each connected component of its topology, and the exact pairs of topics are kept beside it.

As in the graph, a use that is filled belongs to all components with an open end: a source with a pattern, or a sink
that chooses its topic.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from headgate.lineage.estate_map import MapRow
from headgate.lineage.graph import GLOBAL, SHARE_GROUP, WRITE, LineageFlow

_KINDS: Final = frozenset({"streams", "spark", "connector", SHARE_GROUP})


@dataclass(frozen=True, slots=True, kw_only=True)
class EstateJob:
    """One job. `pairs` are the topics between which data is known to flow; None where no pair is known.

    An output without a pair has unknown sources. `component` is empty where the actor is one job as a whole.
    """

    kind: str
    actor: str
    component: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] | None

    @property
    def name(self) -> str:
        """Different for each job of a cluster, also where names of actors have dots, or are those of other kinds.

        The first dot ends the kind. Of a component, which is of a kind of its own, the last dot begins the component.
        """
        if not self.component:
            return f"{self.kind}.{self.actor}"
        component = self.component.replace("%", "%25").replace(".", "%2E")
        return f"{self.kind}_component.{self.actor}.{component}"


@dataclass(slots=True)
class _Topics:
    inputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)

    def add(self, sources: set[str], targets: set[str]) -> None:
        self.inputs |= sources
        self.outputs |= targets
        self.pairs |= set(product(sources, targets))


@dataclass(slots=True)
class _ActorUses:
    """Its uses of topics, those of them that are filled, and its flows."""

    uses: _Topics = field(default_factory=_Topics)
    filled: _Topics = field(default_factory=_Topics)
    flows: list[LineageFlow] = field(default_factory=list)

    def components(self) -> dict[str, _Topics]:
        read = self.filled.inputs - {flow.in_topic for flow in self.flows}
        written = self.filled.outputs - {flow.out_topic for flow in self.flows}
        found: dict[str, _Topics] = {}
        for flow in self.flows:
            chosen = set() if flow.component == GLOBAL else written
            targets = {flow.out_topic} if flow.out_topic else chosen
            found.setdefault(flow.component, _Topics()).add({flow.in_topic} if flow.in_topic else read, targets)
        return found


def estate_jobs(rows: Iterable[MapRow], flows: Iterable[LineageFlow]) -> list[EstateJob]:
    """All jobs in the order of their names; clients and consumer groups are none, because no program is known."""
    actors: dict[tuple[str, str], _ActorUses] = {}
    for row in rows:
        if row.actor_kind in _KINDS:
            actor = actors.setdefault((row.actor_kind, row.actor), _ActorUses())
            for topics in (actor.uses, actor.filled) if row.use.filled else (actor.uses,):
                (topics.outputs if row.direction == WRITE else topics.inputs).add(row.topic)
    for flow in flows:
        actors.setdefault((flow.actor_kind, flow.actor), _ActorUses()).flows.append(flow)
    return [job for (kind, name), actor in sorted(actors.items()) for job in _jobs_of(kind, name, actor)]


def _jobs_of(kind: str, name: str, actor: _ActorUses) -> list[EstateJob]:
    components = actor.components()
    if sum(component != GLOBAL for component in components) > 1:
        # A use that no description has belongs to no part that is known.
        return [_job(kind, name, component, topics) for component, topics in sorted(components.items())]
    whole = _Topics()
    for part in (*components.values(), actor.uses):
        whole.inputs |= part.inputs
        whole.outputs |= part.outputs
        whole.pairs |= part.pairs
    if kind == SHARE_GROUP:  # what it writes are the dead letters of what it reads
        whole.add(whole.inputs, whole.outputs)
    return [_job(kind, name, "", whole)]


def _job(kind: str, actor: str, component: str, topics: _Topics) -> EstateJob:
    return EstateJob(
        kind=kind,
        actor=actor,
        component=component,
        inputs=tuple(sorted(topics.inputs)),
        outputs=tuple(sorted(topics.outputs)),
        pairs=tuple(sorted(topics.pairs)) or None,
    )
