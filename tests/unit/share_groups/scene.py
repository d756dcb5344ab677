"""A gateway with the real service of share groups; a test plays the client, the broker and the cluster around it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.base.clock import Clock
from headgate.config.model import ShareGroupsConfig
from headgate.config.values import GroupPatterns
from headgate.facts import (
    DispositionsCounted,
    EventHappened,
    GroupConfigSet,
    GroupConfigUnset,
    GroupPaused,
    GroupPauseEnded,
)
from headgate.proxy.interceptor import Session
from headgate.proxy.principals import Principals
from headgate.share_groups.feature import ShareGroupFeature
from headgate.share_groups.model.group_configs import DLQ_TOPIC, LIMIT
from headgate.share_groups.model.group_state import ShareGroupFact, ShareGroupState
from headgate.share_groups.service import ShareGroupService
from headgate.wire.codec import decode
from headgate.wire.messages.cluster import MetadataRequest, MetadataResponse, MetadataTopic
from headgate.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headgate.wire.messages.groups import HeartbeatResponse
from headgate.wire.messages.share import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareAcknowledgePartition,
    ShareAcknowledgePartitionResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopic,
    ShareAcknowledgeTopicResponse,
    ShareFetchPartition,
    ShareFetchPartitionResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    ShareFetchTopicResponse,
)
from headgate.wire.schema import Message
from tests.support.fake_upstream import Broker, Client, Request, body_of, request
from tests.support.messages import REQUESTS
from tests.unit.proxy.stage import Stage, config, stage, turns, until
from tests.unit.share_groups.fake_kafka import FakeDeadLetterWriter, FakeKafka, FakeSpoolWriter

METADATA, HEARTBEAT, FETCH, ACKNOWLEDGE = 3, 12, 78, 79
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_RESOURCES = 32, 33, 44, 74
SHARE_HEARTBEAT, SHARE_DESCRIBE = 76, 77
GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
TOPIC_RESOURCE, GROUP_RESOURCE = 2, 32
TOPIC, OTHER_TOPIC = b"t" * 16, b"u" * 16
GROUP, MEMBER, DLQ = "g", "m", "dlq.g"
LOCK_MS = 30_000
DENIED, DENIED_TEXT = 30, "Group authorization failed."
LOCKS = "share.record.lock.duration.ms"  # one of the broker's own configs
_BROKERS_OWN = (LOCKS, LIMIT)
_ALL_OPERATIONS, DESCRIBE_ONLY, _NOT_TOLD = 3576, 256, -(2**31)
_ACTIONS = {"config_changed": "set", "paused": "pause", "resumed": "resume"}
Batch = tuple[int, int, Sequence[int]]


class NamedPrincipal(Principals):
    """Every client has this name."""

    def __init__(self, name: str | None) -> None:
        super().__init__()
        self.name = name

    def principal_of(self, session: Session) -> str | None:  # noqa: ARG002
        return self.name


class ProbedBroker(Broker):
    """Answers the gateway's probes for READ on a group with `code`; None: the test sees them like any other request."""

    code: int | None = 25
    probes = 0

    async def request(self) -> Request:
        while True:
            asked = await super().request()
            if asked.key != HEARTBEAT:
                return asked
            self.probes += 1
            if self.code is None:
                return asked
            await self.send(asked.answer(HeartbeatResponse(error_code=self.code)))

    async def is_quiet(self, seconds: float = 0.05) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.request()
        except TimeoutError:
            return True
        return False


@dataclass
class BrokerRules:
    """How the played broker answers config requests: in the words of a 4.3.1 broker, as measured."""

    denied: set[str] = field(default_factory=set)  # groups that the client may not change
    topics: set[str] = field(default_factory=lambda: {"dlq.there"})
    unwritable: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)  # topics that the client may not even describe
    fails: set[str] = field(default_factory=set)  # groups whose change fails, although it was fine to try it
    responds: asyncio.Event = field(default_factory=asyncio.Event)  # to changes that are not only validated
    silent: set[str] = field(default_factory=set)  # groups whose change has no result
    throttle_ms: int = 0
    metadata_throttle_ms: int = 0
    asked: list[Request] = field(default_factory=list)

    def answer(self, asked: Request) -> Message | None:
        self.asked.append(asked)
        if asked.key == METADATA:
            names = decode(MetadataRequest, asked.version, asked.body)
            assert not names.allow_auto_topic_creation
            assert names.include_topic_authorized_operations
            topics = tuple(self._topic(one.name or "") for one in names.topics or ())
            return MetadataResponse(throttle_time_ms=self.metadata_throttle_ms, topics=topics)
        if asked.key == INCREMENTAL_ALTER_CONFIGS:
            new = decode(IncrementalAlterConfigsRequest, asked.version, asked.body)
            results = tuple(
                self._altered(
                    one.resource_type,
                    one.resource_name,
                    [(c.name, c.config_operation, c.value) for c in one.configs],
                    validate_only=new.validate_only,
                )
                for one in new.resources
                if new.validate_only or one.resource_name not in self.silent
            )
            return IncrementalAlterConfigsResponse(throttle_time_ms=self.throttle_ms, responses=results)
        if asked.key == ALTER_CONFIGS:
            old = decode(AlterConfigsRequest, asked.version, asked.body)
            results = tuple(
                self._altered(
                    one.resource_type,
                    one.resource_name,
                    [(c.name, 0, c.value) for c in one.configs],
                    validate_only=old.validate_only,
                )
                for one in old.resources
                if old.validate_only or one.resource_name not in self.silent
            )
            return AlterConfigsResponse(throttle_time_ms=self.throttle_ms, responses=results)
        return None

    def __post_init__(self) -> None:
        self.responds.set()

    def is_change(self, asked: Request) -> bool:
        if asked.key not in (INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS):
            return False
        message: Any = decode(REQUESTS[asked.key], asked.version, asked.body)
        return not message.validate_only

    def _altered(
        self, kind: int, name: str, configs: list[tuple[str, int, str | None]], *, validate_only: bool
    ) -> AlterConfigsResourceResponse:
        code, text = self._result(kind, name, configs)
        if code == 0 and not validate_only and name in self.fails:
            code, text = 7, None
        return AlterConfigsResourceResponse(error_code=code, error_message=text, resource_type=kind, resource_name=name)

    def _result(self, kind: int, name: str, configs: list[tuple[str, int, str | None]]) -> tuple[int, str | None]:
        names = [one for one, _, _ in configs]
        if len(set(names)) != len(names):
            return 42, "Error due to duplicate config keys"
        if nulls := [one for one, operation, value in configs if value is None and operation != 1]:
            return 42, f"Null value not supported for : {', '.join(nulls)}"
        if kind != GROUP_RESOURCE:
            return 0, None
        if name in self.denied:
            return 30, DENIED_TEXT
        if not name:
            return 42, "Default group resources are not allowed."
        for one, operation, value in configs:
            if operation in (2, 3):
                word = "APPEND" if operation == 2 else "SUBTRACT"
                return 40, f"Can't {word} to key {one} because its type is not LIST."
            if operation == 0 and one not in _BROKERS_OWN:
                return 40, f"Unknown group config name: {one}"
            if one == LIMIT and operation == 0 and not 2 <= int(value or 0) <= 10:
                return 40, "share.delivery.count.limit must be less than or equal to the maximum"
        return 0, None

    def _topic(self, name: str) -> MetadataTopic:
        if name in self.hidden:
            return MetadataTopic(error_code=29, name=name, topic_authorized_operations=_NOT_TOLD)
        operations = DESCRIBE_ONLY if name in self.unwritable else _ALL_OPERATIONS
        code = 0 if name in self.topics else 3
        return MetadataTopic(error_code=code, name=name, topic_authorized_operations=operations)


@dataclass
class Scene:
    """`service` is real, `kafka` stands for its clients of the cluster, `rules` for the broker's config requests."""

    stage: Stage
    service: ShareGroupService
    kafka: FakeKafka
    client: Client
    broker: ProbedBroker
    version: int
    rules: BrokerRules = field(default_factory=BrokerRules)
    principals: NamedPrincipal = field(default_factory=lambda: NamedPrincipal(None))
    playing: "asyncio.Task[None] | None" = None
    _number: int = field(default=0)
    _counted: list[DispositionsCounted] = field(default_factory=list)

    @property
    def dead_letters(self) -> FakeDeadLetterWriter:
        return self.kafka.dead_letter_writer

    @property
    def spool(self) -> FakeSpoolWriter:
        return self.kafka.spool_writer

    def follow_spool(self) -> None:
        """The service reads what is in the spool now."""
        self.spool.follow(self.kafka.spool_index)

    async def other_client(self) -> "Scene":
        """Another connection to the same gateway."""
        client, broker = await self.stage.pair()
        return replace(self, client=client, broker=ProbedBroker(broker.sock))

    # --- facts

    def read(self, *facts: ShareGroupFact) -> None:
        """As if another gateway had written them."""
        self.kafka.read(*facts)

    def set(self, group: str, values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                self.read(GroupConfigUnset(group=group, name=name))
            else:
                self.read(GroupConfigSet(group=group, name=name, value=value, by="User:o", at=1))

    def configure(self, group: str = GROUP, **values: str) -> None:
        """With a dead-letter topic, unless another value is given."""
        self.set(
            group, {DLQ_TOPIC: DLQ, LIMIT: "3", **{name.replace("__", "."): value for name, value in values.items()}}
        )

    def pause(self, group: str = GROUP) -> None:
        self.read(GroupPaused(group=group, reason="because", by="User:o", at=1))

    def resume(self, group: str = GROUP) -> None:
        self.read(GroupPauseEnded(group=group))

    def state(self, group: str) -> ShareGroupState:
        return self.service.state(group)

    def events(self, event: str) -> list[dict[str, Any]]:
        """The details of these events."""
        self.service._dead_letters.reports.report()
        return [one.detail.value() for one in self._facts(EventHappened) if one.event == event]

    def applied(self) -> list[tuple[object, ...]]:
        """The actions of operators: what, the group, the changes or the reason, by whom."""
        events = [(one, one.detail.value()) for one in self._facts(EventHappened) if one.event in _ACTIONS]
        return [
            (_ACTIONS[one.event], one.subject, detail.get("changes", detail.get("reason")), one.by)
            for one, detail in events
        ]

    def counted(self) -> dict[str, int]:
        """What was counted so far, of all members and partitions; only what is not 0."""
        self._counted += self.service.acknowledgements.drain(1 << 60)
        names = ("accepted", "released", "rejected", "over_limit", "dead_lettered", "write_timeouts")
        facts = [*self._counted, *self._facts(DispositionsCounted)]
        totals = {name: sum(getattr(one, name) for one in facts) for name in names}
        return {name: total for name, total in totals.items() if total}

    def _facts(self, kind: type[Any]) -> list[Any]:
        queues = [queue._groups.values() for queue in self.service._outbox._queues]
        waiting = [fact for groups in queues for group in groups for _, fact in group]
        return [one for one in (*self.kafka.writer.facts, *waiting) if isinstance(one, kind)]

    # --- the broker

    def play(self) -> None:
        """From now on the broker answers config requests by itself."""
        self.playing = asyncio.create_task(self._play())

    async def _play(self) -> None:
        with suppress(EOFError, ConnectionError):
            while True:
                asked = await self.broker.request()
                answer = self.rules.answer(asked)
                if self.rules.is_change(asked):
                    await self.rules.responds.wait()
                await self.broker.send(asked.answer(answer))

    async def names_topic(self, *, operations: int = _ALL_OPERATIONS) -> None:
        """Names no topic; if the client's operations are asked for too, every topic as the client may use it."""
        asked = await self.broker.request()
        assert asked.key == METADATA, asked
        names = decode(MetadataRequest, asked.version, asked.body)
        topics = tuple(
            MetadataTopic(topic_id=one.topic_id, name=one.topic_id.decode(), topic_authorized_operations=operations)
            for one in (names.topics or () if names.include_topic_authorized_operations else ())
        )
        await self.broker.send(asked.answer(MetadataResponse(topics=topics)))

    async def settled(self) -> None:
        """The dead letters of records that were removed from a response are written."""
        await until(lambda: bool(self.dead_letters.written))
        await turns()

    # --- requests

    async def ask(self, key: int, version: int, message: Message) -> Message:
        """The response that the client gets."""
        frame = await self.client.call(key, version, message)
        response_class: type[Message] = REQUESTS[key].response_class()
        return decode(response_class, version, body_of(frame, key, version))

    async def passes(self, key: int, version: int, message: Message, answer: Message | None = None) -> None:
        """Both the request and its response pass byte for byte."""
        sent = request(key, version, message)
        await self.client.send(sent)
        asked = await self.broker.request()
        if asked.key == METADATA:  # the probe in front of a large request of a client that is not proved
            await self.broker.send(asked.answer())
            asked = await self.broker.request()
        assert asked.frame == sent
        answered = asked.answer(answer)
        await self.broker.send(answered)
        assert await self.client.frame() == answered

    async def send(self, message: ShareFetchRequest | ShareAcknowledgeRequest) -> bytes:
        """A request on its way; the frame as the client sent it."""
        self._number += 1
        key = FETCH if isinstance(message, ShareFetchRequest) else ACKNOWLEDGE
        frame = request(key, self.version, message, correlation_id=self._number)
        await self.client.send(frame)
        return frame

    async def fetch(
        self, message: ShareFetchRequest, answer: ShareFetchResponse
    ) -> tuple[ShareFetchRequest, ShareFetchResponse]:
        """What reached the broker, and what the client got."""
        await self.send(message)
        return await self.goes_on_fetching(answer)

    async def goes_on_fetching(self, answer: ShareFetchResponse) -> tuple[ShareFetchRequest, ShareFetchResponse]:
        asked = await self.broker.request()
        assert asked.key == FETCH, asked
        await self.broker.send(asked.answer(answer))
        return self.read_fetch(asked), await self.fetched()

    async def fetched(self) -> ShareFetchResponse:
        return decode(ShareFetchResponse, self.version, body_of(await self.client.frame(), FETCH, self.version))

    async def goes_on_acknowledging(
        self, answer: ShareAcknowledgeResponse
    ) -> tuple[ShareAcknowledgeRequest, ShareAcknowledgeResponse]:
        asked = await self.broker.request()
        assert asked.key == ACKNOWLEDGE, asked
        await self.broker.send(asked.answer(answer))
        body = body_of(await self.client.frame(), ACKNOWLEDGE, self.version)
        return (
            decode(ShareAcknowledgeRequest, self.version, asked.body),
            decode(ShareAcknowledgeResponse, self.version, body),
        )

    async def rejects(
        self, acks: Mapping[int, Sequence[Batch]], codes: Mapping[int, int] | None = None
    ) -> tuple[ShareAcknowledgeRequest, ShareAcknowledgeResponse]:
        """A ShareAcknowledge whose dead letters are written; `codes` are the broker's, by partition."""
        await self.send(acknowledging(acks))
        await self.names_topic()
        return await self.goes_on_acknowledging(acknowledged(codes or {0: 0}))

    def read_fetch(self, asked: Request) -> ShareFetchRequest:
        return decode(ShareFetchRequest, self.version, asked.body)

    async def acquires(self, *ranges: tuple[int, int, int], partition: int = 0) -> None:
        """The member gets these: first, last, delivery count."""
        got = (await self.fetch(fetching(), fetched({partition: ranges})))[1]
        assert acquired(got) == {partition: list(ranges)}


@asynccontextmanager
async def scene(
    *,
    opens: asyncio.Event | None = None,
    version: int = 2,
    principal: str | None = "User:ops",
    clock: Clock | None = None,
    max_opening_s: float = 30.0,
    proved: bool = True,
    **settings: Any,
) -> AsyncIterator[Scene]:
    """`settings` are of `[share_groups]`; `opens` holds the service's start back. Groups named foreign* are denied.

    `proved`: the broker has answered a request that it answers only to authenticated clients.
    """
    kafka = FakeKafka()
    kafka.opens = opens or kafka.opens
    chosen = ShareGroupsConfig(**{"groups": GroupPatterns(deny=("foreign*",)), **settings})
    service = ShareGroupService(
        replace(config(9), share_groups=chosen),
        clock=clock,
        open_with=kafka.open,  # type: ignore[arg-type]
        group_configs=kafka.group_configs,  # type: ignore[arg-type]
        max_opening_s=max_opening_s,
    )
    principals = NamedPrincipal(principal)
    feature = ShareGroupFeature(service, principals, dlq_auto_create=chosen.dlq_auto_create)
    async with stage(*feature.interceptors) as on, service.running():
        await until(lambda: service.is_ready if opens is None else kafka.listeners is not None)
        client, broker = await on.pair(proved=proved)
        one = Scene(on, service, kafka, client, ProbedBroker(broker.sock), version, principals=principals)
        try:
            yield one
        finally:
            kafka.goes_on.set()
            if one.playing is not None:
                one.playing.cancel()
                await asyncio.wait({one.playing})


def fetching(
    acks: Mapping[int, Sequence[Batch]] | None = None,
    *,
    epoch: int = 1,
    group: str | None = GROUP,
    member: str | None = MEMBER,
    wait_ms: int = 0,
) -> ShareFetchRequest:
    partitions = tuple(
        ShareFetchPartition(partition_index=index, acknowledgement_batches=_batches(batches))
        for index, batches in (acks or {}).items()
    )
    return ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=500,
        batch_size=500,
        topics=(ShareFetchTopic(topic_id=TOPIC, partitions=partitions),) if partitions else (),
    )


def acknowledging(acks: Mapping[int, Sequence[Batch]] | None = None, *, epoch: int = 1) -> ShareAcknowledgeRequest:
    partitions = tuple(
        ShareAcknowledgePartition(partition_index=index, acknowledgement_batches=_batches(batches))
        for index, batches in (acks or {}).items()
    )
    return ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id=MEMBER,
        share_session_epoch=epoch,
        topics=(ShareAcknowledgeTopic(topic_id=TOPIC, partitions=partitions),) if partitions else (),
    )


def _batches(batches: Sequence[Batch]) -> tuple[AcknowledgementBatch, ...]:
    return tuple(
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
        for first, last, types in batches
    )


def fetched(
    ranges: Mapping[int, Sequence[tuple[int, int, int]]] | None = None,
    *,
    codes: Mapping[int, int] | None = None,
    error_code: int = 0,
    lock_ms: int = LOCK_MS,
    records: bytes = b"records",
) -> ShareFetchResponse:
    """`codes` are the acknowledge error codes, by partition."""
    found = ranges or {}
    partitions = tuple(
        ShareFetchPartitionResponse(
            partition_index=index,
            acknowledge_error_code=(codes or {}).get(index, 0),
            records=records if found.get(index) else b"",
            acquired_records=tuple(
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in found.get(index, ())
            ),
        )
        for index in sorted({*found, *(codes or {})})
    )
    topics = (ShareFetchTopicResponse(topic_id=TOPIC, partitions=partitions),) if partitions else ()
    return ShareFetchResponse(error_code=error_code, acquisition_lock_timeout_ms=lock_ms, responses=topics)


def acknowledged(codes: Mapping[int, int] | None = None, *, error_code: int = 0) -> ShareAcknowledgeResponse:
    partitions = tuple(
        ShareAcknowledgePartitionResponse(partition_index=index, error_code=code)
        for index, code in (codes or {}).items()
    )
    topics = (ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=partitions),) if partitions else ()
    return ShareAcknowledgeResponse(error_code=error_code, responses=topics)


def acquired(answer: ShareFetchResponse) -> dict[int, list[tuple[int, int, int]]]:
    return {
        one.partition_index: [(a.first_offset, a.last_offset, a.delivery_count) for a in one.acquired_records]
        for topic in answer.responses
        for one in topic.partitions
    }


def acks_of(message: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[int, list[Batch]]:
    return {
        one.partition_index: [(b.first_offset, b.last_offset, b.acknowledge_types) for b in one.acknowledgement_batches]
        for topic in message.topics
        for one in topic.partitions
    }


def twice(message: ShareFetchRequest, acks: Sequence[Batch]) -> ShareFetchRequest:
    """The request with its only partition named once more."""
    (topic,) = message.topics
    (partition,) = topic.partitions
    again = replace(partition, acknowledgement_batches=_batches(acks))
    return replace(message, topics=(replace(topic, partitions=(partition, again)),))
