"""A gateway with the topologies feature, a client and a broker that tests play; the epochs' topic is a list.

The topic is a fake, because what is tested here is the wire; with the real one the feature is tested in
tests/integration/topologies.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headgate.base.errors import ClusterError
from headgate.config.model import TopologiesConfig
from headgate.config.values import GroupPatterns, Store
from headgate.facts import (
    EventHappened,
    MemberTasksEnded,
    MemberTasksObserved,
    TopologyDescribed,
    TopologyEpochsRemoved,
    TopologyEpochsSet,
)
from headgate.plugin import TopologyStore
from headgate.proxy.principals import Principals, PrincipalsFeature
from headgate.proxy.server import Gateway
from headgate.share_groups.feature import ReservedNames
from headgate.topologies.feature import DescribeGroups, TopologyFeature
from headgate.topologies.model.streams_groups import StreamsGroups
from headgate.topologies.resources import TopologyResources
from headgate.topologies.service import TopologyService
from headgate.topologies.store_calls import StoreCalls
from headgate.topologies.stores.memory_store import MemoryStore
from headgate.wire.codec import decode, encode
from headgate.wire.messages.groups import DeletedGroup, DeleteGroupsRequest, DeleteGroupsResponse, HeartbeatResponse
from headgate.wire.messages.streams import (
    DescribedStreamsGroup,
    DescribedTopology,
    HeartbeatTopology,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupMember,
    StreamsGroupStatus,
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TaskOffset,
    TopologyDescription,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from tests.support.clock import FakeClock
from tests.support.fake_upstream import Broker, Client, FakeUpstream, Request, body_of, request
from tests.unit.proxy.stage import Stage, config, until
from tests.unit.topologies.topic_store import START_MS, FakeTopic, TopicStore

JOIN_GROUP, HEARTBEAT, DELETE, STREAMS_HEARTBEAT, DESCRIBE, PUSH = 11, 12, 42, 88, 89, 93
OFFSET_DELETE = 47
UNKNOWN_MEMBER, DENIED, NOT_FOUND = 25, 30, 69
NEVER_S = 60.0


class FakeEpochs:
    """Stands for `headgate.state`: epochs are read back when they are written, unless the topic is `away` or closed."""

    def __init__(self) -> None:
        self.written: list[TopologyEpochsSet] = []
        self.removed: list[str] = []
        self.now_ms = 0
        self.away = False
        self.takes_writes = asyncio.Event()
        self.takes_writes.set()
        self.waiting = 0
        self.groups: StreamsGroups | None = None

    async def write(self, epochs: TopologyEpochsSet | TopologyEpochsRemoved) -> None:
        self.waiting += 1
        await self.takes_writes.wait()
        self.waiting -= 1
        if self.away:
            raise ClusterError("the topic is away")
        assert self.groups is not None
        if isinstance(epochs, TopologyEpochsRemoved):
            self.removed.append(epochs.group)
            self.groups.on_epochs_removed(epochs.group)
            return
        self.written.append(replace(epochs, at=self.now_ms))
        self.groups.on_epochs_read(self.written[-1], is_own=True)


class FakeEvents:
    """Stands for `headgate.events`."""

    def __init__(self) -> None:
        self.written: list[EventHappened] = []
        self.away = False

    async def write(self, event: EventHappened) -> None:
        if self.away:
            raise ClusterError("the topic is away")
        self.written.append(event)


@dataclass
class Scene:
    stage: Stage
    service: TopologyService
    epochs: FakeEpochs
    client: Client
    broker: Broker
    numbers: list[int] = field(default_factory=lambda: [0])
    events: FakeEvents = field(default_factory=FakeEvents)

    async def another(self) -> "Scene":
        """The same gateway, another client."""
        client, broker = await self.stage.pair()
        return Scene(self.stage, self.service, self.epochs, client, broker, self.numbers, self.events)

    def _number(self) -> int:
        self.numbers[0] += 1
        return self.numbers[0]

    async def heartbeat(
        self,
        message: StreamsGroupHeartbeatRequest,
        answer: StreamsGroupHeartbeatResponse | None = None,
        *,
        version: int = 1,
    ) -> tuple[Request, StreamsGroupHeartbeatResponse]:
        """What reached the broker, and what the client got."""
        await self.client.send(request(STREAMS_HEARTBEAT, version, message, correlation_id=self._number()))
        asked = await self.broker.reply(answer or fine())
        frame = await self.client.frame()
        body = body_of(frame, STREAMS_HEARTBEAT, version)
        return asked, decode(StreamsGroupHeartbeatResponse, version, body)

    async def join(self, member: str = "m", **more: Any) -> bool:
        """Whether a member that joins is asked."""
        return (await self.heartbeat(joining(member, **more)))[1].topology_description_required

    def push(self, message: StreamsGroupTopologyDescriptionUpdateRequest | None = None) -> "asyncio.Task[Any]":
        """The answer that will come."""

        async def call() -> StreamsGroupTopologyDescriptionUpdateResponse:
            frame = await self.client.call(PUSH, 0, message or pushed(), correlation_id=self._number())
            return decode(StreamsGroupTopologyDescriptionUpdateResponse, 0, body_of(frame, PUSH, 0))

        return asyncio.create_task(call())

    async def pushes(self, message: StreamsGroupTopologyDescriptionUpdateRequest | None = None) -> int:
        """The error code of a push that needs no broker."""
        code: int = (await self.push(message)).error_code
        return code

    async def describe(
        self, *groups: DescribedStreamsGroup, descriptions: bool = True
    ) -> tuple[DescribedStreamsGroup, ...]:
        """The groups as the client gets them, when the broker describes them so."""
        ids = tuple(one.group_id for one in groups)
        message = StreamsGroupDescribeRequest(group_ids=ids, include_topology_description=descriptions)
        await self.client.send(request(DESCRIBE, 1, message, correlation_id=self._number()))
        asked = await self.broker.reply(StreamsGroupDescribeResponse(groups=groups))
        assert asked.version == 0
        frame = await self.client.frame()
        return decode(StreamsGroupDescribeResponse, 1, body_of(frame, DESCRIBE, 1)).groups

    async def status(self, **more: Any) -> int:
        [group] = await self.describe(described(**more))
        return group.topology_description_status

    def delete(self, *groups: str, version: int = 3) -> "asyncio.Task[Any]":
        async def call() -> tuple[DeletedGroup, ...]:
            message = DeleteGroupsRequest(groups_names=groups)
            frame = await self.client.call(DELETE, version, message, correlation_id=self._number())
            return decode(DeleteGroupsResponse, version, body_of(frame, DELETE, version)).results

        return asyncio.create_task(call())

    async def proves_right(self, key: int, code: int = 0, *, throttle_ms: int = 0) -> None:
        """The broker answers the gateway's probe."""
        asked = await self.broker.request()
        assert asked.key == key, asked
        body = encode(HeartbeatResponse(throttle_time_ms=throttle_ms, error_code=code), 4) if key == HEARTBEAT else None
        if key == OFFSET_DELETE:
            body = code.to_bytes(2, "big", signed=True) + throttle_ms.to_bytes(4, "big") + bytes(4)
        await self.broker.send(asked.answer(body))

    async def describes(self, *, throttle_ms: Any = 0, **more: Any) -> None:
        """The broker answers the gateway's own describe."""
        asked = await self.broker.request()
        assert (asked.key, asked.version) == (DESCRIBE, 0)
        await self.broker.send(
            asked.answer(StreamsGroupDescribeResponse(throttle_time_ms=throttle_ms, groups=(described(**more),)))
        )


@asynccontextmanager
async def scene(
    store: TopologyStore | None = None,
    *,
    opens: asyncio.Event | None = None,
    scheme: str = "memory",
    upstream: FakeUpstream | None = None,
    write_timeout_s: float = NEVER_S,
    store_timeout_s: float | None = None,
    retry_s: float = 2.0,
    describe: DescribeGroups | None = None,
    cleanup_interval_s: float = NEVER_S,
    topic: "tuple[FakeTopic, Path] | None" = None,
    keep_version: Callable[[TopologyDescribed], Awaitable[None]] | None = None,
    principals: Principals | None = None,
    write_tasks: Callable[[MemberTasksObserved | MemberTasksEnded], Awaitable[None]] | None = None,
    **settings: Any,
) -> AsyncIterator[Scene]:
    """The feature in front of the fake broker; `settings` are of `[topologies]`, `opens` holds its start back.

    `topic` is a list and a folder: with it the store is `kafka:`, on that list.

    No call times out on a busy machine, unless a test gives it a timeout.
    """
    async with upstream or FakeUpstream() as fake:
        base = config(fake.port, drain_ms=300)
        scheme = scheme if topic is None else "kafka"
        topologies = TopologiesConfig(**{"store": Store(scheme), "call_timeout_ms": 30_000, **settings})  # type: ignore[arg-type]
        whole = replace(base, topologies=topologies)
        epochs, events = FakeEpochs(), FakeEvents()

        async def opening(groups: StreamsGroups, stack: AsyncExitStack) -> TopologyResources:
            if opens is not None:
                await opens.wait()
            epochs.groups = groups
            if topic is not None:
                on_topic = TopicStore(topic[0], FakeClock(START_MS), groups.on_record_read)
                stack.push_async_callback(on_topic.close)
                await on_topic.open(topic[1])
                return TopologyResources(
                    StoreCalls(on_topic, timeout_s=NEVER_S), epochs.write, on_topic, None, events.write
                )
            timeout_s = topologies.call_timeout_ms / 1000 if store_timeout_s is None else store_timeout_s
            calls = StoreCalls(store or MemoryStore(), timeout_s=timeout_s)
            return TopologyResources(
                calls, epochs.write, keep_version=keep_version, write_event=events.write, write_tasks=write_tasks
            )

        service = TopologyService(whole, opening, random_number=lambda: 0.5, retry_s=retry_s)
        feature = TopologyFeature(
            service,
            max_bytes=topologies.max_bytes,
            write_timeout_s=write_timeout_s,
            principals=principals,
            watch_tasks=write_tasks is not None,
            describe=describe,
            cleanup_interval_s=cleanup_interval_s,
        )
        who = () if principals is None else (PrincipalsFeature(principals),)
        # With what every gateway has in front of its features: several interceptors of a request decide together.
        gateway = Gateway(whole, features=(ReservedNames(whole.facts.prefix), *who, feature))
        stage = Stage(gateway, fake, gateway.running())
        await stage.running.__aenter__()
        try:
            await until(gateway.cluster.seen.is_set)
            if opens is None and service.has_store:
                await until(lambda: service.is_ready)
            yield Scene(stage, service, epochs, *await stage.pair(), events=events)
        finally:
            for end in stage.ends:
                end.close()
            await stage.stop()


def joining(
    member: str = "m", *, group: str = "g", process: str = "p", epoch: int = 0, member_epoch: int = 0
) -> StreamsGroupHeartbeatRequest:
    """As a 4.4 client joins: with the task offsets that a 4.3 broker refuses."""
    offsets = (TaskOffset(subtopology_id="0", partition=0, offset=7),)
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=member_epoch,
        process_id=process,
        topology=HeartbeatTopology(epoch=epoch),
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        task_offsets=offsets,
        task_end_offsets=offsets,
    )


def beating(member: str = "m", *, group: str = "g", member_epoch: int = 2) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=member_epoch)


def fine(code: int = 0, statuses: Sequence[int] = ()) -> StreamsGroupHeartbeatResponse:
    status = tuple(StreamsGroupStatus(status_code=one, status_detail="") for one in statuses)
    return StreamsGroupHeartbeatResponse(error_code=code, member_id="m", member_epoch=2, status=status)


def pushed(
    member: str = "m", *, group: str = "g", epoch: int = 0, name: str = "SOURCE", nodes: int = 1, node_type: int = 1
) -> StreamsGroupTopologyDescriptionUpdateRequest:
    subtopology = TopologyDescriptionSubtopology(
        subtopology_id="0",
        nodes=tuple(
            TopologyDescriptionNode(name=f"{name}-{i}", node_type=node_type, source_topics=("in",))
            for i in range(nodes)
        ),
    )
    return StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=group,
        member_id=member,
        topology_epoch=epoch,
        topology_description=TopologyDescription(subtopologies=(subtopology,)),
    )


def described(
    *, group: str = "g", code: int = 0, members: Sequence[str] = ("m",), epoch: int | None = 0, state: str = "Stable"
) -> DescribedStreamsGroup:
    return DescribedStreamsGroup(
        error_code=code,
        group_id=group,
        group_state="" if code else state,
        topology=None if epoch is None or code else DescribedTopology(epoch=epoch),
        members=() if code else tuple(StreamsGroupMember(member_id=one) for one in members),
    )


def allow(*patterns: str) -> GroupPatterns:
    return GroupPatterns(allow=patterns)
