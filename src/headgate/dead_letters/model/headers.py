"""The headers of a dead letter, as four writers write them: Kafka (KIP-1191), Connect, Streams and Spring.

A client with WRITE on a dead-letter topic can forge them, and records of the source bring headers of their own. So
every header is bounded before it is decoded, a number that is out of range is not used, and nothing that a header
says can make this fail. Of equal names the last counts, as for Kafka's own readers: writers append theirs to those
that the record had. For the same reason the writer whose headers come last wrote the dead letter. `problem` says what
was not used.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.share_groups.model.dead_letter_records import COPY_PROBLEM, OWN, SHIPPED, topic_id_of

UNKNOWN: Final = "unknown"
MAX_REASON = 500  # characters
MAX_NAME = 200
_MAX_GROUP_BYTES = 1_000
_MAX_UTF8 = 4  # bytes of a character
_INT32, _INT64 = 2**31 - 1, 2**63 - 1
_LAST_MS = 253_402_300_799_999  # the end of the year 9999: a later time is an error of its writer
_TOPIC = re.compile(rb"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
_DECIMAL = re.compile(rb"[0-9]{1,19}")

RawHeader = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFormat:
    """The names of one writer's headers; empty where it has none. `is_binary`: numbers are big-endian, not text."""

    name: str
    prefix: str
    topic: str
    partition: str
    offset: str
    group: str = ""
    reason: str = ""
    exception: str = ""
    member: str = ""
    is_binary: bool = False


_FORMATS = (
    LetterFormat(
        name="kafka",
        prefix=SHIPPED,
        topic=f"{SHIPPED}topic",
        partition=f"{SHIPPED}partition",
        offset=f"{SHIPPED}offset",
        group=f"{SHIPPED}group",
        reason=f"{SHIPPED}message",
        member=f"{OWN}member",
    ),
    LetterFormat(
        name="connect",
        prefix="__connect.errors.",
        topic="__connect.errors.topic",
        partition="__connect.errors.partition",
        offset="__connect.errors.offset",
        group="__connect.errors.connector.name",
        reason="__connect.errors.exception.message",
        exception="__connect.errors.exception.class.name",
        member="__connect.errors.task.id",
    ),
    LetterFormat(
        name="streams",
        prefix="__streams.errors.",
        topic="__streams.errors.topic",
        partition="__streams.errors.partition",
        offset="__streams.errors.offset",
        reason="__streams.errors.message",
        exception="__streams.errors.exception",
    ),
    LetterFormat(
        name="spring",
        prefix="kafka_dlt-",
        topic="kafka_dlt-original-topic",
        partition="kafka_dlt-original-partition",
        offset="kafka_dlt-original-offset",
        group="kafka_dlt-original-consumer-group",
        reason="kafka_dlt-exception-message",
        exception="kafka_dlt-exception-fqcn",
        is_binary=True,
    ),
)
_DELIVERY_COUNT, _AT, _TOPIC_ID = f"{SHIPPED}delivery.count", f"{OWN}at", f"{OWN}topic.id"
FORMAT_NAMES: Final = (*(one.name for one in _FORMATS), UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterHeaders:
    """The headers of one dead letter. Without a `topic` they name no record, and the other numbers are None too."""

    format: str = UNKNOWN
    group: str | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    at: int | None = None
    delivery_count: int | None = None
    reason: str | None = None
    exception: str | None = None
    member: str | None = None
    has_copy_problem: bool = False
    problem: str | None = None


@dataclass(slots=True)
class _HeaderReading:
    """The last value of each header, and what was found wrong."""

    values: dict[str, bytes]
    problems: dict[str, None] = field(default_factory=dict)  # in order, each once

    def text(self, name: str, most: int) -> str | None:
        """A text for people: bytes that are not UTF-8 are replaced, and what is too long is cut."""
        value = self.values.get(name)
        if not value:
            return None
        return value[: most * _MAX_UTF8].decode("utf-8", "replace")[:most]

    def number(self, name: str, most: int, *, binary_bytes: int = 0) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        found: int | None = None
        if binary_bytes:
            found = int.from_bytes(value, "big", signed=True) if len(value) == binary_bytes else None
        elif _DECIMAL.fullmatch(value):
            found = int(value)
        if found is None or not 0 <= found <= most:
            self.problems[f"{name} is not a number from 0 to {most}"] = None
            return None
        return found

    def topic(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not _TOPIC.fullmatch(value):
            self.problems[f"{name} is not the name of a topic"] = None
            return None
        return value.decode("ascii")

    def group(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is None:
            return None
        try:
            if 0 < len(value) <= _MAX_GROUP_BYTES:
                return value.decode()
        except UnicodeDecodeError:
            pass
        self.problems[f"{name} is not a name of 1 to {_MAX_GROUP_BYTES} bytes"] = None
        return None


def read_headers(headers: Sequence[RawHeader]) -> LetterHeaders:
    """What these headers say, in the order in which the record has them."""
    last: dict[str, bytes] = {}
    seen_at: dict[str, int] = {}
    differing: dict[str, None] = {}
    for index, (name, value) in enumerate(headers):
        wrote = next((one for one in _FORMATS if name.startswith(one.prefix)), None)
        if wrote is None and not name.startswith(OWN):
            continue
        content = b"" if value is None else value
        if last.get(name, content) != content:
            differing[name] = None
        last[name] = content
        if wrote is not None:
            seen_at[wrote.name] = index
    by_recency = sorted((one for one in _FORMATS if one.name in seen_at), key=lambda one: -seen_at[one.name])
    if not by_recency:
        return LetterHeaders()
    found = [_read(one, last, differing) for one in by_recency]
    return next((one for one in found if one.topic is not None), found[0])


def _read(form: LetterFormat, values: dict[str, bytes], differing: dict[str, None]) -> LetterHeaders:
    reading = _HeaderReading(values)
    for name in (form.topic, form.partition, form.offset, form.group):
        if name in differing:
            reading.problems[f"{name} is there more than once, with different values"] = None
    topic = reading.topic(form.topic)
    partition = reading.number(form.partition, _INT32, binary_bytes=4 if form.is_binary else 0)
    offset = reading.number(form.offset, _INT64, binary_bytes=8 if form.is_binary else 0)
    is_named = topic is not None and partition is not None and offset is not None
    missing = [name for name in (form.topic, form.partition, form.offset) if name not in values]
    if missing:
        reading.problems[f"{', '.join(missing)}: missing"] = None
    is_kafka = form.prefix == SHIPPED
    group = reading.group(form.group)
    if is_kafka and group is None:
        reading.problems[f"{form.group}: missing"] = None
    count = reading.number(_DELIVERY_COUNT, _INT32) if is_kafka else None
    at = reading.number(_AT, _LAST_MS) if is_kafka else None
    topic_id = values.get(_TOPIC_ID) if is_kafka and is_named else None
    id_text = None if topic_id is None else topic_id[:MAX_NAME].decode("ascii", "replace")
    if id_text is not None and topic_id_of(id_text) is None:
        reading.problems[f"{_TOPIC_ID} is not the id of a topic"] = None
        id_text = None
    return LetterHeaders(
        format=form.name,
        group=group,
        topic=topic if is_named else None,
        topic_id=id_text,
        partition=partition if is_named else None,
        offset=offset if is_named else None,
        at=at,
        delivery_count=count or None,  # 0 is unknown: no record is delivered 0 times
        reason=reading.text(form.reason, MAX_REASON),
        exception=reading.text(form.exception, MAX_NAME),
        member=reading.text(form.member, MAX_NAME),
        has_copy_problem=is_kafka and COPY_PROBLEM in values,
        problem="; ".join(reading.problems) or None,
    )
