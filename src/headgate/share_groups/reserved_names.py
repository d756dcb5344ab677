"""Refuses every client the names that Headgate's own workers use: the leaders' groups, and a transactional id.

A client with rights on them could take the lead, end it, or fence the leader's writer, and then no breaker trips, or no
lags are polled. The workers connect to the brokers themselves, so no request for these names has to pass the gateway.
The facts topics stay a matter of ACLs (`headgate doctor` shows who may write them).

Most requests are let pass after a look at their first bytes: the names are the first fields of nearly all of them. Only
a request with such a name is opened and decoded, and one that is too large for that ends the connection.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import structlog

from headgate.base.errors import WireError
from headgate.base.ids import ApiKey, ApiVersion
from headgate.base.log_throttle import LogThrottle
from headgate.kafka.leadership import LAGS_LEADER, LEADER
from headgate.proxy.decoding import DECODE_SECONDS, SMALL_BYTES, run_off_loop
from headgate.proxy.interceptor import (
    Answer,
    Forward,
    Hold,
    Interceptor,
    OnRequest,
    OnResponse,
    Outcome,
    Oversize,
    Prefilter,
    RequestFrame,
    ResponseFrame,
    ResponseOutcome,
    Rewritten,
    Session,
)
from headgate.share_groups.resources import TRIPS
from headgate.wire.apis import has_flexible_request
from headgate.wire.codec import decode, encode
from headgate.wire.errors import ErrorCode
from headgate.wire.messages.admin import EndTxnRequest
from headgate.wire.messages.data import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from headgate.wire.messages.groups import (
    CommittedPartition,
    CommittedTopic,
    ConsumerGroupHeartbeatRequest,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    SyncGroupRequest,
)
from headgate.wire.messages.share import AlterShareGroupOffsetsRequest, ShareGroupHeartbeatRequest
from headgate.wire.messages.streams import StreamsGroupHeartbeatRequest
from headgate.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    InitProducerIdRequest,
    TxnCommittedPartition,
    TxnCommittedTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from headgate.wire.primitives import Buffer, read_uvarint
from headgate.wire.schema import Message, Request

log = structlog.get_logger()

LARGEST_DECODED: Final = 1024 * 1024  # any client can send these names: 100 MiB would take gigabytes to decode
_BATCHES_FROM: Final = 4  # the first version of AddPartitionsToTxn with several transactions
_GROUP_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TRANSACTION_DENIED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

# Requests that begin with the name, and whose response has one error code.
_OF_GROUP: Final[dict[ApiKey, type[Request[Any]]]] = {
    one.api_key: one
    for one in (
        JoinGroupRequest,
        SyncGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        OffsetDeleteRequest,
        ConsumerGroupHeartbeatRequest,
        ShareGroupHeartbeatRequest,
        AlterShareGroupOffsetsRequest,  # makes a group that does not exist
        StreamsGroupHeartbeatRequest,
    )
}
_OF_TRANSACTION: Final[dict[ApiKey, type[Request[Any]]]] = {
    one.api_key: one for one in (InitProducerIdRequest, EndTxnRequest, AddOffsetsToTxnRequest)
}
# Requests with a transactional id and a group behind it, and how many bytes are between the two.
_BOTH: Final[dict[int, int]] = {ApiKey.ADD_OFFSETS_TO_TXN: 8 + 2, ApiKey.TXN_OFFSET_COMMIT: 0}


def reserved_groups(prefix: str) -> tuple[str, ...]:
    return prefix + LEADER, prefix + LAGS_LEADER


def reserved_transactional_id(prefix: str) -> str:
    return prefix + TRIPS


# Every api that could disturb the leaders' groups or transactions.
API_KEYS: Final = (
    *_OF_GROUP,
    *_OF_TRANSACTION,
    ApiKey.OFFSET_COMMIT,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DELETE_GROUPS,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
)


class ReservedNamesInterceptor(Interceptor[Message]):
    """Answers requests of one api for the reserved names, and takes them out of requests for several names.

    The context of a request for several names is the refused part of its response.
    """

    fail_closed = True  # a request that cannot be read must not pass

    def __init__(self, api_key: ApiKey, prefix: str, throttle: LogThrottle) -> None:
        self._api_key = api_key
        self.api_keys = frozenset((api_key,))
        self._groups = reserved_groups(prefix)
        self._transactional_id = reserved_transactional_id(prefix)
        self._throttle = throttle
        self._prefilters: dict[int, Prefilter | None] = {}
        names = (*self._groups, self._transactional_id)
        self._any_name = re.compile(b"|".join(re.escape(name.encode()) for name in names))

    # --- which requests are opened

    def prefilter(self, api_version: ApiVersion) -> Prefilter | None:
        if api_version not in self._prefilters:
            self._prefilters[api_version] = self._make_prefilter(api_version)
        return self._prefilters[api_version]

    def _make_prefilter(self, api_version: ApiVersion) -> Prefilter | None:
        api_key = self._api_key
        is_flexible = has_flexible_request(api_key, api_version)
        if api_key == ApiKey.DELETE_GROUPS or (
            api_key == ApiKey.ADD_PARTITIONS_TO_TXN and api_version >= _BATCHES_FROM
        ):
            return None
        if api_key in _BOTH:
            return self._prefilter_of_two(_BOTH[api_key], flexible=is_flexible)
        is_group = api_key in _OF_GROUP or api_key == ApiKey.OFFSET_COMMIT
        return begins_with(*(self._groups if is_group else (self._transactional_id,)), flexible=is_flexible)

    def _prefilter_of_two(self, between: int, *, flexible: bool) -> Prefilter:
        has_id = begins_with(self._transactional_id, flexible=flexible)
        has_group = begins_with(*self._groups, flexible=flexible)

        def prefilter(view: Buffer, pos: int, end: int) -> bool:
            at = _behind_string(view, pos, end, flexible=flexible) + between
            return at >= end or has_id(view, pos, end) or has_group(view, at, end)

        return prefilter

    def oversize(self, api_version: ApiVersion) -> Oversize:
        """A large request with another name is the other interceptors' business."""
        return Oversize.AWAIT_PROOF if self.prefilter(api_version) is None else Oversize.AWAIT_PROOF_OR_FILTER

    # --- requests

    def on_request(self, request: RequestFrame, session: Session) -> OnRequest[Message]:
        prefilter = self.prefilter(request.api_version)
        body = request.body
        if prefilter is None:
            if self._any_name.search(body) is None:
                return Forward()
        elif not len(body) or not prefilter(body, 0, len(body)):
            return Forward()
        if len(body) > LARGEST_DECODED:
            raise WireError(f"a request of {len(body)} bytes with a reserved name")
        if len(body) > SMALL_BYTES:
            return Hold(self._refuse_off_loop(request, session), DECODE_SECONDS)
        return self._log(self._refuse(request), request, session)

    async def _refuse_off_loop(self, request: RequestFrame, session: Session) -> Outcome[Message]:
        return self._log(await run_off_loop(lambda: self._refuse(request)), request, session)

    def _log(self, outcome: Outcome[Message], request: RequestFrame, session: Session) -> Outcome[Message]:
        if not isinstance(outcome, Forward) and self._throttle.allows(request.api_key.name, session.peer):
            log.warning("request for a reserved name refused", api=request.api_key.name, peer=session.peer)
        return outcome

    def _refuse(self, request: RequestFrame) -> Outcome[Message]:
        key, version, body = request.api_key, request.api_version, request.body
        if key == ApiKey.DELETE_GROUPS:
            return self._delete_groups(decode(DeleteGroupsRequest, version, body), version)
        if key == ApiKey.ADD_PARTITIONS_TO_TXN:
            return self._add_partitions(decode(AddPartitionsToTxnRequest, version, body), version)
        answer: Message | None
        if key == ApiKey.PRODUCE:
            answer = self._produce(decode(ProduceRequest, version, body))
        elif key == ApiKey.OFFSET_COMMIT:
            answer = self._commit(decode(OffsetCommitRequest, version, body))
        elif key == ApiKey.TXN_OFFSET_COMMIT:
            answer = self._txn_commit(decode(TxnOffsetCommitRequest, version, body))
        elif key in _OF_TRANSACTION:
            answer = self._transaction(decode(_OF_TRANSACTION[key], version, body))
        else:
            answer = self._of_group(decode(_OF_GROUP[key], version, body))
        return Forward() if answer is None else Answer(encode(answer, version))

    def _of_group(self, message: Any) -> Message | None:
        answer: Message = message.response_class()(error_code=_GROUP_DENIED)
        return answer if message.group_id in self._groups else None

    def _transaction(self, message: Any) -> Message | None:
        code = self._code_of(message.transactional_id, getattr(message, "group_id", None))
        answer: Message = message.response_class()(error_code=code)
        return answer if code else None

    def _code_of(self, transactional_id: str | None, group: str | None) -> int:
        """The transactional id is checked first, as at a broker."""
        if transactional_id == self._transactional_id:
            return _TRANSACTION_DENIED
        return _GROUP_DENIED if group in self._groups else ErrorCode.NONE

    def _produce(self, message: ProduceRequest) -> Message | None:
        if message.transactional_id != self._transactional_id:
            return None
        return ProduceResponse(
            responses=tuple(
                ProduceTopicResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=tuple(
                        ProducePartitionResponse(index=one.index, error_code=_TRANSACTION_DENIED, base_offset=-1)
                        for one in topic.partition_data
                    ),
                )
                for topic in message.topic_data
            )
        )

    def _commit(self, message: OffsetCommitRequest) -> Message | None:
        if message.group_id not in self._groups:
            return None
        return OffsetCommitResponse(
            topics=tuple(
                CommittedTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        CommittedPartition(partition_index=one.partition_index, error_code=_GROUP_DENIED)
                        for one in topic.partitions
                    ),
                )
                for topic in message.topics
            )
        )

    def _txn_commit(self, message: TxnOffsetCommitRequest) -> Message | None:
        code = self._code_of(message.transactional_id, message.group_id)
        if not code:
            return None
        return TxnOffsetCommitResponse(
            topics=tuple(
                TxnCommittedTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        TxnCommittedPartition(partition_index=one.partition_index, error_code=code)
                        for one in topic.partitions
                    ),
                )
                for topic in message.topics
            )
        )

    # --- requests for several names

    def _delete_groups(self, message: DeleteGroupsRequest, version: ApiVersion) -> Outcome[Message]:
        others = tuple(name for name in message.groups_names if name not in self._groups)
        if len(others) == len(message.groups_names):
            return Forward()
        denied = (name for name in self._groups if name in message.groups_names)
        results = tuple(DeletedGroup(group_id=name, error_code=_GROUP_DENIED) for name in denied)
        refused = DeleteGroupsResponse(results=results)
        if not others:
            return Answer(encode(refused, version))
        return Rewritten(encode(replace(message, groups_names=others), version), refused)

    def _add_partitions(self, message: AddPartitionsToTxnRequest, version: ApiVersion) -> Outcome[Message]:
        if version < _BATCHES_FROM:
            if message.v3_and_below_transactional_id != self._transactional_id:
                return Forward()
            results = tuple(map(_denied_topic, message.v3_and_below_topics))
            return Answer(encode(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results), version))
        own = [one for one in message.transactions if one.transactional_id == self._transactional_id]
        others = tuple(one for one in message.transactions if one.transactional_id != self._transactional_id)
        if not own:
            return Forward()
        refused = AddPartitionsToTxnResponse(
            results_by_transaction=tuple(
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id, topic_results=tuple(map(_denied_topic, one.topics))
                )
                for one in own
            )
        )
        if not others:
            return Answer(encode(refused, version))
        return Rewritten(encode(replace(message, transactions=others), version), refused)

    def on_response(self, response: ResponseFrame, context: Message, session: Session) -> OnResponse:  # noqa: ARG002
        if len(response.body) > SMALL_BYTES:
            return Hold(self._complete_off_loop(response, context), DECODE_SECONDS)
        return Rewritten(_completed(response, context))

    async def _complete_off_loop(self, response: ResponseFrame, context: Message) -> ResponseOutcome:
        return Rewritten(await run_off_loop(lambda: _completed(response, context)))


def _completed(response: ResponseFrame, refused: Message) -> bytes:
    """The broker's response with the refused part."""
    version = response.api_version
    merged: Message
    if isinstance(refused, DeleteGroupsResponse):
        deleted = decode(DeleteGroupsResponse, version, response.body)
        merged = replace(deleted, results=(*deleted.results, *refused.results))
    elif isinstance(refused, AddPartitionsToTxnResponse):
        added = decode(AddPartitionsToTxnResponse, version, response.body)
        results = (*added.results_by_transaction, *refused.results_by_transaction)
        merged = replace(added, results_by_transaction=results)
    else:
        raise TypeError(f"{type(refused).__name__} has one name only")
    return encode(merged, version)


def _denied_topic(topic: AddPartitionsToTxnTopic) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=tuple(
            AddPartitionsToTxnPartitionResult(partition_index=one, partition_error_code=_TRANSACTION_DENIED)
            for one in topic.partitions
        ),
    )


# --- the first bytes of a request


def begins_with(*names: str, flexible: bool) -> Callable[[Buffer, int, int], bool]:
    """A test whether the string at a position is one of these; True also while what has been received may become it.

    Every heartbeat is tested, so a string is compared only if the byte of its size is that of one of the names. What
    is behind `end` in the buffer belongs to other requests, or was received earlier.
    """
    texts = tuple(name.encode() for name in names)
    sizes = {len(text) & 0xFF: len(text).to_bytes(2, "big") + text for text in texts}
    # A size of more than 7 bits has several bytes.
    compact_sizes = {len(text) + 1: bytes((len(text) + 1,)) + text for text in texts if len(text) < 0x7F}
    firsts = bytes(one[0] for one in sizes.values())
    if len(sizes) < len(texts):
        raise ValueError(f"names of the same size: {names}")

    def is_name(view: Buffer, pos: int, end: int) -> bool:
        if end - pos < 2:
            return end <= pos or view[pos] in firsts
        name = sizes.get(view[pos + 1])
        return name is not None and view[pos : min(pos + len(name), end)] == name[: end - pos]

    def is_compact_name(view: Buffer, pos: int, end: int) -> bool:
        if end <= pos:
            return True
        lead = view[pos]
        if lead in compact_sizes:
            name = compact_sizes[lead]
            return view[pos : min(pos + len(name), end)] == name[: end - pos]
        return lead > 0x7F and _is_name_with_long_size(texts, view, pos, end)

    return is_compact_name if flexible else is_name


def _is_name_with_long_size(texts: tuple[bytes, ...], view: Buffer, pos: int, end: int) -> bool:
    """The size has several bytes: that of a long name, or one that is written longer than it has to be."""
    try:
        size, at = read_uvarint(view, pos)
    except (IndexError, WireError):
        return True
    if at > end:
        return True
    received = view[at : min(at + size - 1, end)]
    return any(size == len(text) + 1 and received == text[: max(0, end - at)] for text in texts)


def _behind_string(view: Buffer, pos: int, end: int, *, flexible: bool) -> int:
    """The position behind the string at `pos`, at or past `end` when that is not received."""
    if flexible:
        try:
            size, at = read_uvarint(view, pos)
        except (IndexError, WireError):
            return end
        return at + max(0, size - 1)
    return pos + 2 + max(0, int.from_bytes(view[pos : pos + 2], "big", signed=True)) if pos + 2 <= end else end
