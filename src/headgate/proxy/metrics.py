"""The proxy's own metrics, and the page `/metrics` with those of all features.

The data plane adds to plain integers; nothing is formatted until the page is requested. The proxy's label values come
from enums and from Kafka's own tables, never from a client; those of features are bounded by `metric_series`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Final

from headgate.proxy.chain import ChainMeter
from headgate.proxy.features import MetricFamily
from headgate.proxy.gather_budget import GatherBudgets
from headgate.proxy.interceptor import CloseCause
from headgate.proxy.link import LinkMeter
from headgate.proxy.pipes import PipePool
from headgate.proxy.routes import Route

_BOUNDS: Final = (0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)
_LONG_S: Final = 0.001

BUCKETS: Final = (*map(str, _BOUNDS), "+Inf")


class Histogram:
    """Counts of durations by upper bound."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0

    def record(self, seconds: float, stands_for: int = 1) -> None:
        """Count a duration; one that `stands_for` others is counted so often, unless it is long, which few are."""
        if seconds > _LONG_S:
            stands_for = 1
        self.counts[bisect_left(_BOUNDS, seconds)] += stands_for
        self.total += seconds * stands_for


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
        unproved_connections: int = 0,
        connections_limit: int,
        routes: Iterable[Route],
        certificate_expires_at: float | None,
        budgets: GatherBudgets,
        pipes: PipePool,
    ) -> Snapshot:
        """Everything that has been counted; snapshots of several workers can be added up."""
        samples: Snapshot = {
            ("headgate_connections", ()): open_connections,
            ("headgate_connections_unproved", ()): unproved_connections,
            ("headgate_connections_limit", ()): connections_limit,
            ("headgate_connections_accepted", ()): self.accepted,
            ("headgate_interceptor_failures", ()): self.chain_meter.failures,
            ("headgate_splice_bytes", ()): pipes.spliced_bytes,
            ("headgate_splice_fallbacks", ()): pipes.fallbacks,
            ("headgate_splice_pipes", ()): pipes.used,
        }
        if certificate_expires_at is not None:
            samples["headgate_certificate_expiry_seconds", ()] = certificate_expires_at
        for frames, budget in budgets.by_name():
            samples["headgate_gathered_bytes", (frames,)] = budget.used
            samples["headgate_gathering_waits", (frames,)] = budget.waits
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
            for bound, count in zip(BUCKETS, histogram.counts, strict=True):
                samples["headgate_added_seconds", (direction, bound)] = count
            samples["headgate_added_seconds", (direction, "sum")] = histogram.total
        return samples


_PROXY_FAMILIES: Final = (
    MetricFamily("headgate_connections", "gauge", "Open client connections"),
    MetricFamily(
        "headgate_connections_unproved", "gauge", "Accepted client connections that have not proved who they are"
    ),
    MetricFamily("headgate_connections_limit", "gauge", "Limit of client connections", merge="min"),
    MetricFamily("headgate_connections_accepted", "counter", "Client connections accepted"),
    MetricFamily("headgate_connections_ended", "counter", "Client connections that ended, by cause", ("cause",)),
    MetricFamily("headgate_bytes", "counter", "Bytes by side and direction", ("side", "direction")),
    MetricFamily(
        "headgate_gathered_bytes",
        "gauge",
        "Bytes of requests and responses over 64 KiB that are gathered for interceptors",
        ("frames",),
    ),
    MetricFamily(
        "headgate_gathering_waits",
        "counter",
        "Requests and responses that waited because too many bytes were gathered",
        ("frames",),
    ),
    MetricFamily(
        "headgate_splice_bytes",
        "counter",
        "Bytes of large responses that the kernel moved to the client through a pipe; part of headgate_bytes",
    ),
    MetricFamily(
        "headgate_splice_fallbacks",
        "counter",
        "Times that bytes of a large response were copied because no pipe was free or could be created",
    ),
    MetricFamily("headgate_splice_pipes", "gauge", "Pipes that hold bytes of large responses for slow clients"),
    MetricFamily("headgate_reads_paused", "counter", "Times that reading stopped for back-pressure", ("side",)),
    MetricFamily(
        "headgate_calls",
        "counter",
        "Requests by api and version: passed unchanged, or opened for interceptors",
        ("api", "version", "way"),
    ),
    MetricFamily(
        "headgate_calls_spliced",
        "counter",
        "Passing responses in which node addresses were replaced",
        ("api", "version"),
    ),
    MetricFamily(
        "headgate_added_seconds",
        "histogram",
        "Time from receiving to sending, for the bytes of one wake-up of the event loop; of wake-ups with up to 1 KiB"
        " one in 16 is timed and counted 16 times",
        ("direction",),
    ),
    MetricFamily(
        "headgate_interceptor_failures",
        "counter",
        "Requests and responses that passed unchanged because an interceptor failed",
    ),
    MetricFamily(
        "headgate_certificate_expiry_seconds",
        "gauge",
        "When the listener's certificate expires, in seconds since 1970",
        merge="min",
    ),
    MetricFamily("headgate_worker_restarts", "counter", "Workers that ended unexpectedly and were restarted"),
    MetricFamily("headgate_worker_start_failures", "counter", "Failed attempts to start a worker process"),
    MetricFamily("headgate_worker_reports_skipped", "counter", "Reports of workers that were too large to be read"),
    MetricFamily(
        "headgate_metric_series_left_out",
        "gauge",
        "Series that are added up under the label (others): more than 1,000 in a family, or too many bytes in all",
    ),
)


class MetricsPage:
    """The text of `/metrics` for the proxy's own families and those of the features."""

    def __init__(self, families: Iterable[MetricFamily] = ()) -> None:
        self._families = {family.name: family for family in (*_PROXY_FAMILIES, *families)}

    @property
    def families(self) -> Iterable[MetricFamily]:
        return self._families.values()

    def add(self, snapshots: Iterable[Snapshot]) -> Snapshot:
        """Merge the snapshots of several workers; a newer worker may have families that are unknown here."""
        total: Snapshot = {}
        for snapshot in snapshots:
            for sample, value in snapshot.items():
                if (family := self._families.get(sample[0])) is None:
                    continue
                if family.merge == "min":
                    total[sample] = min(total.get(sample, value), value)
                else:
                    total[sample] = total.get(sample, 0) + value
        return total

    def counters_of(self, snapshot: Snapshot) -> Snapshot:
        """The part of a snapshot that still counts after its worker has ended: no gauges."""
        gauges = {family.name for family in self._families.values() if family.kind == "gauge"}
        return {sample: value for sample, value in snapshot.items() if sample[0] not in gauges}

    def render(self, snapshot: Snapshot, *, ready: bool) -> bytes:
        from headgate.proxy.exposition import render  # noqa: PLC0415 - a worker renders nothing: it reports

        return render(self.families, snapshot, ready=ready)
