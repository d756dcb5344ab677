"""How long a campaign lasts, the cluster that each module has for itself, and the table of a whole run.

An attack leaves traces in a broker, so no two modules share one. A run of `make soak` ends with one line for each
campaign, printed and written to `bench/SOAK.md`; one broken promise fails the run.
"""

import os
from collections.abc import Iterator

import pytest

from tests.soak.page import table, write_section
from tests.support.cluster import Cluster, start_test_cluster

_MINUTES = "HEADGATE_TEST_MINUTES"  # set by `make soak MINUTES=10`
_ran: dict[str, tuple[str, float]] = {}  # each campaign's outcome and seconds, its fixtures included


@pytest.fixture(scope="session")
def minutes() -> float:
    """The size of the run: campaigns that last as long as they are given take their share of it."""
    return float(os.environ.get(_MINUTES) or 10)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_test_cluster(tmp_path_factory) as running:
        yield running


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
    outcome, seconds = _ran.get(name, ("passed", 0.0))
    _ran[name] = (outcome if report.passed else "FAILED", seconds + report.duration)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = [(name, outcome, f"{seconds:.0f}") for name, (outcome, seconds) in _ran.items()]
    seconds = sum(seconds for _, seconds in _ran.values())
    failed = sum(outcome != "passed" for outcome, _ in _ran.values())
    verdict = f"{len(rows)} campaigns, {failed} failed, {seconds / 60:.0f} minutes."
    terminalreporter.section("campaigns")
    for name, outcome, took in rows:
        terminalreporter.write_line(f"{outcome:7} {took:>5} s  {name}")
    terminalreporter.write_line(verdict)
    if os.environ.get(_MINUTES):
        write_section("Last run", [verdict, "", *table(("campaign", "outcome", "seconds"), rows)], is_first=True)
