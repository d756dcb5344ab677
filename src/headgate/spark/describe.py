"""A streaming query of PySpark as a topology: sources, stateful operators with their stores, sinks, and the edges.

    listen(spark, TopologyFacts({"bootstrap.servers": "kafka:9092"}))

describes every query of the session when it starts. What a function of `foreachBatch` writes nobody can see, so it is
declared, by the query's name: `outputs={"totals": (Output(format="kafka", topic="totals"),)}`.

One rule: the user's query comes first. It is described on a thread of our own, and what cannot be described is a
warning in the log of `headgate.spark`, never an error of the query. No text of Spark's goes there: it might hold an
option.

Names are made of what the plan says and a number in its order, so the same program gives the same topology, and the
same hash, each time that it is started.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from headgate.base.errors import HeadgateError
from headgate.facts.topology import (
    Description,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    Subtopology,
    content_hash,
)
from headgate.spark import plan
from headgate.spark.plan import Input, Output, Step, Walked

__all__ = ["DescribedQuery", "Listening", "NotDescribedError", "Output", "describe", "listen"]

_LOG: Final = logging.getLogger("headgate.spark")
_PLANNED_WITHIN_S: Final = 60.0
_BY_FUNCTION: Final = ("foreach", "foreach-batch")


class NotDescribedError(HeadgateError):
    """The query runs, and what it does cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedQuery:
    """`group` is the query's name, its id when it has none; `query_id` stays the same as long as its checkpoint."""

    group: str
    query_id: str
    description: Description
    hash: str


Sink = Callable[[DescribedQuery], object]


def describe(query: StreamingQuery, *, outputs: Iterable[Output] = ()) -> Description:
    """What a started query does; `outputs` is what its `foreachBatch` or `foreach` writes.

    Waits until Spark has planned the query. `NotDescribedError` when the plan cannot be walked.
    """
    found: Any = getattr(query, "_jsq", None)
    if found is None:
        raise NotDescribedError("the query runs on a server of Spark Connect, and its plan cannot be seen from here")
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


def listen(spark: SparkSession, sink: Sink, *, outputs: Mapping[str, Iterable[Output]] | None = None) -> "Listening":
    """Describe every query of this session from now on, and hand it to `sink`, on one thread, in their order."""
    listening = Listening(spark, sink, {name: tuple(given) for name, given in (outputs or {}).items()})
    spark.streams.addListener(listening)
    return listening


class Listening(StreamingQueryListener):
    """Ends with the session, or by `close`."""

    def __init__(self, spark: SparkSession, sink: Sink, outputs: Mapping[str, tuple[Output, ...]]) -> None:
        self._spark = spark
        self._sink = sink
        self._outputs = outputs
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headgate-describe")
        self._waiting: set[Future[None]] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Called while the query starts, before it is planned: here it is only looked up."""
        name = event.name or str(event.id)
        try:
            task = self._thread.submit(self._tell, self._spark.streams.get(str(event.id)), name, str(event.id))
        except Exception as failure:  # noqa: BLE001 - the user's query goes on
            _warn(name, failure)
            return
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A query does the same in every batch."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nor is this news."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A stopped query may be started again: its topology stays."""

    def close(self, timeout_s: float = 10.0) -> None:
        """Listen no more, and wait for the descriptions that are under way."""
        self._spark.streams.removeListener(self)
        wait(tuple(self._waiting), timeout_s)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _tell(self, query: StreamingQuery | None, name: str, query_id: str) -> None:
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
    """Our own errors say what to do; of any other only the class is safe to tell."""
    text = str(failure) if isinstance(failure, HeadgateError) else type(failure).__name__
    _LOG.warning("the query %r is not described and runs on: %s", name, text)


# --- what was found, as nodes ---------------------------------------------------------------------------------------


def _nodes(walked: Walked, written: Output, declared: tuple[Output, ...]) -> Iterator[Node]:
    """Sources, then operators from the sources on, then sinks, numbered in this order."""
    numbers = count(1)
    inputs = [(one, feeds, _name(f"{one.format}-source", next(numbers), one.place)) for one, feeds in walked.inputs]
    steps = {step: f"{step.kind}-{next(numbers)}" for step in reversed(walked.steps)}
    by_function = f"{written.format}-{next(numbers)}" if written.format in _BY_FUNCTION and declared else None
    sinks = [
        (one, _name(f"{one.format}-sink", next(numbers), plan.plain_place(one.place)))
        for one in ((written,) if by_function is None else declared)
    ]
    end = (by_function,) if by_function is not None else tuple(name for _, name in sinks)

    def successors(feeds: Step | None) -> tuple[str, ...]:
        return end if feeds is None else (steps[feeds],)

    yield from (_source(one, name, successors(feeds)) for one, feeds, name in inputs)
    for step, name in steps.items():
        yield ProcessorNode(name=name, stores=(f"{name}-state",), successors=successors(step.feeds))
    if by_function is not None:
        yield ProcessorNode(name=by_function, successors=tuple(name for _, name in sinks))
    yield from (SinkNode(name=name, topic=one.topic) for one, name in sinks)


def _source(one: Input, name: str, successors: tuple[str, ...]) -> SourceNode:
    return SourceNode(name=name, topics=one.topics, pattern=one.pattern, successors=successors)


def _name(kind: str, number: int, place: str | None) -> str:
    return f"{kind}-{number}" if place is None else f"{kind}-{number}:{place}"
