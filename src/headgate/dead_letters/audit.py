"""Brings the table `replay_audit` up to date with `headgate-replay.progress`.

The topic is the truth, because its records are in the transactions of the replays. The table can be made again from it,
and any number of processes may do so at a time: a row depends on nothing but its record.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from headgate.base.locations import Location
from headgate.dead_letters.progress_topic import has_progress_topic, read_progress
from headgate.facts.replays import PROGRESS_TOPIC, ReplayProgressed, decode_progress
from headgate.kafka.topics import TopicAdmin
from headgate.tables.definitions import TABLES
from headgate.tables.writer import TableWriter

_TABLE: Final = TABLES["replay_audit"]
_ROWS_AT_ONCE: Final = 50_000


def refresh_audit(
    root: Location,
    settings: Mapping[str, Any],
    admin: TopicAdmin,
    cluster_id: str,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Add what the table lacks, and return the number of rows.

    `ClusterError` when the topic cannot be read, or reading was stopped.
    """
    if not has_progress_topic(admin):
        return 0
    writer = TableWriter(root, _TABLE)
    try:
        query = f"{PROGRESS_TOPIC}-{admin.ids([PROGRESS_TOPIC]).get(PROGRESS_TOPIC)}"
        known = writer.transaction(query)
        rows: dict[tuple[str, int], dict[str, Any]] = {}  # a batch has each key once
        written = last = 0
        start = 0 if known is None else known + 1
        for message in read_progress(settings, admin, start=start, is_stopped=is_stopped):
            progress = decode_progress(message.key(), message.value())
            offset = message.offset()
            if isinstance(progress, ReplayProgressed) and offset is not None:
                rows |= {(row["plan"], row["position"]): row for row in audit_rows(progress, cluster_id)}
                if len(rows) >= _ROWS_AT_ONCE:
                    written += _write(writer, rows, query, offset)
                    rows = {}
                last = offset
        if rows:
            written += _write(writer, rows, query, last)
        return written
    finally:
        writer.close()


def _write(writer: TableWriter, rows: Mapping[tuple[str, int], dict[str, Any]], query: str, offset: int) -> int:
    batch = pa.Table.from_pylist(list(rows.values()), schema=_TABLE.columns)
    return writer.upsert(batch, query=query, batch=offset).rows


def audit_rows(progress: ReplayProgressed, cluster_id: str) -> Iterator[dict[str, Any]]:
    """A row for each record that the progress names; texts may have lone surrogates, which no table can hold."""
    texts: dict[str, str | None] = {
        "cluster_id": cluster_id,
        "plan": progress.plan,
        "by": progress.by,
        "group": progress.group,
        "topic": progress.topic,
        "topic_id": progress.topic_id,
        "outcome": progress.outcome,
        "why": progress.why,
        "target_topic": progress.target,
        "target_topic_id": progress.target_id,
    }
    common: dict[str, Any] = {"at": progress.at} | {name: _utf8(text) for name, text in texts.items()}
    for index, position in enumerate(progress.positions):
        is_written = progress.outcome != "skipped"
        yield common | {
            "position": position,
            "partition": progress.partitions[index],
            "offset": progress.offsets[index],
            "target_partition": progress.to_partitions[index] if is_written else None,
            "target_offset": progress.to_offsets[index] if is_written else None,
        }


def _utf8(text: str | None) -> str | None:
    """The text with lone surrogates in backslash form, as in the tables of the pipeline."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode("utf-8")
