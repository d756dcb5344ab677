"""Topologies as text, as `kafka-streams-groups --describe --topology` of Kafka 4.4 prints them, to the letter.

`topology_parser.py` reads this form and the older ones.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from headgate.facts.topology import Description, Node, ProcessorNode, SinkNode, SourceNode, predecessors

NONE = "none"
FOR_GLOBAL_STORE = " for global store (will not generate tasks)"


def not_stored_text(group: str) -> str:
    """The text of the shipped tool, with exit code 1, for NOT_STORED."""
    return f"No topology description is stored for streams group '{group}'."


def fetch_failed_text(group: str) -> str:
    """The text of the shipped tool, with exit code 1, for ERROR."""
    return (
        f"The broker failed to fetch the topology description for streams group '{group}'. "
        "See the broker logs for details."
    )


def render(description: Description) -> str:
    """The text of the tool: sub-topologies and nodes in order, names sorted, global stores numbered after them."""
    lines = ["Topologies:"]
    for subtopology in description.subtopologies:
        lines.append(f"   Sub-topology: {subtopology.id}")
        lines += _rendered(subtopology.nodes)
    for number, store in enumerate(description.global_stores, len(description.subtopologies)):
        lines.append(f"   Sub-topology: {number}{FOR_GLOBAL_STORE}")
        lines += _rendered((store.source, store.processor))
    return "\n".join(lines) + "\n"


def _rendered(nodes: Sequence[Node]) -> list[str]:
    feeders = predecessors(nodes)
    lines = []
    for node in nodes:
        after = f"      --> {_names(node.successors)}"
        before = f"      <-- {_names(feeders.get(node.name, ()))}"
        match node:
            case SourceNode():
                topics = f"[{', '.join(java_sorted(node.topics))}]" if node.pattern is None else node.pattern
                lines += [f"    Source: {node.name} (topics: {topics})", after]
            case ProcessorNode():
                stores = ", ".join(java_sorted(node.stores))
                lines += [f"    Processor: {node.name} (stores: [{stores}])", after, before]
            case SinkNode():
                topic = "null" if node.topic is None else node.topic
                lines += [f"    Sink: {node.name} (topic: {topic})", before]
            case _:
                assert_never(node)
    lines.append("")
    return lines


def _names(names: Iterable[str]) -> str:
    return ", ".join(java_sorted(names)) or NONE


def java_sorted(names: Iterable[str]) -> list[str]:
    """Each name once, in the order of Java's strings: by UTF-16 units, where emoji come before U+E000."""
    once = set(names)
    if len(once) < 2:
        return list(once)
    return sorted(once, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
