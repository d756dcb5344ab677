"""Reads the records of a replay on a thread of its own, while the transaction before them is written.

Bounded in records and bytes. The order is kept, and an error is raised where its record would have come.
"""

from collections import deque
from collections.abc import Iterator
from threading import Condition, Thread
from types import TracebackType
from typing import Final, NamedTuple, Self

from headgate.dead_letters.replay_transactions import ReplayAttempt

_CHUNK: Final = 500
_CHUNK_BYTES: Final = 2 * 1024 * 1024
# Beside the chunk that is being read: a transaction of small records, and as much again. Large records make large
# chunks: one waits beside others only within the second bound.
_CHUNKS: Final = 12
_WAITING_BYTES: Final = _CHUNKS * _CHUNK_BYTES


class _Chunk(NamedTuple):
    attempts: list[ReplayAttempt]
    size: int
    failure: Exception | None  # ends the reading, as a chunk without attempts does


class ReadAhead:
    """Used once, as a context: it gives the attempts in their order, and stops the thread at its end."""

    def __init__(self, attempts: Iterator[ReplayAttempt]) -> None:
        self._attempts = attempts
        self._changed = Condition()
        self._chunks: deque[_Chunk] = deque()
        self._bytes = 0  # of those that wait
        self._is_ended = False
        self._thread = Thread(target=self._read, name="headgate-replay-reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        self._thread.join()

    def __iter__(self) -> Iterator[ReplayAttempt]:
        while True:
            chunk = self._take()
            yield from chunk.attempts
            if chunk.failure is not None:
                raise chunk.failure
            if not chunk.attempts:
                return

    def _take(self) -> _Chunk:
        with self._changed:
            self._changed.wait_for(lambda: self._chunks)
            chunk = self._chunks.popleft()
            self._bytes -= chunk.size
            self._changed.notify_all()
        return chunk

    # --- on the thread that reads

    def _read(self) -> None:
        while True:
            chunk = self._read_chunk()
            with self._changed:
                self._changed.wait_for(lambda: self._is_ended or self._has_room(chunk.size))  # noqa: B023 - called here
                if self._is_ended:
                    return
                self._chunks.append(chunk)
                self._bytes += chunk.size
                self._changed.notify_all()
            if chunk.failure is not None or not chunk.attempts:
                return

    def _has_room(self, size: int) -> bool:
        return not self._chunks or (len(self._chunks) < _CHUNKS and self._bytes + size <= _WAITING_BYTES)

    def _read_chunk(self) -> _Chunk:
        attempts: list[ReplayAttempt] = []
        size = 0
        try:
            for attempt in self._attempts:
                attempts.append(attempt)
                size += 0 if attempt.read is None else attempt.read.size
                if len(attempts) >= _CHUNK or size >= _CHUNK_BYTES or self._is_ended:
                    break
        except Exception as error:  # noqa: BLE001 - raised by the thread that writes
            return _Chunk(attempts, size, error)
        return _Chunk(attempts, size, None)
