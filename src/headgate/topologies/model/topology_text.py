"""Topologies as text: rendered as `kafka-streams-groups --describe --topology` prints them, and parsed.

`render` is the form of the shipped 4.4 tool to the letter. `parse` reads it and the text of `Topology.describe()`; it
ignores white space, is exact about everything else, and names the line that it does not understand.

The text is ambiguous in some cases: names that contain `, ` are resolved by the known nodes; a node called `none`, a
topic called `null`, a pattern in brackets such as `[abc]` and a successor of a sink are parsed as something else. The
class of a sink's topic extractor means that each record chooses its topic.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from headgate.facts.topology import (
    Description,
    GlobalStore,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
    predecessors,
)

NONE = "none"
_LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_GLOBAL = " for global store (will not generate tasks)"
_LABELS = {"Source": ("topics",), "Processor": ("stores",), "Sink": ("topic", "extractor class")}


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
        lines.append(f"   Sub-topology: {number}{_GLOBAL}")
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


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a text is no topology: the line number, from 1, and the problem."""

    line: int
    text: str


@dataclass(slots=True)
class _Part:
    """A sub-topology while it is parsed: its nodes, and the successors of each, still as text."""

    id: str
    line: int
    is_global: bool
    nodes: list[Node] = field(default_factory=list)
    feeds: list[str] = field(default_factory=list)

    def finished(self) -> Subtopology | GlobalStore | Unreadable:
        known = {node.name for node in self.nodes}
        longest = max((name.count(", ") for name in known), default=0) + 1
        nodes = tuple(
            _feeding(node, _split_names(text, known, longest))
            for node, text in zip(self.nodes, self.feeds, strict=True)
        )
        if not self.is_global:
            return Subtopology(id=self.id, nodes=nodes)
        match nodes:
            case (SourceNode() as source, ProcessorNode() as processor):
                return GlobalStore(source=source, processor=processor)
        return Unreadable(self.line, "a global store has one source and one processor, in this order")


def parse(text: str) -> Description | Unreadable:
    """The topology in a text; predecessors are not read, because they follow from the successors."""
    parts: list[_Part] = []
    begun = False
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line:
            continue
        if not begun:
            if line != "Topologies:":
                return Unreadable(number, "a topology begins with 'Topologies:'")
            begun = True
        elif line.startswith("Sub-topology: "):
            name = line.removeprefix("Sub-topology: ")
            parts.append(_Part(name.removesuffix(_GLOBAL).strip(), number, name.endswith(_GLOBAL)))
        elif not parts:
            return Unreadable(number, "nodes stand below a 'Sub-topology: ID'")
        elif problem := _read_line(line, parts[-1]):
            return Unreadable(number, problem)
    if not begun:
        return Unreadable(1, "there is no topology in it")
    return _assembled(parts)


def _assembled(parts: Sequence[_Part]) -> Description | Unreadable:
    subtopologies: list[Subtopology] = []
    stores: list[GlobalStore] = []
    for part in parts:
        match part.finished():
            case Subtopology() as subtopology:
                subtopologies.append(subtopology)
            case GlobalStore() as store:
                stores.append(store)
            case Unreadable() as unreadable:
                return unreadable
    return Description(subtopologies=tuple(subtopologies), global_stores=tuple(stores))


def _read_line(line: str, part: _Part) -> str:
    """Parse one line of a sub-topology; returns the problem, empty without one."""
    if line.startswith(("-->", "<--")):
        if not part.nodes:
            return "an arrow stands below its node"
        if line.startswith("-->"):
            part.feeds[-1] = line.removeprefix("-->").strip()
        return ""
    kind, _, rest = line.partition(":")
    if kind not in _LABELS or not rest.endswith(")"):
        return "expected a Source, a Processor, a Sink, an arrow or a sub-topology"
    # From the right, since a name may contain anything; and not by a regular expression, which would backtrack.
    at, label = max((rest.rfind(f" ({label}: "), label) for label in _LABELS[kind])
    if at < 0:
        return f"a {kind} has ({' or '.join(_LABELS[kind])}: ...) behind its name"
    node = _node(kind, rest[:at].strip(), label, rest[at + len(f" ({label}: ") : -1])
    if node is None:
        return "stores are listed in brackets"
    part.nodes.append(node)
    part.feeds.append(NONE)
    return ""


def _node(kind: str, name: str, label: str, value: str) -> Node | None:
    listed = _listed(value)
    if kind == "Source":
        if listed is None or not all(map(_LEGAL_TOPIC.fullmatch, listed)):
            return SourceNode(name=name, pattern=value)
        return SourceNode(name=name, topics=listed)
    if kind == "Sink":
        return SinkNode(name=name, topic=None if value == "null" or label == "extractor class" else value)
    return None if listed is None else ProcessorNode(name=name, stores=listed)


def _listed(text: str) -> tuple[str, ...] | None:
    if not (text.startswith("[") and text.endswith("]")):
        return None
    inner = text[1:-1]
    return tuple(inner.split(", ")) if inner else ()


def _split_names(text: str, known: set[str], longest: int) -> tuple[str, ...]:
    """The names in `a, b, c`; where a known name holds commas itself, the longest that fits."""
    if text == NONE:
        return ()
    parts = text.split(", ")
    if longest == 1:
        return tuple(parts)
    names = []
    at = 0
    while at < len(parts):
        for width in range(min(longest, len(parts) - at), 0, -1):
            name = ", ".join(parts[at : at + width])
            if width == 1 or name in known:
                names.append(name)
                at += width
                break
    return tuple(names)


def _feeding(node: Node, successors: tuple[str, ...]) -> Node:
    match node:
        case SourceNode():
            return SourceNode(name=node.name, topics=node.topics, pattern=node.pattern, successors=successors)
        case ProcessorNode():
            return ProcessorNode(name=node.name, stores=node.stores, successors=successors)
        case SinkNode():
            return SinkNode(name=node.name, topic=node.topic, successors=successors)
    assert_never(node)
