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
from headgate.proxy.chain import ChainMeter
from headgate.proxy.interceptor import CloseCause
from headgate.proxy.link import LinkMeter
from headgate.proxy.routes import Route

_BOUNDS: Final = (0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)

_BUCKETS: Final = (*map(str, _BOUNDS), "+Inf")


class Histogram:
    """Counts of durations by upper bound."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0

    def record(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.total += seconds


# A sample is a family's name and its label values; a histogram has one for each bucket, and one for its sum.
Sample = tuple[str, tuple[str, ...]]
Snapshot = dict[Sample, float]


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

    def snapshot(
        self,
        *,
        open_connections: int,
        connections_limit: int,
        routes: Iterable[Route],
        certificate_expires_at: float | None,
    ) -> Snapshot:
        """Everything that has been counted; snapshots of several workers can be added up."""
        samples: Snapshot = {
            ("headgate_connections", ()): open_connections,
            ("headgate_connections_limit", ()): connections_limit,
            ("headgate_connections_accepted", ()): self.accepted,
            ("headgate_interceptor_failures", ()): self.chain_meter.failures,
        }
        if certificate_expires_at is not None:
            samples["headgate_certificate_expiry_seconds", ()] = certificate_expires_at
        for cause, count in self.ended.items():
            samples["headgate_connections_ended", (cause.value,)] = count
        for side, meter in (("client", self.client_meter), ("upstream", self.upstream_meter)):
            samples["headgate_bytes", (side, "received")] = meter.received_bytes
            samples["headgate_bytes", (side, "sent")] = meter.sent_bytes
            samples["headgate_reads_paused", (side,)] = meter.times_paused
        for route in routes:
            label = (route.name, str(route.api_version))
            samples["headgate_calls", (*label, "opened")] = route.opened_calls
            samples["headgate_calls", (*label, "passed")] = route.calls - route.opened_calls
            if route.tail_program is not None:
                samples["headgate_calls_spliced", label] = route.spliced_calls
        for direction, histogram in (("request", self.request_seconds), ("answer", self.answer_seconds)):
            for bound, count in zip(_BUCKETS, histogram.counts, strict=True):
                samples["headgate_added_seconds", (direction, bound)] = count
            samples["headgate_added_seconds", (direction, "sum")] = histogram.total
        return samples


_FAMILIES: Final[dict[str, tuple[type[Metric], str, tuple[str, ...]]]] = {
    "headgate_connections": (GaugeMetricFamily, "Client connections that are open", ()),
    "headgate_connections_limit": (GaugeMetricFamily, "Client connections that there may be", ()),
    "headgate_connections_accepted": (CounterMetricFamily, "Client connections accepted", ()),
    "headgate_connections_ended": (CounterMetricFamily, "Client connections by cause of end", ("cause",)),
    "headgate_bytes": (CounterMetricFamily, "Bytes by side and direction", ("side", "direction")),
    "headgate_reads_paused": (CounterMetricFamily, "Times that reading stopped for back-pressure", ("side",)),
    "headgate_calls": (
        CounterMetricFamily,
        "Calls by api and version: passed as they are, opened for interceptors",
        ("api", "version", "way"),
    ),
    "headgate_calls_spliced": (
        CounterMetricFamily,
        "Passing answers whose node addresses were replaced",
        ("api", "version"),
    ),
    "headgate_added_seconds": (
        HistogramMetricFamily,
        "Time from received to sent, for what one wake-up of the event loop received",
        ("direction",),
    ),
    "headgate_interceptor_failures": (CounterMetricFamily, "Calls that passed because an interceptor failed", ()),
    "headgate_certificate_expiry_seconds": (
        GaugeMetricFamily,
        "When the listener's certificate expires, in seconds since 1970",
        (),
    ),
    "headgate_topologies_ready": (
        GaugeMetricFamily,
        "1 when descriptions of Streams topologies can be asked for, stored and shown",
        (),
    ),
    "headgate_topologies_groups": (GaugeMetricFamily, "Streams groups of which something is known", ()),
    "headgate_topologies_heartbeats": (
        CounterMetricFamily,
        "Heartbeats of Streams members by whether the member was asked, or why not",
        ("verdict",),
    ),
    "headgate_topologies_pushes": (
        CounterMetricFamily,
        "Pushed descriptions by the error code of the answer",
        ("error_code",),
    ),
    "headgate_topologies_store_calls": (
        CounterMetricFamily,
        "Calls of the store of descriptions",
        ("call", "outcome"),
    ),
    "headgate_topologies_cleanup_cycles": (CounterMetricFamily, "Cleanups of descriptions that ran", ()),
    "headgate_topologies_cleanup_eligible": (CounterMetricFamily, "Groups that a cleanup found to be gone", ()),
    "headgate_topologies_gate_failures": (
        CounterMetricFamily,
        "Heartbeats that were answered although deciding about the question failed",
        (),
    ),
    "headgate_share_groups_ready": (
        GaugeMetricFamily,
        "1 when it is known which share groups have dead letters, a breaker or a pause",
        (),
    ),
    "headgate_share_groups_leading": (GaugeMetricFamily, "1 when a worker here judges the breakers", ()),
    "headgate_share_groups_paused": (GaugeMetricFamily, "Share groups that are paused", ()),
    "headgate_share_groups_held_ranges": (GaugeMetricFamily, "Ranges of records that members hold", ()),
    "headgate_share_groups_acquired_records": (CounterMetricFamily, "Records that members acquired", ()),
    "headgate_share_groups_stripped_records": (
        CounterMetricFamily,
        "Records that were not delivered again because of their delivery count",
        (),
    ),
    "headgate_share_groups_late_dead_letters": (
        CounterMetricFamily,
        "Dead letters that were written after they were given up",
        (),
    ),
    "headgate_share_groups_withdrawn_dead_letters": (
        CounterMetricFamily,
        "Dead letters whose record was not archived",
        (),
    ),
    "headgate_share_groups_ignored_records": (
        CounterMetricFamily,
        "Records that the breakers' windows did not count, by why: acquired before a trip, older than a window",
        ("why",),
    ),
    "headgate_share_groups_facts_lost": (CounterMetricFamily, "Counts and events that could not be written", ()),
    "headgate_share_groups_failures": (CounterMetricFamily, "Tasks of the share groups that failed", ()),
    "headgate_share_group_dead_letters": (CounterMetricFamily, "Dead letters written", ("group",)),
    "headgate_share_group_dlq_circuit_breaker_tripped": (
        CounterMetricFamily,
        "Trips of the circuit breaker (DlqCircuitBreakerTripped)",
        ("group",),
    ),
    "headgate_share_group_dlq_write_timeouts": (
        CounterMetricFamily,
        "Records archived without the dead letter that they should have (DlqWriteTimeouts)",
        ("group",),
    ),
    "headgate_dlq_topic_shared_by_multiple_groups": (
        GaugeMetricFamily,
        "Share groups of a dead-letter topic that has more than one (DlqTopicSharedByMultipleGroups)",
        ("topic",),
    ),
    "headgate_activity_intervals": (GaugeMetricFamily, "Uses of topics by clients that go on", ()),
    "headgate_activity_overflows": (
        CounterMetricFamily,
        "Uses that are counted together because the table of clients is full",
        (),
    ),
    "headgate_activity_unreadable": (
        CounterMetricFamily,
        "Produce, Fetch and ShareFetch calls of which the topics could not be read",
        (),
    ),
    "headgate_activity_facts": (CounterMetricFamily, "Facts of activity, written and lost", ("outcome",)),
    "headgate_activity_recorded": (
        CounterMetricFamily,
        "Active topics of connectors that were written to status topics",
        (),
    ),
    "headgate_worker_restarts": (CounterMetricFamily, "Workers that ended unasked and were started again", ()),
}


_LOWEST: Final = frozenset(
    (
        "headgate_certificate_expiry_seconds",
        "headgate_connections_limit",
        "headgate_dlq_topic_shared_by_multiple_groups",
        "headgate_share_groups_paused",
        "headgate_share_groups_ready",
        "headgate_topologies_groups",
        "headgate_topologies_ready",
    )
)


def add(snapshots: Iterable[Snapshot]) -> Snapshot:
    """The sum of what several workers counted; of what is theirs together, the lowest."""
    total: Snapshot = {}
    for snapshot in snapshots:
        for sample, value in snapshot.items():
            if sample[0] in _LOWEST:
                total[sample] = min(total.get(sample, value), value)
            else:
                total[sample] = total.get(sample, 0) + value
    return total


def counters_of(snapshot: Snapshot) -> Snapshot:
    """What still counts of a worker that has ended: not what it had open."""
    return {sample: value for sample, value in snapshot.items() if _FAMILIES[sample[0]][0] is not GaugeMetricFamily}


class _Page(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def page(snapshot: Snapshot, *, ready: bool) -> bytes:
    """The text of `/metrics`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(list(_families(snapshot, ready=ready))))
    return generate_latest(registry)


def _families(snapshot: Snapshot, *, ready: bool) -> Iterator[Metric]:
    info = InfoMetricFamily("headgate_build", "Version of the gateway")
    info.add_metric([], {"version": headgate.__version__})
    yield info
    yield GaugeMetricFamily("headgate_ready", "1 when /readyz says so", value=float(ready))
    by_name: dict[str, dict[tuple[str, ...], float]] = {}
    for (name, labels), value in snapshot.items():
        by_name.setdefault(name, {})[labels] = value
    for name, (kind, text, label_names) in _FAMILIES.items():  # all of them: what is still at zero can be seen too
        samples = by_name.get(name, {})
        if kind is HistogramMetricFamily:
            yield _histogram(name, text, samples)
            continue
        family = kind(name, text, labels=label_names)  # type: ignore[call-arg]
        for labels, value in samples.items():
            family.add_metric(labels, value)  # type: ignore[attr-defined]
        yield family


def _histogram(name: str, text: str, samples: dict[tuple[str, ...], float]) -> Metric:
    """Cumulative counts, as Prometheus wants them."""
    family = HistogramMetricFamily(name, text, labels=["direction"])
    for direction in sorted({labels[0] for labels in samples}):
        cumulated = 0.0
        buckets: list[tuple[str, float]] = []
        for bound in _BUCKETS:
            cumulated += samples[direction, bound]
            buckets.append((bound, cumulated))
        family.add_metric([direction], buckets, samples[direction, "sum"])
    return family
