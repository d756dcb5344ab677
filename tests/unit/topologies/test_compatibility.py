"""Verdicts about a new version, for real versions of one application and for each rule."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings

from headgate.facts.topology import Description, GlobalStore, Node, ProcessorNode, SinkNode, SourceNode, Subtopology
from headgate.topologies.model.compatibility import Compatibility, Verdict, judge_compatibility
from headgate.topologies.model.topology_diff import diff
from tests.unit.topologies import topologies
from tests.unit.topologies.topologies import generated


def judged(
    before: Description, after: Description, partitions: Mapping[str, int] | None = None
) -> tuple[str, list[str]]:
    found: Compatibility = judge_compatibility(diff(before, after), partitions)
    return found.verdict.value, [reason.text for reason in found.reasons]


SAFE = ("safe", ["all stores and internal topics keep their names and their sub-topologies"])


@pytest.mark.parametrize("edit", ["v1", "operator-in-front", "filter-renamed", "other-output"])
def test_edits_that_touch_no_store_and_no_internal_topic_are_safe(edit: str) -> None:
    assert judged(generated("orders-v1"), generated(f"orders-{edit}")) == SAFE


def test_a_store_with_another_name_needs_a_reset() -> None:
    assert judged(generated("orders-v1"), generated("orders-store-renamed")) == (
        "reset",
        ["the changelog topic totals-changelog becomes product-totals-changelog, which begins empty"],
    )


def test_an_operator_in_front_of_unnamed_stores_needs_a_reset() -> None:
    old, new = "KSTREAM-AGGREGATE-STATE-STORE-0000000022", "KSTREAM-AGGREGATE-STATE-STORE-0000000023"
    assert judged(generated("orders-unnamed"), generated("orders-unnamed-operator-in-front")) == (
        "reset",
        [
            f"the changelog topic {old}-changelog becomes {new}-changelog, which begins empty",
            f"the repartition topic {old}-repartition becomes {new}-repartition, which begins empty",
        ],
    )


def test_a_store_that_is_gone_loses_state() -> None:
    assert judged(generated("orders-v1"), generated("orders-store-gone")) == (
        "state_lost",
        ["the store loyalty of sub-topology 0 is gone"],
    )


def test_a_store_in_another_sub_topology_loses_local_state() -> None:
    assert judged(generated("orders-v1"), generated("orders-repartitioned")) == (
        "state_lost",
        [
            (
                "the store totals moves from sub-topology 1 to 2: its local state belongs to tasks 1_N and is lost, "
                "and tasks 2_N restore it from its changelog topic"
            )
        ],
    )


OPTIMIZED = {
    "count-and-filter-rekeyed": "safe",
    "count-rekeyed": "safe",
    "join-self": "state_lost",
    "join-streams-rekeyed": "state_lost",
    "join-three-rekeyed": "safe",
    "orders-unnamed": "safe",
    "three-counts-rekeyed-named": "state_lost",
    "to-table-repartitioned": "safe",
    "two-counts-rekeyed": "state_lost",
}


@pytest.mark.parametrize("name", OPTIMIZED)
def test_switching_the_optimizer_on_is_judged_by_what_it_does(name: str) -> None:
    assert judged(generated(name), generated(f"{name}.optimized"))[0] == OPTIMIZED[name]


def test_a_repartition_topic_that_is_gone_needs_a_reset() -> None:
    verdict, reasons = judged(
        generated("three-counts-rekeyed-named"), generated("three-counts-rekeyed-named.optimized")
    )
    assert verdict == "state_lost"
    assert "the repartition topic second-repartition is gone: records in it that were not processed are lost" in reasons
    assert reasons == sorted(reasons[:2]) + sorted(reasons[2:])  # the worst first


def part(name: str, *nodes: Node) -> Subtopology:
    return Subtopology(id=name, nodes=nodes)


def counting(store: str, *, topic: str = "in", place: str = "0", suffix: str = "") -> Subtopology:
    return part(
        place,
        SourceNode(name=f"source{suffix}", topics=(topic,), successors=(f"count{suffix}",)),
        ProcessorNode(name=f"count{suffix}", stores=(store,)),
    )


def app(*parts: Subtopology) -> Description:
    return Description(subtopologies=parts)


def test_a_store_that_gets_the_name_of_another_one_loses_state() -> None:
    def version(first: int, second: int) -> Description:
        stores = [f"KSTREAM-AGGREGATE-STATE-STORE-{number:010d}" for number in (first, second)]
        return app(counting(stores[0], topic="a"), counting(stores[1], topic="b", place="1", suffix="2"))

    verdict, reasons = judged(version(3, 10), version(10, 17))
    assert verdict == "state_lost"
    assert reasons[0] == (
        "the store KSTREAM-AGGREGATE-STATE-STORE-0000000003 becomes KSTREAM-AGGREGATE-STATE-STORE-0000000010, "
        "whose changelog topic has the state of another store"
    )


def test_a_store_in_another_named_topology_has_another_changelog_topic() -> None:
    verdict, reasons = judged(app(counting("s", place="a__0")), app(counting("s", place="b__0")))
    assert verdict == "state_lost"
    assert "carries the name of the topology" in reasons[0]


def test_a_store_behind_a_new_repartition_topic_needs_a_reset() -> None:
    sink = part(
        "1", SourceNode(name="x", topics=("in",), successors=("y",)), SinkNode(name="y", topic="by-repartition")
    )
    assert judged(app(counting("s")), app(counting("s", topic="by-repartition"), sink)) == (
        "reset",
        ["the store s is now fed by the repartition topic by-repartition, which may distribute keys differently"],
    )


def test_a_global_store_can_go() -> None:
    store = GlobalStore(
        source=SourceNode(name="g", topics=("t",), successors=("p",)), processor=ProcessorNode(name="p", stores=("s",))
    )
    before = Description(subtopologies=(counting("c"),), global_stores=(store,))
    assert judged(before, app(counting("c"))) == SAFE


def test_another_number_of_partitions_needs_a_reset() -> None:
    before, after = app(counting("s", topic="small")), app(counting("s", topic="large"))
    assert judged(before, after) == SAFE
    assert judged(before, after, {"small": 4, "large": 12}) == (
        "reset",
        ["the changelog topic s-changelog has 4 partitions and needs 12"],
    )
    assert judged(before, after, {"small": 4, "large": 4}) == SAFE
    assert judged(before, after, {"small": 4}) == SAFE


def test_a_repartition_topic_has_as_many_partitions_as_the_tasks_that_write_it() -> None:
    def version(topic: str) -> Description:
        writing = part(
            "0", SourceNode(name="x", topics=(topic,), successors=("y",)), SinkNode(name="y", topic="by-repartition")
        )
        return app(writing, counting("s", topic="by-repartition", place="1"))

    assert judged(version("small"), version("large"), {"small": 4, "large": 12}) == (
        "reset",
        [
            "the changelog topic s-changelog has 4 partitions and needs 12",
            "the repartition topic by-repartition has 4 partitions and needs 12",
        ],
    )


@settings(max_examples=60)
@given(topologies.descriptions(), topologies.descriptions())
def test_any_two_versions_have_a_verdict_and_a_reason(before: Description, after: Description) -> None:
    found = judge_compatibility(diff(before, after), {"a": 3})
    assert found.verdict in Verdict
    assert found.reasons
    assert judge_compatibility(diff(before, before), {"a": 3}).verdict is Verdict.SAFE
