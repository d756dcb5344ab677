"""Which topics flow into which, by example and against an oracle that closes relations until nothing is new."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.facts.topology import Description, ProcessorNode, SinkNode, SourceNode, Subtopology
from headgate.topologies.model.topology_graph import TopicPair, app_io
from tests.unit.topologies.topologies import chain, descriptions, golden

APP = "app"
# Few names, so that nodes, stores, topics and what Kafka Streams makes of them meet often.
NAMES = st.sampled_from(
    ["a", "b", "c", "s", "s-changelog", "app-s-changelog", "x-repartition", "app-x-repartition", "y-changelog"]
)


def pairs(name: str) -> set[tuple[str, str, str]]:
    return set(app_io(golden(name), APP).pairs)


def test_a_repartition_topic_is_passed_through_and_is_no_output() -> None:
    assert pairs("wordcount") == {("0", "text", "counts-out")}


def test_a_table_flows_into_what_is_joined_with_it_and_into_nothing_else() -> None:
    """`users` reaches the branches through its store, and not the output of the windowed join."""
    assert pairs("joins") == {
        ("0", "left", "a"),
        ("0", "left", "b"),
        ("0", "left", "joined"),
        ("0", "right", "joined"),
        ("0", "users", "a"),
        ("0", "users", "b"),
    }


def test_what_flows_nowhere_and_what_comes_from_nowhere_have_an_empty_other_side() -> None:
    description = Description(
        subtopologies=(
            Subtopology(id="0", nodes=(SourceNode(name="S", topics=("in",)),)),
            Subtopology(
                id="1", nodes=(SourceNode(name="R", pattern=".*", successors=("K",)), SinkNode(name="K", topic="out"))
            ),
        )
    )
    assert app_io(description, APP).pairs == (TopicPair("0", "in", ""), TopicPair("1", "", "out"))


def test_a_pattern_that_flows_into_chosen_topics_has_two_empty_sides() -> None:
    source, sink = SourceNode(name="R", pattern=".*", successors=("K",)), SinkNode(name="K", topic=None)
    for nodes, pairs in (((source, sink), {("0", "", "")}), ((source,), set()), ((sink,), set())):
        description = Description(subtopologies=(Subtopology(id="0", nodes=nodes),))
        assert set(app_io(description, APP).pairs) == pairs


def test_sub_topologies_that_share_a_repartition_topic_are_one_component_named_by_the_first() -> None:
    description = Description(
        subtopologies=(
            Subtopology(
                id="10",
                nodes=(
                    SourceNode(name="S", topics=("in",), successors=("K",)),
                    SinkNode(name="K", topic="q-repartition"),
                ),
            ),
            Subtopology(
                id="2",
                nodes=(
                    SourceNode(name="R", topics=("q-repartition",), successors=("L",)),
                    SinkNode(name="L", topic="out"),
                ),
            ),
        )
    )
    assert app_io(description, APP).pairs == (TopicPair("2", "in", "out"),)


def test_a_topic_of_the_users_in_between_is_an_output_and_an_input() -> None:
    description = Description(
        subtopologies=(
            Subtopology(
                id="0", nodes=(SourceNode(name="S", topics=("in",), successors=("K",)), SinkNode(name="K", topic="mid"))
            ),
            Subtopology(
                id="1",
                nodes=(SourceNode(name="R", topics=("mid",), successors=("L",)), SinkNode(name="L", topic="out")),
            ),
        )
    )
    assert app_io(description, APP).pairs == (TopicPair("0", "in", "mid"), TopicPair("1", "mid", "out"))


@given(descriptions(NAMES))
def test_pairs_are_those_of_the_oracle(description: Description) -> None:
    flow = app_io(description, APP)
    assert flow.is_complete
    assert set(flow.pairs) == oracle(description)
    assert list(flow.pairs) == sorted(set(flow.pairs))


@given(descriptions())
def test_whatever_the_names_it_answers(description: Description) -> None:
    assert app_io(description, APP).is_complete


def test_a_long_line_is_no_depth() -> None:
    assert app_io(chain(10_000), APP).pairs == (TopicPair("0", "in", "out"),)


@pytest.mark.parametrize("bound", [{"max_pairs": 10}, {"max_steps": 500}])
def test_a_hostile_number_of_pairs_is_cut_and_said(bound: dict[str, int]) -> None:
    sources = tuple(SourceNode(name=f"S{i}", topics=(f"t{i}",), successors=("P",)) for i in range(100))
    sinks = tuple(SinkNode(name=f"K{i}", topic=f"o{i}") for i in range(100))
    middle = ProcessorNode(name="P", successors=tuple(sink.name for sink in sinks))
    description = Description(subtopologies=(Subtopology(id="0", nodes=(*sources, middle, *sinks)),))
    flow = app_io(description, APP, **bound)
    assert not flow.is_complete
    assert len(flow.pairs) <= 1000
    whole = app_io(description, APP)
    assert whole.is_complete
    assert len(whole.pairs) == 10_000


# --- the oracle -----------------------------------------------------------------------------------------------------

Thing = tuple[Any, ...]


def oracle(description: Description) -> set[TopicPair]:
    parts = [(part.id, part.nodes) for part in description.subtopologies]
    everything = [*parts, *((None, (store.source, store.processor)) for store in description.global_stores)]
    nodes = [(number, node) for number, (_, part) in enumerate(everything) for node in part]
    read = {topic for _, node in nodes if isinstance(node, SourceNode) for topic in node.topics}
    written = {node.topic for _, node in nodes if isinstance(node, SinkNode) and node.topic is not None}
    stores = {store for _, node in nodes if isinstance(node, ProcessorNode) for store in node.stores}

    def internal(topic: str) -> bool:
        ours = topic.startswith("app-") and topic.endswith(("-repartition", "-changelog"))
        own_repartition = topic.endswith("-repartition") and topic in read & written
        return ours or own_repartition or (topic.endswith("-changelog") and topic[: -len("-changelog")] in stores)

    flows: set[tuple[Thing, Thing]] = set()
    for number, node in nodes:
        here: Thing = ("node", number, node.name)
        flows |= {(here, ("node", number, other)) for other in node.successors}
        if isinstance(node, ProcessorNode):
            for store in node.stores:
                flows |= {(here, ("store", store)), (("store", store), here)}
        if isinstance(node, SourceNode):
            flows |= {(("topic", topic), here) for topic in node.topics if internal(topic)}
        if isinstance(node, SinkNode) and node.topic is not None and internal(node.topic):
            flows.add((here, ("topic", node.topic)))
    for store in stores:
        for topic in {f"{store}-changelog", f"app-{store}-changelog"} & (read | written):
            flows.add((("store", store), ("topic", topic)))
    there = {("node", number, node.name) for number, node in nodes}
    flows = {(one, other) for one, other in flows if one[0] != "node" or one in there}
    flows = {(one, other) for one, other in flows if other[0] != "node" or other in there}
    reach = closed(flows, there)
    together = closed(flows | {(other, one) for one, other in flows}, there)

    def component(thing: Thing) -> str:
        ids = {everything[other[1]][0] for one, other in together if one == thing and other[0] == "node"}
        named = sorted((id_ for id_ in ids if id_ is not None), key=lambda id_: (len(id_), id_))
        return named[0] if named else "global"

    found: set[TopicPair] = set()
    fed: set[tuple[Thing, str]] = set()
    sinks = [(("node", number, node.name), node.topic or "") for number, node in nodes if isinstance(node, SinkNode)]
    outside = [(sink, topic) for sink, topic in sinks if not internal(topic)]
    for number, node in nodes:
        if not isinstance(node, SourceNode):
            continue
        here = ("node", number, node.name)
        topics = {topic for topic in node.topics if not internal(topic)} if node.topics else {""}
        outs = {topic for sink, topic in outside if (here, sink) in reach}
        if topics:
            fed |= {(other, topic) for topic in outs for one, other in together if one == here}
        found |= {TopicPair(component(here), topic, out) for topic in topics for out in outs}
        if not outs:
            found |= {TopicPair(component(here), topic, "") for topic in topics - {""}}
    return found | {
        TopicPair(component(sink), "", topic) for sink, topic in outside if topic and (sink, topic) not in fed
    }


def closed(relation: set[tuple[Thing, Thing]], things: Iterable[Thing]) -> set[tuple[Thing, Thing]]:
    """Reflexive and transitive."""
    result = relation | {(thing, thing) for thing in things}
    while True:
        more = {(one, third) for one, other in result for second, third in relation if other == second} - result
        if not more:
            return result
        result |= more
