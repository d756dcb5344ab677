"""Descriptions for Hypothesis, hostile ones too, and the golden ones in their JSON form (CONTRACTS 3)."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from headgate.facts.topology import (
    Description,
    GlobalStore,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "topologies"
GOLDEN = sorted(path.stem for path in FIXTURES.glob("*.json"))
GENERATED = sorted(path.stem for path in (FIXTURES / "generated").glob("*.json"))

ODD = ["", " ", "none", "null", "a, b", "\0", "\n", "é", "😀", "\ue000", "\udc80", ")", "(topics: [x])", "x" * 2000]
hostile = st.text(max_size=6) | st.sampled_from(ODD)
plain = st.from_regex(r"[A-Za-z0-9._-]{1,8}", fullmatch=True).filter(lambda name: name not in {"none", "null"})


def from_json(raw: Any) -> Description:
    """The contract's form, read by hand: the tests' own reading, not the product's."""
    return Description(
        subtopologies=tuple(
            Subtopology(id=subtopology["id"], nodes=tuple(map(node_from_json, subtopology["nodes"])))
            for subtopology in raw["subtopologies"]
        ),
        global_stores=tuple(
            GlobalStore(source=node_from_json(store["source"]), processor=node_from_json(store["processor"]))
            for store in raw["global_stores"]
        ),
    )


def node_from_json(raw: Any) -> Any:
    classes: dict[str, Any] = {"source": SourceNode, "processor": ProcessorNode, "sink": SinkNode}
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
    return classes[raw["type"]](**{name: value for name, value in fields.items() if name != "type"})


def golden(name: str) -> Description:
    return read_golden(FIXTURES / f"{name}.json")


def generated(name: str) -> Description:
    return read_golden(FIXTURES / "generated" / f"{name}.json")


def read_golden(path: Path) -> Description:
    return from_json(json.loads(path.read_text("utf-8")))


def nodes(names: st.SearchStrategy[str]) -> st.SearchStrategy[Node]:
    many = st.lists(names, max_size=3).map(tuple)
    return st.one_of(
        st.builds(SourceNode, name=names, topics=many, pattern=st.none() | names, successors=many),
        st.builds(ProcessorNode, name=names, stores=many, successors=many),
        st.builds(SinkNode, name=names, topic=st.none() | names, successors=many),
    )


def descriptions(names: st.SearchStrategy[str] = hostile) -> st.SearchStrategy[Description]:
    many = st.lists(names, max_size=3).map(tuple)
    stores = st.builds(
        GlobalStore,
        source=st.builds(SourceNode, name=names, topics=many, successors=many),
        processor=st.builds(ProcessorNode, name=names, stores=many, successors=many),
    )
    subtopologies = st.builds(Subtopology, id=names, nodes=st.lists(nodes(names), max_size=4).map(tuple))
    return st.builds(
        Description,
        subtopologies=st.lists(subtopologies, max_size=3).map(tuple),
        global_stores=st.lists(stores, max_size=2).map(tuple),
    )


def chain(length: int) -> Description:
    """One long line of processors: the deepest topology of its size."""
    middle = tuple(
        ProcessorNode(name=f"P-{i:06}", stores=(f"s-{i}",), successors=(f"P-{i + 1:06}",)) for i in range(length)
    )
    source = SourceNode(name="S", topics=("in",), successors=("P-000000",))
    sink = SinkNode(name=f"P-{length:06}", topic="out")
    return Description(subtopologies=(Subtopology(id="0", nodes=(source, *middle, sink)),))
