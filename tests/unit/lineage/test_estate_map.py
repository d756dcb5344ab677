"""The map: which nodes and edges a question selects, what is refused, and what a limited caller sees."""

import pytest

from headgate.lineage.estate_map import EstateMap, MapQuestion, MapRow, MapSelection, MapUse, TooLarge
from headgate.lineage.graph import LineageFlow

SEEN = MapUse(True, True, False, False, 10, 1, 5)
INTERNAL = SEEN._replace(internal=True)
Edge = tuple[str | None, str | None]


def row(actor: str, topic: str, direction: str, kind: str = "streams", use: MapUse = SEEN) -> MapRow:
    return MapRow(kind, actor, topic, direction, use)


def shop(**limits: int) -> EstateMap:
    """The way is orders -> app -> totals -> reports, app <-> app-repartition; clicks -> app -> sessions apart."""
    rows = [
        row("app", "orders", "read"),
        row("app", "totals", "write"),
        row("app", "clicks", "read"),
        row("app", "sessions", "write"),
        row("app", "app-repartition", "read", use=INTERNAL),
        row("app", "app-repartition", "write", use=INTERNAL),
        row("reports", "totals", "read", "consumer_group"),
        row("shop", "orders", "write", "client", SEEN._replace(declared=False)),
    ]
    flows = [
        LineageFlow("streams", "app", "0", "orders", "totals"),
        LineageFlow("streams", "app", "1", "clicks", "sessions"),
    ]
    return EstateMap(rows, flows, **limits)


def selected(asked: MapQuestion, visible: list[bool] | None = None) -> MapSelection:
    found = shop().select(asked, visible)
    assert isinstance(found, MapSelection)
    return found


def names(found: MapSelection) -> list[str | None]:
    return [node.name for node in found.nodes]


def edges(found: MapSelection) -> list[Edge]:
    return [(found.nodes[edge.start].name, found.nodes[edge.end].name) for edge in found.edges]


def test_without_a_focus_all_is_selected_in_the_order_of_kinds_and_names() -> None:
    found = selected(MapQuestion())
    assert names(found) == ["shop", "reports", "app", "app-repartition", "clicks", "orders", "sessions", "totals"]
    assert ("orders", "app") in edges(found)
    assert ("app", "totals") in edges(found)
    assert len(found.edges) == 8


@pytest.mark.parametrize(
    ("hops", "direction", "expected"),
    [
        (1, "both", {"orders", "app", "shop"}),
        (1, "down", {"orders", "app"}),
        (2, "down", {"orders", "app", "totals", "sessions", "app-repartition"}),
        (None, "down", {"orders", "app", "totals", "sessions", "app-repartition", "reports"}),
        (None, "up", {"orders", "shop"}),
    ],
)
def test_a_focus_selects_what_lies_within_the_hops(hops: int | None, direction: str, expected: set[str]) -> None:
    asked = MapQuestion(focus="orders", hops=hops, direction=direction)  # type: ignore[arg-type]
    assert set(names(selected(asked))) == expected


def test_what_else_a_reader_reads_is_not_downstream_or_upstream() -> None:
    assert "clicks" not in names(selected(MapQuestion(focus="orders", hops=None)))


def test_an_unknown_focus_and_one_of_another_kind_are_key_errors() -> None:
    for asked in (MapQuestion(focus="order"), MapQuestion(focus="orders", focus_kind="streams")):
        with pytest.raises(KeyError):
            shop().select(asked)


def test_internal_topics_can_be_left_out() -> None:
    found = selected(MapQuestion(internal=False))
    assert "app-repartition" not in names(found)
    assert len(found.edges) == 6


def plumbing() -> EstateMap:
    """A Connect worker's own clients and topic, a tool that reads this topic, and an application with nothing else."""
    return EstateMap(
        [
            row("worker", "offsets", "read", "client", INTERNAL),
            row("worker", "offsets", "write", "client", INTERNAL),
            row("tool", "offsets", "read", "consumer_group", INTERNAL),
            row("tool", "orders", "read", "consumer_group"),
            row("app", "app-changelog", "write", use=INTERNAL),
        ],
        [],
    )


@pytest.mark.parametrize("kinds", [None, frozenset({"client", "consumer_group", "streams"})])
def test_clients_that_use_internal_topics_alone_are_left_out_with_these(kinds: frozenset[str] | None) -> None:
    found = plumbing().select(MapQuestion(internal=False, kinds=kinds))
    assert isinstance(found, MapSelection)
    assert set(names(found)) == {"tool", "app"} | ({"orders"} if kinds is None else set())
    everything = plumbing().select(MapQuestion())
    assert isinstance(everything, MapSelection)
    assert {"worker", "offsets", "app-changelog"} < set(names(everything))


@pytest.mark.parametrize(("focus", "expected"), [("offsets", {"worker", "offsets", "tool"}), ("worker", {"worker"})])
def test_a_focus_shows_an_internal_topic_with_all_of_its_clients(focus: str, expected: set[str]) -> None:
    found = plumbing().select(MapQuestion(focus=focus, hops=1, internal=False))
    assert isinstance(found, MapSelection)
    assert set(names(found)) == expected


def test_kinds_filter_nodes_and_the_edges_between_them() -> None:
    found = selected(MapQuestion(kinds=frozenset({"topic", "consumer_group"})))
    assert edges(found) == [("totals", "reports")]


def test_without_topics_actors_are_connected_by_the_topics_between_them() -> None:
    found = selected(MapQuestion(kinds=frozenset({"streams", "client", "consumer_group"}), collapsed=False))
    assert edges(found) == [("shop", "app"), ("app", "reports")]
    first, second = found.edges
    assert (first.topics, first.use.declared, first.use.observed) == (1, False, True)
    assert second.use.declared


def test_components_of_an_application_are_nodes_of_their_own() -> None:
    found = selected(MapQuestion(collapsed=False, internal=False))
    parts = {node.component: place for place, node in enumerate(found.nodes) if node.name == "app"}
    assert {"0", "1"} <= set(parts)
    between = {(edge.start, edge.end) for edge in found.edges}
    place = {node.name: place for place, node in enumerate(found.nodes) if node.kind == "topic"}
    assert (place["orders"], parts["0"]) in between
    assert (parts["1"], place["sessions"]) in between
    assert (place["orders"], parts["1"]) not in between


def test_uses_that_belong_to_no_component_stay_with_the_application() -> None:
    found = selected(MapQuestion(collapsed=False))
    rest = next(place for place, node in enumerate(found.nodes) if node.name == "app" and node.component is None)
    repartition = names(found).index("app-repartition")
    assert {(rest, repartition), (repartition, rest)} <= {(edge.start, edge.end) for edge in found.edges}


def test_too_many_nodes_are_refused_with_their_counts() -> None:
    small = shop(max_nodes=7)
    found = small.select(MapQuestion())
    assert isinstance(found, TooLarge)
    assert (found.nodes, found.kinds["topic"]) == (8, 5)
    assert isinstance(small.select(MapQuestion(internal=False)), MapSelection)
    assert isinstance(small.select(MapQuestion(internal=False, collapsed=False)), TooLarge)


def test_too_many_edges_are_refused() -> None:
    found = shop(max_edges=7).select(MapQuestion())
    assert isinstance(found, TooLarge)
    assert found.edges > 7


def visible_to(*shown: str) -> list[bool]:
    return [name in shown for _, name in shop().nodes]


def test_names_that_are_not_visible_are_left_out_and_their_nodes_come_last() -> None:
    found = selected(MapQuestion(), visible_to("orders", "totals"))
    # app and shop use orders, app and reports use totals; all else is next to nothing visible.
    assert names(found) == ["orders", "totals", None, None, None]
    assert {node.kind for node in found.nodes[2:]} == {"client", "streams", "consumer_group"}
    assert len(found.edges) == 4


def test_an_edge_between_two_nodes_without_names_is_not_shown() -> None:
    found = selected(MapQuestion(), visible_to("reports"))
    assert edges(found) == [(None, "reports")]


def test_a_focus_that_is_not_visible_is_absent() -> None:
    with pytest.raises(KeyError):
        shop().select(MapQuestion(focus="orders"), visible_to("totals"))


def test_components_of_an_application_that_is_not_visible_are_not_shown() -> None:
    found = selected(MapQuestion(collapsed=False), visible_to("orders", "sessions"))
    hidden = [node for node in found.nodes if node.kind == "streams"]
    assert [(node.name, node.component) for node in hidden] == [(None, None)]


def test_the_order_of_rows_does_not_change_a_selection() -> None:
    rows = [row("b", "t", "read"), row("a", "t", "read"), row("a", "s", "write"), row("c", "t", "write", "client")]
    assert EstateMap(rows, ()).select(MapQuestion()) == EstateMap(rows[::-1], ()).select(MapQuestion())
