"""The cleanup with a real broker: a group that was deleted without the gateway takes its description with it."""

import secrets
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.member_topologies import chain
from tests.support.members import Members
from tests.support.topics import create_topics

WAIT_S = 60.0


def wait_for(gateway: GatewayProcess, metric: str, least: float) -> None:
    by = time.monotonic() + WAIT_S
    while gateway.metric(metric) < least:
        assert time.monotonic() < by, gateway.log_lines()
        time.sleep(0.05)


@pytest.mark.parametrize("store", ["kafka:", "memory:"])
def test_the_description_of_a_group_that_was_deleted_at_the_broker_is_deleted(
    cluster: Cluster, members: Members, tmp_path: Path, store: str
) -> None:
    gone, here = (f"cleanup-{secrets.token_hex(4)}" for _ in range(2))
    create_topics(cluster, [gone, here])
    settings: dict[str, Any] = {
        "topologies__owner": "gateway",
        "topologies__store": store,
        "topologies__cleanup_interval_ms": 1000,
        "facts__prefix": f"{gone}.",
    }
    with running_gateway(
        tmp_path, cluster.bootstrap, tables__path=str(tmp_path / "data" / "tables"), **settings
    ) as gateway:
        wait_for(gateway, "headgate_topologies_ready", 1)
        for name in (gone, here):
            one = members.join(name, gateway.bootstrap, name, topics=[name], topology=chain(name))
            one.wait("pushed")
            one.close()
        assert members.describe(gateway.bootstrap, here, topology=True)[here].status == "AVAILABLE"
        members.wait_for_group(cluster.bootstrap, gone, lambda seen: seen.state == "Empty")
        assert members.delete(cluster.bootstrap, gone)[gone].error == ""
        wait_for(gateway, "headgate_topologies_cleanup_eligible_total", 1)
        by = time.monotonic() + WAIT_S
        while not any(f'event="topology description deleted" group={gone}' in line for line in gateway.log_lines()):
            assert time.monotonic() < by, gateway.log_lines()
            time.sleep(0.05)
        # Of the two only the one that is gone: an empty group stays.
        cycles = gateway.metric("headgate_topologies_cleanup_cycles_total")
        wait_for(gateway, "headgate_topologies_cleanup_cycles_total", cycles + 3)
        assert gateway.metric("headgate_topologies_cleanup_eligible_total") == 1
        assert members.describe(gateway.bootstrap, here, topology=True)[here].status == "AVAILABLE"
