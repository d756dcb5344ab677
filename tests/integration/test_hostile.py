"""A twentieth of the hostile-input campaign; the whole of it is `make soak`.

The limits on latency are as wide as clients are patient: a shared machine has its own stalls. What inputs cost in
processor time is asserted where it can be measured, in `tests/unit/proxy/test_hostile_regressions.py`, and the whole
campaign's figures are in `bench/SOAK.md`.
"""

from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.hostile import TWENTIETH, against_brokers, against_clients
from tests.support.hostile_campaign import Limits

LIMITS = Limits(p99_ratio=3.0, p99_floor_ms=2000.0, wait_ms=5000.0, wake_ups=10)


def test_hostile_clients_harm_nobody_and_leave_nothing_behind(cluster: Cluster, tmp_path: Path) -> None:
    outcome = against_clients(cluster.bootstrap, tmp_path, TWENTIETH)
    assert outcome.problems(LIMITS) == []


def test_a_hostile_broker_harms_no_client_of_another_and_no_address_leaks(cluster: Cluster, tmp_path: Path) -> None:
    outcome = against_brokers(cluster.bootstrap, tmp_path, TWENTIETH)
    assert outcome.problems(LIMITS) == []
