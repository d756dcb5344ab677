"""JoinGroup and SyncGroup of Kafka Streams in the classic protocol: watched, so that such an application is known too.

Invariant: nothing is changed, held or refused, and other consumers are not slowed down. A JoinGroup is never gathered:
its first bytes say whether it is Kafka Streams (the assignor `stream`), and only then the response is read while it
passes. A SyncGroup is gathered only if it is that of a group whose leader is known from such a response. What is too
large or cannot be read is passed over.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.base.errors import WireError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import (
    Forward,
    Interceptor,
    Oversize,
    Prefilter,
    RequestFrame,
    ResponseFrame,
    Session,
)
from headgate.topologies.older_clients.assignment_recorder import AssignmentRecorder
from headgate.topologies.older_clients.classic_groups import ClassicGroup, read_group
from headgate.topologies.service import MAX_NAME_BYTES, TopologyService
from headgate.topologies.tasks.classic_tasks import ClassicTasks
from headgate.wire import frames, group_requests
from headgate.wire.apis import has_flexible_response
from headgate.wire.classic_streams import ASSIGNOR
from headgate.wire.codec import decode
from headgate.wire.messages.groups import (
    JoinGroupMember,
    JoinGroupResponse,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

MAX_BYTES: Final = 8 * 1024 * 1024  # of a response with all subscriptions, and of a request with all assignments
MAX_HELD_BYTES: Final = 4 * MAX_BYTES  # of all groups of this worker
_CONSUMER: Final = "consumer"
_MAX_GROUPS: Final = 10_000
_SIZE_BYTES: Final = 4


@dataclass(slots=True, eq=False)
class JoinWatch:
    """A JoinGroup of Kafka Streams whose response passes; `received` has its bytes so far, None once it is done."""

    group: str
    version: ApiVersion
    received: bytearray | None = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class LedGroup:
    """A generation of a group whose leader has joined on this connection."""

    connection: int
    leader: str
    generation: int
    members: tuple[JoinGroupMember, ...]
    size: int


@dataclass(frozen=True, slots=True)
class SyncWatch:
    """A SyncGroup of a leader; it counts when the broker accepts it."""

    group: str
    members: tuple[JoinGroupMember, ...]
    assignments: tuple[SyncGroupAssignment, ...]


Watch = JoinWatch | SyncWatch


class ClassicStreamsInterceptor(Interceptor[Watch]):
    """Gives the recorder what the leaders of classic Streams groups see."""

    api_keys = frozenset((ApiKey.SYNC_GROUP,))
    stream_keys = frozenset((ApiKey.JOIN_GROUP,))
    max_bytes = MAX_BYTES
    max_response_bytes = Interceptor.max_bytes  # a response of any size passes

    def __init__(
        self, service: TopologyService, assignments: AssignmentRecorder, tasks: ClassicTasks | None = None
    ) -> None:
        self._service = service
        self._assignments = assignments
        self._tasks = tasks
        self._led: OrderedDict[str, LedGroup] = OrderedDict()
        self._held_bytes = 0
        # By connection: responses that are being received, and groups whose leader it has.
        self._receiving: dict[int, set[JoinWatch]] = {}
        self._led_by: dict[int, set[str]] = {}
        self._known: OrderedDict[str, ClassicGroup] = OrderedDict()

    @property
    def held_bytes(self) -> int:
        """The bytes of responses that are being received, and of groups whose leaders have not synced yet."""
        return self._held_bytes

    def prefilter(self, api_version: ApiVersion) -> Prefilter:
        is_led = group_requests.begins_with_group(
            group_requests.syncing_group, api_version, self._led.__contains__, longest=MAX_NAME_BYTES
        )
        return lambda view, pos, end: bool(self._led) and is_led(view, pos, end)

    def oversize(self, api_version: ApiVersion) -> Oversize:  # noqa: ARG002
        return Oversize.AWAIT_PROOF_OR_PASS

    def on_close(self, session: Session) -> None:
        for watch in self._receiving.pop(session.number, ()):
            self._held_bytes -= len(watch.received or b"")
            watch.received = None
        for group in tuple(self._led_by.get(session.number, ())):
            self._drop(group)

    def on_request(self, request: RequestFrame, session: Session) -> Forward[Watch]:
        try:
            if request.api_key == ApiKey.JOIN_GROUP:
                return self._on_join(request)
            return self._on_sync(request, session)
        except WireError:
            return Forward()

    # --- JoinGroup

    def _on_join(self, request: RequestFrame) -> Forward[Watch]:
        start = group_requests.join_start(request.body, request.api_version)
        if start.protocol != ASSIGNOR or start.protocol_type != _CONSUMER:
            return Forward()
        if not self._service.has_store or not self._service.is_selected(start.group):
            return Forward()
        return Forward(JoinWatch(start.group, request.api_version))

    def on_chunk(self, view: memoryview, context: Watch, session: Session) -> None:
        if not isinstance(context, JoinWatch) or (received := context.received) is None:
            return
        if not received:
            self._receiving.setdefault(session.number, set()).add(context)
        received += view
        self._held_bytes += len(view)
        size = int.from_bytes(received[:_SIZE_BYTES], "big") if len(received) >= _SIZE_BYTES else 0
        is_whole = size > 0 and len(received) >= _SIZE_BYTES + size
        if not is_whole and size <= MAX_BYTES and self._held_bytes <= MAX_HELD_BYTES:
            return
        context.received = None
        self._held_bytes -= len(received)
        self._receiving[session.number].discard(context)
        if is_whole and size <= MAX_BYTES:
            try:
                self._on_joined(context, received, session)
            except WireError:
                return

    def _on_joined(self, watch: JoinWatch, frame: bytearray, session: Session) -> None:
        content = memoryview(frame)[_SIZE_BYTES:]
        begin = frames.response_body(content, flexible=has_flexible_response(ApiKey.JOIN_GROUP, watch.version))
        response = decode(JoinGroupResponse, watch.version, content[begin:])
        if response.error_code or response.protocol_name != ASSIGNOR:
            return
        if self._tasks is not None:
            self._tasks.on_joined(watch.group, response.member_id, session.peer)
        if response.leader != response.member_id:
            return
        self._drop(watch.group)
        self._led[watch.group] = LedGroup(
            session.number, response.leader, response.generation_id, response.members, len(frame)
        )
        self._led_by.setdefault(session.number, set()).add(watch.group)
        self._held_bytes += len(frame)
        while self._held_bytes > MAX_HELD_BYTES and self._led:
            self._drop(next(iter(self._led)))

    def _drop(self, group: str) -> LedGroup | None:
        led = self._led.pop(group, None)
        if led is not None:
            self._held_bytes -= led.size
            groups = self._led_by[led.connection]
            groups.discard(group)
            if not groups:
                del self._led_by[led.connection]
        return led

    # --- SyncGroup

    def _on_sync(self, request: RequestFrame, session: Session) -> Forward[Watch]:
        group = group_requests.syncing_group(request.body, request.api_version)
        led = self._led.get(group)
        if led is None or led.connection != session.number:
            return Forward()
        message = decode(SyncGroupRequest, request.api_version, request.body)
        if (message.member_id, message.generation_id) != (led.leader, led.generation):
            return Forward()
        self._drop(group)
        # A leader that rejoins without a rebalance assigns nothing.
        return Forward(SyncWatch(group, led.members, message.assignments) if message.assignments else None)

    def on_response(self, response: ResponseFrame, context: Watch, session: Session) -> Forward[None]:  # noqa: ARG002
        if isinstance(context, SyncWatch):
            message = decode(SyncGroupResponse, response.api_version, response.body)
            if message.error_code == 0:
                self._service.spawn(self._record(context))
        return Forward()

    async def _record(self, synced: SyncWatch) -> None:
        """Read the group off the event loop: there may be a thousand members."""
        subscriptions = [(one.member_id, one.metadata) for one in synced.members]
        assigned = [(one.member_id, one.assignment) for one in synced.assignments]
        group = synced.group
        read = await asyncio.to_thread(read_group, subscriptions, assigned)
        if self._tasks is not None:
            await self._tasks.write(group, read)
        found = replace(read.merged(self._known.pop(group, None)), members=())
        self._known[group] = found
        if len(self._known) > _MAX_GROUPS:
            self._known.popitem(last=False)
        self._assignments.put(group, found.fingerprint, epoch=0, size=max(1, found.size), describe=found.description)
