"""What changed from one version of a topology to the next.

One rule: only what an operator would name: nodes, the topics that are read and written, and stores. The order in which
things are listed is no change, and neither is the sub-topology's number, which Kafka Streams gives anew each time.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headgate.facts.topology import Description, SourceNode
from headgate.topologies.model.rows import STORE, kind_of, parts, stores_of, topics_of

_Elements = Mapping[tuple[str, str], frozenset[tuple[object, ...]]]


class ElementChange(NamedTuple):
    element: str  # input, output, store, or the kind of a node
    name: str
    change: str  # added, changed, removed


def element_changes(before: Description | None, after: Description | None) -> tuple[ElementChange, ...]:
    """Sorted; None is no description, so that a first version adds everything and an end removes it."""
    old, new = _elements(before), _elements(after)
    return tuple(
        sorted(
            ElementChange(*key, "removed" if key not in new else "added" if key not in old else "changed")
            for key in old.keys() | new.keys()
            if old.get(key) != new.get(key)
        )
    )


def _elements(description: Description | None) -> _Elements:
    """By kind and name, with what they consist of; a name that stands twice has both."""
    found: dict[tuple[str, str], set[tuple[object, ...]]] = {}
    for part in () if description is None else parts(description):
        for node in part.nodes:
            kind = kind_of(node)
            topics, stores = frozenset(topics_of(node)), frozenset(stores_of(node))
            pattern = node.pattern if isinstance(node, SourceNode) else None
            found.setdefault((kind, node.name), set()).add((topics, stores, pattern, frozenset(node.successors)))
            for topic in topics:
                found["input" if kind == "source" else "output", topic] = set()
            for store in stores:
                found[STORE, store] = set()
    return {key: frozenset(content) for key, content in found.items()}
