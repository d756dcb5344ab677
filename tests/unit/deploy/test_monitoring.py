"""Dashboard and alerts ask for what `/metrics` shows, and leave nothing of it out."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.deploy.metrics_page import names_in, samples, wrong_with

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = (DEPLOY / "prometheus" / "headgate.rules.yml").read_text("utf-8").replace("rules:\n", "rules:\n\n")
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "headgate.json").read_text("utf-8"))
KNOWN = samples()


# The one shape of an alert, which every YAML reader reads alike: plain text, or JSON strings.
ALERT = re.compile(
    r"""
      - alert: (?P<alert>\w+)
        expr: (?P<expr>[a-z](?:(?!: | #).)+)
(?:        for: \d+[smh]
)?        labels:
          severity: (?:page|ticket)
        annotations:
          summary: (?P<summary>".*")
          description: (?P<description>".*")
"""
)


def alerts() -> list[re.Match[str]]:
    return list(ALERT.finditer(RULES))


def test_every_alert_has_a_severity_a_summary_and_a_description() -> None:
    rest = ALERT.sub("", RULES)
    assert [line for line in rest.splitlines() if line and not line.startswith("#")] == [
        "groups:",
        "  - name: headgate",
        "    rules:",
    ]
    names = [alert["alert"] for alert in alerts()]
    assert len(set(names)) == len(names)
    for alert in alerts():
        for text in (json.loads(alert["summary"]), json.loads(alert["description"])):
            assert text.count("{{") == text.count("}}")
        assert alert["expr"].count("(") == alert["expr"].count(")")


def dashboard_expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def test_the_dashboard_asks_only_for_what_the_page_has() -> None:
    faults = {text: wrong for text in dashboard_expressions() if (wrong := wrong_with(text, KNOWN))}
    assert faults == {}


def test_the_dashboard_leaves_nothing_of_the_page_out() -> None:
    assert names_in(dashboard_expressions()) == set(KNOWN)


def test_the_alerts_ask_only_for_what_the_page_has() -> None:
    faults = {alert["alert"]: wrong for alert in alerts() if (wrong := wrong_with(alert["expr"], KNOWN))}
    assert faults == {}


def test_panels_have_ids_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize(
    "metric",
    [
        "headgate_ready",
        "headgate_worker_restarts_total",
        "headgate_certificate_expiry_seconds",
        "headgate_connections",
        "headgate_interceptor_failures_total",
        "headgate_share_groups_failures_total",
        "headgate_topologies_failures_total",
        "headgate_added_seconds_bucket",
        'cause="bad_answer"',
        'cause="upstream_unreachable"',
        'cause="too_many_connections"',
    ],
)
def test_what_an_operator_must_hear_of_has_an_alert(metric: str) -> None:
    assert [alert for alert in alerts() if metric in alert["expr"]]


def test_a_wrong_expression_would_be_found() -> None:
    assert wrong_with("rate(headgate_nothing_total[5m])", KNOWN)
    assert wrong_with('headgate_connections_ended_total{cause="boredom"}', KNOWN)
    assert wrong_with("sum by (planet) (headgate_connections)", KNOWN)
    assert not wrong_with('sum by (cause) (headgate_connections_ended_total{instance=~"$i"})', KNOWN)


def test_an_alert_says_that_no_worker_leads() -> None:
    """The gauge is summed over all workers and gateways; a gateway without share groups does not show `ready`."""
    [alert] = [one for one in alerts() if one["alert"] == "HeadgateNoLeader"]
    assert alert["expr"] == "sum(headgate_share_groups_leading) == 0 and sum(headgate_share_groups_ready) > 0"
    assert "for: 1m" in alert[0]
