"""Reads the records of a replay on a thread of its own, while the transaction before them is written.

Bounded in records and bytes. The order is kept, and an error is raised where its record would have come.
"""

from collections.abc import Iterator
from queue import Full, Queue
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

from headgate.dead_letters.replay_transactions import ReplayAttempt

_CHUNK: Final = 500
_CHUNK_BYTES: Final = 2 * 1024 * 1024
_CHUNKS: Final = 12  # beside the one that is being read: a transaction of small records, and as much again
_WAIT_S: Final = 0.1

_Chunk = tuple[list[ReplayAttempt], BaseException | None]  # an error ends the reading


class ReadAhead:
    """Used once, as a context: it gives the attempts in their order, and stops the thread at its end."""

    def __init__(self, attempts: Iterator[ReplayAttempt]) -> None:
        self._attempts = attempts
        self._chunks: Queue[_Chunk] = Queue(_CHUNKS)
        self._ended = Event()
        self._thread = Thread(target=self._read, name="headgate-replay-reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def __iter__(self) -> Iterator[ReplayAttempt]:
        while True:
            chunk, failure = self._chunks.get()
            yield from chunk
            if failure is not None:
                raise failure
            if not chunk:
                return

    def _read(self) -> None:
        failure: BaseException | None = None
        while failure is None and not self._ended.is_set():
            chunk: list[ReplayAttempt] = []
            size = 0
            try:
                for attempt in self._attempts:
                    chunk.append(attempt)
                    size += 0 if attempt.read is None else attempt.read.size
                    if len(chunk) >= _CHUNK or size >= _CHUNK_BYTES or self._ended.is_set():
                        break
            except Exception as error:  # noqa: BLE001 - raised by the thread that writes
                failure = error
            self._put((chunk, failure))
            if not chunk:
                return

    def _put(self, chunk: _Chunk) -> None:
        while not self._ended.is_set():
            try:
                self._chunks.put(chunk, timeout=_WAIT_S)
            except Full:
                continue
            return
