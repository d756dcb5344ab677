"""`enable = false`: what Headgate owned of share groups is given back to the broker, once after a start.

One rule: only `share.delivery.count.limit` is given back, because only that was taken. The facts stay, so that share
groups are as they were when they are switched on again. A cluster that never had them is not touched.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError
from headgate.base.log_throttle import LogThrottle
from headgate.config.model import Config
from headgate.kafka.connections import Connections, dialler_of
from headgate.kafka.fact_reader import FactReader
from headgate.kafka.topics import client_settings
from headgate.proxy.features import Feature
from headgate.share_groups.limits import Limits
from headgate.share_groups.model.group_state import ShareGroupFact, ShareStates
from headgate.share_groups.resources import STATE, share_group_facts
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic

log = structlog.get_logger()

_METADATA: Final = 3
_FIRST_S: Final = 5.0  # it is not urgent: clients come first
_RETRY_S: Final = 10.0
_LONGEST_REPLAY_S: Final = 300.0


class LeftShareGroups(Feature):
    """A feature without interceptors: its life is giving back."""

    def __init__(self, config: Config) -> None:
        self._config = config

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.get_running_loop().create_task(self._give_back())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _give_back(self) -> None:
        said: str | None = None
        await asyncio.sleep(_FIRST_S)
        while True:
            try:
                await self._give_back_once()
            except (ClusterError, TimeoutError) as failure:
                if str(failure) != said:
                    said = str(failure)
                    log.warning("delivery count limits were not given back, still trying", problem=said)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _is_there(self, topic: str) -> bool:
        """Asked by our own codec: librdkafka, which a broken broker can end a process through, is not begun in vain."""
        dialler = await asyncio.to_thread(dialler_of, self._config.upstream)
        async with Connections(dialler) as connections:
            request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
            link = await connections.bootstrap()
            answer = await link.ask(request, lowest=4, highest=9)
        return any(one.name == topic and one.error_code == 0 for one in answer.topics)

    async def _give_back_once(self) -> None:
        topic = self._config.facts.prefix + STATE
        if not await self._is_there(topic):
            return
        settings = client_settings(self._config.upstream)
        states = ShareStates()

        def take(events: list[ShareGroupFact]) -> None:
            for event in events:
                states.apply(event)

        reader = FactReader(
            settings,
            topic=topic,
            digest=lambda records: share_group_facts(STATE, records),
            forget=lambda _: [],
            take=take,
        )
        reader.start()
        try:
            async with asyncio.timeout(_LONGEST_REPLAY_S):
                await reader.replayed.wait()
        finally:
            await reader.close()
        owned = {
            group: state.settings.limit
            for group in states.groups()
            if (state := states.of(group)).settings.dlq_topic is not None
        }
        given = await Limits(self._config.upstream, LogThrottle(SystemClock().monotonic)).give_all_back(owned)
        if given:
            log.info("delivery count limits were given back to the broker", groups=given)
