"""The description model: what is refused as the broker refuses it, what is only found odd, and the content hash."""

import dataclasses
import hashlib
import itertools
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.facts import JsonText
from headgate.facts.topology import (
    Description,
    Flaw,
    GlobalStore,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
    content_hash,
    findings,
    predecessors,
)
from headgate.topologies.wire_descriptions import Refusal, from_wire, to_wire
from headgate.wire.messages.streams import (
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from tests.unit.topologies import topologies


def wire_node(node_type: int, name: str = "n", **fields: Any) -> TopologyDescriptionNode:
    return TopologyDescriptionNode(name=name, node_type=node_type, **fields)


def pushed(*nodes: TopologyDescriptionNode, stores: tuple[tuple[int, int], ...] = ()) -> TopologyDescription:
    return TopologyDescription(
        subtopologies=(TopologyDescriptionSubtopology(subtopology_id="0", nodes=nodes),),
        global_stores=tuple(
            TopologyDescriptionGlobalStore(source=wire_node(source), processor=wire_node(processor))
            for source, processor in stores
        ),
    )


@pytest.mark.parametrize("node_type", [0, 4, -1, 127, -128])
def test_a_node_type_that_kafka_does_not_know_refuses_the_push(node_type: int) -> None:
    assert from_wire(pushed(wire_node(node_type))) == Refusal(f"Unknown topology node type: {node_type}")


@pytest.mark.parametrize("pair", [pair for pair in itertools.product((1, 2, 3), repeat=2) if pair != (1, 2)])
def test_a_global_store_that_is_no_source_and_processor_refuses_the_push(pair: tuple[int, int]) -> None:
    refusal = Refusal("Global store must be composed of a source and a processor node.")
    assert from_wire(pushed(stores=(pair,))) == refusal


def test_an_unknown_type_in_a_global_store_is_told_before_its_composition() -> None:
    assert from_wire(pushed(stores=((2, 9),))) == Refusal("Unknown topology node type: 9")


def test_sub_topologies_are_checked_before_global_stores() -> None:
    assert from_wire(pushed(wire_node(7), stores=((9, 9),))) == Refusal("Unknown topology node type: 7")


def test_names_that_stand_twice_are_kept_once_at_their_first_place() -> None:
    node = wire_node(1, source_topics=("b", "a", "b"), successors=("y", "x", "y"))
    description = from_wire(pushed(node))
    assert isinstance(description, Description)
    assert description.subtopologies[0].nodes == (SourceNode(name="n", topics=("b", "a"), successors=("y", "x")),)


@pytest.mark.parametrize(
    ("node_type", "node"),
    [
        (1, SourceNode(name="n", topics=("t",))),
        (2, ProcessorNode(name="n", stores=("s",))),
        (3, SinkNode(name="n", topic="out")),
    ],
)
def test_what_a_node_of_its_type_does_not_have_is_dropped(node_type: int, node: Node) -> None:
    description = from_wire(pushed(wire_node(node_type, source_topics=("t",), stores=("s",), sink_topic="out")))
    assert isinstance(description, Description)
    assert description.subtopologies[0].nodes == (node,)


@given(topologies.descriptions())
def test_what_the_wire_can_carry_comes_back_from_it(description: Description) -> None:
    assert from_wire(to_wire(description)) == carried(description)


def carried(description: Description) -> Description:
    """Without patterns, and with every name once."""

    def node(value: Any) -> Any:
        many = {name: tuple(dict.fromkeys(getattr(value, name, ()))) for name in ("topics", "stores", "successors")}
        fields = {name: names for name, names in many.items() if hasattr(value, name)}
        return dataclasses.replace(value, **fields, **({"pattern": None} if hasattr(value, "pattern") else {}))

    return Description(
        subtopologies=tuple(
            Subtopology(id=one.id, nodes=tuple(map(node, one.nodes))) for one in description.subtopologies
        ),
        global_stores=tuple(
            GlobalStore(source=node(one.source), processor=node(one.processor)) for one in description.global_stores
        ),
    )


@given(topologies.descriptions(), st.integers())
def test_the_content_hash_is_blind_to_every_order(description: Description, seed: int) -> None:
    chance = random.Random(seed)

    def mixed(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(chance.sample(items, len(items)))

    def node(value: Any) -> Any:
        lists = {
            name: mixed(getattr(value, name)) for name in ("topics", "stores", "successors") if hasattr(value, name)
        }
        return dataclasses.replace(value, **lists)

    shuffled = Description(
        subtopologies=mixed(
            tuple(Subtopology(id=sub.id, nodes=mixed(tuple(map(node, sub.nodes)))) for sub in description.subtopologies)
        ),
        global_stores=mixed(
            tuple(
                GlobalStore(source=node(store.source), processor=node(store.processor))
                for store in description.global_stores
            )
        ),
    )
    assert content_hash(shuffled) == content_hash(description)


def canonical(description: Description) -> object:
    """The content, said plainly and slowly."""

    def node(value: Any) -> object:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return type(value).__name__, sorted(
            (name, sorted(set(item)) if isinstance(item, tuple) else repr(item)) for name, item in fields.items()
        )

    return (
        sorted((sub.id, sorted(map(repr, map(node, sub.nodes)))) for sub in description.subtopologies),
        sorted(repr((node(store.source), node(store.processor))) for store in description.global_stores),
    )


@given(topologies.descriptions(), topologies.descriptions())
def test_equal_hashes_are_equal_contents(one: Description, other: Description) -> None:
    assert (content_hash(one) == content_hash(other)) == (canonical(one) == canonical(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ProcessorNode(name="a", stores=("bc",)), ProcessorNode(name="a", stores=("b", "c"))),
        (ProcessorNode(name="a1", stores=()), ProcessorNode(name="a", stores=("1",))),
        (SinkNode(name="a", topic=None), SinkNode(name="a", topic="")),
        (SourceNode(name="a", topics=("t",)), SourceNode(name="a", pattern="t")),
        (SourceNode(name="a"), ProcessorNode(name="a")),
        (ProcessorNode(name="a", successors=("b",)), ProcessorNode(name="a", stores=("b",))),
    ],
)
def test_contents_that_look_alike_have_different_hashes(one: Any, other: Any) -> None:
    hashes = {content_hash(Description(subtopologies=(Subtopology(id="0", nodes=(node,)),))) for node in (one, other)}
    assert len(hashes) == 2


def test_the_hash_of_nothing_is_written_down() -> None:
    written = hashlib.sha256(b"0[]0[]").hexdigest()
    assert content_hash(Description()) == f"sha256:{written}"


def test_fields_of_a_later_version_are_no_content() -> None:
    assert content_hash(Description(extra=(("new", JsonText("1")),))) == content_hash(Description())


def test_predecessors_are_rebuilt_from_successors() -> None:
    nodes = (
        SourceNode(name="a", successors=("b", "c")),
        ProcessorNode(name="b", successors=("c",)),
        SinkNode(name="c", topic=None),
    )
    assert predecessors(nodes) == {"b": ("a",), "c": ("a", "b")}


@given(topologies.descriptions())
def test_predecessors_invert_successors(description: Description) -> None:
    for subtopology in description.subtopologies:
        forth = {(node.name, successor) for node in subtopology.nodes for successor in node.successors}
        back = {(name, successor) for successor, names in predecessors(subtopology.nodes).items() for name in names}
        assert forth == back


def flaws(*nodes: Any) -> list[tuple[Flaw, str | None]]:
    description = Description(subtopologies=(Subtopology(id="0", nodes=nodes),))
    return [(finding.flaw, finding.node) for finding in findings(description)]


def test_a_cycle_is_no_flaw() -> None:
    assert flaws(ProcessorNode(name="a", successors=("b",)), ProcessorNode(name="b", successors=("a",))) == []


def test_a_node_that_feeds_itself_is_no_flaw() -> None:
    assert flaws(ProcessorNode(name="a", successors=("a",))) == []


def test_a_successor_that_is_not_there_is_found() -> None:
    assert flaws(ProcessorNode(name="a", successors=("gone",))) == [(Flaw.DANGLING_SUCCESSOR, "a")]


def test_a_name_that_two_nodes_have_is_found() -> None:
    assert flaws(ProcessorNode(name="a"), SinkNode(name="a", topic="t")) == [(Flaw.DUPLICATE_NODE, "a")]


def test_a_name_is_unique_over_sub_topologies_and_global_stores() -> None:
    store = GlobalStore(source=SourceNode(name="a", successors=("p",)), processor=ProcessorNode(name="p"))
    sub = Subtopology(id="0", nodes=(SourceNode(name="a"),))
    found = list(findings(Description(subtopologies=(sub,), global_stores=(store,))))
    assert [(finding.flaw, finding.subtopology, finding.node) for finding in found] == [
        (Flaw.DUPLICATE_NODE, None, "a")
    ]


def test_a_sub_topology_that_is_described_twice_is_found() -> None:
    sub = Subtopology(id="0", nodes=())
    assert [finding.flaw for finding in findings(Description(subtopologies=(sub, sub)))] == [Flaw.DUPLICATE_SUBTOPOLOGY]


def test_findings_of_a_hostile_description_are_taken_one_by_one() -> None:
    node = ProcessorNode(name="a", successors=tuple(map(str, range(100_000))))
    description = Description(subtopologies=(Subtopology(id="0", nodes=(node,)),))
    assert len(list(itertools.islice(findings(description), 10))) == 10


@pytest.mark.parametrize("name", topologies.GOLDEN)
def test_real_topologies_have_no_flaws(name: str) -> None:
    assert list(findings(topologies.golden(name))) == []


def test_ten_thousand_nodes_in_a_line_take_milliseconds() -> None:
    description = topologies.chain(10_000)
    begun = time.process_time()
    content_hash(description)
    assert list(findings(description)) == []
    assert len(predecessors(description.subtopologies[0].nodes)) == 10_001
    assert time.process_time() - begun < 0.5  # 20 ms on an idle machine
