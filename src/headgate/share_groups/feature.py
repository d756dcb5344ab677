"""`[share_groups]` as a feature of the gateway: its interceptors when it is enabled, its removal when it is not."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import structlog

from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.base.tasks import TaskSet, retry
from headgate.config.model import Config
from headgate.kafka.connections import Connections, dialler_of
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.topics import client_settings
from headgate.proxy.features import Feature
from headgate.proxy.principals import Principals
from headgate.share_groups.broker_configs import DeliveryLimits, GroupConfigClient
from headgate.share_groups.config_interceptors import (
    AlterConfigsInterceptor,
    DescribeConfigsInterceptor,
    ListConfigResourcesInterceptor,
)
from headgate.share_groups.group_interceptors import ShareGroupDescribeInterceptor, ShareGroupHeartbeatInterceptor
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates
from headgate.share_groups.reserved_names import API_KEYS, ReservedNamesInterceptor
from headgate.share_groups.resources import STATE, share_group_facts
from headgate.share_groups.service import ShareGroupService
from headgate.share_groups.share_interceptor import ShareAcknowledgeInterceptor, ShareFetchInterceptor
from headgate.share_groups.share_metrics import FAMILIES
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic

log = structlog.get_logger()

_DELAY_S: Final = 5.0  # clients come first
_RETRY_S: Final = 10.0
_MAX_REPLAY_S: Final = 300.0


class ShareGroupFeature(Feature):
    """`enable = true`: dead letters, the breaker and the pause, for groups with configs of Headgate."""

    families = FAMILIES

    def __init__(self, service: ShareGroupService, principals: Principals, *, dlq_auto_create: bool) -> None:
        self.service = service
        self.interceptors = (
            ShareFetchInterceptor(service, service.acknowledgements, principals.principal_of),
            ShareAcknowledgeInterceptor(service, service.acknowledgements, principals.principal_of),
            AlterConfigsInterceptor(service, principals.principal_of, dlq_auto_create=dlq_auto_create),
            DescribeConfigsInterceptor(service),
            ListConfigResourcesInterceptor(service),
            ShareGroupDescribeInterceptor(service),
            ShareGroupHeartbeatInterceptor(service, service.rights),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.service.running():
            yield

    def problems(self) -> Mapping[str, str]:
        return self.service.problems()

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        return self.service.samples()


class ReservedNames(Feature):
    """Keeps clients from the names of Headgate's own workers; of every gateway, because another may lead."""

    def __init__(self, prefix: str) -> None:
        throttle = LogThrottle(SystemClock().monotonic)
        self.interceptors = tuple(ReservedNamesInterceptor(key, prefix, throttle) for key in API_KEYS)


class DisabledShareGroups(Feature):
    """`enable = false`: restores the delivery count limits of the brokers, once after a start.

    The facts stay, so that share groups are as they were when they are enabled again. A cluster that never had them is
    not changed.
    """

    def __init__(self, config: Config) -> None:
        self._config = config

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = TaskSet(lambda failure: log.error("task of the share groups failed", exc_info=failure))
        tasks.spawn(self._restore_limits())
        try:
            yield
        finally:
            await tasks.cancel_all()

    async def _restore_limits(self) -> None:
        await asyncio.sleep(_DELAY_S)
        await retry(
            self._restore_once,
            pause_s=_RETRY_S,
            on_problem=lambda problem: log.warning(
                "delivery count limits were not restored, still trying", problem=problem
            ),
            errors=(ClusterError, TimeoutError),
        )

    async def _topic_exists(self, topic: str) -> bool:
        """Uses Headgate's own codec: librdkafka, which a broken broker can crash, is not started in vain."""
        dialler = await asyncio.to_thread(dialler_of, self._config.upstream)
        async with Connections(dialler) as connections:
            request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
            link = await connections.bootstrap()
            answer = await link.ask(request, lowest=4, highest=9)
        return any(one.name == topic and one.error_code == 0 for one in answer.topics)

    async def _restore_once(self) -> None:
        topic = self._config.facts.prefix + STATE
        if not await self._topic_exists(topic):
            return
        states = ShareStates()

        def take(facts: list[ShareGroupFact]) -> None:
            for fact in facts:
                states.apply(fact)

        reader = FactReader(
            client_settings(self._config.upstream),
            topic=topic,
            digest=lambda records: share_group_facts(STATE, records),
            forget=lambda _: [],
            take=take,
        )
        reader.start()
        try:
            async with asyncio.timeout(_MAX_REPLAY_S):
                await reader.replayed.wait()
        finally:
            await reader.close()
        user_limits = {
            group: state.settings.limit
            for group in states.groups()
            if (state := states.of(group)).settings.dlq_topic is not None
        }
        limits = DeliveryLimits(GroupConfigClient(self._config.upstream), LogThrottle(SystemClock().monotonic))
        restored = await limits.restore_all(user_limits)
        if restored:
            log.info("delivery count limits of the brokers were restored", groups=restored)
