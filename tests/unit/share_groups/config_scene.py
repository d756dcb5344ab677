"""A gateway with the calls about share groups, and the two that a test plays around it.

The broker answers config calls in the words of a 4.3.1 broker, as measured; with the real one they are tested in
tests/integration/breaker. The service is a fake behind its port: it keeps real states, and writes down what it is told.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError
from headgate.facts import GroupConfigSet, GroupConfigUnset, GroupPaused
from headgate.proxy.rights import Rights
from headgate.share_groups.config_views import DescribeConfigsInterceptor, ListConfigResourcesInterceptor
from headgate.share_groups.configs import AlterConfigsInterceptor
from headgate.share_groups.describes import ShareGroupDescribeInterceptor
from headgate.share_groups.isolation import IsolationInterceptor
from headgate.share_groups.model.breaker_status import BreakerStatus
from headgate.share_groups.model.group_configs import ConfigRules
from headgate.share_groups.model.group_state import ShareStates
from headgate.wire.codec import decode
from headgate.wire.messages.cluster import MetadataRequest, MetadataResponse, MetadataTopic
from headgate.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headgate.wire.schema import Message
from tests.support.fake_upstream import Broker, Client, Request, body_of, request
from tests.support.messages import REQUESTS
from tests.unit.proxy.stage import Stage, stage

METADATA, DESCRIBE_CONFIGS, ALTER, INCREMENTAL, LIST_RESOURCES = 3, 32, 33, 44, 74
HEARTBEAT, SHARE_HEARTBEAT, SHARE_DESCRIBE = 12, 76, 77
TOPIC, GROUP = 2, 32
LOCKS = "share.record.lock.duration.ms"  # one of the broker's own
LIMIT = "share.delivery.count.limit"
DENIED = "Group authorization failed."
_BROKERS_OWN = (LOCKS, LIMIT)
_ALL_OPERATIONS, _DESCRIBE_ONLY, _NOT_TOLD = 3576, 256, -(2**31)


class Groups:
    """What stands for the service: everything that it is told is in force at once."""

    def __init__(self) -> None:
        self.states = ShareStates()
        self.is_ready = True
        self.rules = ConfigRules()
        self.conflicts: dict[str, str] = {}
        self.away = False
        self.told: list[tuple[object, ...]] = []
        self.is_setting = False
        self.goes_on = asyncio.Event()  # cleared: what it is told to set takes its time
        self.goes_on.set()

    def selects(self, group: str) -> bool:
        return not group.startswith("foreign")

    def minds(self, group: str) -> bool:
        return self.states.of(group).is_minded

    def status(self, group: str) -> BreakerStatus:
        return BreakerStatus(group=group, paused=self.states.of(group).is_paused, limit=5)

    def conflict(self, group: str) -> str | None:
        return self.conflicts.get(group)

    async def set_configs(self, group: str, changes: Mapping[str, str | None], by: str) -> None:
        self.is_setting = True
        await self.goes_on.wait()
        self._tell("set", group, dict(changes), by)
        self.set(group, changes)

    async def pause(self, group: str, reason: str, by: str) -> None:
        self._tell("pause", group, reason, by)
        self.states.apply(GroupPaused(group=group, reason=reason, by=by, at=1))

    async def resume(self, group: str, reason: str, by: str) -> None:
        self._tell("resume", group, reason, by)

    def set(self, group: str, values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                self.states.apply(GroupConfigUnset(group=group, name=name))
            else:
                self.states.apply(GroupConfigSet(group=group, name=name, value=value, by="User:x", at=1))

    def _tell(self, *words: object) -> None:
        if self.away:
            raise ClusterError("the topic is away")
        self.told.append(words)


@dataclass
class Rules:
    """What the played broker knows: who may, which topics there are, and what it was asked."""

    denied: set[str] = field(default_factory=set)  # groups that the client may not change
    topics: set[str] = field(default_factory=lambda: {"dlq.there"})
    unwritable: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)  # topics that the client may not even describe
    fails: set[str] = field(default_factory=set)  # groups whose change fails, although it was fine to try it
    throttle_ms: int = 0
    asked: list[Request] = field(default_factory=list)

    def answer(self, asked: Request) -> Message | None:
        self.asked.append(asked)
        if asked.key == METADATA:
            names = decode(MetadataRequest, asked.version, asked.body)
            assert not names.allow_auto_topic_creation
            assert names.include_topic_authorized_operations
            return MetadataResponse(topics=tuple(self._topic(one.name or "") for one in names.topics or ()))
        if asked.key == INCREMENTAL:
            new = decode(IncrementalAlterConfigsRequest, asked.version, asked.body)
            results = tuple(
                self._altered(
                    one.resource_type,
                    one.resource_name,
                    [(c.name, c.config_operation, c.value) for c in one.configs],
                    validate_only=new.validate_only,
                )
                for one in new.resources
            )
            return IncrementalAlterConfigsResponse(throttle_time_ms=self.throttle_ms, responses=results)
        if asked.key == ALTER:
            old = decode(AlterConfigsRequest, asked.version, asked.body)
            results = tuple(
                self._altered(
                    one.resource_type,
                    one.resource_name,
                    [(c.name, 0, c.value) for c in one.configs],
                    validate_only=old.validate_only,
                )
                for one in old.resources
            )
            return AlterConfigsResponse(throttle_time_ms=self.throttle_ms, responses=results)
        return None

    def _altered(
        self, kind: int, name: str, configs: list[tuple[str, int, str | None]], *, validate_only: bool
    ) -> AlterConfigsResourceResponse:
        code, text = self._verdict(kind, name, configs)
        if code == 0 and not validate_only and name in self.fails:
            code, text = 7, None
        return AlterConfigsResourceResponse(error_code=code, error_message=text, resource_type=kind, resource_name=name)

    def _verdict(self, kind: int, name: str, configs: list[tuple[str, int, str | None]]) -> tuple[int, str | None]:
        names = [one for one, _, _ in configs]
        if len(set(names)) != len(names):
            return 42, "Error due to duplicate config keys"
        if nulls := [one for one, operation, value in configs if value is None and operation != 1]:
            return 42, f"Null value not supported for : {', '.join(nulls)}"
        if kind != GROUP:
            return 0, None
        if name in self.denied:
            return 30, DENIED
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
        operations = _DESCRIBE_ONLY if name in self.unwritable else _ALL_OPERATIONS
        code = 0 if name in self.topics else 3
        return MetadataTopic(error_code=code, name=name, topic_authorized_operations=operations)


@dataclass
class Scene:
    stage: Stage
    groups: Groups
    client: Client
    broker: Broker
    rules: Rules
    playing: "asyncio.Task[None] | None" = None

    def play(self) -> None:
        """From now on the broker answers config calls by itself."""
        self.playing = asyncio.create_task(self._play())

    async def _play(self) -> None:
        with suppress(EOFError, ConnectionError):
            while True:
                asked = await self.broker.request()
                await self.broker.send(asked.answer(self.rules.answer(asked)))

    async def ask(self, key: int, version: int, message: Message) -> Message:
        """The answer that the client gets."""
        frame = await self.client.call(key, version, message)
        response_class: type[Message] = REQUESTS[key].response_class()
        return decode(response_class, version, body_of(frame, key, version))

    async def passes(self, key: int, version: int, message: Message, answer: Message | None = None) -> None:
        """Both the request and its answer go through byte for byte."""
        sent = request(key, version, message)
        await self.client.send(sent)
        asked = await self.broker.request()
        assert asked.frame == sent
        answered = asked.answer(answer)
        await self.broker.send(answered)
        assert await self.client.frame() == answered


@asynccontextmanager
async def scene(*, principal: str | None = "User:ops", dlq_auto_create: bool = False) -> AsyncIterator[Scene]:
    groups = Groups()
    interceptors = (
        AlterConfigsInterceptor(groups, lambda _: principal, dlq_auto_create=dlq_auto_create),
        DescribeConfigsInterceptor(groups),
        ListConfigResourcesInterceptor(groups),
        ShareGroupDescribeInterceptor(groups),
        IsolationInterceptor(groups, Rights(SystemClock())),
    )
    async with stage(*interceptors) as on:
        one = Scene(on, groups, *await on.pair(), Rules())
        try:
            yield one
        finally:
            groups.goes_on.set()
            if one.playing is not None:
                one.playing.cancel()
                await asyncio.wait({one.playing})
