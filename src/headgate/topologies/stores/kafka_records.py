"""Records of `headgate.topologies` read as far as the store needs them: quickly, and never raising.

One rule: a description is decoded when somebody wants it. The key says which version it is, and of the value only what
stands before the description is read while ten thousand of them are replayed. It is kept packed: a tenth or less, which
is quicker than writing the whole.
"""

import contextlib
import json
from typing import Any

from headgate.base.errors import WireError
from headgate.facts import Rejected, TopologyDescribed, decode
from headgate.facts.codec import VERSION
from headgate.facts.json_form import INT32_MAX
from headgate.facts.topology import Description
from headgate.kafka.consumer_thread import ConsumedRecord
from headgate.plugin.topology_store import TransientFailure
from headgate.topologies.fact_mapping import SHOWN
from headgate.topologies.stores.kafka_cache import Current
from headgate.wire.compression import Compression, compress, decompress

_DESCRIPTION = b',"description":'


def read(record: ConsumedRecord) -> Current | None:
    """What a record says of its group, None when it is none of ours."""
    try:
        key = json.loads(record.key or b"")
        value = _head(record.value or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(key, list) or not isinstance(value, dict) or not _is_known(value.get("v")):
        return None
    match key:
        case [str() as group, "deleted"] if isinstance(value.get("incarnation"), str):
            return Current(group=group, offset=record.offset, incarnation=value["incarnation"])
        case [str() as group, str() as incarnation, int() as epoch, str() as content_hash, "pushed"]:
            if not 0 <= epoch <= INT32_MAX or isinstance(epoch, bool):
                return None
            member = value.get("member")
            return Current(
                group=group,
                offset=record.offset,
                incarnation=incarnation,
                epoch=epoch,
                hash=content_hash,
                member=member if isinstance(member, str) else None,
                record=pack(record.value or b""),
            )
    return None


def _is_known(version: object) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= VERSION


def _head(data: bytes) -> Any:
    """The value's fields as far as the description.

    Inside a JSON text a quote is escaped, so the first such bytes are the field; if a writer put it elsewhere, what
    stands before it is no object, and all is read.
    """
    head, found, _ = data.partition(_DESCRIPTION)
    if found:
        with contextlib.suppress(ValueError):
            return json.loads(head + b"}")
    return json.loads(data)


def pack(value: bytes) -> bytes:
    return compress(Compression.ZSTD, value)


def unpack(packed: bytes, *, largest: int) -> bytes:
    """`WireError` when it is damaged, or no record of ours is that large."""
    return decompress(Compression.ZSTD, packed, largest)


def description_of(current: Current, *, largest: int) -> Description:
    """The description in a group's newest record; `TransientFailure` when it is none, or not what its hash says."""
    key = json.dumps([current.group, current.incarnation, current.epoch, current.hash, SHOWN])
    try:
        value = unpack(current.record or b"", largest=largest)
    except WireError as failure:
        raise TransientFailure(f"the record at offset {current.offset} cannot be unpacked: {failure}") from None
    fact = decode("topologies", key.encode(), value, max_bytes=largest)
    if isinstance(fact, Rejected):
        raise TransientFailure(f"the record at offset {current.offset} is no description: {fact.reason}")
    assert isinstance(fact, TopologyDescribed)
    return fact.description
