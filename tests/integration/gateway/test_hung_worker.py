"""A real worker whose process stands still is replaced, and a client of its node is served again."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from structlog.testing import capture_logs

from headgate.base.ids import NodeId
from headgate.cli.features import FAMILIES
from headgate.config.addresses import Address
from headgate.config.model import Config, GatewayConfig, MetricsConfig, UpstreamConfig
from headgate.proxy.supervisor import Supervisor
from tests.support.cluster import Cluster
from tests.support.ports import port_block
from tests.support.raw_client import is_served

HOST = "127.0.0.1"
RESTARTS = ("headgate_worker_restarts", ())
HUNG_S = 6.0  # a worker reports twice a second
DEADLINE_S = 120.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.05)


async def test_a_worker_that_stands_still_is_killed_and_replaced_and_the_others_stay(cluster: Cluster) -> None:
    port = port_block()
    host, _, upstream_port = cluster.bootstrap.partition(",")[0].rpartition(":")
    config = Config(
        gateway=GatewayConfig(
            listen=Address(HOST, port), advertised_host=HOST, nodes=(NodeId(0), NodeId(1)), workers=2, drain_ms=1000
        ),
        upstream=UpstreamConfig(bootstrap=(Address(host, int(upstream_port)),), service_mechanism="none"),
        metrics=MetricsConfig(listen=Address(HOST, port + 15)),
    )
    supervisor = Supervisor(config, (sys.executable, "-m", "headgate.cli.worker"), FAMILIES, hung_s=HUNG_S, kill_s=1.0)
    stopped = asyncio.Event()
    with capture_logs() as logs:
        running = asyncio.create_task(supervisor.run(stopped, asyncio.Event()))
        hung = None
        try:
            await until(lambda: running.done() or not supervisor.problems())
            assert await asyncio.to_thread(is_served, f"{HOST}:{port + 1}")
            hung, other = sorted(supervisor.workers, key=lambda worker: worker.index)
            os.kill(hung.process.pid, signal.SIGSTOP)
            await until(lambda: hung not in supervisor.workers)
            assert hung.process.returncode == -signal.SIGKILL
            await until(lambda: not supervisor.problems())
            assert await asyncio.to_thread(is_served, f"{HOST}:{port + 1}")
            assert other in supervisor.workers
            assert supervisor.snapshot()[RESTARTS] == 1
        finally:
            if hung is not None:
                with suppress(ProcessLookupError):
                    os.kill(hung.process.pid, signal.SIGCONT)
            stopped.set()
            async with asyncio.timeout(DEADLINE_S):
                await running
    [event] = [event for event in logs if event["event"] == "worker hangs, ending it"]
    assert event["worker"] == 0
