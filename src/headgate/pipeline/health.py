"""How the pipeline fares now: what is wrong at the moment, and how far each query has come.

One rule: a problem stands here as long as it lasts and no longer; what was wrong once is in `pipeline_runs`. Queries
tell it from threads of their own, and status pages ask it from another.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from threading import Lock

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

STARTING = "is starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One query since this process began; `lag` is None when it is unknown."""

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    lag: int | None = None
    batch_ms: int = 0


class Health:
    """Of these queries; each of them is not ready until it has begun."""

    def __init__(self, queries: Iterable[str] = ()) -> None:
        self._lock = Lock()
        self._problems = dict.fromkeys(queries, STARTING)
        self._figures = dict.fromkeys(queries, Figures())

    def tell(self, what: str, problem: str) -> None:
        """`what` is a query, a table or a topic of ours, so there are few."""
        with self._lock:
            self._problems[what] = problem

    def clear(self, what: str) -> None:
        with self._lock:
            self._problems.pop(what, None)

    def problems(self) -> Mapping[str, str]:
        with self._lock:
            return dict(self._problems)

    def progress(self, query: str, *, rows: int, rejected: int, lag: int | None, batch_ms: int) -> None:
        with self._lock:
            before = self._figures.get(query, Figures())
            self._figures[query] = replace(
                before,
                batches=before.batches + 1,
                rows=before.rows + rows,
                rejected=before.rejected + rejected,
                lag=lag,
                batch_ms=batch_ms,
            )

    def page(self) -> bytes:
        """The text of `/metrics`."""
        with self._lock:
            page = _Page(figures=dict(self._figures), ready=not self._problems)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(page)
        return generate_latest(registry)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # a registry keeps its collectors in a set
class _Page(Collector):
    figures: Mapping[str, Figures]
    ready: bool

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("headgate_pipeline_ready", "1 when /readyz says so", value=float(self.ready))
        counters = {"batches": "Batches written", "rows": "Facts read", "rejected": "Records that were no facts"}
        for name, text in counters.items():
            counter = CounterMetricFamily(f"headgate_pipeline_{name}", text, labels=["query"])
            for query, figures in self.figures.items():
                counter.add_metric([query], getattr(figures, name))
            yield counter
        lag = GaugeMetricFamily("headgate_pipeline_lag", "Records unread after the last batch", labels=["query"])
        took = GaugeMetricFamily("headgate_pipeline_batch_seconds", "Time of the last batch", labels=["query"])
        for query, figures in self.figures.items():
            took.add_metric([query], figures.batch_ms / 1000)
            if figures.lag is not None:
                lag.add_metric([query], figures.lag)
        yield from (lag, took)
