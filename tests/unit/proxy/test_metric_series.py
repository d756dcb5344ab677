"""Series and label values of metrics are bounded, whatever groups and topics are called, and no counter falls."""

import asyncio
from typing import cast

from headgate.proxy.features import Feature, MetricFamily
from headgate.proxy.metric_series import LEFT_OUT, LONGEST_LABEL, MOST_SERIES, OTHERS, SeriesLimit, short_label
from headgate.proxy.metrics import MetricsPage
from headgate.proxy.server import Gateway
from headgate.proxy.supervisor import Silence, Supervisor, WorkerProcess
from headgate.proxy.worker_reports import LARGEST_REPORT, WorkerReport, encode_report
from headgate.share_groups.share_metrics import FAMILIES, ShareMeter
from tests.unit.proxy.stage import config

COUNTER = MetricFamily("headgate_some", "counter", "Some", ("group",))
GAUGE = MetricFamily("headgate_many", "gauge", "Many", ("topic", "kind"))
Samples = dict[tuple[str, tuple[str, ...]], float]


def limit(most: int = 3) -> SeriesLimit:
    return SeriesLimit((COUNTER, GAUGE, *MetricsPage().families), most=most)


def some(**counts: float) -> Samples:
    return {("headgate_some", (group,)): count for group, count in counts.items()}


def test_a_family_within_its_bounds_is_unchanged() -> None:
    samples = {**some(a=1, b=2, c=3), ("headgate_connections", ()): 5.0}
    assert limit().bound(samples) == {**samples, LEFT_OUT: 0}


def test_the_largest_series_are_shown_and_the_rest_are_added_up() -> None:
    bounded = limit().bound(some(a=1, b=9, c=3, d=4, e=2))
    assert bounded == {**some(b=9, d=4, c=3), ("headgate_some", (OTHERS,)): 3, LEFT_OUT: 2}


def test_a_counter_that_was_shown_stays_and_no_series_falls() -> None:
    series = limit()
    before = series.bound(some(a=1, b=2, c=3, d=0))
    after = series.bound(some(a=1, b=2, c=3, d=100, e=7))
    assert {labels for name, labels in after if name == "headgate_some"} == {("a",), ("b",), ("c",), (OTHERS,)}
    assert all(after[sample] >= value for sample, value in before.items())
    assert after["headgate_some", (OTHERS,)] == 107


def test_a_counter_that_is_gone_makes_room() -> None:
    series = limit(2)
    series.bound(some(a=1, b=2))
    assert series.bound(some(b=2, c=3)) == {**some(b=2, c=3), LEFT_OUT: 0}


def test_of_gauges_the_largest_are_shown_at_any_time() -> None:
    series = limit(1)
    first: Samples = {("headgate_many", ("a", "x")): 2.0, ("headgate_many", ("b", "x")): 1.0}
    assert series.bound(first)["headgate_many", ("a", "x")] == 2
    second = series.bound({**first, ("headgate_many", ("b", "x")): 3.0})
    assert second == {("headgate_many", ("b", "x")): 3, ("headgate_many", (OTHERS, OTHERS)): 2, LEFT_OUT: 1}


def test_a_series_that_a_feature_added_up_itself_is_counted_once() -> None:
    bounded = limit().bound({**some(a=4, b=3, c=2, d=1), ("headgate_some", (OTHERS,)): 10})
    assert sum(value for (name, _), value in bounded.items() if name == "headgate_some") == 20


def test_histograms_keep_all_buckets() -> None:
    buckets: Samples = {("headgate_added_seconds", ("request", str(bound))): 1.0 for bound in range(20)}
    assert limit().bound(buckets) == {**buckets, LEFT_OUT: 0}


def test_long_label_values_are_cut_and_stay_distinct() -> None:
    names = [prefix * 20_000 for prefix in ("a", "ä", "\N{GRINNING FACE}", "\udc80")]
    names += ["x" * 300 + end for end in "abc"]
    short = [short_label(name) for name in names]
    assert len(set(short)) == len(names)
    assert {len(label) for label in short} == {LONGEST_LABEL}
    assert short_label("t" * LONGEST_LABEL) == "t" * LONGEST_LABEL
    bounded = limit(10).bound({("headgate_some", (name,)): 1.0 for name in names})
    assert {labels for name, labels in bounded if name == "headgate_some"} == {(label,) for label in short}


def test_the_counters_of_share_groups_keep_no_long_names_in_memory() -> None:
    meter = ShareMeter()
    for number in range(MOST_SERIES + 50):
        meter.count(meter.dead_letters, f"{number:05}" + "g" * 30_000, 1)
    assert len(meter.dead_letters) == MOST_SERIES + 1
    assert meter.dead_letters[OTHERS] == 50
    assert max(map(len, meter.dead_letters)) == LONGEST_LABEL
    samples = meter.samples(
        ready=True,
        leading=True,
        paused=0,
        ledger=0,
        lost=0,
        shared=[("t" * 249, 2)] * 5,
        ignored={},
        spooled=(),
        now_ms=0,
    )
    assert len(SeriesLimit(FAMILIES).bound(samples)) < MOST_SERIES + 20


class Loud(Feature):
    """Has a series for each of thousands of long names."""

    families = (COUNTER,)

    def samples(self) -> Samples:
        return {("headgate_some", (f"{number}" + "\x00" * 30_000,)): 1.0 for number in range(3_000)}


async def test_the_series_of_a_gateways_features_are_bounded_and_so_is_its_report() -> None:
    snapshot = Gateway(config(1), features=[Loud()]).snapshot()
    assert sum(name == "headgate_some" for name, _ in snapshot) == MOST_SERIES + 1
    assert snapshot[LEFT_OUT] == 2_000
    assert len(encode_report(WorkerReport(snapshot, {}))) <= LARGEST_REPORT


async def test_the_series_of_a_supervisor_are_bounded_whatever_its_workers_report() -> None:
    supervisor = Supervisor(config(1), (), (COUNTER,))
    process = cast("asyncio.subprocess.Process", None)
    supervisor.workers.add(WorkerProcess(0, 0, process, 0.0, Silence(1.0), samples=Loud().samples()))
    assert sum(name == "headgate_some" for name, _ in supervisor.snapshot()) == MOST_SERIES + 1
