"""The librdkafka clients, threads and file descriptors of running workers, counted in /proc."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from headgate.base.ids import NodeId
from headgate.config.model import Config, ConnectConfig, GatewayConfig
from headgate.kafka.client_counts import client_descriptors, most_clients, most_threads
from tests.integration.gateway.exercise import until
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.status_topics import TopicTools

CONNECT = {"one": "counted-one", "two": "counted-two"}


def threads_of(process: int) -> list[str]:
    """The names of its threads."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):  # it has ended
            found.append((task / "comm").read_text("utf-8").strip())
    return found


def descriptors_of(process: int) -> list[str]:
    """Its pipes and sockets."""
    found = []
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):  # it is closed
            found.append(str(descriptor.readlink()))
    return [one for one in found if one.startswith(("pipe:", "socket:"))]


def clients_of(gateway: GatewayProcess) -> list[int]:
    """The number of clients of each worker: every client has one main thread."""
    return sorted(threads_of(worker).count("rdk:main") for worker in gateway.workers())


def test_a_worker_has_the_clients_that_are_documented_and_no_more_threads(cluster: Cluster, tmp_path: Path) -> None:
    tools = TopicTools(cluster)
    settings: dict[str, Any] = {}
    for name, topic in CONNECT.items():
        for kind in ("status", "configs"):
            tools.create(f"{topic}-{kind}", 1, cleanup_policy="compact")
        settings |= {
            f"connect__{name}__record": True,
            f"connect__{name}__status_topic": f"{topic}-status",
            f"connect__{name}__config_topic": f"{topic}-configs",
            f"connect__{name}__principals": ["User:connect"],
        }
    with running_gateway(
        tmp_path,
        cluster.bootstrap,
        gateway__workers=2,
        facts__prefix="counted.",
        topologies__owner="gateway",
        share_groups__enable=True,
        activity__enable=True,
        lags__enable=True,
        **settings,
    ) as gateway:
        until(lambda: not gateway.problems(), 60)
        recorded = ConnectConfig(record=True, principals=("User:connect",))
        config = Config(gateway=GatewayConfig(nodes=(NodeId(0),)), connect=dict.fromkeys(CONNECT, recorded))
        # Two more are made when they are needed: for active topics, and for dead letters that are moved from the spool.
        most = most_clients(config) - 2
        until(lambda: clients_of(gateway) == [most - 1, most], 60)  # the leader writes trips
        for worker in gateway.workers():
            assert len(threads_of(worker)) <= most_threads(config, brokers=1)
            assert len(descriptors_of(worker)) <= client_descriptors(config, brokers=1) + 64
        assert "rdk:main" not in threads_of(gateway.pid), "the supervisor has none"
