"""`[activity]` as a feature of the gateway: its interceptors, its tasks and its metrics."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from headgate.activity.connect_recorder import ConnectRecorder
from headgate.activity.connect_status_topic import ConnectStatusTopic
from headgate.activity.end_offset_poller import EndOffsetPoller, read_end_offsets
from headgate.activity.interceptors import GroupMembershipInterceptor, TopicUsageInterceptor
from headgate.activity.model.end_offset_tracker import EndOffsets
from headgate.activity.service import ActivityService
from headgate.activity.topic_resolver import TopicResolver, look_up_topics
from headgate.activity.usage_tracker import UsageTracker
from headgate.base.clock import SystemClock
from headgate.config.model import Config
from headgate.kafka.connections import dialler_of
from headgate.kafka.fact_writer import FactWriter
from headgate.kafka.shared_clients import SharedClients, clients_of
from headgate.kafka.topics import find_origin
from headgate.proxy.features import Feature, MetricFamily
from headgate.proxy.principals import Principals


class ActivityFeature(Feature):
    """Created on the event loop of its worker; worker 0 polls end offsets too.

    It reports no problems: clients are served when their activity cannot be written.
    """

    families = (
        MetricFamily("headgate_activity_intervals", "gauge", "Open intervals: pairs of a client and a topic in use"),
        MetricFamily("headgate_activity_overflows", "counter", "Uses added up under `other` because a table is full"),
        MetricFamily("headgate_activity_unreadable", "counter", "Requests and responses that could not be parsed"),
        MetricFamily("headgate_activity_facts", "counter", "Facts of activity, written or lost", ("outcome",)),
        MetricFamily("headgate_activity_recorded", "counter", "Active topics recorded in Connect's status topics"),
        MetricFamily(
            "headgate_activity_unrecorded",
            "counter",
            "Uses of connectors that were dropped because too many waited for Connect's status topic",
        ),
        MetricFamily("headgate_activity_skipped", "counter", "Records of Connect's status topics that are not valid"),
    )

    def __init__(
        self, config: Config, principals: Principals, *, worker: int = 0, clients: SharedClients | None = None
    ) -> None:
        """`clients` are those of the worker; by default new ones, which are closed with the feature."""
        self._config = config
        self._clients = clients or clients_of(config)
        self._owns_clients = clients is None
        self._worker = worker
        self._clock = SystemClock()
        self._topics = TopicResolver(partial(look_up_topics, config.upstream))
        connect_principals = {name for one in config.connect.values() for name in one.principals}
        self._tracker = UsageTracker(principals, self._topics, self._clock, connect_principals=connect_principals)
        self._usage = TopicUsageInterceptor(self._tracker)
        self.interceptors = (self._usage, GroupMembershipInterceptor(self._tracker))
        self._service = ActivityService(self._tracker, self._clock, self._open_writer)
        self._recorder: ConnectRecorder | None = None
        self._status_topics: list[ConnectStatusTopic] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._owns_clients:
                stack.push_async_callback(self._clients.close)
            if status_topics := await self._read_status_topics(stack):
                self._recorder = ConnectRecorder(status_topics, self._topics, self._clock)
                self._service.on_used = self._recorder.on_used
                self._service.spawn(self._recorder.run)
            if self._worker == 0:
                poller = EndOffsetPoller(self._read_end_offsets, self._service.write, self._clock)
                self._service.spawn(poller.run)
            await stack.enter_async_context(self._service.running())
            yield

    async def _read_status_topics(self, stack: AsyncExitStack) -> dict[str, list[ConnectStatusTopic]]:
        """The status topics of clusters with `record = true`, by the principals of their workers."""
        topics: dict[str, list[ConnectStatusTopic]] = {}
        for one in self._config.connect.values():
            if one.record:  # the rules of the configuration demand what it needs
                await self._clients.open()
                topic = ConnectStatusTopic(self._clients, status_topic=one.status_topic, config_topic=one.config_topic)
                await stack.enter_async_context(topic.running())
                self._status_topics.append(topic)
                for principal in one.principals:
                    topics.setdefault(principal, []).append(topic)
        return topics

    async def _open_writer(self) -> FactWriter:
        """A writer of `headgate.activity`; the topic is created if it does not exist."""
        await self._clients.open()
        origin = await find_origin(self._config, self._worker, self._clients.admin, "activity")
        writer = FactWriter(self._clients.producer, prefix=self._config.facts.prefix, origin=origin)
        try:
            await writer.open("activity")
        except BaseException:
            await writer.close()
            raise
        return writer

    async def _read_end_offsets(self) -> EndOffsets:
        dialler = await asyncio.to_thread(dialler_of, self._config.upstream)
        return await read_end_offsets(dialler, without_prefix=self._config.facts.prefix)

    def samples(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        intervals, service = self._tracker.intervals, self._service
        return {
            ("headgate_activity_intervals", ()): len(intervals),
            ("headgate_activity_overflows", ()): intervals.overflows,
            ("headgate_activity_unreadable", ()): self._usage.unreadable,
            ("headgate_activity_facts", ("written",)): service.written,
            ("headgate_activity_facts", ("lost",)): service.lost + intervals.lost,
            ("headgate_activity_recorded", ()): 0 if self._recorder is None else self._recorder.recorded,
            ("headgate_activity_unrecorded", ()): 0 if self._recorder is None else self._recorder.dropped,
            ("headgate_activity_skipped", ()): sum(one.skipped.count for one in self._status_topics),
        }
