"""Nodes and edges of a topology as rows, by example and against a plain second reading."""

import random
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.facts.topology import Description, GlobalStore, ProcessorNode, SinkNode, SourceNode, Subtopology
from headgate.topologies.model.topology_graph import EdgeRow, NodeRow, edge_rows, internal_topics, node_rows
from tests.unit.topologies.topologies import GOLDEN, chain, descriptions, golden

APP = "orders-app"
T = TypeVar("T")


def one_part(*nodes: SourceNode | ProcessorNode | SinkNode) -> Description:
    return Description(subtopologies=(Subtopology(id="0", nodes=nodes),))


def test_topics_and_stores_are_nodes_of_their_own() -> None:
    description = Description(
        subtopologies=(
            Subtopology(
                id="0",
                nodes=(
                    SourceNode(name="S", topics=("in",), successors=("P",)),
                    ProcessorNode(name="P", stores=("counts",), successors=("K",)),
                    SinkNode(name="K", topic="out"),
                ),
            ),
        ),
        global_stores=(
            GlobalStore(
                source=SourceNode(name="GS", topics=("rates",), successors=("GP",)),
                processor=ProcessorNode(name="GP", stores=("rates",)),
            ),
        ),
    )
    assert set(node_rows(description, APP)) == {
        NodeRow("source", "S", "0"),
        NodeRow("processor", "P", "0"),
        NodeRow("sink", "K", "0"),
        NodeRow("topic", "in"),
        NodeRow("topic", "out"),
        NodeRow("store", "counts", "0"),
        NodeRow("source", "GS", is_global=True),
        NodeRow("processor", "GP", is_global=True),
        NodeRow("topic", "rates", is_global=True),
        NodeRow("store", "rates", is_global=True),
    }
    assert set(edge_rows(description, APP)) == {
        EdgeRow("topic", "in", "source", "S"),
        EdgeRow("source", "S", "processor", "P"),
        EdgeRow("processor", "P", "store", "counts"),
        EdgeRow("processor", "P", "sink", "K"),
        EdgeRow("sink", "K", "topic", "out"),
        EdgeRow("topic", "rates", "source", "GS"),
        EdgeRow("source", "GS", "processor", "GP"),
        EdgeRow("processor", "GP", "store", "rates"),
    }


def test_a_pattern_stays_with_its_source() -> None:
    description = one_part(SourceNode(name="S", pattern="in-.*"))
    assert node_rows(description, APP) == (NodeRow("source", "S", "0", "in-.*"),)


def test_a_successor_that_is_not_there_is_no_edge() -> None:
    assert edge_rows(one_part(ProcessorNode(name="P", successors=("gone",))), APP) == ()


@pytest.mark.parametrize(
    ("topic", "is_internal"),
    [
        ("orders-app-by-user-repartition", True),  # as it is called in the cluster
        ("orders-app-counts-changelog", True),
        ("by-user-repartition", True),  # as Topology.describe() calls it, written and read
        ("counts-changelog", True),  # of its own store
        ("other-app-by-user-changelog", False),
        ("audit-changelog", False),  # no store of that name
        ("orders-app-totals", False),
        ("orders-appx-repartition", True),  # written and read by it, so its own
    ],
)
def test_internal_topics_are_marked(topic: str, is_internal: bool) -> None:
    description = one_part(
        SinkNode(name="K", topic=topic),
        SourceNode(name="S", topics=(topic,)),
        ProcessorNode(name="P", stores=("counts",)),
    )
    assert (topic in internal_topics(description, APP)) == is_internal
    edges = [row for row in edge_rows(description, APP) if "topic" in {row.from_kind, row.to_kind}]
    assert {row.is_internal for row in node_rows(description, APP) if row.kind == "topic"} == {is_internal}
    assert {row.is_internal for row in edges} == {is_internal}


def test_another_applications_repartition_topic_is_not_internal() -> None:
    description = one_part(SourceNode(name="S", topics=("other-by-user-repartition",)))
    assert internal_topics(description, APP) == frozenset()


@pytest.mark.parametrize("name", GOLDEN)
def test_real_topologies_have_a_row_for_each_node_and_each_edge(name: str) -> None:
    description = golden(name)
    parts = [subtopology.nodes for subtopology in description.subtopologies]
    parts += [(store.source, store.processor) for store in description.global_stores]
    nodes = [node for part in parts for node in part]
    rows = [row for row in node_rows(description, APP) if row.kind in {"source", "processor", "sink"}]
    assert len(rows) == len(nodes)
    between = [row for row in edge_rows(description, APP) if not {row.from_kind, row.to_kind} & {"topic", "store"}]
    assert len(between) == sum(len(node.successors) for node in nodes)


@given(descriptions(), st.randoms(use_true_random=False))
def test_rows_are_blind_to_order_and_have_each_key_once(description: Description, chance: random.Random) -> None:
    nodes, edges = node_rows(description, APP), edge_rows(description, APP)
    assert len({row[:2] for row in nodes}) == len(nodes)
    assert len({row[:4] for row in edges}) == len(edges)
    shuffled = replace(
        description,
        subtopologies=shuffle(
            tuple(replace(part, nodes=shuffle(part.nodes, chance)) for part in description.subtopologies), chance
        ),
        global_stores=shuffle(description.global_stores, chance),
    )
    assert node_rows(shuffled, APP) == nodes
    assert edge_rows(shuffled, APP) == edges


def shuffle(things: tuple[T, ...], chance: random.Random) -> tuple[T, ...]:
    return tuple(chance.sample(things, len(things)))


def test_ten_thousand_nodes_in_a_line_are_only_rows() -> None:
    description = chain(10_000)
    assert len(node_rows(description, APP)) == 10_002 + 2 + 10_000  # nodes, topics, stores
    assert len(edge_rows(description, APP)) == 10_001 + 2 + 10_000
