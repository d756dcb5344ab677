"""Whether a new version of a topology can take over from an old one, and why not.

- `safe`: the stores and the internal topics are the same, and they belong to the same tasks.
- `reset`: the name or the number of partitions of a changelog or repartition topic changes. Instances of the new
  version begin with empty topics: reset the application (`kafka-streams-application-reset`).
- `state_lost`: a store is gone, or it belongs to another sub-topology, and so to tasks with other ids. Instances do not
  find its local state; what its changelog topic has is restored, unless a named topology gives that another name too.

A description does not tell whether a store is logged, how many partitions its topics have, and whether the topic of a
table is also its changelog. Numbers of partitions are compared where the caller knows those of the topics that are
read. A global store is a copy of a topic, which instances read again: no change of it loses anything.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from headgate.topologies.model.node_matching import PlacedNode, without_number
from headgate.topologies.model.topology_diff import TopologyDiff

_REPARTITION: Final = "-repartition"
_NAMED: Final = "__"
_MAX_ROUNDS: Final = 32


class Verdict(StrEnum):
    """Whether a new version can take over from the old one; from the best verdict to the worst."""

    SAFE = "safe"
    RESET = "reset"
    STATE_LOST = "state_lost"


_ORDER: Final = tuple(Verdict)


class Reason(NamedTuple):
    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """The worst verdict of all reasons, the worst of them first."""

    verdict: Verdict
    reasons: tuple[Reason, ...]


def judge_compatibility(diff: TopologyDiff, partitions: Mapping[str, int] | None = None) -> Compatibility:
    """`partitions` has the numbers of partitions of topics, as far as they are known."""
    stores = _stores(diff)
    found = [*_store_reasons(stores), *_repartition_reasons(diff, stores)]
    if partitions:
        found += _partition_reasons(diff, stores, partitions)
    reasons = sorted(set(found), key=lambda reason: (-_ORDER.index(reason.verdict), reason.text))
    if not reasons:
        text = "all stores and internal topics keep their names and their sub-topologies"
        return Compatibility(verdict=Verdict.SAFE, reasons=(Reason(Verdict.SAFE, text),))
    return Compatibility(verdict=reasons[0].verdict, reasons=tuple(reasons))


# --- stores and their changelog topics


@dataclass(frozen=True, slots=True)
class _Stores:
    """The sub-topology of each store in both versions, and the stores of which only the name has changed."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    renamed: Mapping[str, str]


def diff_document(found: TopologyDiff, compatibility: Compatibility) -> dict[str, Any]:
    """The difference of two versions and its verdict, as plain values."""
    return {
        "added": [one._asdict() for one in found.added],
        "removed": [one._asdict() for one in found.removed],
        "renamed": [{"kind": one.kind, "from": one.before, "to": one.after} for one in found.renamed],
        "moved": [{"kind": one.kind, "name": one.name, "from": one.before, "to": one.after} for one in found.moved],
        "changed": [
            {
                "kind": one.kind,
                "name": one.name,
                "field": one.field,
                "from": list(one.before),
                "to": list(one.after),
            }
            for one in found.changed
        ],
        "renumbered": found.renumbered,
        "verdict": compatibility.verdict.value,
        "reasons": [reason.text for reason in compatibility.reasons],
    }


def _stores(diff: TopologyDiff) -> _Stores:
    before, after = _store_places(diff.before), _store_places(diff.after)
    renamed: dict[str, str] = {}
    for one, other in diff.matches:
        if one.subtopology is None:
            continue
        gone, fresh = sorted(one.stores - other.stores), sorted(other.stores - one.stores)
        renamed |= _renumbered(gone, fresh)
        gone = [store for store in gone if store not in after and store not in renamed]
        fresh = [store for store in fresh if store not in before and store not in renamed.values()]
        if len(gone) == len(fresh) == 1 and one.stem == other.stem:
            renamed[gone[0]] = fresh[0]
    return _Stores(before, after, renamed)


def _renumbered(gone: Sequence[str], fresh: Sequence[str]) -> dict[str, str]:
    """Stores of one node that differ only in the number that Kafka Streams has put into their names."""
    by_stem: dict[str, list[str]] = defaultdict(list)
    for store in fresh:
        by_stem[without_number(store)].append(store)
    found = {}
    for store in gone:
        if (stem := without_number(store)) != store and by_stem[stem]:
            found[store] = by_stem[stem].pop(0)
    return found


def _store_places(nodes: Iterable[PlacedNode]) -> dict[str, str]:
    places: dict[str, str] = {}
    for node in nodes:
        if node.subtopology is not None:
            for store in node.stores:
                places[store] = min(node.subtopology, places.get(store, node.subtopology))
    return places


def _store_reasons(stores: _Stores) -> Iterator[Reason]:
    for store, place in stores.before.items():
        now = stores.after.get(store)
        if store in stores.renamed:
            other = stores.renamed[store]
            if other in stores.before:
                text = f"the store {store} becomes {other}, whose changelog topic has the state of another store"
                yield Reason(Verdict.STATE_LOST, text)
                continue
            text = f"the changelog topic {store}-changelog becomes {other}-changelog, which begins empty"
            yield Reason(Verdict.RESET, text)
        elif now is None:
            yield Reason(Verdict.STATE_LOST, f"the store {store} of sub-topology {place} is gone")
        elif _name_of(place) != _name_of(now):
            text = (
                f"the store {store} moves from sub-topology {place} to {now}: its changelog topic carries the name of "
                "the topology, so that the new one begins empty"
            )
            yield Reason(Verdict.STATE_LOST, text)
        elif place != now:
            text = (
                f"the store {store} moves from sub-topology {place} to {now}: its local state belongs to tasks "
                f"{place}_N and is lost, and tasks {now}_N restore it from its changelog topic"
            )
            yield Reason(Verdict.STATE_LOST, text)


def _name_of(place: str) -> str:
    """The name of the named topology, empty without one."""
    return place.rpartition(_NAMED)[0]


# --- repartition topics


def _repartition_reasons(diff: TopologyDiff, stores: _Stores) -> Iterator[Reason]:
    before, after = _repartition_topics(diff.before), _repartition_topics(diff.after)
    renamed: dict[str, str] = {}
    for one, other in diff.matches:
        gone = sorted(one.topics & before.keys() - after.keys())
        fresh = sorted(other.topics & after.keys() - before.keys())
        if len(gone) == len(fresh) == 1:
            renamed[gone[0]] = fresh[0]
    for topic in before.keys() - after.keys():
        if topic in renamed:
            yield Reason(Verdict.RESET, f"the repartition topic {topic} becomes {renamed[topic]}, which begins empty")
        else:
            text = f"the repartition topic {topic} is gone: records in it that were not processed are lost"
            yield Reason(Verdict.RESET, text)
    for topic in after.keys() - before.keys() - set(renamed.values()):
        fed = sorted(store for store, place in stores.after.items() if place in after[topic] and store in stores.before)
        for store in fed:
            text = (
                f"the store {store} is now fed by the repartition topic {topic}, which may distribute keys differently"
            )
            yield Reason(Verdict.RESET, text)


def _repartition_topics(nodes: Sequence[PlacedNode]) -> dict[str, set[str]]:
    """The sub-topologies that read each topic that the application repartitions records with."""
    written = {topic for node in nodes if node.kind == "sink" for topic in node.topics}
    read: dict[str, set[str]] = {}
    for node in nodes:
        if node.kind == "source" and node.subtopology is not None:
            for topic in node.topics:
                if topic in written and (topic.endswith(_REPARTITION) or _is_of_foreign_key_join(topic)):
                    read.setdefault(topic, set()).add(node.subtopology)
    return read


def _is_of_foreign_key_join(topic: str) -> bool:
    return topic.endswith("-topic") and ("-SUBSCRIPTION-RE" in topic or "-subscription-re" in topic)


# --- numbers of partitions


def _partition_reasons(diff: TopologyDiff, stores: _Stores, partitions: Mapping[str, int]) -> Iterator[Reason]:
    before, after = _task_counts(diff.before, partitions), _task_counts(diff.after, partitions)
    for store, place in stores.before.items():
        old, new = before.get(place), after.get(stores.after.get(store, ""))
        if old is not None and new is not None and old != new:
            text = f"the changelog topic {store}-changelog has {old} partitions and needs {new}"
            yield Reason(Verdict.RESET, text)
    for topic in _repartition_topics(diff.before).keys() & _repartition_topics(diff.after).keys():
        old, new = (_written_by(topic, nodes, counts) for nodes, counts in ((diff.before, before), (diff.after, after)))
        if topic not in partitions and old is not None and new is not None and old != new:
            yield Reason(Verdict.RESET, f"the repartition topic {topic} has {old} partitions and needs {new}")


def _task_counts(nodes: Sequence[PlacedNode], partitions: Mapping[str, int]) -> dict[str, int]:
    """The number of tasks of each sub-topology: that of the partitions of its largest topic.

    A repartition topic has as many partitions as the sub-topology that writes it has tasks. Sub-topologies of which
    nothing is known are left out.
    """
    inner = _repartition_topics(nodes)
    known = dict(partitions)
    counts: dict[str, int] = {}
    for _ in range(_MAX_ROUNDS):
        found: dict[str, int] = defaultdict(int)
        for node in nodes:
            if node.kind == "source" and node.subtopology is not None:
                most = max((known.get(topic, 0) for topic in node.topics), default=0)
                found[node.subtopology] = max(found[node.subtopology], most)
        found = {place: count for place, count in found.items() if count}
        if found == counts:
            break
        counts = found
        for topic in inner:
            if topic not in partitions:
                known[topic] = _written_by(topic, nodes, counts) or 0
    return counts


def _written_by(topic: str, nodes: Sequence[PlacedNode], counts: Mapping[str, int]) -> int | None:
    places = {node.subtopology for node in nodes if node.kind == "sink" and topic in node.topics}
    return max((counts[place] for place in places if place is not None and place in counts), default=None)
