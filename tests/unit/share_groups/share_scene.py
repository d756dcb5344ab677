"""A gateway that minds share groups, and the client and the broker that a test plays around it.

The topics are lists behind our own ports: what is decided is read back at once, and dead letters arrive when the test
lets them. With the real ones all of this is tested in tests/integration/breaker.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError
from headgate.config.model import Config, ShareGroupsConfig
from headgate.facts import DispositionsCounted, EventHappened, Fact, GroupConfigSet, GroupPaused, GroupPauseEnded
from headgate.kafka.topics import Origin
from headgate.proxy.rights import Rights
from headgate.share_groups.acknowledges import AcknowledgeInterceptor
from headgate.share_groups.dead_letter_topics import TopicFacts
from headgate.share_groups.dead_letter_writer import NotWritten, OnLate, Trouble
from headgate.share_groups.fetches import FetchInterceptor
from headgate.share_groups.model.dead_letter_records import DeadLetter
from headgate.share_groups.model.group_configs import DLQ_TOPIC, LIMIT
from headgate.share_groups.model.group_state import ShareGroupFact
from headgate.share_groups.service import ShareGroupService
from headgate.wire.codec import decode
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
from tests.support.fake_upstream import Broker, Client, FakeUpstream, Request, body_of, request
from tests.unit.proxy.stage import Stage, config, stage, until

METADATA, HEARTBEAT, FETCH, ACKNOWLEDGE = 3, 12, 78, 79
GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
TOPIC, OTHER_TOPIC = b"t" * 16, b"u" * 16
GROUP, MEMBER, DLQ = "g", "m", "dlq.g"
LOCK_MS = 30_000
DENIED = 30
Batch = tuple[int, int, Sequence[int]]


class Post:
    """What stands for `DeadLetterWriter`; cleared, `open` keeps letters until their deadline."""

    def __init__(self) -> None:
        self.written: list[DeadLetter] = []
        self.begun: list[DeadLetter] = []
        self.deadlines: list[float] = []
        self.open = asyncio.Event()
        self.open.set()
        self.problem: str | None = None

    async def write(
        self,
        topic: str,
        letters: Sequence[DeadLetter],
        deadline_s: float,
        on_late: OnLate | None = None,  # noqa: ARG002
    ) -> list[NotWritten | None]:
        assert topic.startswith("dlq.")
        self.begun.extend(letters)
        self.deadlines += [deadline_s] * len(letters)
        if self.problem is not None:
            return [NotWritten(Trouble.NO_TOPIC, self.problem)] * len(letters)
        try:
            async with asyncio.timeout(deadline_s):
                await self.open.wait()
        except TimeoutError:
            return [NotWritten(Trouble.UNREACHABLE, "no answer came")] * len(letters)
        self.written.extend(letters)
        return [None] * len(letters)

    async def topic_facts(self, topic: str) -> TopicFacts:  # noqa: ARG002
        return TopicFacts(partitions=1, max_message_bytes=1 << 20)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return sorted((letter.partition, letter.offset) for letter in self.written)


class Book:
    """What stands for `FactWriter`."""

    def __init__(self) -> None:
        self.origin = Origin(cluster="c", writer="w", boot="b")
        self.facts: list[Fact] = []

    async def write(self, fact: Fact) -> None:
        self.facts.append(fact)

    def stamped(self, fact: Fact) -> Fact:
        return fact


class SceneParts:
    """What stands for `Parts`: a decision is read back at once."""

    def __init__(self, service: ShareGroupService) -> None:
        self._service = service
        self.settings: Mapping[str, Any] = {}
        self.prefix = "headgate."
        self.letters = Post()
        self.writer = Book()
        self.decided: list[ShareGroupFact] = []
        self.away = False

    async def decide(self, *events: ShareGroupFact) -> None:
        if self.away:
            raise ClusterError("the topic is away")
        self.decided.extend(events)
        for event in events:
            self._service._on_event(event)


class SceneService(ShareGroupService):
    """Opens when the test says so, and leads nothing."""

    def __init__(self, whole: Config, opens: asyncio.Event) -> None:
        super().__init__(whole)
        self._opens = opens
        self.scene_parts = SceneParts(self)
        self.limits.default, self.limits.most = 5, 10

    async def _open(self, life: AsyncExitStack) -> None:  # noqa: ARG002
        await self._opens.wait()
        self._parts = self.scene_parts  # type: ignore[assignment]
        self._opened.set()
        self.spawn(self._outbox.run(self.scene_parts.writer))  # type: ignore[arg-type]
        self.spawn(self._count())


@dataclass
class ShareStage:
    stage: Stage
    service: SceneService
    client: Client
    broker: Broker
    version: int = 2
    _number: int = field(default=0)

    @property
    def post(self) -> Post:
        return self.service.scene_parts.letters

    def tell(self, *events: ShareGroupFact) -> None:
        """As if it was read."""
        for event in events:
            self.service._on_event(event)

    def configure(self, group: str = GROUP, **values: str) -> None:
        """With a dead-letter topic, unless another value is given."""
        chosen = {DLQ_TOPIC: DLQ, LIMIT: "3", **{name.replace("__", "."): value for name, value in values.items()}}
        self.tell(
            *(GroupConfigSet(group=group, name=name, value=one, by="User:o", at=1) for name, one in chosen.items())
        )

    def pause(self, group: str = GROUP) -> None:
        self.tell(GroupPaused(group=group, reason="because", by="User:o", at=1))

    def resume(self, group: str = GROUP) -> None:
        self.tell(GroupPauseEnded(group=group))

    async def proves_right(self, code: int = 25) -> None:
        asked = await self.broker.request()
        assert asked.key == HEARTBEAT, asked
        await self.broker.send(asked.answer(HeartbeatResponse(error_code=code)))

    async def names_topic(self) -> None:
        asked = await self.broker.request()
        assert asked.key == METADATA, asked
        await self.broker.send(asked.answer())

    async def settled(self) -> None:
        """The letters of what was taken out of an answer are written, or given up."""
        owed = [debt.letter for debts in self.service.debts._debts.values() for debt in debts]
        if owed:
            await asyncio.wait(owed, timeout=5)

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

    def read_fetch(self, asked: Request) -> ShareFetchRequest:
        return decode(ShareFetchRequest, self.version, asked.body)

    async def acquires(self, *ranges: tuple[int, int, int], partition: int = 0) -> None:
        """The member gets these: first, last, delivery count."""
        got = (await self.fetch(fetching(), fetched({partition: ranges})))[1]
        assert acquired(got) == {partition: list(ranges)}

    def events(self, event: str) -> list[dict[str, Any]]:
        self.service.letters.say()
        waiting = [*self.service.scene_parts.writer.facts, *self.service._outbox._facts]
        return [one.detail.value() for one in waiting if isinstance(one, EventHappened) and one.event == event]

    def counted(self) -> dict[str, int]:
        """What was counted so far, of all members and partitions; only what is not 0."""
        for fact in self.service._drain_counts(1 << 60):
            self.service._outbox.put(fact)
        names = ("accepted", "released", "rejected", "over_limit", "dead_lettered", "write_timeouts")
        facts = [
            one
            for one in [*self.service.scene_parts.writer.facts, *self.service._outbox._facts]
            if isinstance(one, DispositionsCounted)
        ]
        totals = {name: sum(getattr(one, name) for one in facts) for name in names}
        return {name: total for name, total in totals.items() if total}


@asynccontextmanager
async def share_stage(
    *, opens: asyncio.Event | None = None, version: int = 2, **settings: Any
) -> AsyncIterator[ShareStage]:
    """`settings` are of `[share_groups]`; `opens` holds the service's start back."""
    held = opens or asyncio.Event()
    if opens is None:
        held.set()
    async with FakeUpstream() as fake:
        whole = config(fake.port).model_copy(update={"share_groups": ShareGroupsConfig(**settings)})
        service = SceneService(whole, held)
        rights = Rights(SystemClock())
        interceptors = (FetchInterceptor(service, rights), AcknowledgeInterceptor(service, rights))
        async with stage(*interceptors, upstream=_Entered(fake)) as on, service.running():  # type: ignore[arg-type]
            if opens is None:
                await until(lambda: service.is_ready)
            yield ShareStage(on, service, *await on.pair(), version)


class _Entered:
    """An upstream that is running already: the configuration needs its port."""

    def __init__(self, fake: FakeUpstream) -> None:
        self._fake = fake

    async def __aenter__(self) -> FakeUpstream:
        return self._fake

    async def __aexit__(self, *_: object) -> None:
        pass


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
