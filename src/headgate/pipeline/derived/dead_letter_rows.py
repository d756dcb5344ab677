"""The rows of `dead_letters`, and their keys: dead letters of the same record are one row."""

from typing import Any, Final

import pyarrow as pa

from headgate.dead_letters.model.topic_ids import named_topic
from headgate.pipeline.derived.dead_letter_frames import FEATURE_NAMES
from headgate.pipeline.derived.dead_letter_topics import KnownTopic
from headgate.pipeline.derived.derivation import HOUR_MS
from headgate.tables.definitions import table_named

_TABLE: Final = table_named("dead_letters")
KEY: Final = _TABLE.key
_CLOCKS_DIFFER_MS: Final = 7 * 24 * HOUR_MS

Row = dict[str, Any]
LetterKey = tuple[str, str, int, int]  # of one cluster: group, topic id, partition, offset


def dead_letter_row(letter: Row, dlq: KnownTopic, cluster: str) -> Row:
    """The row of one dead letter. One that names no record has its own position as the key."""
    is_named = letter["topic"] is not None
    at = letter["recorded_at"] if letter["at"] is None else letter["at"]
    if abs(at - letter["recorded_at"]) > _CLOCKS_DIFFER_MS:  # forged, or a clock that is wrong
        at = letter["recorded_at"]
    kept = (
        *("dlq_topic", "dlq_partition", "dlq_offset", "format", "topic", "reason", "exception", "member"),
        *("delivery_count", "copied", "problem", *FEATURE_NAMES),
    )
    return {name: letter[name] for name in kept} | {
        "cluster_id": cluster,
        "group": letter["group"] or "",
        "topic_id": (letter["topic_id"] or named_topic(letter["topic"])) if is_named else dlq.topic_id,
        "partition": letter["partition"] if is_named else letter["dlq_partition"],
        "offset": letter["offset"] if is_named else letter["dlq_offset"],
        "dlq_topic_id": dlq.topic_id,
        "dead_lettered_at": at,
        "source_state": "unknown",
        "source_at": None,
        "copies": 1,
        "withdrawn": False,
        "letter_expires_at": dlq.expires_at(letter["recorded_at"]),
        "source_expires_at": None,
        "cluster": None,
    }


def add_copy(rows: dict[LetterKey, Row], row: Row) -> None:
    """Add a dead letter, or count it as a copy of the one that lies before it."""
    same = rows.setdefault(identity(row), row)
    if same is not row:
        first = min(same, row, key=lambda one: (one["dlq_partition"], one["dlq_offset"]))
        rows[identity(row)] = first | {"copies": same["copies"] + row["copies"]}


def identity(row: Row) -> LetterKey:
    return (row["group"], row["topic_id"], row["partition"], row["offset"])


def key_of(row: Row) -> Row:
    return {name: row[name] for name in KEY}


def key_schema() -> pa.Schema:
    columns = _TABLE.columns
    return pa.schema([columns.field(name).remove_metadata() for name in KEY])
