"""The kinds of values that differ from run to run, and the word that stands for each.

One rule: a kind replaces only what looks like itself. A mark such as -1, an empty text or the zero id stays, so that
something that should be there and is not still shows.
"""

import json
import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_HEX_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_KAFKA_UUID = re.compile(r"[A-Za-z0-9_-]{22}")
_RESERVED_UUIDS = 100  # Kafka keeps the first hundred for itself: zero, the metadata topic, log directories
_STREAM_TIME = re.compile(r"Ag[A-Za-z0-9+/]{10}")
_OLD_PRODUCER = ("v3AndBelowProducerId", "v3AndBelowProducerEpoch")
_EARLIEST_MS = 1_600_000_000_000


@dataclass(slots=True)
class Known:
    """What a run itself says of its volatile values, so that they can be called by name."""

    topics: dict[str, str] = field(default_factory=dict)  # topic id to name
    first_epochs: dict[int, int] = field(default_factory=dict)  # producer id to the lowest epoch seen


# The value, the struct that it stands in, and what is known of the run.
Kind = Callable[[Any, Mapping[str, Any], Known], Any]


def number(word: str, *, least: int) -> Kind:
    """A whole number from `least` on."""

    def kind(value: Any, of: Mapping[str, Any], known: Known) -> Any:  # noqa: ARG001
        return f"<{word}>" if isinstance(value, int) and value >= least else value

    return kind


offset = number("offset", least=0)
epoch = number("epoch", least=0)
count = number("count", least=1)
producer = number("producer id", least=0)
session = number("session", least=0)
timestamp = number("timestamp", least=_EARLIEST_MS)  # milliseconds since the epoch


def opaque(value: Any, of: Mapping[str, Any], known: Known) -> Any:  # noqa: ARG001
    """Bytes that mean something only to the clients who exchange them."""
    return "<bytes>" if isinstance(value, str) else value


def uuid(value: Any, of: Mapping[str, Any], known: Known) -> Any:  # noqa: ARG001
    """An id of 16 bytes in Kafka's base64; a topic's is called by the topic's name."""
    if not isinstance(value, str) or not _KAFKA_UUID.fullmatch(value):
        return value
    if int.from_bytes(urlsafe_b64decode(value + "==")) < _RESERVED_UUIDS:
        return value
    return f"<id of topic {known.topics[value]}>" if value in known.topics else "<uuid>"


def member(value: Any, of: Mapping[str, Any], known: Known) -> Any:
    """A text with a member id in it: what the client or the broker put around the random part is kept."""
    if not isinstance(value, str):
        return value
    # librdkafka writes its own in the common base64, with + and /.
    return _HEX_UUID.sub("<uuid>", uuid(value.replace("+", "-").replace("/", "_"), of, known))


def producer_of(struct: Mapping[str, Any]) -> tuple[int, int]:
    """The id and the epoch of the producer that a struct names; -1 where it names none."""
    for id_field, epoch_field in (("producerId", "producerEpoch"), ("producer_id", "producer_epoch"), _OLD_PRODUCER):
        if id_field in struct and epoch_field in struct:
            return struct[id_field], struct[epoch_field]
    return -1, -1


def producer_epoch(value: Any, of: Mapping[str, Any], known: Known) -> Any:
    """A transactional id keeps its epoch from run to run: what counts is how far it moved in this one."""
    first = known.first_epochs.get(producer_of(of)[0])
    return value if first is None or value < 0 else f"<first epoch + {value - first}>"


def partition_time(value: Any, of: Mapping[str, Any], known: Known) -> Any:  # noqa: ARG001
    """What Streams commits with an offset: version 2, eight bytes of stream time, and what else it knows."""
    if not isinstance(value, str) or not _STREAM_TIME.match(value):
        return value
    noted = b64decode(value)
    return f"<partition time>{noted[9:].hex()}" if int.from_bytes(noted[1:9]) > _EARLIEST_MS else value


def connect_document(value: Any, of: Mapping[str, Any], known: Known) -> Any:  # noqa: ARG001
    """A record of a Connect worker's own topics, read as JSON: times, generations and the session key are replaced."""
    if not isinstance(value, str):
        return value
    try:
        document = json.loads(b64decode(value))
    except ValueError:
        return value
    return _without_noise(document) if isinstance(document, dict) else value


def _without_noise(document: Any, name: str = "") -> Any:
    if isinstance(document, dict):
        drawn = {"key"} if "algorithm" in document else set()
        return {key: "<bytes>" if key in drawn else _without_noise(value, key) for key, value in document.items()}
    if isinstance(document, int) and (name == "generation" or document > _EARLIEST_MS):
        return f"<{name}>"
    return document
