"""Frames that no honest client sends, from a seed: valid ones of every call that are then damaged, and bombs by hand.

Damage is of the kinds that a parser can trip over: flipped bits, cut ends, other sizes, counts and lengths of
2^31 - 1, tag sections, other keys and versions, bytes put in and taken out. One rule: the same seed gives the same
frames, so that what broke a gateway once breaks it again.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from struct import pack, pack_into
from typing import Final

from headgate.wire import frames
from headgate.wire.apis import APIS, has_flexible_request
from headgate.wire.codec import encode
from headgate.wire.messages.cluster import SaslAuthenticateRequest, SaslHandshakeRequest
from headgate.wire.messages.share import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
)
from headgate.wire.primitives import write_uvarint
from tests.support.messages import REQUESTS, random_message

INT32_MAX: Final = 2**31 - 1
PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER = 0, 1, 3, 10, 18, 60
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
ACCEPT, REJECT = 1, 3
JOIN_GROUP, DELETE_GROUPS, STREAMS_HEARTBEAT, STREAMS_DESCRIBE, STREAMS_PUSH = 11, 42, 88, 89, 93
OPENED: Final = (
    *(METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER),
    *(JOIN_GROUP, DELETE_GROUPS, STREAMS_HEARTBEAT, STREAMS_DESCRIBE, STREAMS_PUSH),
)
WALKED: Final = (PRODUCE, FETCH, SHARE_FETCH, SHARE_ACKNOWLEDGE)
# CreateTopics and changes of configs: a damaged one may still be valid, and others use the broker.
CHANGES_BROKER: Final = frozenset((19, 33, 44))
_LARGEST: Final = 32 * 1024  # what a forged frame has at most; bombs are longer
_POOL: Final = 6  # valid frames of each call and version
_EXTREMES: Final = (INT32_MAX, -1, -(2**31), 0, 1 << 24, -2)

Versions = Mapping[int, tuple[int, int]]
Damage = Callable[[random.Random, bytearray], None]


def request(
    key: int,
    version: int,
    body: bytes,
    *,
    correlation_id: int = 1,
    client_id: bytes = b"hostile",
    tags: bytes = b"\x00",
) -> bytes:
    """The frame of a request; its client id is the campaign's."""
    header = frames.RequestHeader(
        api_key=key,
        api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        tags=tags if key not in APIS or has_flexible_request(key, version) else b"",
    )
    return frames.frame(header.encode(), body)


def acknowledge(group: str, topic_id: bytes, partitions: int, batches: int, kind: int) -> bytes:
    """A ShareAcknowledge of so many batches of ten records in each partition, by an unknown member."""
    found = tuple(
        AcknowledgementBatch(first_offset=first, last_offset=first + 9, acknowledge_types=(kind,))
        for first in range(0, 10 * batches, 10)
    )
    places = tuple(
        ShareAcknowledgePartition(partition_index=index, acknowledgement_batches=found) for index in range(partitions)
    )
    topics = (ShareAcknowledgeTopic(topic_id=topic_id, partitions=places),)
    asked = ShareAcknowledgeRequest(group_id=group, member_id="m", share_session_epoch=1, topics=topics)
    return request(SHARE_ACKNOWLEDGE, 2, encode(asked, 2))


def log_in(login: str) -> tuple[bytes, bytes]:
    """The two requests of SASL PLAIN for `user:password`."""
    user, _, password = login.partition(":")
    token = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
    return (
        request(SASL_HANDSHAKE, 1, encode(SaslHandshakeRequest(mechanism="PLAIN"), 1)),
        request(SASL_AUTHENTICATE, 2, encode(token, 2)),
    )


def tag_section(count: int) -> bytes:
    """So many tagged fields of two bytes each: the cheapest way to make a reader turn round."""
    return write_uvarint(count) + b"\x01\x00" * count


def ascending_tags(count: int) -> bytes:
    """So many empty fields in a form that a strict reader takes: their numbers ascend."""
    return write_uvarint(count) + b"".join(write_uvarint(number) + b"\x00" for number in range(1, count + 1))


class Forge:
    """Makes frames of the calls in `versions`; `real` are frames of a client that is served, to be damaged too."""

    def __init__(
        self, seed: int, versions: Versions, *, real: Sequence[bytes] = (), skip: frozenset[int] = frozenset()
    ) -> None:
        self.rng = random.Random(seed)
        self._real = list(real)
        known = {key: versions[key] for key in REQUESTS if key in versions and key not in skip}
        self._calls = [
            (key, version)
            for key, (low, high) in known.items()
            for version in range(max(low, APIS[key].min_version), min(high, APIS[key].max_version) + 1)
        ]
        # Those that the gateway looks into are half of what comes.
        self._looked_into = [call for call in self._calls if call[0] in OPENED or call[0] in WALKED]
        self._pool: dict[tuple[int, int], list[bytes]] = {}

    def valid(self) -> bytes:
        """A request that a broker can read, though it may well refuse it."""
        rng = self.rng
        if self._real and rng.random() < 0.25:
            return rng.choice(self._real)
        call = rng.choice(self._looked_into if rng.random() < 0.5 else self._calls)
        pool = self._pool.setdefault(call, [])
        if len(pool) < _POOL:
            pool.append(self._new(*call))
        elif rng.random() < 0.02:
            pool[rng.randrange(_POOL)] = self._new(*call)
        return rng.choice(pool)

    def mutated(self) -> bytes:
        """A valid request with one to three kinds of damage."""
        rng = self.rng
        frame = bytearray(self.valid())
        for damage in rng.choices(_FRAME_DAMAGES, k=rng.choice((1, 1, 1, 2, 3))):
            damage(rng, frame)
        return bytes(frame)

    def _new(self, key: int, version: int) -> bytes:
        while True:
            message = random_message(self.rng, REQUESTS[key], version)
            frame = request(key, version, encode(message, version), correlation_id=self.rng.randrange(1 << 31))
            if len(frame) <= _LARGEST:
                return frame


# Damage to what stands behind a frame's size and key.


def damage_content(rng: random.Random, content: bytearray) -> None:
    """Break one thing in it; its length may change."""
    rng.choice(_CONTENT_DAMAGES)(rng, content)


def _flip_bits(rng: random.Random, content: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 64)) if content else 0):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _cut(rng: random.Random, content: bytearray) -> None:
    del content[rng.randrange(len(content) + 1) :]


def _extreme_int32(rng: random.Random, content: bytearray) -> None:
    """A count or a length of the classic form, wherever it may stand."""
    if len(content) >= 4:
        pack_into(">i", content, rng.randrange(len(content) - 3), rng.choice(_EXTREMES))


def _extreme_varint(rng: random.Random, content: bytearray) -> None:
    """The same in the compact form; a sixth byte is one too many."""
    at = rng.randrange(len(content) + 1)
    content[at : at + 1] = rng.choice((b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff" * 6, b"\x80\x80\x00"))


def _tags(rng: random.Random, content: bytearray) -> None:
    """A tag section where there was a byte, often the empty section at the end."""
    at = rng.choice((max(0, len(content) - 1), rng.randrange(len(content) + 1)))
    content[at : at + 1] = rng.choice(
        (tag_section(101), tag_section(5000), write_uvarint(INT32_MAX), b"\x01\x00\xff\xff\xff\xff\x0f")
    )


def _insert(rng: random.Random, content: bytearray) -> None:
    at = rng.randrange(len(content) + 1)
    content[at:at] = rng.randbytes(rng.choice((1, 2, 16, 300)))


def _overwrite(rng: random.Random, content: bytearray) -> None:
    at = rng.randrange(len(content) + 1)
    size = min(rng.choice((1, 4, 64)), len(content) - at)
    content[at : at + size] = rng.choice((b"\x00", b"\xff")) * size


_CONTENT_DAMAGES: Final[tuple[Damage, ...]] = (
    _flip_bits,
    _flip_bits,
    _cut,
    _extreme_int32,
    _extreme_varint,
    _tags,
    _insert,
    _overwrite,
)


# Damage to a whole request.


def _damage_inside(rng: random.Random, frame: bytearray) -> None:
    content = frame[8:]
    damage_content(rng, content)
    frame[8:] = content
    if rng.random() < 0.85:  # else what comes next on the connection is taken for the rest
        pack_into(">i", frame, 0, len(frame) - 4)


def _other_size(rng: random.Random, frame: bytearray) -> None:
    size = rng.choice((*_EXTREMES, len(frame) - 5, len(frame) - 3, 9, 10, 100 * 1024 * 1024 + 1))
    pack_into(">i", frame, 0, size)


def _other_call(rng: random.Random, frame: bytearray) -> None:
    key = rng.choice((*OPENED, *WALKED, rng.randrange(-100, 200), rng.randrange(-(2**15), 2**15)))
    version = rng.choice((rng.randrange(20), rng.randrange(-(2**15), 2**15), 2**15 - 1, -1))
    pack_into(">hh", frame, 4, key, version)


_FRAME_DAMAGES: Final[tuple[Damage, ...]] = (*(_damage_inside,) * 8, _other_size, _other_call)


def length_bombs(cap: int) -> tuple[bytes, ...]:
    """Sizes that no frame has: each in front of a Metadata request's first bytes."""
    rest = request(METADATA, 1, pack(">i", 0))[4:]
    return tuple(pack(">i", size) + rest for size in (-1, 0, 9, -(2**31), cap + 1, INT32_MAX))


def count_bombs() -> tuple[bytes, ...]:
    """Arrays of 2^31 - 1 elements in every call that the gateway looks into, in the oldest and the newest version."""
    bombs = []
    for key in (*OPENED, *WALKED):
        api = APIS[key]
        for version in {api.min_version, api.max_version}:
            body = b"\xff\xff\xff\xff\x0f" * 8 if api.is_flexible(version) else pack(">i", INT32_MAX) * 8
            bombs.append(request(key, version, body))
    return tuple(bombs)


# What speaks another protocol at a Kafka port.
TLS_HELLO: Final = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + b"\x20" + bytes(range(160))
HTTP: Final = b"GET /metrics HTTP/1.1\r\nHost: kafka\r\nUser-Agent: probe\r\n\r\n"
OTHER_PROTOCOLS: Final = (
    TLS_HELLO,
    HTTP,
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12),
    b"SSH-2.0-probe\r\n" * 2,
)
