"""The topology in a member's join: its fingerprint, and the partial description that is made of it."""

from dataclasses import replace

import pytest

from headgate.facts.topology import ProcessorNode, SinkNode, SourceNode
from headgate.plugin.conformance import HOSTILE_NAMES
from headgate.topologies.model.topology_graph import TopicPair, app_io
from headgate.topologies.older_clients.assignment_topology import fingerprint, partial_description
from headgate.wire.messages.streams import (
    CopartitionGroup,
    HeartbeatSubtopology,
    HeartbeatTopology,
    KeyValue,
    TopicInfo,
)


def topology(*parts: HeartbeatSubtopology, epoch: int = 0) -> HeartbeatTopology:
    return HeartbeatTopology(epoch=epoch, subtopologies=parts)


COUNTING = topology(
    HeartbeatSubtopology(
        subtopology_id="0",
        source_topics=("lines", "more"),
        source_topic_regex=("eu-.*",),
        repartition_sink_topics=("app-counts-repartition",),
        copartition_groups=(CopartitionGroup(source_topics=(0, 1)),),
    ),
    HeartbeatSubtopology(
        subtopology_id="1",
        state_changelog_topics=(TopicInfo(name="app-counts-changelog"),),
        repartition_source_topics=(TopicInfo(name="app-counts-repartition", partitions=2),),
    ),
)


def test_a_partial_description_has_sources_patterns_stores_and_repartition_topics() -> None:
    first, second = partial_description(COUNTING, "app").subtopologies
    assert (first.id, second.id) == ("0", "1")
    assert first.nodes == (
        SourceNode(name="ASSIGNMENT-0-SOURCE", topics=("lines", "more"), successors=("ASSIGNMENT-0-PROCESSOR",)),
        SourceNode(name="ASSIGNMENT-0-SOURCE-0", pattern="eu-.*", successors=("ASSIGNMENT-0-PROCESSOR",)),
        ProcessorNode(name="ASSIGNMENT-0-PROCESSOR", successors=("ASSIGNMENT-0-SINK-0",)),
        SinkNode(name="ASSIGNMENT-0-SINK-0", topic="app-counts-repartition"),
    )
    assert second.nodes == (
        SourceNode(
            name="ASSIGNMENT-1-SOURCE", topics=("app-counts-repartition",), successors=("ASSIGNMENT-1-PROCESSOR",)
        ),
        ProcessorNode(name="ASSIGNMENT-1-PROCESSOR", stores=("counts",)),
    )


def test_its_inputs_are_those_of_the_application_with_unknown_outputs() -> None:
    pairs = app_io(partial_description(COUNTING, "app"), "app").pairs
    assert pairs == (TopicPair("0", "lines", ""), TopicPair("0", "more", ""))


@pytest.mark.parametrize("changelog", ["orders", "app--changelog", "other-counts-changelog", "app-counts"])
def test_a_changelog_topic_that_names_no_store_is_left_out(changelog: str) -> None:
    part = HeartbeatSubtopology(subtopology_id="0", state_changelog_topics=(TopicInfo(name=changelog),))
    [found] = partial_description(topology(part), "app").subtopologies
    assert found.nodes == (ProcessorNode(name="ASSIGNMENT-0-PROCESSOR"),)


def test_a_fingerprint_does_not_depend_on_the_order_in_which_a_client_lists_things() -> None:
    first, second = COUNTING.subtopologies
    other_order = replace(first, source_topics=("more", "lines"))
    listed = replace(other_order, copartition_groups=(CopartitionGroup(source_topics=(1, 0)),))
    assert fingerprint(topology(second, listed)) == fingerprint(COUNTING)
    one = replace(first, copartition_groups=(CopartitionGroup(source_topics=(0,)),))
    same = replace(other_order, copartition_groups=(CopartitionGroup(source_topics=(1,)),))
    assert fingerprint(topology(second, one)) == fingerprint(topology(second, same))


@pytest.mark.parametrize(
    "other",
    [
        {"subtopology_id": "2"},
        {"source_topics": ("lines",)},
        {"source_topic_regex": ()},
        {"repartition_sink_topics": ()},
        {"state_changelog_topics": (TopicInfo(name="app-x-changelog"),)},
        {"repartition_source_topics": (TopicInfo(name="r", partitions=3),)},
        {"repartition_source_topics": (TopicInfo(name="r", replication_factor=3),)},
        {"repartition_source_topics": (TopicInfo(name="r", topic_configs=(KeyValue(key="k", value="v"),)),)},
        {"copartition_groups": ()},
        {"copartition_groups": (CopartitionGroup(source_topics=(0, 99, -1)),)},
    ],
)
def test_everything_that_a_broker_compares_is_in_the_fingerprint(other: dict[str, object]) -> None:
    base = replace(COUNTING.subtopologies[0], repartition_source_topics=(TopicInfo(name="r"),))
    assert fingerprint(topology(replace(base, **other))) != fingerprint(topology(base))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_carried_as_they_are(name: str) -> None:
    part = HeartbeatSubtopology(
        subtopology_id=name,
        source_topics=(name, name),
        source_topic_regex=(name,),
        state_changelog_topics=(TopicInfo(name=f"{name}-{name}-changelog"),),
    )
    [found] = partial_description(topology(part), name).subtopologies
    [source, pattern, processor] = found.nodes
    assert isinstance(source, SourceNode)
    assert source.topics == (name,)
    assert isinstance(pattern, SourceNode)
    assert pattern.pattern == name
    assert isinstance(processor, ProcessorNode)
    assert processor.stores == ((name,) if name else ())
    assert fingerprint(topology(part)).startswith("sha256:")
