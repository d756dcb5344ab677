"""Topologies as text: the shipped tool's form to the letter, and real `Topology.describe()` texts read back."""

import pytest
from hypothesis import given

from headgate.facts.topology import (
    Description,
    GlobalStore,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
    content_hash,
)
from headgate.topologies.model.topology_parser import parse
from headgate.topologies.model.topology_text import fetch_failed_text, java_sorted, not_stored_text, render
from tests.unit.topologies import topologies
from tests.unit.topologies.topologies import FIXTURES, GOLDEN, golden


@pytest.mark.parametrize("name", GOLDEN)
def test_a_real_describe_text_is_read_as_what_java_says_it_is(name: str) -> None:
    read = parse((FIXTURES / f"{name}.txt").read_text("utf-8"))
    assert isinstance(read, Description), read
    assert content_hash(read) == content_hash(golden(name))


@pytest.mark.parametrize("name", GOLDEN)
def test_the_tools_text_is_printed_to_the_letter(name: str) -> None:
    assert render(golden(name)) == (FIXTURES / "tool" / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("name", GOLDEN)
def test_the_tools_text_is_read_back(name: str) -> None:
    read = parse((FIXTURES / "tool" / f"{name}.txt").read_text("utf-8"))
    assert isinstance(read, Description), read
    assert content_hash(read) == content_hash(golden(name))


def test_content_hashes_never_change() -> None:
    written = (FIXTURES / "hashes.txt").read_text("utf-8").splitlines()
    assert [f"{content_hash(golden(name))} {name}" for name in GOLDEN] == written


def node_lines(*nodes: SourceNode | ProcessorNode | SinkNode) -> list[str]:
    return render(Description(subtopologies=(Subtopology(id="0", nodes=nodes),))).split("\n")[2:]


def test_successors_stand_before_predecessors_and_are_sorted() -> None:
    lines = node_lines(
        SourceNode(name="s", topics=("b", "a"), successors=("z", "p")), ProcessorNode(name="p", successors=("z",))
    )
    assert lines == [
        "    Source: s (topics: [a, b])",
        "      --> p, z",
        "    Processor: p (stores: [])",
        "      --> z",
        "      <-- s",
        "",
        "",
    ]


def test_a_node_without_successors_has_the_word_none() -> None:
    assert node_lines(ProcessorNode(name="p"))[1:3] == ["      --> none", "      <-- none"]


def test_a_dynamic_sink_prints_null() -> None:
    assert node_lines(SinkNode(name="k", topic=None))[0] == "    Sink: k (topic: null)"


def test_global_stores_are_numbered_on_from_the_sub_topologies() -> None:
    store = GlobalStore(source=SourceNode(name="g", successors=("p",)), processor=ProcessorNode(name="p"))
    text = render(Description(subtopologies=(Subtopology(id="7", nodes=()),), global_stores=(store, store)))
    assert [line for line in text.split("\n") if "Sub-topology" in line] == [
        "   Sub-topology: 7",
        "   Sub-topology: 1 for global store (will not generate tasks)",
        "   Sub-topology: 2 for global store (will not generate tasks)",
    ]


def test_an_empty_topology_is_its_first_line() -> None:
    assert render(Description()) == "Topologies:\n"


def test_names_are_sorted_as_java_sorts_strings() -> None:
    assert java_sorted(["\ue000", "😀", "b", "B"]) == ["B", "b", "😀", "\ue000"]


def test_the_tools_words_when_there_is_nothing_to_print() -> None:
    assert not_stored_text("g") == "No topology description is stored for streams group 'g'."
    assert fetch_failed_text("g") == (
        "The broker failed to fetch the topology description for streams group 'g'. See the broker logs for details."
    )


def canonical(description: Description) -> Description:
    """As a text can say it: a pattern has no topics beside it, and a sink feeds nobody."""

    def node(value: SourceNode | ProcessorNode | SinkNode) -> SourceNode | ProcessorNode | SinkNode:
        successors = tuple(java_sorted(value.successors))
        match value:
            case SourceNode():
                return SourceNode(name=value.name, topics=tuple(java_sorted(value.topics)), successors=successors)
            case ProcessorNode():
                return ProcessorNode(name=value.name, stores=tuple(java_sorted(value.stores)), successors=successors)
            case SinkNode():
                return SinkNode(name=value.name, topic=value.topic)

    return Description(
        subtopologies=tuple(
            Subtopology(id=sub.id, nodes=tuple(map(node, sub.nodes))) for sub in description.subtopologies
        ),
        global_stores=description.global_stores,
    )


@given(topologies.descriptions(topologies.plain).map(canonical))
def test_plain_names_survive_the_text(description: Description) -> None:
    read = parse(render(description))
    assert isinstance(read, Description), read
    assert content_hash(read) == content_hash(description)
