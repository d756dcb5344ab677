"""Compaction and vacuum on a schedule: every hundredth commit of a table.

One rule: the schedule is the table's own version, so it holds over restarts and needs no clock.
"""

import pyarrow as pa

from headgate.tables.writer import TableWriter

EVERY = 100


def write_and_tidy(writer: TableWriter, rows: pa.Table, *, query: str, batch: int, last: bool = True) -> None:
    """Write a batch; when that was a commit and its turn has come, make one file of many."""
    written = writer.upsert(rows, query=query, batch=batch, last=last)
    if written.rows and written.version % EVERY == 0:
        writer.optimize()


def tidy(writer: TableWriter) -> None:
    """The same after a commit that was not the writer's own."""
    version = writer.version()
    if version is not None and version > 0 and version % EVERY == 0:
        writer.optimize()
