"""The difference between two versions: real versions of one application, and what the optimizer of Streams makes.

The expected results of the optimized shapes are written by hand, from their texts in `tests/fixtures/topologies`.
"""

import random
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.facts.topology import Description, Node, ProcessorNode, SinkNode, SourceNode, Subtopology
from headgate.topologies.model.topology_diff import TopologyDiff, diff
from tests.unit.topologies import topologies
from tests.unit.topologies.topologies import GENERATED, generated

OPTIMIZED = [name for name in GENERATED if name.endswith(".optimized")]


def shown(found: TopologyDiff) -> dict[str, list[tuple[Any, ...]]]:
    """What differs, without what is empty, kinds and the sub-topologies of added and removed nodes."""
    lists: dict[str, list[tuple[Any, ...]]] = {
        "added": [(one.name,) for one in found.added],
        "removed": [(one.name,) for one in found.removed],
        "renamed": [one[1:] for one in found.renamed],
        "moved": [one[1:] for one in found.moved],
        "changed": [one[1:] for one in found.changed],
    }
    return {name: values for name, values in lists.items() if values}


def edited(name: str) -> dict[str, list[tuple[Any, ...]]]:
    return shown(diff(generated("orders-v1"), generated(f"orders-{name}")))


def test_an_operator_in_front_of_thirty_nodes_is_one_added_node() -> None:
    before, after = generated("orders-v1"), generated("orders-operator-in-front")
    assert sum(len(part.nodes) for part in before.subtopologies) == 30
    found = diff(before, after)
    assert shown(found) == {"added": [("KSTREAM-PEEK-0000000001",)]}
    assert found.renumbered == 23


def test_an_operator_in_front_of_unnamed_stores_renumbers_them_too() -> None:
    before, after = generated("orders-unnamed"), generated("orders-unnamed-operator-in-front")
    old, new = "KSTREAM-AGGREGATE-STATE-STORE-0000000022", "KSTREAM-AGGREGATE-STATE-STORE-0000000023"
    assert shown(diff(before, after)) == {
        "added": [("KSTREAM-PEEK-0000000001",)],
        "changed": [
            ("KSTREAM-AGGREGATE-0000000024", "stores", (old,), (new,)),
            ("KSTREAM-SINK-0000000025", "topics", (f"{old}-repartition",), (f"{new}-repartition",)),
            ("KSTREAM-SOURCE-0000000027", "topics", (f"{old}-repartition",), (f"{new}-repartition",)),
        ],
    }


def test_a_renamed_node_is_renamed() -> None:
    assert edited("filter-renamed") == {"renamed": [("valid", "only-valid")]}


def test_a_node_with_another_store_has_changed() -> None:
    change = ("KSTREAM-AGGREGATE-0000000022", "stores", ("totals",), ("product-totals",))
    assert edited("store-renamed") == {"changed": [change]}


def test_a_sink_with_another_topic_has_changed() -> None:
    change = ("KSTREAM-SINK-0000000029", "topics", ("totals",), ("product-totals",))
    assert edited("other-output") == {"changed": [change]}


def test_a_branch_that_is_gone_is_removed() -> None:
    assert edited("store-gone") == {
        "removed": [
            ("KSTREAM-MAPVALUES-0000000019",),
            ("KSTREAM-REDUCE-0000000017",),
            ("KTABLE-TOSTREAM-0000000018",),
            ("KSTREAM-SINK-0000000020",),
        ]
    }


def test_nodes_behind_a_new_repartition_have_moved_to_another_sub_topology() -> None:
    assert edited("repartitioned") == {
        "added": [("spread-repartition-filter",), ("spread-repartition-sink",), ("spread-repartition-source",)],
        "moved": [
            ("by-product", "0", "1"),
            ("by-product-repartition-filter", "0", "1"),
            ("by-product-repartition-sink", "0", "1"),
        ],
        "changed": [("KSTREAM-PEEK-0000000015", "successors", ("by-product",), ())],
    }


def test_a_grouping_that_got_a_name_has_renamed_its_nodes() -> None:
    found = shown(diff(generated("orders-unnamed"), generated("orders-v1")))
    assert sorted(found) == ["changed", "renamed"]
    assert found["renamed"] == [
        ("KSTREAM-FILTER-0000000025", "by-product-repartition-filter"),
        ("KSTREAM-KEY-SELECT-0000000021", "by-product"),
        ("KSTREAM-SINK-0000000024", "by-product-repartition-sink"),
        ("KSTREAM-SOURCE-0000000026", "by-product-repartition-source"),
    ]


def repartition_renamed(prefix: str, filtered: int, sink: int, source: int) -> list[tuple[str, str]]:
    """The optimizer names the three nodes of a repartition topic after the topic."""
    return [
        (f"KSTREAM-FILTER-{filtered:010d}", f"{prefix}-filter"),
        (f"KSTREAM-SINK-{sink:010d}", f"{prefix}-sink"),
        (f"KSTREAM-SOURCE-{source:010d}", f"{prefix}-source"),
    ]


COUNT_2 = "KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition"
COUNT_3 = "KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"
KEYS_1, KEYS_3 = "KSTREAM-KEY-SELECT-0000000001-repartition", "KSTREAM-KEY-SELECT-0000000003-repartition"
EXPECTED: dict[str, dict[str, list[tuple[Any, ...]]]] = {
    "count-rekeyed": {"renamed": [*repartition_renamed(COUNT_2, 5, 4, 6)]},
    "to-table-repartitioned": {"renamed": [*repartition_renamed("KSTREAM-TOTABLE-0000000002-repartition", 4, 3, 5)]},
    "orders-unnamed": {
        "renamed": [*repartition_renamed("KSTREAM-AGGREGATE-STATE-STORE-0000000022-repartition", 25, 24, 26)]
    },
    "orders-unnamed-operator-in-front": {
        "renamed": [*repartition_renamed("KSTREAM-AGGREGATE-STATE-STORE-0000000023-repartition", 26, 25, 27)]
    },
    "join-three-rekeyed": {"renamed": [*repartition_renamed(KEYS_1, 4, 3, 5)]},
    "join-streams-rekeyed": {
        "renamed": sorted([*repartition_renamed(KEYS_1, 5, 4, 6), *repartition_renamed(KEYS_3, 8, 7, 9)])
    },
    # One node keeps the window of both sides, and the merge reads it.
    "join-self": {
        "removed": [
            ("KSTREAM-JOINOTHER-0000000004",),
            ("KSTREAM-JOINTHIS-0000000003",),
            ("KSTREAM-WINDOWED-0000000002",),
        ],
        "changed": [("KSTREAM-MERGE-0000000005", "stores", (), ("KSTREAM-JOINTHIS-0000000003-store",))],
    },
    # Two repartition topics with the same content become one, which feeds both aggregations.
    "two-counts-rekeyed": {
        "removed": [("KSTREAM-FILTER-0000000013",), ("KSTREAM-SINK-0000000012",), ("KSTREAM-SOURCE-0000000014",)],
        "renamed": [*repartition_renamed(COUNT_2, 5, 4, 6)],
        "moved": [
            ("KSTREAM-REDUCE-0000000011", "2", "1"),
            ("KTABLE-TOSTREAM-0000000015", "2", "1"),
            ("KSTREAM-SINK-0000000016", "2", "1"),
        ],
        "changed": [(f"{COUNT_2}-source", "successors", (), ("KSTREAM-REDUCE-0000000011",))],
    },
    "three-counts-rekeyed-named": {
        "removed": [
            ("second-repartition-filter",),
            ("third-repartition-filter",),
            ("second-repartition-sink",),
            ("third-repartition-sink",),
            ("second-repartition-source",),
            ("third-repartition-source",),
        ],
        "moved": [
            ("KSTREAM-AGGREGATE-0000000009", "2", "1"),
            ("KSTREAM-AGGREGATE-0000000016", "3", "1"),
            ("KSTREAM-MAPVALUES-0000000014", "2", "1"),
            ("KSTREAM-MAPVALUES-0000000021", "3", "1"),
            ("KTABLE-TOSTREAM-0000000013", "2", "1"),
            ("KTABLE-TOSTREAM-0000000020", "3", "1"),
            ("KSTREAM-SINK-0000000015", "2", "1"),
            ("KSTREAM-SINK-0000000022", "3", "1"),
        ],
        "changed": [
            (
                "first-repartition-source",
                "successors",
                (),
                ("KSTREAM-AGGREGATE-0000000009", "KSTREAM-AGGREGATE-0000000016"),
            )
        ],
    },
    # The repartition is pulled up in front of the filter, which then stands behind it.
    "count-and-filter-rekeyed": {
        "renamed": [*repartition_renamed(COUNT_3, 6, 5, 7)],
        "moved": [("KSTREAM-FILTER-0000000002", "0", "1")],
        "changed": [
            (
                "KSTREAM-FILTER-0000000002",
                "successors",
                ("KSTREAM-FILTER-0000000006",),
                ("KSTREAM-AGGREGATE-0000000004",),
            ),
            ("KSTREAM-MAP-0000000001", "successors", ("KSTREAM-FILTER-0000000002",), (f"{COUNT_3}-filter",)),
            (f"{COUNT_3}-source", "successors", ("KSTREAM-AGGREGATE-0000000004",), ("KSTREAM-FILTER-0000000002",)),
        ],
    },
}


def test_every_optimized_shape_has_an_expected_result() -> None:
    assert sorted(EXPECTED) == sorted(name.removesuffix(".optimized") for name in OPTIMIZED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_what_the_optimizer_changes_is_what_differs(name: str) -> None:
    assert shown(diff(generated(name), generated(f"{name}.optimized"))) == EXPECTED[name]


@pytest.mark.parametrize("name", GENERATED)
def test_a_version_does_not_differ_from_itself_in_another_order(name: str) -> None:
    before = generated(name)
    shuffled = random.Random(name)

    def in_another_order(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(shuffled.sample(values, len(values)))

    parts = tuple(replace(part, nodes=in_another_order(part.nodes)) for part in in_another_order(before.subtopologies))
    after = Description(subtopologies=parts, global_stores=in_another_order(before.global_stores))
    assert diff(before, after).is_empty
    assert diff(after, before).is_empty


@pytest.mark.parametrize("name", GENERATED)
def test_renumbered_operators_are_the_same_nodes(name: str) -> None:
    found = diff(generated(name), renumbered(generated(name), 17))
    assert not found.added
    assert not found.removed
    assert not found.renamed
    assert not found.moved
    assert {change.field for change in found.changed} <= {"stores", "topics"}


def renumbered(description: Description, by: int) -> Description:
    """The same topology behind so many other operators."""

    def new(name: str) -> str:
        return re.sub(r"(?<=-)\d{10}", lambda number: f"{int(number[0]) + by:010d}", name)

    def node(value: Any) -> Any:
        successors = tuple(map(new, value.successors))
        match value:
            case SourceNode():
                return replace(value, name=new(value.name), topics=tuple(map(new, value.topics)), successors=successors)
            case ProcessorNode():
                return replace(value, name=new(value.name), stores=tuple(map(new, value.stores)), successors=successors)
            case SinkNode():
                topic = None if value.topic is None else new(value.topic)
                return replace(value, name=new(value.name), topic=topic)

    return Description(
        subtopologies=tuple(replace(part, nodes=tuple(map(node, part.nodes))) for part in description.subtopologies),
        global_stores=tuple(
            replace(store, source=node(store.source), processor=node(store.processor))
            for store in description.global_stores
        ),
    )


@pytest.mark.parametrize("name", GENERATED)
def test_an_operator_between_any_two_nodes_is_one_node_added_or_removed(name: str) -> None:
    before = generated(name)
    operators = ("KSTREAM-PEEK-0000000003", "KSTREAM-FILTER-0000000003", "KSTREAM-MAPVALUES-0000000003")
    edges = [
        (number, at, successor)
        for number, part in enumerate(before.subtopologies)
        for at, node in enumerate(part.nodes)
        for successor in range(len(node.successors))
    ]
    for count, (number, at, successor) in enumerate(edges):
        operator = operators[count % len(operators)]
        after = with_operator(renumbered(before, 5), operator, number, at, successor)
        forth, back = diff(before, after), diff(after, before)
        assert (len(forth.added), len(forth.removed), len(back.added), len(back.removed)) == (1, 0, 0, 1)
        for one in (*forth.added, *back.removed):  # of two equal neighbours it may be either
            assert one.name[:-10] == operator[:-10]
        for found in (forth, back):
            assert not found.renamed
            assert not found.moved
            assert "successors" not in {change.field for change in found.changed}


def with_operator(description: Description, operator: str, number: int, at: int, successor: int) -> Description:
    """An operator between a node and one of its successors, all by their places."""
    part = description.subtopologies[number]
    node = part.nodes[at]
    following = tuple(operator if place == successor else name for place, name in enumerate(node.successors))
    nodes = [*part.nodes, ProcessorNode(name=operator, successors=(node.successors[successor],))]
    nodes[at] = replace(node, successors=following)
    parts = list(description.subtopologies)
    parts[number] = replace(part, nodes=tuple(nodes))
    return replace(description, subtopologies=tuple(parts))


def chain(*nodes: Node) -> Description:
    return Description(subtopologies=(Subtopology(id="0", nodes=nodes),))


def test_operators_that_swap_places_are_not_renamed() -> None:
    before = chain(ProcessorNode(name="a", successors=("b",)), ProcessorNode(name="b"))
    after = chain(ProcessorNode(name="b", successors=("a",)), ProcessorNode(name="a"))
    assert shown(diff(before, after)) == {"changed": [("a", "successors", ("b",), ()), ("b", "successors", (), ("a",))]}


def test_another_operator_in_the_same_place_is_another_node() -> None:
    before = chain(
        SourceNode(name="s", topics=("t",), successors=("KSTREAM-FILTER-0000000001",)),
        ProcessorNode(name="KSTREAM-FILTER-0000000001"),
    )
    after = chain(
        SourceNode(name="s", topics=("t",), successors=("KSTREAM-MAP-0000000001",)),
        ProcessorNode(name="KSTREAM-MAP-0000000001"),
    )
    assert shown(diff(before, after)) == {
        "added": [("KSTREAM-MAP-0000000001",)],
        "removed": [("KSTREAM-FILTER-0000000001",)],
    }


def test_internal_topics_are_the_same_with_and_without_the_application_id() -> None:
    before = chain(SinkNode(name="k", topic="words-repartition"))
    after = chain(SinkNode(name="k", topic="shop-words-repartition"))
    assert diff(before, after, after_application="shop").is_empty
    assert not diff(before, after).is_empty


def test_a_cycle_is_compared() -> None:
    before = chain(ProcessorNode(name="a", successors=("b",)), ProcessorNode(name="b", successors=("a",)))
    after = chain(ProcessorNode(name="a", successors=("c",)), ProcessorNode(name="c", successors=("a",)))
    assert shown(diff(before, after)) == {"renamed": [("b", "c")]}


@settings(max_examples=60)
@given(topologies.descriptions(), topologies.descriptions())
def test_whatever_is_compared_every_node_is_matched_added_or_removed(before: Description, after: Description) -> None:
    found = diff(before, after)
    assert len(found.matches) + len(found.removed) == len(found.before)
    assert len(found.matches) + len(found.added) == len(found.after)
    assert all(one.kind == other.kind for one, other in found.matches)


@settings(max_examples=30)
@given(st.sampled_from(GENERATED), st.data())
def test_a_name_that_the_author_chose_can_be_changed_anywhere(name: str, data: st.DataObject) -> None:
    before = generated(name)
    names = sorted(node.name for part in before.subtopologies for node in part.nodes)
    if not names:
        return
    chosen = data.draw(st.sampled_from(names))

    def node(value: Any) -> Any:
        successors = tuple("chosen" if one == chosen else one for one in value.successors)
        return replace(value, name="chosen" if value.name == chosen else value.name, successors=successors)

    parts = tuple(replace(part, nodes=tuple(map(node, part.nodes))) for part in before.subtopologies)
    found = diff(before, Description(subtopologies=parts, global_stores=before.global_stores))
    assert not found.added
    assert not found.removed
    assert [one[1:] for one in found.renamed] == [(chosen, "chosen")]


def test_versions_of_many_equal_nodes_are_compared_in_time() -> None:
    def wide(count: int) -> Description:
        names = tuple(f"KSTREAM-MAP-{number:010d}" for number in range(count))
        middle = [ProcessorNode(name=name, successors=("z",)) for name in names]
        return chain(SourceNode(name="s", successors=names), *middle, ProcessorNode(name="z", successors=names))

    begun = time.process_time()
    found = diff(wide(3000), wide(3001))
    assert time.process_time() - begun < 10
    assert len(found.added) == 1
