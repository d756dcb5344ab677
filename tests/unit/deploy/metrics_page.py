"""What `/metrics` can show, taken from the page that the code makes, and what a PromQL text asks of it."""

import asyncio
import re
from collections.abc import Iterable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from headgate.activity.feature import ActivityFeature
from headgate.base.ids import ApiKey, ApiVersion
from headgate.cli.features import FAMILIES
from headgate.config import Config
from headgate.kafka.shared_clients import clients_of
from headgate.lags.feature import LagFeature
from headgate.proxy.gather_budget import GatherBudgets
from headgate.proxy.metrics import Metrics, MetricsPage
from headgate.proxy.pipes import PipePool
from headgate.proxy.principals import Principals
from headgate.proxy.routes import Route
from headgate.proxy.supervisor import Supervisor
from headgate.share_groups.share_metrics import ShareMeter
from headgate.share_groups.spool.model.index import SpoolTotals
from headgate.topologies.mismatch_reporter import MismatchReporter
from headgate.topologies.model.streams_groups import GroupCounts
from headgate.topologies.topology_metrics import TopologyMetrics

Labels = dict[str, set[str]]
# Prometheus itself adds these to everything that it collects.
_COLLECTORS = {"instance", "job"}
_SELECTOR = re.compile(r"\b(headgate_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")


def samples() -> dict[str, Labels]:
    """Every sample name of a gateway with TLS and topologies that has served a call, with the values of each label."""
    found: dict[str, Labels] = {}
    for family in text_string_to_metric_families(asyncio.run(_page()).decode()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


async def _page() -> bytes:
    fetch = Route(ApiKey(1), ApiVersion(18), ())
    fetch.calls = 1
    budgets = GatherBudgets(lambda: 0.0)
    worker = Metrics().snapshot(
        open_connections=1,
        connections_limit=10,
        routes=[fetch],
        certificate_expires_at=1.0,
        budgets=budgets,
        pipes=PipePool(0, lambda: 0.0),
    )
    meter = TopologyMetrics()
    meter.pushes[0] = 1
    worker |= meter.samples(ready=True, groups=GroupCounts(1, 0, 0), lost_descriptions=0, backing_off=0, hanging=0)
    nothing: Any = None
    worker |= MismatchReporter(nothing).samples()
    share = ShareMeter()
    for counter in (share.trips, share.write_timeouts, share.dead_letters, share.moved):
        counter["sg"] = 1
    worker |= share.samples(
        ready=True,
        leading=True,
        paused=1,
        ledger=1,
        lost=0,
        unwritten=0,
        shared=[("dlq.o", 2)],
        ignored={"too_old": 0},
        spooled=[("sg", SpoolTotals(dead_letters=1, bytes=9, oldest_at=1))],
        now_ms=2,
    )
    worker |= ActivityFeature(Config(), Principals()).samples()
    worker |= LagFeature(Config(), worker=0, clients=clients_of(Config()), is_leader=None).samples()
    page = MetricsPage(FAMILIES)
    return page.render(page.add([Supervisor(Config(), ()).snapshot(), worker]), ready=True)


def wrong_with(expression: str, known: dict[str, Labels]) -> list[str]:
    """What the expression asks for and the page does not have."""
    faults = []
    labels_of_all: set[str] = set()
    for name, matchers in _SELECTOR.findall(expression):
        if name not in known:
            faults.append(f"no metric {name}")
            continue
        labels_of_all |= set(known[name])
        for label, operator, value in _MATCHER.findall(matchers):
            if label in _COLLECTORS:
                continue
            if label not in known[name]:
                faults.append(f"{name} has no label {label}")
            elif operator == "=" and value not in known[name][label]:
                faults.append(f"{name} has no {label}={value}")
    for names in _GROUPING.findall(expression):
        wanted = {name.strip() for name in names.split(",")}
        faults += [f"no label {name} to group by" for name in wanted - labels_of_all - _COLLECTORS]
    return faults


def names_in(expressions: Iterable[str]) -> set[str]:
    return {name for expression in expressions for name, _ in _SELECTOR.findall(expression)}
