"""`state` is deleted and created again under a running service: groups stay paused, and the facts are written again."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs
from structlog.typing import EventDict

from headgate.config import load
from headgate.share_groups.model.group_configs import DLQ_TOPIC
from headgate.share_groups.service import ShareGroupService
from tests.integration.topologies.test_lost_records import create_again, until
from tests.support.cluster import Cluster

LOST = "topic lost records about share groups, writing them again"
UNWRITTEN = ("headgate_share_groups_unwritten_facts", ())


@asynccontextmanager
async def serving(cluster: Cluster, prefix: str) -> AsyncIterator[ShareGroupService]:
    settings = cluster.client_config()
    overrides = {
        "upstream.bootstrap": [settings["bootstrap.servers"]],
        "upstream.service_mechanism": "none",
        "facts.prefix": prefix,
    }
    service = ShareGroupService(load(None, {}, overrides))
    async with service.running():
        await until(lambda: service.is_ready)
        yield service


def test_a_state_topic_that_was_created_again_resumes_no_group_and_gets_its_facts_again(cluster: Cluster) -> None:
    # Not a coroutine test: the sockets of the admin client end with it, which is after the coroutine.
    with capture_logs() as logs:
        asyncio.run(_create_again_while_paused(cluster, AdminClient(dict(cluster.client_config())), logs))


async def _create_again_while_paused(cluster: Cluster, admin: AdminClient, logs: list[EventDict]) -> None:
    prefix = f"headgate-{uuid.uuid4().hex[:8]}."
    async with serving(cluster, prefix) as service:
        await service.pause("g", "deploy", "User:ops")
        await service.set_configs("h", {DLQ_TOPIC: "dlq.h"}, "User:ops")
        await create_again(admin, f"{prefix}state")
        # The facts may be written again within moments: the log has what a look at the metric could miss.
        await until(lambda: any(one["event"] == LOST for one in logs))
        assert service.is_paused("g")
        await until(lambda: service.is_ready and service.samples()[UNWRITTEN] == 0)
        assert service.is_paused("g")
        assert service.state("h").settings.dlq_topic == "dlq.h"
    del admin
    async with serving(cluster, prefix) as service:
        assert service.is_paused("g"), "it is in the new topic"
        assert service.state("h").settings.dlq_topic == "dlq.h"
        assert [one.text for one in service.state("g").pause_reasons] == ["deploy"]
