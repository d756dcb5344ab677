"""Random messages of every kind and version, exchanged with Kafka's own classes: equal bytes and equal trees.

The seed of each case stands in its output when it fails; `HEADGATE_SEED` runs all of them from another one.
"""

import os
import random
from base64 import b64decode
from struct import pack
from typing import Any

import pytest

from headgate.wire.apis import APIS, has_flexible_request, has_flexible_response
from headgate.wire.codec import decode, encode
from headgate.wire.frames import RequestHeader, response_header
from headgate.wire.schema import Message, Request
from tests.support.messages import MESSAGES, random_message
from tests.support.oracle import Oracle, decode_item
from tests.support.trees import tree_of

SEED = int(os.environ.get("HEADGATE_SEED", "20261106"))
EACH = 25  # messages of each version


def samples(cls: type[Message], *, unknown_tags: bool) -> list[tuple[int, Message]]:
    print(f"HEADGATE_SEED={SEED}")
    rng = random.Random(f"{SEED} {cls.__name__}")
    versions = [version for version in cls.valid for _ in range(EACH)]
    return [(version, random_message(rng, cls, version, unknown_tags=unknown_tags)) for version in versions]


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_kafka_reads_what_we_write_and_writes_the_same(cls: type[Message], oracle: Oracle) -> None:
    kind, key = ("request" if issubclass(cls, Request) else "response"), cls.api_key
    sent = [(version, message, encode(message, version)) for version, message in samples(cls, unknown_tags=True)]
    answers = oracle.ask("decode", (decode_item(kind, key, version, data) for version, _, data in sent))
    for (version, message, data), answer in zip(sent, answers, strict=True):
        assert "error" not in answer, (version, message, answer["error"])
        if answer["version"] != version:  # ApiVersions with error 35 is version 0 whatever was asked
            continue
        assert answer["tree"] == tree_of(message, version)
        assert b64decode(answer["bytes"]) == data


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_we_read_what_kafka_writes_and_write_the_same(cls: type[Message], oracle: Oracle) -> None:
    kind, key = ("request" if issubclass(cls, Request) else "response"), cls.api_key
    told = [(version, message, tree_of(message, version)) for version, message in samples(cls, unknown_tags=False)]
    answers = oracle.ask(
        "encode", ({"kind": kind, "key": key, "version": version, "tree": tree} for version, _, tree in told)
    )
    for (version, message, tree), answer in zip(told, answers, strict=True):
        assert "error" not in answer, (version, message, answer["error"])
        data = b64decode(answer["bytes"])
        read = decode(cls, version, data)
        assert tree_of(read, version) == tree
        assert encode(read, version) == data


def test_frames_of_every_call_are_decoded_with_their_headers(oracle: Oracle) -> None:
    """The equivalence tests decode all that they record this way, whether or not we have a table for the call."""
    every: list[dict[str, Any]] = [
        {"kind": kind, "key": key, "version": version}
        for key, api in APIS.items()
        for version in range(api.min_version, api.max_version + 1)
        for kind in ("request", "response")
    ]
    frames = []
    for item, answer in zip(every, oracle.ask("blank", every), strict=True):
        key, version, body = item["key"], item["version"], b64decode(answer["bytes"])
        if item["kind"] == "request":
            flexible = has_flexible_request(key, version)
            header = RequestHeader(
                api_key=key, api_version=version, correlation_id=5, client_id=b"c", tags=bytes(flexible)
            )
            whole = header.encode() + body
            frames.append(decode_item("request", 0, 0, whole, header=True))
        else:
            whole = response_header(pack(">i", 5), flexible=has_flexible_response(key, version)) + body
            frames.append(decode_item("response", key, version, whole, header=True))
    for item, answer in zip(every, oracle.ask("decode", frames), strict=True):
        assert "error" not in answer, (item, answer["error"])
        assert answer["header"]["correlationId"] == 5
        assert (answer["key"], answer["version"]) == (item["key"], item["version"])
