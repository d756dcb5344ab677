"""Derives `impact_summary`: for each topic, how much depends on it and on how much it depends, by what is valid now.

The graph is that of `headgate lineage impact`: data flows through an application only along the pairs of `app_io`, and
through a share group to its dead-letter topic; all other actors end a path. A filled topic counts at every open end of
its application: an input without a known topic, and outside of global stores an output without one. The closures of all
topics are independent of each other, so the graph goes to the workers as numbers, and each worker walks it for its
topics, thousands at once. A walk ends at a depth of `MAX_DEPTH`, and when its share of `MAX_STEPS` is used up, as in a
tangled estate of a million topics: then the figures are those of the nearest topics, and the run says of how many.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.pipeline.derived.derivation import Derivation, DerivedRun
from headgate.pipeline.run_log import print_message
from headgate.tables.definitions import table_named

IMPACT, EDGES, PAIRS = "impact_summary", "lineage_edges", "app_io"
MAX_DEPTH = 1000
MAX_STEPS = 200_000_000  # of all walks together: some minutes of one core
_TOPICS_IN_PARTITION = 1000
_TOPICS_AT_ONCE = 4096
_WALK_BITS = 2**29  # that many topics by starts at once: 64 MiB
_NUMBERS_AT_ONCE = 4096
_KEY = ("cluster_id", "topic")
_READ, _WRITE, _SHARE_GROUP, _GLOBAL = "read", "write", "share_group", "global"
_Use = tuple[str, str, str, str, str, bool]
_Flow = tuple[str, str, str, str, str, str]

Adjacency = Mapping[int, Sequence[int]]


class TopicGraph(NamedTuple):
    """Topics and actors as numbers: topics that a topic flows into or comes from, and the readers and writers."""

    down: Adjacency
    up: Adjacency
    readers: Adjacency
    writers: Adjacency


class Reach(NamedTuple):
    """The size of a closure: topics other than the first, actors at all of them, and the depth of the farthest.

    With `is_cut` the walk ended before the closure did, and the figures are those of the nearest topics.
    """

    topics: int
    actors: int
    depth: int
    is_cut: bool = False


def reaches(starts: Sequence[int], flows: Adjacency, actors: Adjacency, max_steps: int) -> list[Reach]:
    """Walk from topics along the flows, the nearest topics first, with all starts at once.

    A topic has a number with a bit for each start that has not reached it yet. So topics that many starts reach, of
    which a tangled estate is full, are walked once for all starts that come at the same depth.
    """
    every = (1 << len(starts)) - 1
    frontier = {start: 1 << place for place, start in enumerate(starts)}
    missing = {start: every ^ bit for start, bit in frontier.items()}
    layers: list[int] = []  # the starts that have reached a new topic, by depth
    cut = steps = 0
    while frontier and len(layers) < MAX_DEPTH and not cut:
        following: dict[int, int] = {}
        for topic, bits in frontier.items():
            others = flows.get(topic, ())
            steps += len(others)
            if steps > max_steps:
                cut |= bits
                continue
            for other in others:
                if new := bits & missing.get(other, every):
                    following[other] = following.get(other, 0) | new
        for topic, bits in following.items():
            missing[topic] = missing.get(topic, every) ^ bits
        if following:
            layers.append(_union(following.values()))
        frontier = following
    cut |= _union(frontier.values())
    seen = {topic: every ^ bits for topic, bits in missing.items()}
    users: dict[int, int] = {}
    for topic, bits in seen.items():
        for actor in actors.get(topic, ()):
            users[actor] = users.get(actor, 0) | bits
    columns = (_counts(list(numbers), len(starts)) for numbers in (seen.values(), users.values(), layers, [cut]))
    rows = zip(*columns, strict=True)
    return [Reach(topics - 1, used, depth, bool(is_cut)) for topics, used, depth, is_cut in rows]


def _union(numbers: Iterable[int]) -> int:
    return reduce(or_, numbers, 0)


def _counts(numbers: Sequence[int], width: int) -> list[int]:
    """For each bit in how many of the numbers it is set."""
    size = width // 8 + 1
    counts = np.zeros(width, np.int64)
    for first in range(0, len(numbers), _NUMBERS_AT_ONCE):
        some = numbers[first : first + _NUMBERS_AT_ONCE]
        rows = np.frombuffer(b"".join(one.to_bytes(size, "little") for one in some), np.uint8).reshape(-1, size)
        counts += np.unpackbits(rows, axis=1, count=width, bitorder="little").sum(axis=0, dtype=np.int64)
    return [int(one) for one in counts]


class _Numbers:
    """Names as numbers, in the order in which they come."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, ...], int] = {}

    def __call__(self, *name: str) -> int:
        return self.of.setdefault(name, len(self.of))


def topic_graph(uses: Iterable[_Use], pairs: Iterable[_Flow]) -> tuple[TopicGraph, dict[tuple[str, ...], int]]:
    """The graph, and the numbers of its topics by cluster and name.

    A use is a cluster, the kind and name of an actor, a topic, the direction and whether it is filled; a pair a
    cluster, the kind and name of an application, a component, and its input and output, which are empty where they are
    unknown.
    """
    topics, actors = _Numbers(), _Numbers()
    readers: dict[int, set[int]] = {}
    writers: dict[int, set[int]] = {}
    down: dict[int, set[int]] = {}
    of_share_groups: dict[int, tuple[set[int], set[int]]] = {}
    filled: dict[int, tuple[set[int], set[int]]] = {}
    for cluster, kind, name, topic, direction, is_filled in uses:
        used, actor = topics(cluster, topic), actors(cluster, kind, name)
        (readers if direction == _READ else writers).setdefault(used, set()).add(actor)
        if kind == _SHARE_GROUP:
            of_share_groups.setdefault(actor, (set(), set()))[direction == _WRITE].add(used)
        if is_filled:
            filled.setdefault(actor, (set(), set()))[direction == _WRITE].add(used)
    open_ends: dict[int, list[tuple[int | None, int | None]]] = {}
    named: set[tuple[int, str, int]] = set()
    for cluster, kind, name, component, source, target in pairs:
        actor = actors(cluster, kind, name)
        if actor in filled:
            ends = topics(cluster, source) if source else None, topics(cluster, target) if target else None
            named |= {(actor, way, end) for way, end in zip((_READ, _WRITE), ends, strict=True) if end is not None}
            if None in ends and (target or component != _GLOBAL):
                open_ends.setdefault(actor, []).append(ends)
        if source:
            readers.setdefault(topics(cluster, source), set()).add(actor)
        if target:
            writers.setdefault(topics(cluster, target), set()).add(actor)
        if source and target:
            down.setdefault(topics(cluster, source), set()).add(topics(cluster, target))
    for actor, flows in open_ends.items():
        read, written = (
            {one for one in found if (actor, way, one) not in named}
            for way, found in zip((_READ, _WRITE), filled[actor], strict=True)
        )
        for start, end in flows:
            for one in read if start is None else (start,):
                down.setdefault(one, set()).update(written if end is None else (end,))
    for read, written in of_share_groups.values():
        for one in read:
            down.setdefault(one, set()).update(written)
    up: dict[int, set[int]] = {}
    for one, following in down.items():
        for other in following:
            up.setdefault(other, set()).add(one)
    lists = ({one: tuple(others) for one, others in found.items()} for found in (down, up, readers, writers))
    return TopicGraph(*lists), topics.of


def derive_impact(run: DerivedRun) -> None:
    edges = run.rows(EDGES).where(sf.col("valid_to").isNull())
    uses = edges.select("cluster_id", "actor_kind", "app_id", "topic", "direction", "filled").toArrow()
    kind = sf.when(sf.col("provenance") == "spark", "spark").otherwise("streams")
    current = run.rows(PAIRS).where(sf.col("valid_to").isNull())
    pairs = current.select("cluster_id", kind, "app_id", "component", "in_topic", "out_topic").distinct().toArrow()
    graph, numbers = topic_graph(_tuples(uses), _tuples(pairs))
    ids = edges.groupBy(*_KEY).agg(sf.max("topic_id").alias("topic_id"))
    figures = _figures(run, graph, numbers).persist()
    try:
        if cut := figures.where("is_cut").count():
            print_message(
                f"derived: impact: the figures of {cut} topics end before all that depends on them, which is too much"
            )
        run.replace(IMPACT, _keep_times(figures.drop("is_cut").join(ids, list(_KEY), "left"), run))
    finally:
        figures.unpersist()


def _tuples(table: pa.Table) -> Iterator[Any]:
    for batch in table.to_batches():
        yield from zip(*map(pa.Array.to_pylist, batch.columns), strict=True)


_FIGURES = pa.schema(
    [
        *((name, pa.int64()) for name in ("downstream_topics", "downstream_apps")),
        ("depth_down", pa.int32()),
        *((name, pa.int64()) for name in ("upstream_topics", "upstream_apps")),
        ("depth_up", pa.int32()),
        *((name, pa.int64()) for name in ("readers", "writers")),
        ("is_cut", pa.bool_()),
    ]
)


def _figures(run: DerivedRun, graph: TopicGraph, numbers: Mapping[tuple[str, ...], int]) -> DataFrame:
    """The figures of all topics, made on the workers."""
    clusters, names = zip(*numbers, strict=True) if numbers else ((), ())
    roots = pa.table(
        {
            "cluster_id": pa.array(clusters, pa.string()),
            "topic": pa.array(names, pa.string()),
            "number": pa.array(numbers.values(), pa.int64()),
        }
    )
    shared = run.session.sparkContext.broadcast(graph)
    frame = run.session.createDataFrame(roots)
    partitions = max(1, min(roots.num_rows // _TOPICS_IN_PARTITION, run.session.sparkContext.defaultParallelism * 4))
    schema = from_arrow_schema(pa.unify_schemas([roots.schema.remove(2), _FIGURES]))
    return frame.repartition(partitions).mapInArrow(_walk(lambda: shared.value, roots.num_rows), schema)


def _walk(
    graph_of: Callable[[], TopicGraph], topics: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the figures of batches of topics; `topics` is the number of all, in which the steps are divided."""
    at_once = max(64, min(_TOPICS_AT_ONCE, _WALK_BITS // max(1, topics)))
    steps_each = MAX_STEPS // max(1, 2 * topics)  # down and up

    def walk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        graph = graph_of()
        for batch in batches:
            found: list[tuple[int, ...]] = []
            numbers = batch["number"].to_pylist()
            for first in range(0, len(numbers), at_once):
                starts = numbers[first : first + at_once]
                max_steps = steps_each * len(starts)
                downs = reaches(starts, graph.down, graph.readers, max_steps)
                ups = reaches(starts, graph.up, graph.writers, max_steps)
                for number, down, up in zip(starts, downs, ups, strict=True):
                    readers, writers = len(graph.readers.get(number, ())), len(graph.writers.get(number, ()))
                    found.append((*down[:3], *up[:3], readers, writers, down.is_cut or up.is_cut))
            columns = [pa.array([row[place] for row in found], one.type) for place, one in enumerate(_FIGURES)]
            names = ["cluster_id", "topic", *_FIGURES.names]
            yield pa.RecordBatch.from_arrays([batch["cluster_id"], batch["topic"], *columns], names=names)

    return walk


def _keep_times(figures: DataFrame, run: DerivedRun) -> DataFrame:
    """The rows with the time at which their figures changed last."""
    compared = [name for name in table_named(IMPACT).columns.names if name not in {*_KEY, "at"}]
    before = run.stored(IMPACT).select(*_KEY, sf.struct(*compared).alias("before"), sf.col("at").alias("since"))
    same = sf.struct(*compared).eqNullSafe(sf.col("before"))
    at = sf.when(same, sf.col("since")).otherwise(sf.lit(run.now_ms))
    return figures.join(before, list(_KEY), "left").withColumn("at", at)


IMPACT_OF_TOPICS = Derivation(name="impact", sources=(EDGES, PAIRS), results=(IMPACT,), derive=derive_impact)
