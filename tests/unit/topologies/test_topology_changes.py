"""What changed between two versions."""

import pytest
from hypothesis import given

from headgate.facts.topology import Description, ProcessorNode, SinkNode, SourceNode, Subtopology
from headgate.topologies.model.topology_graph import (
    ElementChange,
    element_changes,
    kind_of,
    sections,
    stores_of,
    topics_of,
)
from tests.unit.topologies.topologies import GOLDEN, descriptions, golden


def version(*, topic: str = "out", stores: tuple[str, ...] = ("s",), id_: str = "0") -> Description:
    nodes = (
        SourceNode(name="S", topics=("in",), successors=("P",)),
        ProcessorNode(name="P", stores=stores, successors=("K",)),
        SinkNode(name="K", topic=topic),
    )
    return Description(subtopologies=(Subtopology(id=id_, nodes=nodes),))


def test_another_output_is_told_with_its_sink() -> None:
    assert element_changes(version(), version(topic="elsewhere")) == (
        ElementChange("output", "elsewhere", "added"),
        ElementChange("output", "out", "removed"),
        ElementChange("sink", "K", "changed"),
    )


def test_a_new_store_is_told_with_its_processor() -> None:
    assert element_changes(version(), version(stores=("s", "t"))) == (
        ElementChange("processor", "P", "changed"),
        ElementChange("store", "t", "added"),
    )


def test_the_number_of_a_sub_topology_is_no_change() -> None:
    assert element_changes(version(), version(id_="7")) == ()


def test_a_first_version_adds_everything_and_an_end_removes_it() -> None:
    added = element_changes(None, version())
    assert {change.change for change in added} == {"added"}
    assert {(change.element, change.name) for change in added} == {
        ("source", "S"),
        ("processor", "P"),
        ("sink", "K"),
        ("input", "in"),
        ("output", "out"),
        ("store", "s"),
    }
    assert element_changes(version(), None) == tuple(change._replace(change="removed") for change in added)


@pytest.mark.parametrize("name", GOLDEN)
def test_nothing_changed_in_the_same_topology(name: str) -> None:
    assert element_changes(golden(name), golden(name)) == ()


def names(description: Description) -> set[tuple[str, str]]:
    """The oracle's elements: a plain listing."""
    found = set()
    for node in (node for part in sections(description) for node in part.nodes):
        found.add((kind_of(node), node.name))
        found |= {("store", store) for store in stores_of(node)}
        found |= {("input" if kind_of(node) == "source" else "output", topic) for topic in topics_of(node)}
    return found


@given(descriptions(), descriptions())
def test_what_is_added_and_removed_is_the_difference_of_the_names(old: Description, new: Description) -> None:
    changes = element_changes(old, new)
    told = {kind: {tuple(one)[:2] for one in changes if one.change == kind} for kind in ("added", "removed", "changed")}
    assert told["added"] == names(new) - names(old)
    assert told["removed"] == names(old) - names(new)
    assert told["changed"] <= names(old) & names(new)
    assert element_changes(new, old) == tuple(
        sorted(
            one._replace(change={"added": "removed", "removed": "added"}.get(one.change, one.change)) for one in changes
        )
    )
