"""Finds the inputs, stateful operators and output of a streaming query in Spark's own plan.

Invariant: only the options that are named here are read. All others, and with them every password, stay in the JVM. The
plan is walked from its end to its sources, and neither changed nor run.

Spark has no public API for plans, so these are names of Spark's classes and methods, tested with 4.2. A name that
another version does not have raises, and the caller reports it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# Plan nodes that keep state from one batch to the next. A join does when both of its sides are streams.
_STATEFUL: Final[Mapping[str, str]] = {
    "Aggregate": "aggregate",
    "Deduplicate": "deduplicate",
    "DeduplicateWithinWatermark": "deduplicate",
    "Distinct": "aggregate",
    "FlatMapGroupsInPandasWithState": "group-state",
    "FlatMapGroupsWithState": "group-state",
    "GlobalLimit": "limit",
    "Join": "join",
    "TransformWithState": "transform-with-state",
    "TransformWithStateInPandas": "transform-with-state",
    "TransformWithStateInPySpark": "transform-with-state",
}
_SINKS: Final[Mapping[str, str]] = {
    "ConsoleTable$": "console",
    "DeltaSink": "delta",
    "ForeachBatchSink": "foreach-batch",
    "ForeachWriterTable": "foreach",
    "KafkaTable": "kafka",
    "MemorySink": "memory",
    "NoopTable$": "noop",
}
# Nested references to common table expressions double with each level: larger plans are not walked.
MOST_PLAN_NODES: Final = 20_000


class PlanTooLargeError(Exception):
    """The plan has more than `MOST_PLAN_NODES` nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryInput:
    """An input of a query: Kafka topics or a pattern, or the place of another format."""

    format: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An output of a query: a Kafka topic (None when each record names its own), or the place of another format."""

    format: str
    topic: str | None = None
    place: str | None = None


@dataclass(eq=False, slots=True)
class StatefulOperator:
    """A stateful operator; `feeds` is the next one, None for the query's output."""

    kind: str
    feeds: "StatefulOperator | None"


@dataclass(slots=True)
class QueryPlan:
    """The inputs with the operators that they feed, and the operators, in the order of the plan."""

    inputs: list[tuple[QueryInput, StatefulOperator | None]] = field(default_factory=list)
    operators: list[StatefulOperator] = field(default_factory=list)


def walk(plan: Any) -> QueryPlan:
    """Walk the analysed plan of a streaming query; its static sides are left out."""
    walked = QueryPlan()
    shared: dict[int, Any] = {}  # common table expressions, by Spark's ids
    pending: list[tuple[Any, StatefulOperator | None]] = [(plan, None)]
    seen = 0
    while pending:
        node, feeds = pending.pop()
        seen += 1
        if seen > MOST_PLAN_NODES:
            raise PlanTooLargeError
        if not node.isStreaming():
            continue
        name = node.getClass().getSimpleName()
        children = list(_items(node.children()))
        if name == "WithCTE":
            shared |= {definition.id(): definition for definition in _items(node.cteDefs())}
            children = [node.plan()]
        elif name == "CTERelationRef":
            children = [shared[node.cteId()]]
        elif not children:
            walked.inputs.append((_input(node, name), feeds))
        elif name in _STATEFUL and (name != "Join" or all(child.isStreaming() for child in children)):
            feeds = StatefulOperator(_STATEFUL[name], feeds)
            walked.operators.append(feeds)
        # The first child is visited first.
        pending += [(child, feeds) for child in reversed(children)]
    return walked


def output(written: Any, query_name: str | None) -> Output:
    """The output of the root of the planned query (`WriteToMicroBatchDataSource`, or its V1)."""
    is_v1 = written.getClass().getSimpleName().endswith("V1")
    sink = written.sink() if is_v1 else written.table().table()
    name = sink.getClass().getSimpleName()
    options = written.writeOptions()
    match _SINKS.get(name):
        case "kafka":
            return Output(format="kafka", topic=_option(options, "topic"))
        case "memory":
            return Output(format="memory", place=query_name)
        case "console" | "foreach" | "foreach-batch" | "noop" as known:
            return Output(format=known)
        case known:
            place = without_credentials(_option(options, "path"))
            if place is None and not is_v1:
                place = _table_name(written.table().identifier())
            return Output(format=known or _file_format(sink) or name, place=place)


def without_credentials(place: str | None) -> str | None:
    """A path or an address without credentials: a password before an @, a signature after a ?."""
    if place is None or "://" not in place:
        return place
    scheme, rest = place.split("://", 1)
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    before, at, after = rest.rpartition("@")
    # `container@account` of Azure's addresses is not a password; `user:password@host` is.
    return f"{scheme}://{after if at and ':' in before else rest}"


def _input(node: Any, name: str) -> QueryInput:
    if name == "StreamingRelationV2":
        return _input_v2(node)
    if name == "StreamingRelation":
        return _input_v1(node.dataSource())
    return QueryInput(format=name)


def _input_v2(node: Any) -> QueryInput:
    options, kind = node.extraOptions(), _short(node.sourceName())
    if kind == "kafka":
        return _kafka(options.get("subscribe"), options.get("subscribePattern"), options.get("assign"))
    return QueryInput(format=kind, place=_table_name(node.identifier()) or without_credentials(options.get("path")))


def _input_v1(source: Any) -> QueryInput:
    options, kind = source.options(), _short(source.className())
    if kind == "kafka":
        return _kafka(*(_option(options, name) for name in ("subscribe", "subscribePattern", "assign")))
    return QueryInput(format=kind, place=without_credentials(_option(options, "path")))


def _kafka(subscribe: str | None, pattern: str | None, assign: str | None) -> QueryInput:
    if assign is not None:
        return QueryInput(format="kafka", topics=tuple(sorted(json.loads(assign))))
    topics = (topic.strip() for topic in (subscribe or "").split(","))
    return QueryInput(format="kafka", topics=tuple(dict.fromkeys(topic for topic in topics if topic)), pattern=pattern)


def _table_name(identifier: Any) -> str | None:
    """The table's name in its catalog, from a Scala option."""
    return str(identifier.get().toString()) if identifier.isDefined() else None


def _short(provider: str) -> str:
    """`parquet`, or the simple name of a class."""
    return provider.rpartition(".")[2]


def _file_format(sink: Any) -> str | None:
    """The format of a file sink, `parquet`, from its private field."""
    if sink.getClass().getSimpleName() != "FileStreamSink":
        return None
    kept = sink.getClass().getDeclaredField("fileFormat")
    kept.setAccessible(True)
    return str(kept.get(sink).shortName())


def _option(options: Any, wanted: str) -> str | None:
    """The option of this name in a Scala map, ignoring case; no other value leaves the JVM."""
    names = options.keysIterator()
    while names.hasNext():
        name = names.next()
        if name.lower() == wanted.lower():
            return str(options.apply(name))
    return None


def _items(sequence: Any) -> Iterator[Any]:
    for index in range(sequence.size()):
        yield sequence.apply(index)
