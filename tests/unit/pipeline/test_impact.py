"""The walk that sums up the impact of a topic says what the graph of `headgate lineage impact` says."""

import random

import pytest

from headgate.lineage.graph import LineageFlow, LineageGraph, LineageUse
from headgate.pipeline.derived import impact
from headgate.pipeline.derived.impact import Adjacency, Reach, reaches, topic_graph

Uses = list[tuple[str, str, str, str, str, bool]]
Pairs = list[tuple[str, str, str, str, str, str]]


def reach(start: int, flows: Adjacency, actors: Adjacency) -> Reach:
    (found,) = reaches([start], flows, actors, max_steps=10**6)
    return found


def test_an_application_with_two_unrelated_subtopologies_has_no_cross_path() -> None:
    uses = [
        ("c", "streams", "app", topic, way, False) for topic, way in zip("axby", ["read", "write"] * 2, strict=True)
    ]
    pairs = [("c", "streams", "app", "0", "a", "x"), ("c", "streams", "app", "1", "b", "y")]
    graph, numbers = topic_graph(uses, pairs)
    assert reach(numbers["c", "a"], graph.down, graph.readers) == Reach(topics=1, actors=1, depth=1)
    assert reach(numbers["c", "y"], graph.up, graph.writers) == Reach(topics=1, actors=1, depth=1)


def test_only_a_share_group_leads_from_what_it_reads_to_what_it_writes() -> None:
    uses = [
        (cluster, kind, "g", topic, way, False)
        for cluster, kind in (("c", "share_group"), ("d", "consumer_group"))
        for topic, way in (("a", "read"), ("dlq.a", "write"))
    ]
    graph, numbers = topic_graph(uses, [])
    assert reach(numbers["c", "a"], graph.down, graph.readers) == Reach(topics=1, actors=1, depth=1)
    assert reach(numbers["d", "a"], graph.down, graph.readers) == Reach(topics=0, actors=1, depth=0)


def test_filled_topics_are_at_the_open_ends_of_their_application() -> None:
    uses = [("c", "streams", "app", topic, way, True) for topic, way in (("p", "read"), ("w", "write"))]
    pairs = [("0", "a", ""), ("1", "", "x"), ("2", "b", "y"), ("global", "g", "")]
    graph, numbers = topic_graph(uses, [("c", "streams", "app", *pair) for pair in pairs])
    names = {number: name for (_, name), number in numbers.items()}
    flows = {(names[start], names[end]) for start, ends in graph.down.items() for end in ends}
    assert flows == {("a", "w"), ("p", "x"), ("b", "y")}
    graph, numbers = topic_graph(uses, [("c", "streams", "app", "0", "", "")])
    assert reach(numbers["c", "p"], graph.down, graph.readers) == Reach(topics=1, actors=1, depth=1)


def test_a_walk_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = {number: (number + 1,) for number in range(50)}
    assert reach(0, chain, {}) == Reach(topics=50, actors=0, depth=50)
    assert reaches([0, 47], chain, {}, max_steps=20) == [
        Reach(topics=17, actors=0, depth=17, is_cut=True),
        Reach(topics=3, actors=0, depth=3),
    ]
    monkeypatch.setattr(impact, "MAX_DEPTH", 7)
    assert reach(0, chain, {}) == Reach(topics=7, actors=0, depth=7, is_cut=True)


def test_a_tangled_estate_is_walked_for_all_topics_at_once() -> None:
    """3,000 topics that all reach each other: a walk from each alone would take 90 million steps."""
    draw = random.Random(6)
    count = 3_000
    flows = {one: tuple({(one + 1) % count, *(draw.randrange(count) for _ in range(9))}) for one in range(count)}
    readers = {one: (one % 700,) for one in range(count)}
    found = reaches(range(count), flows, readers, max_steps=500_000)
    assert {(one.topics, one.actors, one.is_cut) for one in found} == {(count - 1, 700, False)}
    assert found[::500] == [reach(one, flows, readers) for one in range(0, count, 500)]


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_are_what_rustworkx_says(seed: int) -> None:
    draw = random.Random(seed)
    topics = [f"t{number}" for number in range(draw.randrange(1, 12))]
    uses: Uses = []
    pairs: Pairs = []
    for number in range(draw.randrange(12)):
        kind = draw.choice(("consumer_group", "client", "share_group", "streams"))
        for _ in range(draw.randrange(3)):
            way, is_filled = draw.choice(("read", "write")), draw.choice((False, True))
            uses.append(("c", kind, f"a{number}", draw.choice(topics), way, is_filled))
        if kind == "streams":
            pairs += [
                (
                    "c",
                    kind,
                    f"a{number}",
                    draw.choice(("0", "1", "global")),
                    draw.choice(["", *topics]),
                    draw.choice(["", *topics]),
                )
                for _ in range(draw.randrange(4))
            ]
    flows = [LineageFlow(*one[1:]) for one in pairs]
    expected = LineageGraph([LineageUse(*one[1:]) for one in uses], flows)
    graph, numbers = topic_graph(uses, pairs)
    assert {name for _, name in numbers} == set(expected.topics)
    every = list(numbers.values())
    downs = reaches(every, graph.down, graph.readers, max_steps=10**6)
    ups = reaches(every, graph.up, graph.writers, max_steps=10**6)
    for (_, name), down, up in zip(numbers, downs, ups, strict=True):
        for closure, found in (
            (expected.closure(name, "down", limit=0), down),
            (expected.closure(name, "up", limit=0), up),
        ):
            assert found == Reach(topics=closure.topics, actors=closure.actors, depth=closure.depth)
