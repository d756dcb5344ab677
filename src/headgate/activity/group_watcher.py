"""The groups that clients are in: who sends which heartbeat, and that the broker accepted it.

One rule: a group counts once the broker has answered with error 0, which it says only to members that may read the
group; anybody can send a heartbeat. Only the first field of a request is read, and the error of its answer.
"""

from typing import Final

from headgate.activity.model.identity import Group, GroupKind
from headgate.activity.usage_tracker import LONGEST_NAME, Ledger
from headgate.base.errors import WireError
from headgate.base.ids import ApiKey
from headgate.proxy.answer_codes import AnswerCode
from headgate.proxy.interceptor import Forward, Interceptor, RequestFrame, Session
from headgate.wire.primitives import Buffer, read_uvarint
from headgate.wire.registry import request_header_version, response_header_version

JOIN_GROUP, HEARTBEAT = 11, 12
CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT, STREAMS_GROUP_HEARTBEAT = 68, 76, 88
_KINDS: Final[dict[int, GroupKind]] = {
    JOIN_GROUP: "consumer_group",
    HEARTBEAT: "consumer_group",
    CONSUMER_GROUP_HEARTBEAT: "consumer_group",
    SHARE_GROUP_HEARTBEAT: "share_group",
    STREAMS_GROUP_HEARTBEAT: "streams",
}
_THROTTLE_FROM: Final = {JOIN_GROUP: 2, HEARTBEAT: 1}  # ThrottleTimeMs stands before the error from this version on


class _Beat:
    __slots__ = ("client_id", "code", "group")

    def __init__(self, client_id: str | None, group: Group, code: AnswerCode) -> None:
        self.client_id = client_id
        self.group = group
        self.code = code


class GroupWatcher(Interceptor):
    """Tells the ledger who is in which group."""

    stream_keys = frozenset(map(ApiKey, _KINDS))

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: set[int] = set()  # an answer may come behind its client's end

    def on_open(self, session: Session) -> None:
        self._open.add(session.number)

    def on_close(self, session: Session) -> None:
        self._open.discard(session.number)

    def on_request(self, request: RequestFrame, session: Session) -> Forward:  # noqa: ARG002
        key, version = request.api_key, request.api_version
        name = first_text(request.body, flexible=request_header_version(key, version) == 2)
        if not name:
            return Forward()
        skipped = 4 if version >= _THROTTLE_FROM.get(key, 0) else 0
        code = AnswerCode(flexible=response_header_version(key, version) == 1, skipped=skipped)
        return Forward(_Beat(request.client_id, Group(_KINDS[key], name), code))

    def on_chunk(self, view: memoryview, context: object, session: Session) -> None:
        assert isinstance(context, _Beat)
        if context.code.feed(view) == 0 and session.number in self._open:
            self._ledger.joined(session, context.client_id, context.group)


def first_text(body: Buffer, *, flexible: bool) -> str | None:
    """The text that a request's body begins with; None when it is not all here, or longer than a name may be."""
    try:
        size, at = read_uvarint(body, 0) if flexible else (int.from_bytes(body[:2], "big") + 1, 2)
    except WireError:
        return None
    text = bytes(body[at : at + size - 1]) if 0 < size <= LONGEST_NAME else b""
    return text.decode(errors="replace") if len(text) == size - 1 else None
