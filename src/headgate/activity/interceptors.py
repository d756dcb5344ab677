"""Watches requests while they pass: which connection uses which topic with how many bytes, and which groups it joins.

A request is parsed when something about it is new; later requests like it take the fast path (`fast_path`). A Produce
counts when its response says that a partition accepted it, a Fetch when its response contains records. A Produce
without a response (acks=0) counts when it is sent, if its connection is proved. A group counts once the broker has
accepted a heartbeat, which it does for authorized members only; one that it refuses is never a use.

Invariant: the data plane never waits for this, records are not copied, and everything that is kept is bounded.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.activity.fast_path import HEARTBEAT_S, FetchFastPath, HeartbeatFastPath, ProduceFastPath
from headgate.activity.model.identity import GroupKind, GroupRef
from headgate.activity.model.intervals import Interval
from headgate.activity.usage_tracker import LONGEST_NAME, ConnectionUsage, UsageTracker
from headgate.base.errors import WireError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.proxy.interceptor import Forward, Interceptor, RequestFrame, Session
from headgate.wire.apis import has_flexible_request, has_flexible_response
from headgate.wire.frames import ErrorCodeReader
from headgate.wire.primitives import Buffer, read_uvarint
from headgate.wire.topic_use import FETCH, PRODUCE, ResponseUsage, TopicLayout, produce_start, topic_layout

_GROUP_KINDS: Final[dict[int, GroupKind]] = {
    ApiKey.JOIN_GROUP: "consumer_group",
    ApiKey.HEARTBEAT: "consumer_group",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_group",
    ApiKey.SHARE_GROUP_HEARTBEAT: "share_group",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "streams",
}
# Opened, rewritten, and never twice the same bytes, because of the task offsets: known by client id and group.
_REWRITTEN_KEYS: Final = frozenset((ApiKey.STREAMS_GROUP_HEARTBEAT,))
_FAST_KEYS: Final = frozenset((ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT))
_CLIENT_ID_AT: Final = 8  # behind api key, version and correlation id
# The version from which ThrottleTimeMs precedes the error code.
_THROTTLE_FROM: Final[dict[int, int]] = {ApiKey.JOIN_GROUP: 2, ApiKey.HEARTBEAT: 1}


@dataclass(slots=True, eq=False)
class ParsedProduce:
    """A Produce whose response is still to be parsed."""

    usage: ConnectionUsage
    form: TopicLayout
    response: ResponseUsage
    fast_path: ProduceFastPath
    size: int
    transactional_id: str | None
    prefix: bytes | None  # the first bytes of requests like it
    records: int | None


@dataclass(slots=True, eq=False)
class ParsedFetch:
    """A Fetch or ShareFetch whose response is being parsed."""

    usage: ConnectionUsage
    form: TopicLayout
    response: ResponseUsage
    group: GroupRef | None = None
    fast_path: FetchFastPath | None = None


class TopicUsageInterceptor(Interceptor[ParsedProduce | ParsedFetch]):
    """Watches Produce, Fetch and ShareFetch."""

    stream_keys = frozenset((ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH))

    def __init__(self, tracker: UsageTracker, now: Callable[[], float] = time.monotonic) -> None:
        self._tracker = tracker
        self._now = now
        self.unreadable = 0  # requests and responses

    def on_request(self, request: RequestFrame, session: Session) -> Forward[ParsedProduce | ParsedFetch]:
        if not request.is_answered and not session.is_proved:
            return Forward()  # the broker may not even read it
        layout = topic_layout(request.api_key, request.api_version)
        usage = self._tracker.connection(session, request.client_id)
        if request.api_key == PRODUCE:
            return self._on_produce(request, session, usage, layout)
        if request.api_key == FETCH:
            fast_path = FetchFastPath(
                layout,
                request.client_id,
                lambda known: ParsedFetch(usage, layout, ResponseUsage(layout), fast_path=known),
                self._tracker.touch,
                self._now,
            )
            session.use_fast_path(request.api_key, request.api_version, fast_path)
            return Forward(ParsedFetch(usage, layout, ResponseUsage(layout), fast_path=fast_path))
        name = _first_string(request.body, flexible=True)
        group = GroupRef("share_group", name) if name else None
        return Forward(ParsedFetch(usage, layout, ResponseUsage(layout), group))

    def _on_produce(
        self, request: RequestFrame, session: Session, usage: ConnectionUsage, layout: TopicLayout
    ) -> Forward[ParsedProduce | ParsedFetch]:
        start = produce_start(request.body, request.api_version)
        if start is None:
            self.unreadable += session.is_proved
            return Forward()
        fast_path = usage.produce
        if fast_path is None or fast_path.version != request.api_version:
            fast_path = usage.produce = ProduceFastPath(request.api_version, self._tracker.touch, self._now)
            session.use_fast_path(request.api_key, request.api_version, fast_path)
        transactional_id = None
        if start.transactional_id is not None:
            transactional_id = start.transactional_id.decode(errors="replace")[:LONGEST_NAME]
        client_id = _encoded_client_id(request.client_id, flexible=layout.flexible)
        can_learn = client_id is not None and request.is_answered and not request.is_opened
        produce = ParsedProduce(
            usage,
            layout,
            ResponseUsage(layout),
            fast_path,
            size=request.size,
            transactional_id=transactional_id,
            prefix=(client_id or b"") + bytes(request.body[: start.end]) if can_learn else None,
            records=start.records if start.partitions == 1 else None,
        )
        if request.is_answered:
            return Forward(produce)
        if start.topic is not None:
            self._count_produce(produce, {start.topic: 1}, session)
        return Forward()

    def on_chunk(self, view: memoryview, context: ParsedProduce | ParsedFetch, session: Session) -> None:
        try:
            is_parsed = context.response.feed(view)
        except WireError:
            context.response.is_done = True
            self.unreadable += 1
            return
        if not is_parsed:
            return
        if isinstance(context, ParsedProduce):
            self._count_produce(context, context.response.used, session)
        else:
            self._count_fetch(context, session)

    def on_close(self, session: Session) -> None:
        self._tracker.on_close(session)

    def _count_produce(self, produce: ParsedProduce, used: dict[bytes, int], session: Session) -> None:
        """Divide the bytes of the request, and those of skipped ones, among the topics that accepted it."""
        if not used:
            return
        size = produce.size + produce.fast_path.take_skipped(produce.prefix)
        for topic in used:
            interval = self._tracker.use(
                session,
                produce.usage,
                topic,
                "write",
                by_id=produce.form.by_id,
                transactional_id=produce.transactional_id,
            )
            if produce.records is not None:
                interval.topic.sample(produce.records, produce.size)
            self._add(interval, size // len(used))
        if produce.prefix is None:
            return
        if produce.response.topics <= 1:
            [topic] = used
            error_at = 8 + produce.form.flexible + _error_offset(produce.form, topic)
            produce.fast_path.learn(produce.prefix, interval, error_at)
        else:
            produce.fast_path.learn_multi(produce.prefix, produce.response.topics)

    def _count_fetch(self, fetch: ParsedFetch, session: Session) -> None:
        used, fast_path = fetch.response.used, fetch.fast_path
        share = 1.0
        if fast_path is not None and used:
            share += fast_path.take_skipped() / max(1, sum(used.values()))
        for topic, size in used.items():
            interval = self._tracker.use(session, fetch.usage, topic, "read", by_id=fetch.form.by_id, group=fetch.group)
            self._add(interval, int(size * share))
            if fast_path is not None:
                fast_path.learn(topic, interval)
        if fast_path is not None and fetch.response.topics > 1:
            fast_path.learn_topics(fetch.response.topics)

    def _add(self, interval: Interval, size: int) -> None:
        interval.bytes += size
        if not interval.touched:
            self._tracker.touch(interval)


@dataclass(slots=True, eq=False)
class Heartbeat:
    """A request of a group member whose response is still to be read."""

    client_id: str | None
    group: GroupRef
    error_code: ErrorCodeReader
    api_key: ApiKey
    api_version: ApiVersion
    repeated: bytes | None  # what the next request like it has in common with it; None: it is parsed too

    def again(self) -> "Heartbeat":
        """The context of the next request with the same bytes."""
        error_code = _error_code(self.api_key, self.api_version)
        return Heartbeat(self.client_id, self.group, error_code, self.api_key, self.api_version, self.repeated)


class GroupMembershipInterceptor(Interceptor[Heartbeat]):
    """Watches JoinGroup and the heartbeats of groups: the group id of a request, and the error code of its response."""

    stream_keys = frozenset(map(ApiKey, _GROUP_KINDS))

    def __init__(self, tracker: UsageTracker, now: Callable[[], float] = time.monotonic) -> None:
        self._tracker = tracker
        self._now = now
        # By connection, api key and version.
        self._fast_paths: dict[int, dict[tuple[ApiKey, ApiVersion], HeartbeatFastPath]] = {}
        # By connection: the member of a streams group that the broker accepted last, and until when that is enough.
        self._streams_members: dict[int, tuple[str | None, str, float]] = {}

    def on_request(self, request: RequestFrame, session: Session) -> Forward[Heartbeat]:
        key, version = request.api_key, request.api_version
        is_flexible = has_flexible_request(key, version)
        name = _first_string(request.body, flexible=is_flexible)
        if not name or (key in _REWRITTEN_KEYS and self._is_known_member(session, request.client_id, name)):
            return Forward()
        error_code = _error_code(key, version)
        repeated = None
        if key in _FAST_KEYS and not request.is_opened:
            repeated = _repeated_bytes(request, flexible=is_flexible)
        return Forward(
            Heartbeat(request.client_id, GroupRef(_GROUP_KINDS[key], name), error_code, key, version, repeated)
        )

    def on_chunk(self, view: memoryview, context: Heartbeat, session: Session) -> None:
        code = context.error_code.feed(view)
        if code is None:
            return
        if code == 0:
            self._tracker.on_membership(session, context.client_id, context.group)
            if context.api_key in _REWRITTEN_KEYS:
                member = (context.client_id, context.group.name, self._now() + HEARTBEAT_S)
                self._streams_members[session.number] = member
        if context.repeated is not None:
            self._learn(context, context.repeated, session, accepted=code == 0)

    def on_close(self, session: Session) -> None:
        self._fast_paths.pop(session.number, None)
        self._streams_members.pop(session.number, None)

    def _is_known_member(self, session: Session, client_id: str | None, group: str) -> bool:
        known = self._streams_members.get(session.number)
        return known is not None and known[:2] == (client_id, group) and self._now() <= known[2]

    def _learn(self, heartbeat: Heartbeat, repeated: bytes, session: Session, *, accepted: bool) -> None:
        fast_paths = self._fast_paths.setdefault(session.number, {})
        which = (heartbeat.api_key, heartbeat.api_version)
        fast_path = fast_paths.get(which)
        if fast_path is None:
            fast_path = fast_paths[which] = HeartbeatFastPath(self._now, heartbeat.error_code.at)
            session.use_fast_path(*which, fast_path)
        fast_path.learn(repeated, heartbeat.again, accepted=accepted)


def _error_code(key: ApiKey, version: ApiVersion) -> ErrorCodeReader:
    skipped = 4 if version >= _THROTTLE_FROM.get(key, 0) else 0
    return ErrorCodeReader(flexible=has_flexible_response(key, version), skipped=skipped)


def _first_string(body: Buffer, *, flexible: bool) -> str | None:
    """The string at the start of a request; None if it has not arrived or is longer than a name may be."""
    try:
        size, at = read_uvarint(body, 0) if flexible else (int.from_bytes(body[:2], "big") + 1, 2)
    except WireError:
        return None
    text = bytes(body[at : at + size - 1]) if 0 < size <= LONGEST_NAME else b""
    return text.decode(errors="replace") if len(text) == size - 1 else None


def _error_offset(layout: TopicLayout, topic: bytes) -> int:
    """The distance from the count of topics in a Produce response to the error code of the first partition."""
    if layout.by_id:
        return 1 + 16 + 1 + 4
    return 1 + 1 + len(topic) + 1 + 4 if layout.flexible else 4 + 2 + len(topic) + 4 + 4


def _encoded_client_id(client_id: str | None, *, flexible: bool) -> bytes | None:
    """The bytes between the correlation id and the body of a request whose header has no tagged fields."""
    tags = b"\x00" if flexible else b""
    if client_id is None:
        return b"\xff\xff" + tags
    text = client_id.encode(errors="replace")
    return len(text).to_bytes(2, "big") + text + tags if len(text) <= LONGEST_NAME else None


def _repeated_bytes(request: RequestFrame, *, flexible: bool) -> bytes | None:
    """All that follows the correlation id, without tagged fields in the header; None if not all of it was received."""
    client_id = _encoded_client_id(request.client_id, flexible=flexible)
    if client_id is None or _CLIENT_ID_AT + len(client_id) + len(request.body) != request.size:
        return None
    return client_id + bytes(request.body)
