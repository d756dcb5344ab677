"""What the gateway counts, and how `/metrics` shows it.

The data plane adds to plain integers; nothing is formatted until somebody asks. Label values come from enums and
from Kafka's own tables, never from a client.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

import headgate
from headgate.gateway.chain import ChainMeter
from headgate.gateway.interceptor import CloseCause
from headgate.gateway.link import LinkMeter
from headgate.gateway.routes import Route

_BOUNDS: Final = (0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)


class Histogram:
    """Counts of durations by upper bound."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0

    def record(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as Prometheus wants them."""
        cumulated = 0
        rows: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self.counts, strict=True):
            cumulated += count
            rows.append((bound, cumulated))
        return rows


class Metrics:
    """All counters of one process."""

    def __init__(self) -> None:
        self.request_seconds = Histogram()
        self.answer_seconds = Histogram()
        self.client_meter = LinkMeter(self.request_seconds.record)
        self.upstream_meter = LinkMeter(self.answer_seconds.record)
        self.chain_meter = ChainMeter()
        self.accepted = 0
        self.ended: Counter[CloseCause] = Counter(dict.fromkeys(CloseCause, 0))


class _Page(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def page(metrics: Metrics, *, open_connections: int, routes: Iterable[Route], ready: bool) -> bytes:
    """The text of `/metrics`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(list(_families(metrics, open_connections, routes, ready=ready))))
    return generate_latest(registry)


def _families(metrics: Metrics, open_connections: int, routes: Iterable[Route], *, ready: bool) -> Iterator[Metric]:
    info = InfoMetricFamily("headgate_build", "Version of the gateway")
    info.add_metric([], {"version": headgate.__version__})
    yield info
    yield GaugeMetricFamily("headgate_ready", "1 when /readyz says so", value=float(ready))
    yield GaugeMetricFamily("headgate_connections", "Client connections that are open", value=open_connections)
    yield CounterMetricFamily("headgate_connections_accepted", "Client connections accepted", value=metrics.accepted)
    ended = CounterMetricFamily("headgate_connections_ended", "Client connections by cause of end", labels=["cause"])
    for cause, count in metrics.ended.items():
        ended.add_metric([cause.value], count)
    yield ended
    yield from _traffic(metrics)
    yield from _calls(routes)
    added = HistogramMetricFamily(
        "headgate_added_seconds",
        "Time from received to sent, for what one wake-up of the event loop received",
        labels=["direction"],
    )
    for direction, histogram in (("request", metrics.request_seconds), ("answer", metrics.answer_seconds)):
        added.add_metric([direction], histogram.buckets(), histogram.total)
    yield added
    yield CounterMetricFamily(
        "headgate_interceptor_failures", "Calls that passed because an interceptor failed", metrics.chain_meter.failures
    )


def _traffic(metrics: Metrics) -> Iterator[Metric]:
    moved = CounterMetricFamily("headgate_bytes", "Bytes by side and direction", labels=["side", "direction"])
    paused = CounterMetricFamily(
        "headgate_reads_paused", "Times that reading stopped for back-pressure", labels=["side"]
    )
    for side, meter in (("client", metrics.client_meter), ("upstream", metrics.upstream_meter)):
        moved.add_metric([side, "received"], meter.received_bytes)
        moved.add_metric([side, "sent"], meter.sent_bytes)
        paused.add_metric([side], meter.times_paused)
    yield moved
    yield paused


def _calls(routes: Iterable[Route]) -> Iterator[Metric]:
    calls = CounterMetricFamily(
        "headgate_calls",
        "Calls by api and version: passed as they are, opened for interceptors",
        labels=["api", "version", "way"],
    )
    spliced = CounterMetricFamily(
        "headgate_calls_spliced", "Passing answers whose node addresses were replaced", labels=["api", "version"]
    )
    for route in routes:
        label = [route.name, str(route.api_version)]
        calls.add_metric([*label, "opened"], route.opened_calls)
        calls.add_metric([*label, "passed"], route.calls - route.opened_calls)
        if route.tail_program is not None:
            spliced.add_metric(label, route.spliced_calls)
    yield calls
    yield spliced
