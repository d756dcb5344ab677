"""The jobs of an estate for other catalogues: what each application, connector and share group reads and writes.

Pure. Readers of such catalogues often assume that everything a job reads flows into everything that it writes. So an
application is one job for each connected component of its topology, and the exact pairs of topics are kept beside it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.lineage.estate_map import MapRow
from headgate.lineage.graph import GLOBAL, SHARE_GROUP, WRITE, LineageFlow

_KINDS: Final = frozenset({"streams", "spark", "connector", SHARE_GROUP})


@dataclass(frozen=True, slots=True, kw_only=True)
class EstateJob:
    """One job. `pairs` are the topics between which data flows; None where that is not known.

    `component` is empty where the actor is one job as a whole.
    """

    kind: str
    actor: str
    component: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] | None

    @property
    def name(self) -> str:
        return f"{self.actor}.{self.component}" if self.component else self.actor


@dataclass(slots=True)
class _Topics:
    inputs: set[str]
    outputs: set[str]
    pairs: set[tuple[str, str]]


def estate_jobs(rows: Iterable[MapRow], flows: Iterable[LineageFlow]) -> list[EstateJob]:
    """All jobs in the order of their names; clients and consumer groups are none, because no program is known."""
    uses: dict[tuple[str, str], _Topics] = {}
    for row in rows:
        if row.actor_kind in _KINDS:
            of_actor = uses.setdefault((row.actor_kind, row.actor), _Topics(set(), set(), set()))
            (of_actor.outputs if row.direction == WRITE else of_actor.inputs).add(row.topic)
    components: dict[tuple[str, str], dict[str, _Topics]] = {}
    for flow in flows:
        parts = components.setdefault((flow.actor_kind, flow.actor), {})
        part = parts.setdefault(flow.component, _Topics(set(), set(), set()))
        part.inputs |= {flow.in_topic} - {""}
        part.outputs |= {flow.out_topic} - {""}
        if flow.in_topic and flow.out_topic:
            part.pairs.add((flow.in_topic, flow.out_topic))
    jobs: list[EstateJob] = []
    for key in sorted(uses.keys() | components.keys()):
        jobs += _jobs_of(key, uses.get(key), components.get(key, {}))
    return jobs


def _jobs_of(key: tuple[str, str], uses: _Topics | None, components: dict[str, _Topics]) -> list[EstateJob]:
    kind, actor = key
    parts = {name: part for name, part in components.items() if name != GLOBAL}
    if len(parts) > 1:  # a use that no description has belongs to no part that is known
        return [_job(kind, actor, name, part, part.pairs) for name, part in sorted(components.items())]
    whole = _Topics(set(), set(), set())
    for part in (*components.values(), *(() if uses is None else (uses,))):
        whole.inputs |= part.inputs
        whole.outputs |= part.outputs
        whole.pairs |= part.pairs
    if kind == SHARE_GROUP:  # what it writes are the dead letters of what it reads
        whole.pairs = {(one, other) for one in whole.inputs for other in whole.outputs}
    is_known = bool(components) or kind == SHARE_GROUP
    return [_job(kind, actor, "", whole, whole.pairs if is_known else None)]


def _job(kind: str, actor: str, component: str, topics: _Topics, pairs: set[tuple[str, str]] | None) -> EstateJob:
    return EstateJob(
        kind=kind,
        actor=actor,
        component=component,
        inputs=tuple(sorted(topics.inputs)),
        outputs=tuple(sorted(topics.outputs)),
        pairs=None if pairs is None else tuple(sorted(pairs)),
    )
