"""Lets DuckDB read Parquet files on an object store; its own extension for that has to be downloaded.

The files of a Delta table never change, so what was read of one stays right. The first request for a file takes its
end, where Parquet has its index, and the size with it: a small file is one request. Of a larger one whole blocks are
read. What was read last is kept, up to a bound. DuckDB reads one file after the other, so the ends of those that it is
about to read are fetched side by side.
"""

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from fsspec import AbstractFileSystem

from headgate.base.locations import ObjectLocation
from headgate.tables.object_store import store_of, translate_store_errors

_WRITTEN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TAIL: Final = 256 * 1024
_BLOCK: Final = 1024 * 1024
KEPT_BYTES: Final = 32 * 1024 * 1024
_MOST_SIZES: Final = 100_000
_AT_ONCE: Final = 8
MOST_AHEAD: Final = 64


class ObjectFiles:
    """Ranges of the objects of one store, of any of its buckets. Thread-safe."""

    def __init__(
        self, options: tuple[tuple[str, str], ...], *, kept_bytes: int = KEPT_BYTES, most_ahead: int = MOST_AHEAD
    ) -> None:
        self._options = options
        self._most_ahead = most_ahead
        self._kept_bytes = kept_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()  # by path and first byte
        self._bytes = 0
        self._ahead: dict[str, Future[int]] = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="headgate-objects")

    def size(self, path: str) -> int:
        with self._lock:
            known, fetched = self._sizes.get(path), self._ahead.pop(path, None)
        if known is None and fetched is not None:
            return fetched.result()
        return self._read_tail(path) if known is None else known

    def read_ahead(self, path: str) -> None:
        """Fetch the end of a file that will be read; its error is raised by what reads it."""
        with self._lock:
            if path in self._sizes or path in self._ahead:
                return
            if len(self._ahead) >= self._most_ahead:  # also those of queries that ended before they read them
                self._ahead = {name: fetched for name, fetched in self._ahead.items() if not fetched.done()}
            if len(self._ahead) < self._most_ahead:
                self._ahead[path] = self._pool.submit(self._read_tail, path)

    def read(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, which is not included; fewer at the end of the file."""
        size = self.size(path)
        end = min(end, size)
        if start >= end:
            return b""
        tail = max(0, size - _TAIL)
        begins = start - start % _BLOCK if start < tail else tail
        parts = [self._block(path, first, min(first + _BLOCK, tail)) for first in range(begins, min(end, tail), _BLOCK)]
        if end > tail:
            parts.append(self._tail(path, tail))
        joined = b"".join(parts)
        return joined[start - begins : end - begins]

    def _block(self, path: str, first: int, end: int) -> bytes:
        kept = self._find(path, first)
        if kept is not None:
            return kept
        import obstore  # noqa: PLC0415 - only where tables are on an object store

        location = self._located(path)
        with translate_store_errors(location):
            read = bytes(obstore.get_range(store_of(location), location.key, start=first, end=end))
        self._keep(path, first, read)
        return read

    def _tail(self, path: str, first: int) -> bytes:
        kept = self._find(path, first)
        while kept is None:
            self._read_tail(path)
            kept = self._find(path, first)
        return kept

    def _read_tail(self, path: str) -> int:
        import obstore  # noqa: PLC0415

        location = self._located(path)
        with translate_store_errors(location):
            found = obstore.get(store_of(location), location.key, options={"range": {"suffix": _TAIL}})
            size, first = int(found.meta["size"]), int(found.range[0])
            read = bytes(found.bytes())
        with self._lock:
            self._sizes[path] = size
            while len(self._sizes) > _MOST_SIZES:
                self._sizes.popitem(last=False)
        self._keep(path, first, read)
        return size

    def _find(self, path: str, first: int) -> bytes | None:
        with self._lock:
            found = self._kept.get((path, first))
            if found is not None:
                self._kept.move_to_end((path, first))
            return found

    def _keep(self, path: str, first: int, read: bytes) -> None:
        with self._lock:
            if (path, first) in self._kept:
                return
            self._kept[path, first] = read
            self._bytes += len(read)
            while self._bytes > self._kept_bytes and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1])

    def _located(self, path: str) -> ObjectLocation:
        bucket, _, key = path.partition("/")
        return ObjectLocation(bucket, tuple(key.split("/")), self._options)


class DuckDBObjects(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The file system that DuckDB uses: paths are `s3://BUCKET/KEY`, and only reading is possible."""

    protocol = ("s3",)
    cachable = False

    def __init__(self, options: tuple[tuple[str, str], ...], *, kept_bytes: int = KEPT_BYTES) -> None:
        super().__init__()
        self._files = ObjectFiles(options, kept_bytes=kept_bytes)

    def open(self, path: str, mode: str = "rb", *_: Any, **__: Any) -> "ObjectReader":
        if "w" in mode or "a" in mode or "+" in mode:
            raise PermissionError(f"{path}: tables are not written this way")
        return ObjectReader(self._files, self._strip_protocol(path))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        stripped = self._strip_protocol(path)
        return {"name": stripped, "type": "file", "size": self._files.size(stripped)}

    def size(self, path: str) -> int:
        return self._files.size(self._strip_protocol(path))

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def isfile(self, path: str) -> bool:
        return self.exists(path)

    def isdir(self, _path: str) -> bool:
        return False

    def glob(self, path: str, **_: Any) -> list[str]:
        """The path itself: readers of tables name their files, and DuckDB asks this for all of them first."""
        self._files.read_ahead(self._strip_protocol(path))
        return [path]

    def modified(self, _path: str) -> datetime:
        """Always the same: a file of a table never changes."""
        return _WRITTEN


class ObjectReader:
    """One open file, as DuckDB uses it."""

    def __init__(self, files: ObjectFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._size = files.size(path)
        self._at = 0
        self.closed = False

    def read(self, length: int = -1) -> bytes:
        end = self._size if length < 0 else self._at + length
        found = self._files.read(self._path, self._at, end)
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Does nothing: the file is only read."""

    def close(self) -> None:
        self.closed = True
