"""The first fields of a few calls, read without the rest: who it is about, before anything is decoded.

One rule: as `primitives`, never trust a length; every failure is a `WireError`.
"""

from struct import Struct
from typing import Final

from headgate.base.errors import WireError
from headgate.wire.primitives import Buffer, read_uvarint

_INT32: Final = Struct(">i")
_INT16: Final = Struct(">h")
_JOIN_GROUP_FLEXIBLE: Final = 6


def streams_member(body: Buffer) -> tuple[str, str, int]:
    """GroupId, MemberId and the epoch behind them: how 88 (the member's) and 93 (the topology's) begin."""
    group, pos = _compact_string(body, 0)
    member, pos = _compact_string(body, pos)
    if len(body) - pos < _INT32.size:
        raise WireError("the message ends before its epoch")
    return group, member, _INT32.unpack_from(body, pos)[0]


def member_epoch(body: Buffer) -> int:
    """The epoch of a StreamsGroupHeartbeat request, and nothing else."""
    size, pos = read_uvarint(body, 0)
    size, pos = read_uvarint(body, pos + size - 1)
    pos += size - 1
    if pos < 0 or len(body) - pos < _INT32.size:
        raise WireError("the message ends before its epoch")
    epoch: int = _INT32.unpack_from(body, pos)[0]
    return epoch


def joined_group(body: Buffer, version: int) -> str:
    """GroupId of a JoinGroup request."""
    if version >= _JOIN_GROUP_FLEXIBLE:
        return _compact_string(body, 0)[0]
    if len(body) < _INT16.size:
        raise WireError("the message ends before its group")
    (size,) = _INT16.unpack_from(body, 0)
    return _text(body, _INT16.size, size)[0]


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
