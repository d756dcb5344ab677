"""Describes streaming queries of PySpark as topologies: sources, stateful operators with their stores, and sinks.

    listen(spark, TopologyFacts({"bootstrap.servers": "kafka:9092"}))

describes every query of the session when it starts. The outputs of a `foreachBatch` function are not in the plan, so
they are declared by the query's name: `outputs={"totals": (Output(format="kafka", topic="totals"),)}`.

Invariant: describing never harms the user's query. It runs on a thread of its own, and a failure is a warning in the
log of `headgate.spark`. No text of Spark goes there, because it might contain an option.

Names are made of the plan and a number in its order, so the same program has the same topology, and the same hash, each
time that it is started.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import ClusterError, HeadgateError
from headgate.facts import TopologyDescribed, encode
from headgate.facts.topology import (
    Description,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
    content_hash,
)
from headgate.kafka.topics import quiet, reason
from headgate.spark import plan
from headgate.spark.plan import Output, QueryPlan, StatefulOperator

_LOG: Final = logging.getLogger("headgate.spark")
_PLANNED_WITHIN_S: Final = 60.0
_BY_FUNCTION: Final = ("foreach", "foreach-batch")
_TIMEOUT_S: Final = 10.0
_SUFFIX: Final = "topologies"


class NotDescribedError(HeadgateError):
    """The query cannot be described; it runs on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedQuery:
    """A query and its topology; `group` is its name, or its id, which is `query_id` and belongs to the checkpoint."""

    group: str
    query_id: str
    description: Description
    hash: str


Sink = Callable[[DescribedQuery], object]


def describe(query: StreamingQuery, *, outputs: Iterable[Output] = ()) -> Description:
    """The topology of a started query; `outputs` are those of its `foreachBatch` or `foreach` function.

    Waits until Spark has planned the query. `NotDescribedError` when the plan cannot be walked.
    """
    found: Any = getattr(query, "_jsq", None)
    if found is None:
        raise NotDescribedError("the query runs on a Spark Connect server, which does not expose its plan")
    try:
        running = found.streamingQuery()
        running.awaitInitialization(int(_PLANNED_WITHIN_S * 1000))
        walked = plan.walk(running.analyzedPlan())
        written = plan.output(running.logicalPlan(), query.name)
    except plan.PlanTooLargeError:
        text = f"its plan has more than {plan.MOST_PLAN_NODES} nodes"
        raise NotDescribedError(text) from None
    except Exception as failure:  # noqa: BLE001 - py4j raises whatever another version of Spark lacks
        text = f"its plan cannot be walked ({type(failure).__name__}): it failed early, or this Spark is not 4.2"
        raise NotDescribedError(text) from None
    nodes = tuple(_nodes(walked, written, tuple(outputs)))
    return Description(subtopologies=(Subtopology(id="0", nodes=nodes),))


def listen(
    spark: SparkSession, sink: Sink, *, outputs: Mapping[str, Iterable[Output]] | None = None
) -> "TopologyListener":
    """Describe every query that starts in this session from now on, and call `sink` with it, on one thread."""
    listening = TopologyListener(spark, sink, {name: tuple(given) for name, given in (outputs or {}).items()})
    spark.streams.addListener(listening)
    return listening


class TopologyListener(StreamingQueryListener):
    """Describes the queries of a session until `close`, or until the session ends."""

    def __init__(self, spark: SparkSession, sink: Sink, outputs: Mapping[str, tuple[Output, ...]]) -> None:
        self._spark = spark
        self._sink = sink
        self._outputs = outputs
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headgate-describe")
        self._waiting: set[Future[None]] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Look the query up while it starts; it is described on another thread, because it is not planned yet."""
        name = event.name or str(event.id)
        try:
            task = self._thread.submit(self._describe, self._spark.streams.get(str(event.id)), name, str(event.id))
        except Exception as failure:  # noqa: BLE001 - the user's query goes on
            _warn(name, failure)
            return
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Nothing to do: the topology is the same in every batch."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to do: a stopped query may be started again, so its topology stays."""

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop listening, and wait for running descriptions."""
        self._spark.streams.removeListener(self)
        wait(tuple(self._waiting), timeout_s)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _describe(self, query: StreamingQuery | None, name: str, query_id: str) -> None:
        try:
            if query is None:
                _LOG.warning("the query %r ended before it could be described", name)
                return
            description = describe(query, outputs=self._outputs.get(name, ()))
            described = DescribedQuery(
                group=name, query_id=query_id, description=description, hash=content_hash(description)
            )
            self._sink(described)
        except Exception as failure:  # noqa: BLE001 - the user's query goes on
            _warn(name, failure)


def _warn(name: str, failure: Exception) -> None:
    """Log a failure; of an error that is not Headgate's only the class, because its text might contain an option."""
    text = str(failure) if isinstance(failure, HeadgateError) else type(failure).__name__
    _LOG.warning("the query %r is not described and runs on: %s", name, text)


# --- nodes of a description -----------------------------------------------------------------------------------------


def _nodes(walked: QueryPlan, written: Output, declared: tuple[Output, ...]) -> Iterator[Node]:
    """Sources, then operators from the sources on, then sinks, numbered in this order."""
    numbers = count(1)
    inputs = [(one, feeds, _name(f"{one.format}-source", next(numbers), one.place)) for one, feeds in walked.inputs]
    operators = {operator: f"{operator.kind}-{next(numbers)}" for operator in reversed(walked.operators)}
    by_function = f"{written.format}-{next(numbers)}" if written.format in _BY_FUNCTION and declared else None
    sinks = [
        (one, _name(f"{one.format}-sink", next(numbers), plan.without_credentials(one.place)))
        for one in ((written,) if by_function is None else declared)
    ]
    end = (by_function,) if by_function is not None else tuple(name for _, name in sinks)

    def successors(feeds: StatefulOperator | None) -> tuple[str, ...]:
        return end if feeds is None else (operators[feeds],)

    for one, feeds, name in inputs:
        yield SourceNode(name=name, topics=one.topics, pattern=one.pattern, successors=successors(feeds))
    for operator, name in operators.items():
        yield ProcessorNode(name=name, stores=(f"{name}-state",), successors=successors(operator.feeds))
    if by_function is not None:
        yield ProcessorNode(name=by_function, successors=tuple(name for _, name in sinks))
    yield from (SinkNode(name=name, topic=one.topic) for one, name in sinks)


def _name(kind: str, number: int, place: str | None) -> str:
    return f"{kind}-{number}" if place is None else f"{kind}-{number}:{place}"


# --- facts ------------------------------------------------------------------------------------------------------------


class TopologyFacts:
    """Writes described queries to the topic `topologies`: a sink for `listen`, called on one thread.

    `settings` are librdkafka's, for the cluster that has Headgate's topics. The topic is not created when it is absent:
    a broker that creates topics automatically would create one without compaction.
    """

    def __init__(self, settings: Mapping[str, Any], *, prefix: str = "headgate.", clock: Clock | None = None) -> None:
        self._settings = quiet(
            settings, enable__idempotence=True, acks="all", delivery__timeout__ms=int(_TIMEOUT_S * 1000)
        )
        self._topic = prefix + _SUFFIX
        self._clock = clock or SystemClock()
        self._boot = uuid.uuid4().hex
        self._seq = 0
        self._producer: Producer | None = None
        self._cluster: str | None = None

    def __call__(self, described: DescribedQuery) -> None:
        """Write the fact; returns when all in-sync replicas have it. `ClusterError` when it could not be written."""
        try:
            producer = self._connected()
            _, key, value = encode(self._fact(described))
            self._write(producer, key, value)
        except KafkaException as failure:
            raise self._not_written(reason(failure)) from None

    def _connected(self) -> Producer:
        if self._producer is None:
            producer = Producer(self._settings)
            known = producer.list_topics(timeout=_TIMEOUT_S)
            if self._topic not in known.topics:
                raise self._not_written("the topic does not exist: a gateway creates it when it starts")
            self._producer, self._cluster = producer, known.cluster_id
        return self._producer

    def _fact(self, described: DescribedQuery) -> TopologyDescribed:
        seq, self._seq = self._seq, self._seq + 1
        return TopologyDescribed(
            at=self._clock.epoch_ms(),
            group=described.group,
            incarnation=described.query_id,
            epoch=0,
            hash=described.hash,
            provenance="spark",
            member=None,
            process=None,
            description=described.description,
            cluster=self._cluster,
            writer="spark/0",
            boot=self._boot,
            seq=seq,
        )

    def _write(self, producer: Producer, key: bytes, value: bytes | None) -> None:
        outcome: list[KafkaError | None] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            outcome.append(error)

        producer.produce(self._topic, key=key, value=value, on_delivery=on_delivery)
        producer.flush(2 * _TIMEOUT_S)
        if not outcome:
            raise self._not_written("the cluster did not respond")
        if outcome[0] is not None:
            raise self._not_written(reason(outcome[0]))

    def _not_written(self, why: str) -> ClusterError:
        return ClusterError(f"a topology could not be written to {self._topic}: {why}")
