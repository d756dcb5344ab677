"""One pipeline at a time for a checkpoint, so that each table has one writer.

In a folder this is a lock of the operating system. On an object store it is an object that its holder writes anew every
few seconds, each time only over its own last version. A process that finds the object watches whether it changes: one
that does not for `EXPIRES_S` belongs to a process that was killed, and is taken over. No clocks are compared.

A holder that cannot renew it gives up before another one may take it over, and one that finds that it was taken over
does so at once: its pipeline has to stop. For that each request of a renewal has a bound well within `EXPIRES_S`. Until
the pipeline has stopped both may write, and no commit is lost, because each is created only if it is absent.
"""

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from headgate.base.clock import Clock, SystemClock
from headgate.base.errors import PlatformError, UsageError
from headgate.base.locations import Location, ObjectLocation
from headgate.config.model import Config
from headgate.tables.object_store import (
    check_conditional_writes,
    create_object,
    delete_objects,
    read_object,
    replace_object,
)

RENEW_S: Final = 4.0
EXPIRES_S: Final = 20.0
_STOPS_WITHIN_S: Final = 5.0
_POLL_S: Final = 1.0


@contextmanager
def only_pipeline(config: Config, on_lost: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold the lock of the checkpoint; `UsageError` when another process holds it.

    `on_lost` is called on another thread when the lock is lost, with what happened.
    """
    checkpoint = config.pipeline.checkpoint
    for location in (config.tables.path, checkpoint):
        if isinstance(location, ObjectLocation):
            check_conditional_writes(location)
    if isinstance(checkpoint, ObjectLocation):
        with ObjectLock(checkpoint / "lock", on_lost).held():
            yield
        return
    checkpoint.mkdir(parents=True, exist_ok=True)
    with (checkpoint / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(_in_use(checkpoint)) from None
        yield


def _in_use(checkpoint: Location) -> str:
    return f"another pipeline uses {checkpoint}: stop it first"


class ObjectLock:
    """The lock of one process, renewed by a thread of its own."""

    def __init__(
        self,
        location: ObjectLocation,
        on_lost: Callable[[str], None],
        *,
        clock: Clock | None = None,
        renew_s: float = RENEW_S,
        expires_s: float = EXPIRES_S,
    ) -> None:
        self._location = location
        self._on_lost = on_lost
        self._clock = SystemClock() if clock is None else clock
        self._renew_s = renew_s
        self._expires_s = expires_s
        # A try that fails after `_gives_up_s` is the last. The one before failed earlier, so it begins a pause later at
        # most, and its two requests end before the lock expires.
        self._within_s = expires_s / 8
        self._retry_s = min(renew_s, expires_s / 20)
        self._gives_up_s = expires_s - 2 * self._within_s - self._retry_s
        self._renewed_at = 0.0  # when the last renewal that was carried out was sent
        self._owner = uuid.uuid4().hex
        self._number = 0
        self._etag = ""
        self._ended = threading.Event()
        self._is_lost = False

    @contextmanager
    def held(self) -> Iterator[None]:
        self._acquire()
        renewing = threading.Thread(target=self._renew_until_ended, name="headgate-lock", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            self._ended.set()
            renewing.join(_STOPS_WITHIN_S)
            with suppress(PlatformError):  # while the store is away it stays, and expires
                # Another pipeline may have taken it over since it was renewed.
                if not self._is_lost and self._own_etag() is not None:
                    delete_objects(self._location, [self._location.key], within_s=self._within_s)

    def _content(self) -> bytes:
        """Another one each time, because an ETag is a hash of the content."""
        self._number += 1
        content = {"host": socket.gethostname(), "pid": os.getpid(), "owner": self._owner, "renewed": self._number}
        return json.dumps(content).encode()

    def _acquire(self) -> None:
        self._renewed_at = self._clock.monotonic()
        created = create_object(self._location, self._content())
        if created is not None:
            self._etag = created
            return
        found = self._read_etag()
        until = self._clock.monotonic() + self._expires_s
        while found is not None and self._clock.monotonic() < until:
            time.sleep(min(_POLL_S, self._renew_s))
            now = self._read_etag()
            if now is not None and now != found:
                raise UsageError(_in_use(self._location.parent))
            found = now
        self._renewed_at = self._clock.monotonic()
        taken = (
            create_object(self._location, self._content())
            if found is None
            else replace_object(self._location, self._content(), found)
        )
        if taken is None:
            raise UsageError(_in_use(self._location.parent))
        self._etag = taken

    def _read_etag(self) -> str | None:
        try:
            return read_object(self._location)[1]
        except FileNotFoundError:
            return None

    def _renew_until_ended(self) -> None:
        wait_s = self._renew_s
        while not self._ended.wait(wait_s):
            try:
                if not self._renew():
                    self._lose(f"the lock {self._location} was taken over by another pipeline")
                    return
                wait_s = self._renew_s
            except PlatformError as failure:
                silent_s = self._clock.monotonic() - self._renewed_at
                if silent_s >= self._gives_up_s:
                    self._lose(f"the lock could not be renewed for {silent_s:.0f} s and expires: {failure}")
                    return
                wait_s = self._retry_s

    def _renew(self) -> bool:
        """False when the lock is another's by now."""
        sent_at = self._clock.monotonic()
        etag = replace_object(self._location, self._content(), self._etag, within_s=self._within_s)
        if etag is None:
            # A request that got no answer may have been carried out: then the content is ours.
            etag = self._own_etag()
            if etag is None:
                return False
            sent_at = self._renewed_at  # it is not known when that was
        self._etag, self._renewed_at = etag, sent_at
        return True

    def _own_etag(self) -> str | None:
        """The ETag of the stored lock; None when it is not this process's, or gone."""
        try:
            content, etag = read_object(self._location, within_s=self._within_s)
            return etag if json.loads(content)["owner"] == self._owner else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _lose(self, what: str) -> None:
        self._is_lost = True
        self._on_lost(what)
