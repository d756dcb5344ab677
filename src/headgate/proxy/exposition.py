"""Renders `/metrics` in Prometheus' text format.

Only the process that serves the page imports this module, with prometheus_client behind it.
"""

from collections.abc import Iterable, Iterator

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
from headgate.proxy.features import MetricFamily
from headgate.proxy.metrics import BUCKETS, Snapshot


def render(families: Iterable[MetricFamily], snapshot: Snapshot, *, ready: bool) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(list(_collect(families, snapshot, ready=ready))))
    return generate_latest(registry)


def _collect(families: Iterable[MetricFamily], snapshot: Snapshot, *, ready: bool) -> Iterator[Metric]:
    info = InfoMetricFamily("headgate_build", "Version of the gateway")
    info.add_metric([], {"version": headgate.__version__})
    yield info
    yield GaugeMetricFamily("headgate_ready", "1 when /readyz says so", value=float(ready))
    by_name: dict[str, dict[tuple[str, ...], float]] = {}
    for (name, labels), value in snapshot.items():
        by_name.setdefault(name, {})[labels] = value
    for family in families:  # those without samples too: their help is shown
        samples = by_name.get(family.name, {})
        if family.kind == "histogram":
            yield _histogram(family, samples)
            continue
        kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        metric = kind(family.name, family.help, labels=family.labels)
        for labels, value in samples.items():
            metric.add_metric(labels, value)
        yield metric


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _histogram(family: MetricFamily, samples: dict[tuple[str, ...], float]) -> Metric:
    """Cumulative counts, as Prometheus requires them."""
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for direction in sorted({labels[0] for labels in samples}):
        cumulated = 0.0
        buckets: list[tuple[str, float]] = []
        for bound in BUCKETS:
            cumulated += samples[direction, bound]
            buckets.append((bound, cumulated))
        metric.add_metric([direction], buckets, samples[direction, "sum"])
    return metric
