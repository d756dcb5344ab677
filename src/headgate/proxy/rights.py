"""Asks the broker, on the client's own connection, whether the client has a right; the requests change nothing.

When Headgate answers a call itself, the right that the broker would have checked must be checked all the same. Each
right has a probe whose answer is GROUP_AUTHORIZATION_FAILED (30) exactly when it is missing, also for groups that do
not exist; any other code is yes, for the right is checked first. A probe that gets no response proves nothing: it is
no.

Verdicts are kept for a few seconds for each connection: behind a long poll a probe waits for it. Rights on topics are
asked for rarely, and each time.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final
from weakref import WeakKeyDictionary

from headgate.base.clock import Clock
from headgate.base.ids import ApiVersion
from headgate.proxy.interceptor import Session
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from headgate.wire.messages.groups import DescribeGroupsRequest, HeartbeatRequest, OffsetDeleteRequest

GROUP_AUTHORIZATION_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
# The coordinator says something about itself and nothing about the right, so there is no verdict to keep.
COORDINATOR_ERRORS: Final = frozenset(
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
)
_KEPT_SECONDS: Final = 5.0
_MOST_KEPT: Final = 64  # for each connection
_LONGEST_NAME: Final = 1024  # verdicts on longer names are not kept
_METADATA_VERSION: Final = ApiVersion(13)
_READ: Final = 1 << 3  # of the authorized operations; the value for "unknown" lacks these
_WRITE: Final = 1 << 4


class GroupRight(Enum):
    """A right on a group."""

    READ = "read"
    DESCRIBE = "describe"
    DELETE = "delete"


async def _probe(session: Session, right: GroupRight, group: str, deadline: float) -> int:
    """The error code of a request that needs the right and changes nothing."""
    if right is GroupRight.READ:
        beat = HeartbeatRequest(group_id=group, generation_id=-1, member_id="headgate-probe")
        return (await session.call(beat, ApiVersion(4), deadline=deadline)).error_code
    if right is GroupRight.DESCRIBE:
        answer = await session.call(DescribeGroupsRequest(groups=(group,)), ApiVersion(6), deadline=deadline)
        return next((one.error_code for one in answer.groups if one.group_id == group), GROUP_AUTHORIZATION_FAILED)
    return (await session.call(OffsetDeleteRequest(group_id=group), ApiVersion(0), deadline=deadline)).error_code


class Rights:
    """What the broker said about the clients of this worker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: WeakKeyDictionary[Session, OrderedDict[tuple[GroupRight, str], tuple[float, int]]] = (
            WeakKeyDictionary()
        )

    async def ask(
        self, session: Session, right: GroupRight, group: str, *, deadline: float = 5.0, afresh: bool = False
    ) -> int:
        """The broker's error code: 30 when the client lacks the right. `ClusterError` when the broker did not say.

        `afresh`: no verdict that is kept is used.
        """
        found = None if afresh else self._valid(session, right, group)
        if found is not None:
            return found
        code = await _probe(session, right, group, deadline)
        if code not in COORDINATOR_ERRORS:
            self.note(session, right, group, code)
        return code

    def has(self, session: Session, right: GroupRight, group: str) -> bool:
        """Whether the broker has shown in the last seconds that the client has the right."""
        found = self._valid(session, right, group)
        return found is not None and found != GROUP_AUTHORIZATION_FAILED

    def note(self, session: Session, right: GroupRight, group: str, code: int) -> None:
        """Keep the broker's code for a request of the client that needs the right."""
        if len(group) > _LONGEST_NAME:
            return
        kept = self._kept.setdefault(session, OrderedDict())
        kept[right, group] = (self._clock.monotonic(), code)
        kept.move_to_end((right, group))
        if len(kept) > _MOST_KEPT:
            kept.popitem(last=False)

    def _valid(self, session: Session, right: GroupRight, group: str) -> int | None:
        kept = self._kept.get(session)
        found = None if kept is None else kept.get((right, group))
        if found is None or self._clock.monotonic() - found[0] >= _KEPT_SECONDS:
            return None
        return found[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRight:
    """What a client may do with a topic, there or not; `exists` says nothing when it may not even know that."""

    may_write: bool
    exists: bool


async def topic_rights(session: Session, topics: Sequence[str]) -> dict[str, TopicRight]:
    """What the broker says of these topics; `ClusterError` when it does not. Of one that it leaves out: nothing."""
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=topic) for topic in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    response = await session.call(request, _METADATA_VERSION)
    rights = dict.fromkeys(topics, TopicRight(may_write=False, exists=False))
    for topic in response.topics:
        if topic.name is not None and topic.name in rights:
            may_write = bool(topic.topic_authorized_operations & _WRITE)
            rights[topic.name] = TopicRight(
                may_write=may_write, exists=topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
    return rights


async def readable_topics(session: Session, topic_ids: Collection[bytes]) -> dict[bytes, str]:
    """The names of those topics on which the client has READ; `ClusterError` when the broker does not say."""
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    response = await session.call(request, _METADATA_VERSION)
    return {
        topic.topic_id: topic.name
        for topic in response.topics
        if topic.name is not None and not topic.error_code and topic.topic_authorized_operations & _READ
    }
