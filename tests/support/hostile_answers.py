"""Answers that a hostile broker gives: lawful ones full of foreign addresses, damaged ones, and bombs.

Every address in them is one that no client may ever see. From a seed, as `hostile_frames`.
"""

import random
from dataclasses import replace
from struct import pack
from typing import Any, Final

from headgate.wire import frames
from headgate.wire.apis import has_flexible_response
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import ApiVersionsResponse
from headgate.wire.messages.data import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from headgate.wire.primitives import write_uvarint
from headgate.wire.schema import Struct
from tests.support.fake_upstream import HOST, Request
from tests.support.hostile_frames import (
    FETCH,
    INT32_MAX,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    damage_content,
    tag_section,
)
from tests.support.messages import REQUESTS, random_message

FOREIGN: Final = "127.66.66.66"  # nobody is there: the campaign must not reach beyond this machine
SECRET_HOSTS: Final = frozenset((FOREIGN, HOST))
_NODES: Final = (0, 1, 1, 70_000, 70_001, INT32_MAX, -1)
_LARGEST_LAWFUL: Final = 4000
_WALKED: Final = 300_000
_TAIL: Final = 1024 * 1024  # what the gateway takes as the last field of a large answer


def lawful(asked: Request, rng: random.Random) -> bytes:
    """What a broker may answer, with hosts that must be replaced."""
    while True:
        message = random_message(rng, REQUESTS[asked.key].response_class(), asked.version)
        if isinstance(message, ApiVersionsResponse):
            message = replace(message, error_code=0)
        answer = asked.answer(encode(_with_secrets(message, asked.version, rng), asked.version))
        if len(answer) <= _LARGEST_LAWFUL:
            return answer


def damaged(asked: Request, rng: random.Random) -> bytes:
    """A lawful one with its bytes broken; the correlation id stays right, or nothing else would be looked at."""
    answer = lawful(asked, rng)
    content = bytearray(answer[8:])
    for _ in range(rng.choice((1, 1, 2))):
        damage_content(rng, content)
    size = len(answer) - 4 if rng.random() < 0.1 else 4 + len(content)
    return pack(">i", size) + answer[4:8] + bytes(content)


def bomb(asked: Request, rng: random.Random) -> bytes:
    """Small in the broker's hands, large in those of a reader who trusts it."""
    return rng.choice((_header_tags, _counts, _tail_of_tags, _tail_of_nodes, _long_tail, _long_body))(asked, rng)


def _header_tags(asked: Request, rng: random.Random) -> bytes:
    """Tagged fields without end in front of the body."""
    tags = rng.choice((write_uvarint(INT32_MAX), tag_section(100_000), tag_section(2_000_000)))
    return frames.frame(pack(">i", asked.header.correlation_id), tags)


def _counts(asked: Request, _rng: random.Random) -> bytes:
    """Arrays of 2^31 - 1, in either form, one behind the other."""
    return _framed(asked, b"\xff\xff\xff\xff\x0f" * 10 if _is_flexible(asked) else pack(">i", INT32_MAX) * 10)


def _tail_of_tags(asked: Request, rng: random.Random) -> bytes:
    """A last field of many tagged fields, the first of them NodeEndpoints."""
    count = rng.choice((1000, 1001, 400_000))
    return _framed(asked, _before_tail(asked, rng) + write_uvarint(count) + b"\x00\x01\x01" + b"\x01\x00" * (count - 1))


def _tail_of_nodes(asked: Request, rng: random.Random) -> bytes:
    """NodeEndpoints with more nodes than there are brokers in the world, and ids that nobody has."""
    count = rng.choice((1, 100, 5000, 80_000))
    host = FOREIGN.encode()
    nodes = b"".join(
        pack(">i", 100_000 + number) + write_uvarint(len(host) + 1) + host + pack(">i", 9092) + b"\x00\x00"
        for number in range(count)
    )
    content = write_uvarint(count + 1) + nodes
    if asked.key in {PRODUCE, FETCH}:
        content = b"\x01\x00" + write_uvarint(len(content)) + content
    else:
        content += b"\x00"
    return _framed(asked, _before_tail(asked, rng) + content)


def _long_tail(asked: Request, rng: random.Random) -> bytes:
    """A tail that is longer than any that the gateway keeps back."""
    size = _TAIL + rng.choice((-100, 1, 100_000))
    return _framed(asked, _before_tail(asked, rng) + b"\x01\x00" + write_uvarint(size) + bytes(size))


def _long_body(asked: Request, rng: random.Random) -> bytes:
    """Megabytes of elements of one byte."""
    size = rng.choice((100_000, 8_000_000))
    return _framed(asked, _before_tail(asked, rng, whole=False) + write_uvarint(size) + b"\x00" * size)


def _before_tail(asked: Request, rng: random.Random, *, whole: bool = True) -> bytes:
    """A body up to its last field, at times too long to be gathered; any part of it if not `whole`."""
    response = REQUESTS[asked.key].response_class()()
    if asked.key == FETCH and rng.random() < 0.5:
        partition = FetchPartitionResponse(records=bytes(_WALKED))
        response = FetchResponse(responses=(FetchTopicResponse(partitions=(partition,)),))
    body = encode(response, asked.version)
    last = 2 if asked.key in {SHARE_FETCH, SHARE_ACKNOWLEDGE} else 1
    return body[:-last] if whole else body[: rng.randrange(len(body) + 1)]


def _framed(asked: Request, body: bytes) -> bytes:
    header = pack(">i", asked.header.correlation_id) + (b"\x00" if _is_flexible(asked) else b"")
    return frames.frame(header, body)


def _is_flexible(asked: Request) -> bool:
    return has_flexible_response(asked.key, asked.version)


def _with_secrets(value: Any, version: int, rng: random.Random) -> Any:
    """The same with every host one that must not be seen, and node ids that a cluster may have."""
    if isinstance(value, tuple):
        return tuple(_with_secrets(one, version, rng) for one in value)
    if not isinstance(value, Struct):
        return value
    here = [spec.name for spec in value.layout.fields if version in spec.versions]
    changed = {name: _with_secrets(getattr(value, name), version, rng) for name in here}
    if "host" in changed and "port" in changed:
        changed["host"] = rng.choice(tuple(sorted(SECRET_HOSTS)))
        for name in {"node_id", "broker_id"} & changed.keys():
            changed[name] = rng.choice(_NODES)
    return replace(value, **changed)
