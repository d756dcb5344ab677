"""The graph of topics and actors: closures and shortest paths, against a plain search over the pairs."""

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.errors import PlatformError
from headgate.lineage.graph import Closure, Direction, LineageFlow, LineageGraph, LineageNode, LineageUse


def flow(actor: str, in_topic: str, out_topic: str, component: str = "0") -> LineageFlow:
    return LineageFlow("streams", actor, component, in_topic, out_topic)


def use(actor: str, topic: str, direction: str = "read", kind: str = "consumer_group") -> LineageUse:
    return LineageUse(kind, actor, topic, direction)


def reached(closure: Closure) -> dict[tuple[str, str], int]:
    """The least depth of each topic and actor, without the root."""
    depths: dict[tuple[str, str], int] = {}
    for one in closure.nodes[1:]:
        depths.setdefault((one.node.kind, one.node.name), one.depth)
    return depths


def down(graph: LineageGraph, topic: str, limit: int = 1000) -> dict[tuple[str, str], int]:
    return reached(graph.closure(topic, "down", limit=limit))


def up(graph: LineageGraph, topic: str) -> dict[tuple[str, str], int]:
    return reached(graph.closure(topic, "up", limit=1000))


def test_an_application_and_what_it_makes_have_the_same_depth() -> None:
    graph = LineageGraph([use("g", "b")], [flow("one", "a", "b"), flow("two", "b", "c")])
    assert down(graph, "a") == {
        ("streams", "one"): 1,
        ("topic", "b"): 1,
        ("streams", "two"): 2,
        ("consumer_group", "g"): 2,
        ("topic", "c"): 2,
    }
    assert up(graph, "c") == {("streams", "two"): 1, ("topic", "b"): 1, ("streams", "one"): 2, ("topic", "a"): 2}


def test_two_components_of_an_application_show_no_path_between_them() -> None:
    graph = LineageGraph([], [flow("app", "a", "b", "0"), flow("app", "c", "d", "1")])
    assert down(graph, "a") == {("streams", "app"): 1, ("topic", "b"): 1}
    assert up(graph, "d") == {("streams", "app"): 1, ("topic", "c"): 1}
    assert graph.paths("a", "d", limit=10) == ([], False)


def test_inputs_of_one_component_reach_only_the_outputs_of_their_pairs() -> None:
    graph = LineageGraph([], [flow("app", "a", "x"), flow("app", "a", "y"), flow("app", "b", "y")])
    assert ("topic", "x") not in down(graph, "b")
    assert {name for kind, name in up(graph, "x") if kind == "topic"} == {"a"}
    assert {name for kind, name in up(graph, "y") if kind == "topic"} == {"a", "b"}


def test_pieces_of_a_component_in_any_order_show_the_same_paths() -> None:
    flows = [flow("app", "a", "x"), flow("app", "a", "y"), flow("app", "b", "y"), flow("other", "y", "z")]
    for seed in range(10):
        shuffled = random.Random(seed).sample(flows, len(flows))
        graph = LineageGraph([], shuffled)
        assert down(graph, "b") == {
            ("streams", "app"): 1,
            ("topic", "y"): 1,
            ("streams", "other"): 2,
            ("topic", "z"): 2,
        }


@pytest.mark.parametrize("kind", ["consumer_group", "connector", "client", "unattributed", "streams", "spark"])
def test_no_path_runs_through_an_actor_without_pairs(kind: str) -> None:
    graph = LineageGraph([use("x", "a", "read", kind), use("x", "b", "write", kind)], [])
    assert down(graph, "a") == {(kind, "x"): 1}
    assert up(graph, "b") == {(kind, "x"): 1}


def test_the_dead_letter_topic_of_a_share_group_depends_on_what_it_reads() -> None:
    graph = LineageGraph([use("sg", "a", "read", "share_group"), use("sg", "dlq", "write", "share_group")], [])
    assert down(graph, "a") == {("share_group", "sg"): 1, ("topic", "dlq"): 1}


def test_a_use_that_is_a_pair_already_is_one_node_of_the_application() -> None:
    uses = [use("app", "a", "read", "streams"), use("app", "b", "write", "streams"), use("app", "c", "read", "streams")]
    graph = LineageGraph(uses, [flow("app", "a", "b")])
    assert [one.node for one in graph.closure("a", "down", limit=10).nodes] == [
        LineageNode("topic", "a"),
        LineageNode("streams", "app", "0"),
        LineageNode("topic", "b"),
    ]
    assert down(graph, "c") == {("streams", "app"): 1}


def test_empty_topics_of_pairs_are_no_nodes() -> None:
    graph = LineageGraph([], [flow("app", "a", ""), flow("app", "", "b", "1")])
    assert sorted(graph.topics) == ["a", "b"]
    assert down(graph, "a") == {("streams", "app"): 1}
    assert up(graph, "b") == {("streams", "app"): 1}


def filled(topic: str, direction: str = "read") -> LineageUse:
    return LineageUse("streams", "app", topic, direction, filled=True)


def test_filled_uses_are_followed_at_the_open_ends_of_an_application() -> None:
    uses = [filled("p1"), filled("p2"), filled("w", "write")]
    flows = [flow("app", "", "x", "0"), flow("app", "a", "", "1"), flow("app", "b", "y", "2")]
    graph = LineageGraph(uses, flows)
    assert down(graph, "p1") == {("streams", "app"): 1, ("topic", "x"): 1}
    assert down(graph, "a") == {("streams", "app"): 1, ("topic", "w"): 1}
    assert down(graph, "b") == {("streams", "app"): 1, ("topic", "y"): 1}
    assert {name for kind, name in up(graph, "x") if kind == "topic"} == {"p1", "p2"}
    assert graph.paths("p1", "w", limit=5) == ([], False)


def test_a_pattern_flows_into_chosen_topics_where_a_pair_says_so() -> None:
    graph = LineageGraph([filled("p"), filled("w", "write")], [flow("app", "", "")])
    assert down(graph, "p") == {("streams", "app"): 1, ("topic", "w"): 1}


def test_a_global_store_has_no_open_end() -> None:
    graph = LineageGraph([filled("w", "write")], [flow("app", "a", "", "global"), flow("app", "b", "", "0")])
    assert down(graph, "a") == {("streams", "app"): 1}
    assert down(graph, "b") == {("streams", "app"): 1, ("topic", "w"): 1}


def test_what_a_filled_use_leads_to_is_marked_unless_another_use_does_too() -> None:
    uses = [filled("p"), filled("w", "write"), use("app", "z", "write", "streams")]
    graph = LineageGraph(uses, [flow("app", "", ""), flow("app", "", "z"), flow("app", "", "w", "1")])
    closure = graph.closure("p", "down", limit=10)
    assert {one.node.name: one.node.filled for one in closure.nodes} == {
        "p": False,
        "app": True,
        "w": False,
        "z": False,
    }
    graph = LineageGraph(uses, [flow("app", "", "")])
    assert {one.node.name: one.node.filled for one in graph.closure("w", "up", limit=10).nodes} == {
        "w": False,
        "app": True,
        "p": True,
    }
    [[*path]], _ = graph.paths("p", "w", limit=10)
    assert [(node.name, node.filled) for node in path] == [("p", False), ("app", True), ("w", True)]


def test_a_node_that_a_named_use_leads_to_as_well_is_not_marked() -> None:
    uses = [filled("w", "write")]
    for other in ("a-first", "z-last"):
        graph = LineageGraph(uses, [flow("app", "a", ""), flow(other, "a", "w")])
        (reached_w,) = (one for one in graph.closure("a", "down", limit=10).nodes if one.node.name == "w")
        assert not reached_w.node.filled


def test_a_filled_use_without_an_open_end_ends_a_path() -> None:
    graph = LineageGraph([filled("p"), filled("w", "write")], [flow("app", "a", "x")])
    assert down(graph, "p") == {("streams", "app"): 1}
    assert up(graph, "w") == {("streams", "app"): 1}


def test_cycles_and_loops_end() -> None:
    graph = LineageGraph([], [flow("one", "a", "b"), flow("two", "b", "a"), flow("self", "a", "a")])
    assert down(graph, "a") == {("streams", "one"): 1, ("streams", "self"): 1, ("topic", "b"): 1, ("streams", "two"): 2}
    found, more = graph.paths("a", "a", limit=5)
    assert (found, more) == ([[LineageNode("topic", "a")]], False)


def test_a_topic_that_is_not_in_the_graph_is_a_key_error() -> None:
    graph = LineageGraph([use("g", "a")], [])
    assert not graph.has_topic("g")
    for ask in (lambda: graph.closure("none", "down", limit=1), lambda: graph.paths("a", "none", limit=1)):
        with pytest.raises(KeyError, match="none"):
            ask()


def test_a_truncated_closure_has_the_nearest_nodes_and_the_counts_of_all() -> None:
    flows = [flow("fan", "a", f"t{number:03}") for number in range(100)]
    graph = LineageGraph([use("g", "t005")], flows)
    cut = graph.closure("a", "down", limit=5)
    assert [one.node.name for one in cut.nodes] == ["a", "fan", "t000", "t001", "t002", "t003"]
    assert [one.parent for one in cut.nodes] == [None, 0, 1, 1, 1, 1]
    assert (cut.topics, cut.actors, cut.depth, cut.is_truncated) == (100, 2, 1, True)
    assert not graph.closure("a", "down", limit=102).is_truncated
    assert graph.closure("a", "down", limit=101).is_truncated


def test_all_shortest_paths_are_found_up_to_the_limit() -> None:
    # Ten diamonds in a row: 1,024 shortest paths, of which few are made.
    flows = [flow(f"{side}{step}", f"t{step}", f"t{step + 1}") for step in range(10) for side in ("left", "right")] + [
        flow("long", "t0", "x"),
        flow("longer", "x", "t1"),
    ]
    graph = LineageGraph([], flows)
    found, more = graph.paths("t0", "t10", limit=7)
    assert more
    assert len({tuple(path) for path in found}) == 7
    assert {len(path) for path in found} == {21}
    found, more = graph.paths("t0", "t3", limit=8)
    assert (len(found), more) == (8, False)


def test_a_path_may_begin_and_end_with_an_actor() -> None:
    graph = LineageGraph([use("shop", "a", "write", "client"), use("g", "b")], [flow("app", "a", "b")])
    found, _ = graph.paths("shop", "g", limit=5)
    assert [[node.name for node in path] for path in found] == [["shop", "a", "app", "b", "g"]]
    assert graph.paths("g", "shop", limit=5) == ([], False)


def test_a_graph_over_the_limit_of_memory_is_refused() -> None:
    with pytest.raises(PlatformError, match="more than 3 uses of topics"):
        LineageGraph([use("g", str(number)) for number in range(4)], [], max_edges=3)


NAMES = st.sampled_from("abcdef")
FLOWS = st.lists(
    st.builds(flow, st.sampled_from(["p", "q", "r"]), NAMES | st.just(""), NAMES | st.just(""), st.sampled_from("01"))
)
USES = st.lists(
    st.builds(
        use,
        st.sampled_from(["p", "q", "g"]),
        NAMES,
        st.sampled_from(["read", "write"]),
        st.sampled_from(["streams", "share_group", "client"]),
    )
)


def plain_closure(
    root: str, direction: Direction, uses: list[LineageUse], flows: list[LineageFlow]
) -> dict[tuple[str, str], int]:
    """The same by a search from topic to topic, along pairs alone."""
    reads, writes = ("read", "write") if direction == "down" else ("write", "read")
    dead_letters = [
        ("share_group", one.actor, one.topic, other.topic)
        for one in uses
        for other in uses
        if one.actor_kind == other.actor_kind == "share_group" and one.actor == other.actor
        if (one.direction, other.direction) == (reads, writes)
    ]
    pairs = [
        (
            "streams",
            one.actor,
            *((one.in_topic, one.out_topic) if direction == "down" else (one.out_topic, one.in_topic)),
        )
        for one in flows
    ] + dead_letters
    ends = [(one.actor_kind, one.actor, one.topic, "") for one in uses if one.direction == reads]
    depths: dict[tuple[str, str], int] = {("topic", root): 0}
    queue = deque([root])
    while queue:
        topic = queue.popleft()
        depth = depths["topic", topic] + 1
        for kind, actor, start, end in pairs + ends:
            if start == topic:
                depths.setdefault((kind, actor), depth)
                if end and ("topic", end) not in depths:
                    depths["topic", end] = depth
                    queue.append(end)
    del depths["topic", root]
    return depths


@settings(max_examples=150, deadline=None)
@given(USES, FLOWS, st.sampled_from(["down", "up"]))
def test_a_closure_is_that_of_a_plain_search(
    uses: list[LineageUse], flows: list[LineageFlow], direction: Direction
) -> None:
    graph = LineageGraph(uses, flows)
    for topic in graph.topics:
        closure = graph.closure(topic, direction, limit=1000)
        expected = plain_closure(topic, direction, uses, flows)
        assert reached(closure) == expected
        assert closure.topics == sum(kind == "topic" for kind, _ in expected)
        assert closure.actors == sum(kind != "topic" for kind, _ in expected)
        assert closure.depth == max((depth for (kind, _), depth in expected.items() if kind == "topic"), default=0)
        for one in closure.nodes[1:]:
            assert one.parent is not None
            above = closure.nodes[one.parent]
            assert (above.node.kind == "topic") != (one.node.kind == "topic")


@settings(max_examples=50, deadline=None)
@given(USES, FLOWS, NAMES, NAMES)
def test_there_is_a_path_where_the_closure_reaches(
    uses: list[LineageUse], flows: list[LineageFlow], start: str, end: str
) -> None:
    graph = LineageGraph(uses, flows)
    if not (graph.has_topic(start) and graph.has_topic(end)) or start == end:
        return
    found, _ = graph.paths(start, end, limit=100)
    depth = plain_closure(start, "down", uses, flows).get(("topic", end))
    assert {len(path) for path in found} == (set() if depth is None else {2 * depth + 1})
    for path in found:
        assert (path[0].name, path[-1].name) == (start, end)
