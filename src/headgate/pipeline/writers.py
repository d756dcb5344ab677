"""The one writer of each table in this process, for all queries.

One rule: whoever writes a table holds its writer alone. Two queries may have rows for one table, and two writers of one
table lose half of their commits to each other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from headgate.tables.registry import table_named
from headgate.tables.writer import TableWriter


class Writers:
    """The writers of the tables in the folder `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = Lock()
        self._writers: dict[str, tuple[Lock, TableWriter]] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[TableWriter]:
        """The table's writer, as long as the block runs."""
        with self._lock:
            if name not in self._writers:
                self._writers[name] = Lock(), TableWriter(self._root, table_named(name))
            lock, writer = self._writers[name]
        with lock:
            yield writer

    def close(self) -> None:
        for _, writer in self._writers.values():
            writer.close()
