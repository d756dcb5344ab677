"""Texts of `Topology#describe()` in all their forms: golden ones of the real Kafka Streams, and older ones by hand."""

import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.facts.topology import Description, ProcessorNode, SinkNode, SourceNode, Subtopology, content_hash
from headgate.topologies.model.topology_parser import Unreadable, parse
from headgate.topologies.model.topology_text import render
from tests.unit.topologies import topologies
from tests.unit.topologies.topologies import FIXTURES, GENERATED, generated, read_golden

OLDER = sorted((FIXTURES / "older").glob("*/*.txt"))


def text_of(path: Path) -> str:
    return path.read_bytes().decode()  # line ends as they are


def test_the_generator_covers_many_shapes() -> None:
    assert len(GENERATED) >= 100
    assert sum(name.endswith(".optimized") for name in GENERATED) >= 10


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_text_is_parsed_as_java_walks_it_and_printed_so_that_it_is_parsed_again(name: str) -> None:
    expected = content_hash(generated(name))
    for text in (text_of(FIXTURES / "generated" / f"{name}.txt"), render(generated(name))):
        read = parse(text)
        assert isinstance(read, Description), read
        assert content_hash(read) == expected


@pytest.mark.parametrize("path", OLDER, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_older_form_is_the_same_topology(path: Path) -> None:
    own = path.parent / "expected.json"
    expected = read_golden(own) if own.exists() else generated(path.parent.name)
    read = parse(text_of(path))
    assert isinstance(read, Description), read
    assert content_hash(read) == content_hash(expected)
    again = parse(render(read))
    assert isinstance(again, Description), again
    assert content_hash(again) == content_hash(read)


def test_sources_without_brackets_beside_sources_with_brackets_have_patterns() -> None:
    text = "Topologies:\nSub-topology: 0\nSource: a (topics: [t])\nSource: b (topics: in.orders)\n"
    read = parse(text)
    assert isinstance(read, Description)
    assert read.subtopologies[0].nodes[1] == SourceNode(name="b", pattern="in.orders")


def test_a_byte_order_mark_does_not_make_a_text_a_log() -> None:
    read = parse("\ufeffTopologies:\nSub-topology: 0\nnonsense")
    assert read == Unreadable(3, 1, "expected a Source, a Processor, a Sink, an arrow or a sub-topology")


def test_a_cycle_is_read() -> None:
    text = "Topologies:\nSub-topology: 0\nProcessor: a (stores: [])\n--> b\nProcessor: b (stores: [])\n--> a\n"
    read = parse(text)
    assert isinstance(read, Description)
    assert [node.successors for node in read.subtopologies[0].nodes] == [("b",), ("a",)]


KIP_EXAMPLE = """\
Topologies:
   Sub-topology: 0
     Source:  KSTREAM-SOURCE-0000000000 (topics: [input-topic])
       --> my-processor
     Processor: my-processor (stores: [my-store])
       <-- KSTREAM-SOURCE-0000000000
       --> KSTREAM-SINK-0000000002
     Sink: KSTREAM-SINK-0000000002 (topic: output-topic)
       <-- my-processor
"""


def test_the_kips_own_example_with_its_other_indents_and_order_is_read() -> None:
    assert parse(KIP_EXAMPLE) == Description(
        subtopologies=(
            Subtopology(
                id="0",
                nodes=(
                    SourceNode(name="KSTREAM-SOURCE-0000000000", topics=("input-topic",), successors=("my-processor",)),
                    ProcessorNode(name="my-processor", stores=("my-store",), successors=("KSTREAM-SINK-0000000002",)),
                    SinkNode(name="KSTREAM-SINK-0000000002", topic="output-topic"),
                ),
            ),
        )
    )


def test_line_ends_of_another_system_are_read() -> None:
    assert parse(KIP_EXAMPLE.replace("\n", "\r\n")) == parse(KIP_EXAMPLE)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", (1, 1), "empty"),
        ("\n\n", (1, 1), "empty"),
        ("Topology:\n", (1, 1), "begins with"),
        ("\0\1\2\n\x7fELF", (1, 1), "begins with"),
        ("Topologies:\n  Source: a (topics: [t])", (2, 3), "below a 'Sub-topology"),
        ("Topologies:\n  Nonsense", (2, 3), "below a 'Sub-topology"),
        ("Topologies:\n Sub-topology: 0\n  --> a", (3, 3), "below its node"),
        ("Topologies:\n Sub-topology:\n", (2, 15), "has an id"),
        ("Topologies:\n Sub-topology: 0\n  Filter: a (stores: [])", (3, 3), "expected a Source"),
        ("Topologies:\n Sub-topology: 0\n  Source: a (topics: [t]", (3, 13), "not closed"),
        ("Topologies:\n Sub-topology: 0\n  Source: (topics: [t])", (3, 10), "has a name"),
        ("Topologies:\n Sub-topology: 0\n  Source: a (stores: [t])", (3, 26), "a Source has (topics: ...)"),
        ("Topologies:\n Sub-topology: 0\n  Processor: a (stores: s)", (3, 25), "in brackets"),
        ("log line\n12:00 Topologies:\n12:00 Sub-topology: 0\n12:00  Sink: a (x)", (4, 19), "a Sink has"),
        ("Topologies:\n Sub-topology: 0\nTopologies:\n", (3, 1), "a second topology"),
        ("Topologies:\n GlobalStore: a(topic: t) -> b", (2, 14), "SOURCE(topic: ...)"),
        (
            "Topologies:\n Sub-topology: 0 for global store (will not generate tasks)\n  Sink: a (topic: t)",
            (2, 2),
            "one source and one processor",
        ),
    ],
)
def test_a_text_that_is_no_topology_says_where_and_why(text: str, place: tuple[int, int], words: str) -> None:
    read = parse(text)
    assert isinstance(read, Unreadable)
    assert (read.line, read.column) == place
    assert words in read.text


@given(st.text() | topologies.descriptions().map(render))
@example("Topologies:\nSub-topology: 0\nSource: (topics: )")
def test_no_text_whatever_raises(text: str) -> None:
    assert isinstance(parse(text), Description | Unreadable)


@pytest.mark.parametrize(
    "line",
    [
        "Source:" + " " * 300_000 + ")",
        "Source: a" + " (topics: [t]" * 30_000,
        "--> " + "a, " * 100_000,
        "Sink: " + "(topic: " * 40_000 + ")",
        "Processor: a (stores: [" + "s, " * 350_000 + "])",
        "Processor: a (stores: []" + ")   " * 250_000,
        "Topology: " * 100_000,
        "Processor: " + "a, " * 100_000 + " (stores: [])\n--> " + "a, " * 300_000 + "b",
        "Processor: " + "a, " * 160 + " (stores: [])\n--> " + "a, " * 100_000 + "b",
        "-->" + " <-" * 300_000,
    ],
)
def test_a_hostile_line_costs_no_more_than_its_length(line: str) -> None:
    begun = time.process_time()
    parse(f"Topologies:\nSub-topology: 0\nProcessor: x, y (stores: [])\n{line}")
    assert time.process_time() - begun < 2
