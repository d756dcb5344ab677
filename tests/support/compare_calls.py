"""From bytes on the wire to calls: frames are cut, answers are paired with requests, Kafka's own classes decode both.

One rule: nothing is left out. A frame that cannot be cut, paired or decoded is an error, not a gap.
"""

import difflib
import re
import struct
from base64 import b64decode
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from tests.support.oracle import Oracle, decode_item, text_of
from tests.support.recorder import Connection, Endpoint, Side

Tree = Any

PRODUCE = 0
REWRITABLE = frozenset({3, 10, 18, 60})  # Metadata, FindCoordinator, ApiVersions, DescribeCluster
_BEHIND = re.compile(r"(\d+) bytes behind the message")
_SIZE = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")
_MOST_LINES, _LONGEST = 60, 600  # of a diff


class RecordingError(AssertionError):
    """What was recorded is not a Kafka conversation."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame without its size, and when its last byte came."""

    at: float
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A decoded request or answer; `canonical` are the bytes that Kafka writes for this tree, for some calls."""

    header: Tree
    body: Tree
    version: int
    data: bytes
    canonical: bytes | None = None

    @property
    def is_canonical(self) -> bool:
        """Nothing stands in the bytes that is not in the tree, such as an unknown tagged field."""
        return self.canonical is not None and self.data.endswith(self.canonical)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request with its answer; there is none for acks=0, or when the connection ended before it came."""

    at: float
    api_key: int
    api_name: str
    request: Message
    answer: Message | None

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def client_id(self) -> str | None:
        text: str | None = self.request.header["clientId"]
        return text

    @property
    def correlation_id(self) -> int:
        number: int = self.request.header["correlationId"]
        return number

    def __str__(self) -> str:
        return f"{self.api_name} v{self.version} #{self.correlation_id} of {self.client_id!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """All calls of one connection, in order."""

    number: int
    listener: Endpoint
    left_by_client: bool
    calls: tuple[Call, ...]

    def __str__(self) -> str:
        clients = sorted({str(call.client_id) for call in self.calls})
        return f"connection {self.number} to {self.listener} ({', '.join(clients) or 'silent'})"


def read(oracle: Oracle, connections: Sequence[Connection]) -> list[Conversation]:
    """Every connection as a conversation; decoded in batches, because an answer needs its request's version."""
    asked = [frames(connection, Side.CLIENT) for connection in connections]
    answered = [frames(connection, Side.SERVER) for connection in connections]
    requests = _messages(
        oracle,
        [
            (frame, decode_item("request", 0, 0, frame.data, header=True, open_records=True))
            for of_one in asked
            for frame in of_one
        ],
    )
    paired: list[list[tuple[Frame, _Decoded, Frame | None]]] = []
    for connection, of_one, answers in zip(connections, asked, answered, strict=True):
        decoded = [next(requests) for _ in of_one]
        paired.append(_paired(connection, of_one, decoded, answers))
    items = [
        (answer, decode_item("response", request.api_key, request.version, answer.data, header=True, open_records=True))
        for of_one in paired
        for _, request, answer in of_one
        if answer is not None
    ]
    replies = _messages(oracle, items)
    conversations = [
        Conversation(
            number=connection.number,
            listener=connection.listener,
            left_by_client=connection.left_by_client,
            calls=tuple(
                Call(
                    at=frame.at,
                    api_key=request.api_key,
                    api_name=request.name.removesuffix("Request"),
                    request=request.message,
                    answer=None if answer is None else next(replies).message,
                )
                for frame, request, answer in of_one
            ),
        )
        for connection, of_one in zip(connections, paired, strict=True)
    ]
    return _with_canonical(oracle, conversations)


def frames(connection: Connection, side: Side) -> list[Frame]:
    """What that side sent, cut at the sizes."""
    chunks = [chunk for chunk in connection.chunks if chunk.side is side]
    ends = list(accumulate(len(chunk.data) for chunk in chunks))
    data = b"".join(chunk.data for chunk in chunks)
    cut: list[Frame] = []
    at = 0
    while at < len(data):
        if at + _SIZE.size > len(data):
            break
        (size,) = _SIZE.unpack_from(data, at)
        end = at + _SIZE.size + size
        if size < 0:
            raise RecordingError(f"connection {connection.number}: the {side.value} sent a frame of {size} bytes")
        if end > len(data):
            break
        cut.append(Frame(chunks[bisect_left(ends, end)].at, data[at + _SIZE.size : end]))
        at = end
    if at < len(data) and connection.ended_at(side) is not None:
        # A side that was cut off may leave half a frame; one that ended by itself may not.
        raise RecordingError(f"connection {connection.number}: the {side.value} ended inside a frame")
    return cut


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoded:
    api_key: int
    name: str
    message: Message

    @property
    def version(self) -> int:
        return self.message.version


def _messages(oracle: Oracle, items: Sequence[tuple[Frame, dict[str, Any]]]) -> Iterator[_Decoded]:
    replies = oracle.ask("decode", [item for _, item in items])
    decoded: list[_Decoded] = []
    for (frame, item), first in zip(items, replies, strict=True):
        reply = first
        if behind := _BEHIND.search(reply.get("error", "")):
            # librdkafka's DescribeCluster leaves bytes of an older version behind its Metadata request, and brokers
            # do not mind. They are still in `data`.
            whole = frame.data[: -int(behind[1])]
            [reply] = oracle.ask("decode", [item | {"bytes": text_of(whole)}])
        if "error" in reply:
            raise RecordingError(
                f"Kafka's classes do not decode this {item['kind']}: {reply['error']}\n{frame.data.hex(' ')}"
            )
        message = Message(header=reply["header"], body=reply["tree"], version=reply["version"], data=frame.data)
        decoded.append(_Decoded(api_key=reply["key"], name=reply["name"], message=message))
    return iter(decoded)


def _with_canonical(oracle: Oracle, conversations: Sequence[Conversation]) -> list[Conversation]:
    """The answers of calls that a gateway may rewrite, with the bytes that Kafka would write for them."""
    items = [
        {"kind": "response", "key": call.api_key, "version": call.answer.version, "tree": call.answer.body}
        for conversation in conversations
        for call in conversation.calls
        if call.answer is not None and call.api_key in REWRITABLE
    ]
    written = iter(oracle.ask("encode", items))

    def complete(call: Call) -> Call:
        if call.answer is None or call.api_key not in REWRITABLE:
            return call
        return replace(call, answer=replace(call.answer, canonical=b64decode(next(written)["bytes"])))

    return [replace(one, calls=tuple(complete(call) for call in one.calls)) for one in conversations]


def _paired(
    connection: Connection, asked: Sequence[Frame], requests: Sequence[_Decoded], answers: Sequence[Frame]
) -> list[tuple[Frame, _Decoded, Frame | None]]:
    """Requests with their answers: in order, as Kafka answers, and proved by the correlation ids."""
    waiting = iter(answers)
    left_at = connection.ended_at(Side.CLIENT)
    paired: list[tuple[Frame, _Decoded, Frame | None]] = []
    for frame, request in zip(asked, requests, strict=True):
        silent = request.api_key == PRODUCE and request.message.body["acks"] == 0
        answer = None if silent else next(waiting, None)
        if answer is not None:
            (got,) = _CORRELATION_ID.unpack_from(answer.data)
            wanted = request.message.header["correlationId"]
            if got != wanted:
                raise RecordingError(f"connection {connection.number}: answer {got} where {wanted} was due")
            if left_at is not None and answer.at > left_at:
                answer = None  # it came when the client had gone: seen by nobody
        paired.append((frame, request, answer))
    for answer in waiting:
        raise RecordingError(f"connection {connection.number}: a response without a request: {answer.data.hex()}")
    return paired


# What differs, as a text for people.


@dataclass(frozen=True, slots=True)
class Difference:
    """One finding: where, and what."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}\n{self.what}"


def diff_of(wanted: Sequence[str], got: Sequence[str], wanted_name: str, got_name: str) -> str:
    """The lines that differ with a little around them; a long diff is cut, and says so."""
    lines = list(difflib.unified_diff(wanted, got, wanted_name, got_name, lineterm="", n=4))
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"... and {len(lines) - _MOST_LINES} lines more"]
    return "\n".join(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..." for line in lines)


def report(differences: Sequence[Difference]) -> str:
    """All findings as one text; empty when there is none."""
    if not differences:
        return ""
    shown = "\n\n".join(str(one) for one in differences[:10])
    more = f"\n\n... and {len(differences) - 10} differences more" if len(differences) > 10 else ""
    return f"{len(differences)} differences\n\n{shown}{more}"
