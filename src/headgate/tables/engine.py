"""DuckDB as we use it: in memory, bounded, and never on the network."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import duckdb

from headgate.tables.storage import DataFile

MEMORY_MB = 256
# Two threads failed to sort 120 MB in 100 MB, one does it in 64; and most questions are for a few rows.
_THREADS = 1

FILES = "read_parquet(?, hive_partitioning = false)"


def connect(memory_mb: int = MEMORY_MB) -> duckdb.DuckDBPyConnection:
    """What does not fit into the memory is spilled to the system's folder for temporary files."""
    return duckdb.connect(
        config={
            "memory_limit": f"{memory_mb}MB",
            "threads": _THREADS,
            "preserve_insertion_order": False,  # questions say their order; keeping another one takes memory
            "temp_directory": str(Path(tempfile.gettempdir()) / f"headgate-duckdb-{os.getpid()}"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )


def paths(files: Iterable[DataFile]) -> list[str]:
    return [file.path for file in files]


def quoted(column: str) -> str:
    """A column's name in SQL, here and in delta-rs."""
    return '"' + column.replace('"', '""') + '"'
