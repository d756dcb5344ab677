"""Reads the first fields of group requests (group, member, epoch) without decoding the rest.

Invariant: as `primitives`, never trust a length; every failure is a `WireError`.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

from headgate.base.errors import WireError
from headgate.wire.primitives import Buffer, read_uvarint

_INT32: Final = Struct(">i")
_INT16: Final = Struct(">h")
_JOIN_GROUP_FLEXIBLE: Final = 6
_FIRST_WITH_INSTANCE: Final = 5  # GroupInstanceId of JoinGroup
_SYNC_GROUP_FLEXIBLE: Final = 4
_ZERO: Final = bytes(4)
_NEGATIVE: Final = 0x80  # the first byte of a negative number, or more
_SHORT: Final = 0x7F  # the largest size that has one byte
# Topology is -1; the tasks of three kinds and ProcessId are null; UserEndpoint is -1, ClientTags null.
_NOTHING_NEW: Final = b"\xff\x00\x00\x00\x00\xff\x00"


def streams_member(body: Buffer) -> tuple[str, str, int]:
    """GroupId, MemberId and the epoch behind them: how 88 (the member's) and 93 (the topology's) begin."""
    group, pos = _compact_string(body, 0)
    member, pos = _compact_string(body, pos)
    if len(body) - pos < _INT32.size:
        raise WireError("the message ends before its epoch")
    return group, member, _INT32.unpack_from(body, pos)[0]


def is_join(view: Buffer, pos: int, end: int) -> bool:
    """Whether the heartbeat at `pos` has member epoch 0; also True when that cannot be told from its first bytes."""
    at = _member_epoch_at(view, pos, end)
    return at < 0 or view[at : at + 4] == _ZERO


def is_join_or_leave(view: Buffer, pos: int, end: int) -> bool:
    """Whether its member epoch is 0 or negative; also True when that cannot be told from its first bytes."""
    at = _member_epoch_at(view, pos, end)
    return at < 0 or view[at] >= _NEGATIVE or view[at : at + 4] == _ZERO


def _member_epoch_at(view: Buffer, pos: int, end: int) -> int:
    """The position of the member epoch, behind two short names; -1 for names that are not short, or missing."""
    if pos >= end:
        return -1
    group_size = view[pos]  # of a text's bytes and its own, if it has one byte
    member_size = view[pos + group_size] if pos + group_size < end else 0
    at = pos + group_size + member_size
    if group_size > _SHORT or member_size > _SHORT or not member_size or at + 4 > end:
        return -1
    return at


class IdleHeartbeat(NamedTuple):
    """A StreamsGroupHeartbeat request that changes nothing but its task offsets; `offsets` is where those are."""

    group: str
    member: str
    epoch: int
    offsets: tuple[int, int]


def idle_heartbeat(body: bytes) -> IdleHeartbeat | None:
    """The request, if it is such a heartbeat; None for every other, and for bytes that are no request.

    Between joins a member sends null for everything that has not changed, so this is nearly every heartbeat.
    """
    try:
        group_size = body[0]
        member_size = body[group_size]
        epochs_at = group_size + member_size
        instance_size = body[epochs_at + 8] or 1
        rack_size = body[epochs_at + 8 + instance_size] or 1
        if max(group_size, member_size, instance_size, rack_size) > _SHORT or not group_size or not member_size:
            return None
        at = epochs_at + 8 + instance_size + rack_size + 4
        offsets_at = at + len(_NOTHING_NEW)
        end = _behind_offsets(body, _behind_offsets(body, offsets_at))
        if body[at:offsets_at] != _NOTHING_NEW or not 0 < end < len(body) - 1:
            return None
        return IdleHeartbeat(
            str(body[1:group_size], "utf-8"),
            str(body[group_size + 1 : epochs_at], "utf-8"),
            _INT32.unpack_from(body, epochs_at)[0],
            (offsets_at, end),
        )
    except (IndexError, UnicodeDecodeError, StructError):
        return None


def _behind_offsets(body: bytes, at: int) -> int:
    """The position behind the array of TaskOffset at `at`; -1 when it is not of the short form."""
    if at < 0 or body[at] > _SHORT:
        return -1
    count = body[at] - 1
    at += 1
    for _ in range(count):
        size = body[at]
        at += size + 12  # the name, a partition and an offset
        if size > _SHORT or body[at]:
            return -1
        at += 1
    return at


class IdleHeartbeatResponse(NamedTuple):
    """The version 0 response to such a heartbeat: where the lag is, and where version 1 has its added field."""

    error_code: int
    lag_at: int
    question_at: int


def idle_heartbeat_response(body: bytes) -> IdleHeartbeatResponse | None:
    """The response, if it has no message, no status and no tasks, as nearly every one; None for every other."""
    try:
        member_size = body[7]
        at = 7 + member_size
        if body[6] or not 0 < member_size <= _SHORT or body[at + 16] > 1 or body[at + 17 : at + 20] != _ZERO[:3]:
            return None
        return IdleHeartbeatResponse(_INT16.unpack_from(body, 4)[0], at + 8, at + 20)
    except (IndexError, StructError):
        return None


def joining_group(body: Buffer, version: int) -> str:
    """GroupId of a JoinGroup request."""
    return (_compact_string if version >= _JOIN_GROUP_FLEXIBLE else _string)(body, 0)[0]


class JoinStart(NamedTuple):
    """The beginning of a JoinGroup request; `protocol` is the name of the first protocol, empty if there is none."""

    group: str
    protocol_type: str
    protocol: str


def join_start(body: Buffer, version: int) -> JoinStart:
    """How a JoinGroup request begins, of which the rest may not be there yet."""
    is_flexible = version >= _JOIN_GROUP_FLEXIBLE
    read = _compact_string if is_flexible else _string
    group, pos = read(body, 0)
    pos += _INT32.size if version == 0 else 2 * _INT32.size  # the timeouts of the session and of a rebalance
    _, pos = read(body, pos)
    if version >= _FIRST_WITH_INSTANCE:
        pos = _behind_nullable(body, pos, is_flexible=is_flexible)
    protocol_type, pos = read(body, pos)
    if is_flexible:
        count, pos = read_uvarint(body, pos)
        count -= 1
    else:
        if len(body) - pos < _INT32.size:
            raise WireError("the message ends before its protocols")
        (count,) = _INT32.unpack_from(body, pos)
        pos += _INT32.size
    return JoinStart(group, protocol_type, read(body, pos)[0] if count > 0 else "")


def syncing_group(body: Buffer, version: int) -> str:
    """GroupId of a SyncGroup request."""
    return (_compact_string if version >= _SYNC_GROUP_FLEXIBLE else _string)(body, 0)[0]


def begins_with_group(
    read: Callable[[Buffer, int], str], version: int, is_wanted: Callable[[str], bool], *, longest: int
) -> Callable[[Buffer, int, int], bool]:
    """A test whether the first field of the request at a position is such a group, of `longest` bytes with its size.

    It is also True while so many bytes have not been received, and what has been is not the whole field.
    """

    def test(view: Buffer, pos: int, end: int) -> bool:
        received = view[pos : min(end, pos + longest)]
        try:
            return is_wanted(read(received, version))
        except WireError:
            return len(received) < longest

    return test


def _behind_nullable(body: Buffer, pos: int, *, is_flexible: bool) -> int:
    if is_flexible:
        size, pos = read_uvarint(body, pos)
        return pos + max(0, size - 1)
    if len(body) - pos < _INT16.size:
        raise WireError("the message ends before its instance")
    (size,) = _INT16.unpack_from(body, pos)
    return pos + _INT16.size + max(0, int(size))


def _string(body: Buffer, pos: int) -> tuple[str, int]:
    if len(body) - pos < _INT16.size:
        raise WireError("the message ends before a text")
    return _text(body, pos + _INT16.size, _INT16.unpack_from(body, pos)[0])


def _compact_string(body: Buffer, pos: int) -> tuple[str, int]:
    size, pos = read_uvarint(body, pos)
    return _text(body, pos, size - 1)


def _text(body: Buffer, pos: int, size: int) -> tuple[str, int]:
    end = pos + size
    if size < 0 or end > len(body):
        raise WireError(f"a text of {size} bytes where {len(body) - pos} are left")
    try:
        return str(body[pos:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise WireError(f"text that is not UTF-8 ({error.reason})") from None
