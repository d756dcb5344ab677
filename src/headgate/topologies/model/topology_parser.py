"""Reads the text of `Topology#describe()`, in every form that a Kafka version or a log has given it.

The forms differ in their header (`Topologies:`, `Sub-topologies:` up to Kafka 1.0, `Topology: NAME:` of a named
topology, whose sub-topologies get the ids `NAME__ID`, as its tasks do), in their arrows (on lines of their own, or
behind the node up to 1.0), in their brackets (sources had none before Kafka 2.1) and in their global stores. The class
of a sink's topic extractor has a hash that changes at every start: such a sink has no topic, and the class is not kept.

A header behind other text, or behind other lines, makes the text a log: a prefix of a line is then skipped, and so is a
line without anything of a topology. Any other text is read exactly; only white space does not count.

The text is ambiguous in some cases. Names that contain `, ` are resolved by the known nodes; a node called `none`, a
topic called `null`, a pattern in brackets such as `[abc]`, a successor of a sink and a name with an arrow in it are
read as something else. Sources without brackets have topics if no source of the text has brackets and all names are
legal names of topics, else a pattern.

The time is linear in the length of the text. An error never repeats the text, which may be long and hostile.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.facts.topology import Description, GlobalStore, Node, ProcessorNode, SinkNode, SourceNode, Subtopology
from headgate.topologies.model.topology_text import FOR_GLOBAL_STORE, NONE

_HEADERS: Final = ("Topologies:", "Sub-topologies:")
_NAMED_HEADER: Final = "Topology: "
_SUBTOPOLOGY: Final = "Sub-topology:"
_GLOBAL_STORES: Final = "Global Stores:"
_GLOBAL_STORE: Final = "GlobalStore:"
_LABELS: Final = {"Source": ("topics",), "Processor": ("stores",), "Sink": ("topic", "extractor class")}
_STARTS: Final = ("-->", "<--", *(f"{kind}:" for kind in _LABELS), _SUBTOPOLOGY, _GLOBAL_STORES, _GLOBAL_STORE)
_START_IN_LOG: Final = re.compile(rf"(?<!\S)(?:{'|'.join(map(re.escape, _STARTS))})")
_INLINE_ARROW: Final = re.compile(r"\)\s*(?=-->|<--)")
_BACK_ARROW: Final = re.compile(r"(?:^|\s)<--(?:\s|$)")
_LEGAL_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_BEGINS: Final = "a topology begins with 'Topologies:' or 'Sub-topologies:'"
# Names with `, ` in them are looked up where a list may contain them; both bounds keep that linear.
_LONGEST_LISTED, _MOST_LISTED = 512, 8


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a text is no topology: the line and the column, both from 1, and the problem."""

    line: int
    column: int
    text: str


class _ProblemError(Exception):
    """A problem of one line, at an offset from the start of its content."""

    def __init__(self, text: str, offset: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.offset = offset


@dataclass(slots=True)
class _Part:
    """A sub-topology or a global store while it is read: its nodes, and the successors of each, still as text."""

    id: str
    line: int
    column: int
    is_global: bool = False
    nodes: list[Node] = field(default_factory=list)
    feeds: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _TextParts:
    """What was read so far."""

    is_begun: bool = False
    is_log: bool = False
    is_named: bool = False
    prefix: str = ""
    in_global_stores: bool = False
    has_brackets: bool = False
    parts: list[_Part] = field(default_factory=list)


def parse(text: str) -> Description | Unreadable:
    """The topology in a text; predecessors are not read, because they follow from the successors."""
    reading = _TextParts()
    number = 0
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.strip()
        if not line:
            continue
        column = raw.index(line[0]) + 1
        if line[-1] == ":" and (header := _header(line)) is not None:
            name, at = header
            if reading.is_begun and not (reading.is_named and name):
                return Unreadable(number, column + at, "a second topology begins here: keep one of them")
            reading.is_log = reading.is_log or at > 0
            reading.is_begun, reading.is_named, reading.in_global_stores = True, bool(name), False
            reading.prefix = f"{name}__" if name else ""
            continue
        if not reading.is_begun:
            reading.is_log = True
            continue
        if not line.startswith(_STARTS) and reading.is_log:
            found = _START_IN_LOG.search(line)
            if found is None:
                continue
            column += found.start()
            line = line[found.start() :]
        try:
            _read_line(line, number, column, reading)
        except _ProblemError as problem:
            return Unreadable(number, column + problem.offset, problem.text)
    if not reading.is_begun:
        return Unreadable(1, 1, _BEGINS if text.strip() else "the text is empty")
    return _assembled(reading)


def _header(line: str) -> tuple[str, int] | None:
    """The name of the topology that begins, empty for one without a name, and the length of what precedes it."""
    for header in sorted(_HEADERS, key=len, reverse=True):
        at = len(line) - len(header)
        if line.endswith(header) and (at == 0 or not (line[at - 1].isalnum() or line[at - 1] in "-_")):
            return "", at
    at = line.find(_NAMED_HEADER)
    if at < 0 or (at > 0 and not line[at - 1].isspace()):
        return None
    name = line[at + len(_NAMED_HEADER) : -1].strip()
    return (name, at) if name else None


def _read_line(line: str, number: int, column: int, reading: _TextParts) -> None:
    if line.startswith(_SUBTOPOLOGY):
        _begin_subtopology(line, number, column, reading)
        return
    if line.startswith(_GLOBAL_STORES):
        reading.in_global_stores = True
        return
    if line.startswith(_GLOBAL_STORE):
        reading.parts.append(_global_store(line, number, column))
        return
    if line == NONE and (reading.in_global_stores or not reading.parts):
        return
    if line.startswith(("-->", "<--")):
        if not reading.parts or not reading.parts[-1].nodes:
            raise _ProblemError("an arrow stands below its node")
        if line.startswith("-->"):
            reading.parts[-1].feeds[-1] = _successors(line)
        return
    kind = line.partition(":")[0]
    if kind not in _LABELS:
        if not reading.parts and not reading.in_global_stores:
            raise _ProblemError("nodes stand below a 'Sub-topology: ID'")
        raise _ProblemError("expected a Source, a Processor, a Sink, an arrow or a sub-topology")
    if reading.in_global_stores and kind == "Source":
        reading.parts.append(_Part("", number, column, is_global=True))
    if not reading.parts:
        raise _ProblemError("nodes stand below a 'Sub-topology: ID'")
    node, feeds, is_listed = _node(kind, line)
    reading.has_brackets = reading.has_brackets or (kind == "Source" and is_listed)
    reading.parts[-1].nodes.append(node)
    reading.parts[-1].feeds.append(feeds)


def _begin_subtopology(line: str, number: int, column: int, reading: _TextParts) -> None:
    name = line.removeprefix(_SUBTOPOLOGY)
    is_global = name.endswith(FOR_GLOBAL_STORE)
    name = name.removesuffix(FOR_GLOBAL_STORE).strip()
    if not name:
        raise _ProblemError("a sub-topology has an id", len(_SUBTOPOLOGY))
    reading.in_global_stores = False
    reading.parts.append(_Part(reading.prefix + name, number, column, is_global=is_global))


def _node(kind: str, line: str) -> tuple[Node, str, bool]:
    """The node, its successors if they stand on its line, and whether its topics or stores stand in brackets."""
    # From the right, since a name may contain anything; and not by a regular expression, which would backtrack.
    at, label = max((line.rfind(f"({label}:"), label) for label in _LABELS[kind])
    if at < 0:
        wanted = f"a {kind} has ({' or '.join(_LABELS[kind])}: ...) behind its name"
        raise _ProblemError(wanted, len(line))
    name = line[len(kind) + 1 : at].strip()
    if not name:
        raise _ProblemError(f"a {kind} has a name", len(kind) + 1)
    begin = at + len(label) + 2
    arrow = _INLINE_ARROW.search(line, begin)
    if arrow is None and line[-1] != ")":
        raise _ProblemError("the parenthesis is not closed", at)
    value = line[begin : len(line) - 1 if arrow is None else arrow.start()].strip()
    feeds = "" if arrow is None else _successors(line[arrow.end() :])
    listed = _listed(value)
    if kind == "Source":
        if listed is None or not all(map(_LEGAL_TOPIC.fullmatch, listed)):
            return SourceNode(name=name, pattern=value), feeds, False
        return SourceNode(name=name, topics=listed), feeds, True
    if kind == "Sink":
        return SinkNode(name=name, topic=None if value == "null" or label == "extractor class" else value), feeds, False
    if listed is None:
        raise _ProblemError("stores are listed in brackets", begin + 1)
    return ProcessorNode(name=name, stores=listed), feeds, True


def _global_store(line: str, number: int, column: int) -> _Part:
    """`GlobalStore: SOURCE(topic: T) -> PROCESSOR(store: S)`, up to Kafka 1.0."""
    source, arrow, processor = line.removeprefix(_GLOBAL_STORE).partition(") -> ")
    source_name, topic_label, topic = source.rpartition("(topic: ")
    name, store_label, store = processor.rpartition("(store: ")
    if not (arrow and topic_label and store_label and store.endswith(")")):
        raise _ProblemError("a global store is SOURCE(topic: ...) -> PROCESSOR(store: ...)", len(_GLOBAL_STORE))
    part = _Part("", number, column, is_global=True)
    part.nodes = [
        SourceNode(name=source_name.strip(), topics=(topic.strip(),)),
        ProcessorNode(name=name.strip(), stores=(store[:-1].strip(),)),
    ]
    part.feeds = [name.strip(), ""]
    return part


def _listed(text: str) -> tuple[str, ...] | None:
    if not (text.startswith("[") and text.endswith("]") and len(text) > 1):
        return None
    inner = text[1:-1]
    return tuple(inner.split(", ")) if inner else ()


def _successors(arrows: str) -> str:
    """The text behind `-->`, up to a `<--`; empty where only `<--` stands."""
    if arrows.startswith("<--"):
        return ""
    back = _BACK_ARROW.search(arrows, 3)
    return arrows[3 : None if back is None else back.start()].strip()


# --- from parts to a description


def _assembled(reading: _TextParts) -> Description | Unreadable:
    subtopologies: list[Subtopology] = []
    stores: list[GlobalStore] = []
    for part in reading.parts:
        nodes = _linked_nodes(part, has_brackets=reading.has_brackets)
        if not part.is_global:
            subtopologies.append(Subtopology(id=part.id, nodes=nodes))
            continue
        match nodes:
            case (SourceNode() as source, ProcessorNode() as processor):
                stores.append(GlobalStore(source=source, processor=processor))
            case _:
                text = "a global store has one source and one processor, in this order"
                return Unreadable(part.line, part.column, text)
    return Description(subtopologies=tuple(subtopologies), global_stores=tuple(stores))


def _linked_nodes(part: _Part, *, has_brackets: bool) -> tuple[Node, ...]:
    with_commas = _names_with_commas(part.nodes)
    linked = []
    for node, feeds in zip(part.nodes, part.feeds, strict=True):
        known = _with_topics(node) if isinstance(node, SourceNode) and not has_brackets else node
        linked.append(replace(known, successors=_split_names(feeds, with_commas)) if feeds else known)
    return tuple(linked)


def _with_topics(source: SourceNode) -> SourceNode:
    """The source of a text without brackets: names of topics are topics, anything else is a pattern."""
    names = [] if source.pattern is None else source.pattern.split(", ")
    if not names or not all(map(_LEGAL_TOPIC.fullmatch, names)):
        return source
    return replace(source, topics=tuple(names), pattern=None)


def _names_with_commas(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Names that contain `, `, by what stands before the first, the longest first."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        first, comma, _ = node.name.partition(", ")
        if comma and len(node.name) <= _LONGEST_LISTED:
            found.setdefault(first, set()).add(node.name)
    return {first: sorted(names, key=len, reverse=True)[:_MOST_LISTED] for first, names in found.items()}


def _split_names(text: str, with_commas: dict[str, list[str]]) -> tuple[str, ...]:
    """The names in `a, b, c`; where a known name holds commas itself, the longest that fits."""
    if text in {"", NONE}:
        return ()
    if not with_commas:
        return tuple(text.split(", "))
    names = []
    at = 0
    while at <= len(text):
        end = text.find(", ", at)
        name = text[at : len(text) if end < 0 else end]
        for longer in with_commas.get(name, ()):
            if text.startswith(longer, at) and text[at + len(longer) : at + len(longer) + 2] in {"", ", "}:
                name = longer
                break
        names.append(name)
        at += len(name) + 2
    return tuple(names)
