"""Streams calls of 4.4 clients, brought to what a 4.3 broker has, and its answers brought back.

Going down is what 4.4's own request builder does for such a broker: version 0 refuses task offsets, and has no warm-up
tasks to speak of. Going up adds what version 1 has and a broker of version 0 cannot know.

A broker that has version 1 itself is sent version 1: then only what concerns descriptions is ours.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headgate.base.ids import ApiKey, ApiVersion
from headgate.wire import heads
from headgate.wire.messages.streams import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

JOIN_GROUP: Final = ApiKey(11)
DELETE_GROUPS: Final = ApiKey(42)
HEARTBEAT: Final = ApiKey(88)
DESCRIBE: Final = ApiKey(89)
PUSH: Final = ApiKey(93)

# What clients may use when the gateway keeps descriptions, on top of a broker that has the call at all.
_OURS: Final = {HEARTBEAT: (0, 1), DESCRIBE: (0, 1), DELETE_GROUPS: (0, 3)}
# And what they must not see when nobody does.
HIDDEN: Final[Mapping[int, int]] = {HEARTBEAT: 0, DESCRIBE: 0, DELETE_GROUPS: 2, PUSH: -1}

_LAG_NOT_SUPPORTED: Final = -1
_LAG_OF_V1: Final = _LAG_NOT_SUPPORTED.to_bytes(8, "big", signed=True)
_NULL_OFFSETS: Final = b"\x00\x00"

Versions = Mapping[int, tuple[int, int]]


def can_serve(broker: Versions) -> bool:
    """Whether descriptions can be kept for the groups of this broker: it has Streams groups at all."""
    return HEARTBEAT in broker and DESCRIBE in broker


def added(broker: Versions) -> dict[int, tuple[int, int]]:
    if not can_serve(broker):
        return {}
    return {**{key: ours for key, ours in _OURS.items() if key in broker}, PUSH: (0, 0)}


def sent(broker: Versions, key: ApiKey, asked: int) -> ApiVersion:
    """The version in which the broker is asked."""
    return ApiVersion(min(asked, broker.get(key, (0, 0))[1]))


def beat_down(body: bytes, beat: heads.Beat) -> bytes:
    """The same for a heartbeat that says nothing new, without decoding the rest of it."""
    begin, end = beat.offsets
    return body[:begin] + _NULL_OFFSETS + body[end:]


def beaten_up(body: bytes, beaten: heads.Beaten, *, ask: bool) -> bytes:
    """And its answer: the lag has moved behind the interval, and is wider; the question comes behind the tasks."""
    lag, question = beaten.lag_at, beaten.question_at
    interval, rest = body[lag + 4 : lag + 8], body[lag + 8 : question]
    return body[:lag] + interval + _LAG_OF_V1 + rest + (b"\x01" if ask else b"\x00") + body[question:]


def heartbeat_down(request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatRequest:
    """A heartbeat of version 1 as version 0 has it."""
    return replace(
        request,
        task_offsets=None,
        task_end_offsets=None,
        warmup_tasks=None if request.warmup_tasks is None else (),
    )


def heartbeat_up(answer: StreamsGroupHeartbeatResponse, *, ask: bool) -> StreamsGroupHeartbeatResponse:
    """An answer of version 0 as version 1 has it; `ask` asks the member for its topology's description."""
    return replace(
        answer,
        acceptable_recovery_lag_legacy=0,
        acceptable_recovery_lag=_LAG_NOT_SUPPORTED,
        topology_description_required=ask,
    )
