"""What members push and Admin reads: topologies as plain data, field by field as on the wire.

One rule: nothing here comes from the product. A test says what it pushes in these words, reads it back in these words,
and the product's own model of a topology is not its own witness.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

SOURCE, PROCESSOR, SINK = 1, 2, 3

# A name that is no UTF-8 is not among them: Java cannot send one.
HOSTILE_NAMES = (
    "",
    " ",
    "line\nend",
    "carriage\r\nreturn",
    "next\u0085line\u2028end",
    'quote " and \\',
    "'; DROP TABLE topologies; --",
    "--> none",
    "<-- null",
    "[a, b]",
    "../../etc/passwd",
    "${env:HOME}%s{}",
    "\0",
    "\x1b[31m",
    "é\u0301",
    "\u202eright to left",
    "\U0001f600",
    "\uffff",
    "x" * 30_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """TopologyDescriptionNode; a type that nobody knows and fields that its type does not have are allowed."""

    name: str
    node_type: int
    source_topics: tuple[str, ...] = ()
    sink_topic: str | None = None
    stores: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()

    @staticmethod
    def read(data: Mapping[str, Any]) -> "Node":
        return Node(
            name=data["name"],
            node_type=data["node_type"],
            source_topics=tuple(data["source_topics"]),
            sink_topic=data["sink_topic"],
            stores=tuple(data["stores"]),
            successors=tuple(data["successors"]),
        )

    def with_sets_in_order(self) -> "Node":
        return replace(
            self,
            source_topics=_in_order(self.source_topics),
            stores=_in_order(self.stores),
            successors=_in_order(self.successors),
        )


def source(name: str, topics: Sequence[str] = (), *, to: Sequence[str] = ()) -> Node:
    """Without topics it is one of a pattern, of which nothing is told."""
    return Node(name=name, node_type=SOURCE, source_topics=tuple(topics), successors=tuple(to))


def processor(name: str, stores: Sequence[str] = (), *, to: Sequence[str] = ()) -> Node:
    return Node(name=name, node_type=PROCESSOR, stores=tuple(stores), successors=tuple(to))


def sink(name: str, topic: str | None = None) -> Node:
    """Without a topic each record chooses its own."""
    return Node(name=name, node_type=SINK, sink_topic=topic)


@dataclass(frozen=True, slots=True)
class Topology:
    """Sub-topologies by id, in their order, and global stores, each a source and a processor."""

    subtopologies: tuple[tuple[str, tuple[Node, ...]], ...] = ()
    global_stores: tuple[tuple[Node, Node], ...] = ()

    @staticmethod
    def read(data: Mapping[str, Any]) -> "Topology":
        return Topology(
            tuple((one["id"], tuple(map(Node.read, one["nodes"]))) for one in data["subtopologies"]),
            tuple((Node.read(one["source"]), Node.read(one["processor"])) for one in data["global_stores"]),
        )

    def written(self) -> dict[str, Any]:
        return {
            "subtopologies": [{"id": id_, "nodes": [*map(asdict, nodes)]} for id_, nodes in self.subtopologies],
            "global_stores": [{"source": asdict(one), "processor": asdict(two)} for one, two in self.global_stores],
        }

    def as_read(self) -> "Topology":
        """What Admin must show of it: everything in its place, and only what Admin holds as a set put in order."""
        return Topology(
            tuple((id_, tuple(node.with_sets_in_order() for node in nodes)) for id_, nodes in self.subtopologies),
            tuple((one.with_sets_in_order(), two.with_sets_in_order()) for one, two in self.global_stores),
        )

    def nodes(self) -> list[Node]:
        return [node for _, nodes in self.subtopologies for node in nodes]

    def predecessors(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """By sub-topology and node: who feeds it."""
        found: dict[tuple[str, str], list[str]] = {
            (id_, node.name): [] for id_, nodes in self.subtopologies for node in nodes
        }
        for id_, nodes in self.subtopologies:
            for node in nodes:
                for successor in node.successors:
                    if (id_, successor) in found:
                        found[id_, successor].append(node.name)
        return {key: _in_order(names) for key, names in found.items()}


def read_predecessors(data: Mapping[str, Any]) -> dict[tuple[str, str], tuple[str, ...]]:
    """The same as Admin worked it out."""
    return {
        (one["id"], node["name"]): _in_order(node["predecessors"])
        for one in data["subtopologies"]
        for node in one["nodes"]
    }


def chain(topic: str, *processors: str, out: str | None = "out") -> Topology:
    """One sub-topology that reads a topic, has these processors one behind the other, and writes a topic."""
    names = [*processors, "sink"]
    middle = [processor(name, (f"{name}-store",), to=(after,)) for name, after in pairwise(names)]
    return Topology((("0", (source("source", (topic,), to=names[:1]), *middle, sink("sink", out))),))


def large(topic: str, nodes: int, *, a_subtopology: int = 100) -> Topology:
    """As many nodes, named as Streams names them, in chains of `a_subtopology`; each second processor has a store."""
    subtopologies: list[tuple[str, tuple[Node, ...]]] = []
    for first in range(0, nodes, a_subtopology):
        last = min(first + a_subtopology, nodes) - 1
        members = []
        for number in range(first, last + 1):
            to = () if number == last else (_streams_name(number + 1, last),)
            name = _streams_name(number, last)
            if number == first:
                members.append(Node(name=name, node_type=SOURCE, source_topics=(topic,), successors=to))
            elif number == last:
                members.append(sink(name, f"{topic}-{last}"))
            else:
                stores = (f"KSTREAM-AGGREGATE-STATE-STORE-{number:010}",) if number % 2 else ()
                members.append(processor(name, stores, to=to))
        subtopologies.append((str(len(subtopologies)), tuple(members)))
    return Topology(tuple(subtopologies))


def _streams_name(number: int, last: int) -> str:
    return f"KSTREAM-{'SINK' if number == last else 'MAPVALUES'}-{number:010}"


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
