"""Parts of a batch: what rows take, and where a batch is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.facts.topology import Description, SinkNode, SourceNode, Subtopology
from headgate.pipeline.parsing import description_text
from headgate.pipeline.parts import Record, description_weight, halves
from headgate.topologies.model.topology_graph import app_io, edge_rows, node_rows
from tests.unit.topologies.topologies import descriptions, patient


def records(*weights: int) -> list[Record]:
    return [
        Record(topic="t", partition=0, offset=number, kind="k", weight=weight) for number, weight in enumerate(weights)
    ]


@given(st.lists(st.integers(0, 100), min_size=2, max_size=50))
def test_halves_are_all_of_it_in_order_and_never_empty(weights: list[int]) -> None:
    whole = records(*weights)
    first, second = halves(whole)
    assert [*first, *second] == whole
    assert first
    assert second


@pytest.mark.parametrize(("weights", "cut"), [((1, 1, 1, 1), 2), ((100, 1, 1), 1), ((1, 1, 100), 2), ((0, 0), 1)])
def test_halves_weigh_about_the_same(weights: tuple[int, ...], cut: int) -> None:
    first, _ = halves(records(*weights))
    assert len(first) == cut


@patient
@given(descriptions())
def test_a_description_weighs_more_than_its_rows_take(description: Description) -> None:
    name = "an application with a long name " * 10
    rows = [*node_rows(description, name), *edge_rows(description, name), *app_io(description, name).pairs]
    takes = sum(len(name) + sum(len(str(value)) for value in row) for row in rows)
    assert description_weight(description_text(description), name) >= takes / 4


def test_pairs_count() -> None:
    """Few names, and as many pairs as there are sources times sinks."""
    names = [str(number) for number in range(200)]
    sinks = tuple(f"k{name}" for name in names)
    nodes: list[SourceNode | SinkNode] = [
        SourceNode(name=f"s{name}", topics=(name,), successors=sinks) for name in names
    ]
    nodes += [SinkNode(name=name, topic=name) for name in sinks]
    text = description_text(Description(subtopologies=(Subtopology(id="0", nodes=tuple(nodes)),)))
    assert description_weight(text, "app") > 40_000 * 300
