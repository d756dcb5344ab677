"""Feeds the listeners of `/api/v1/events`: notices in one order, the last ones kept, a bounded queue for each.

A notice is about one name or about none. It is made once, and each listener gets it as far as it may see the name; so a
notice holds everything, and `Notice.seen_by` leaves out what a caller may not see. A listener whose queue is full is
dropped: it gets a last event that says so, and reads the current state when it connects again.

Everything is used on the event loop.
"""

import asyncio
import json
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from headgate.base.errors import HeadgateError
from headgate.web.share_states import visible_row
from headgate.web.visible_names import VisibleNames

MAX_LISTENERS: Final = 100
MAX_OF_ONE_CALLER: Final = 20
_QUEUE: Final = 256
_KEPT: Final = 512
_MAX_DETAIL: Final = 8 * 1024
HEARTBEAT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedLimits:
    """`heartbeat_s` is after how many seconds the token of a listener is checked again."""

    queue: int = _QUEUE
    listeners: int = MAX_LISTENERS
    of_one_caller: int = MAX_OF_ONE_CALLER
    heartbeat_s: float = HEARTBEAT_S


class NoticeKind(StrEnum):
    """The names of the events."""

    SNAPSHOT = "snapshot"  # the current state; the first event, unless the missed ones are sent
    SHARE_GROUP = "share_group"  # the state of a group changed
    HAPPENED = "happened"  # an event of headgate.events
    TABLES = "tables"  # tables have other versions
    PROBLEM = "problem"  # the state of share groups is not up to date, or is again
    CLOSED = "closed"  # the last event, with its reason


class TooManyListenersError(HeadgateError):
    """No further listener is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """`subject` is the name that a caller must be allowed to see, None where everyone may see it."""

    kind: NoticeKind
    sequence: int
    subject: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def seen_by(self, names: VisibleNames) -> Mapping[str, Any] | None:
        """The data as the caller may see it; None for nothing."""
        if self.subject is not None and not names.has(self.subject):
            return None
        if self.kind is NoticeKind.SHARE_GROUP:
            return visible_row(dict(self.data), names)
        if self.kind is NoticeKind.HAPPENED and names.are_limited:
            return {**self.data, "detail": None}  # it may have any names
        return self.data


class FeedListener:
    """One reader of the feed; `closed` is the reason why it gets no more."""

    def __init__(self, missed: list[Notice], queue: int) -> None:
        self._queue = queue
        self._waiting = deque(missed)
        self._woken = asyncio.Event()
        self.closed: str | None = None

    def put(self, notice: Notice) -> bool:
        """Whether there was room."""
        if len(self._waiting) >= self._queue:
            self.close("The events were not read fast enough: connect again")
            return False
        self._waiting.append(notice)
        self._woken.set()
        return True

    def close(self, reason: str) -> None:
        self.closed = self.closed or reason
        self._waiting.clear()
        self._woken.set()

    async def next(self, timeout_s: float) -> Notice | None:
        """The next notice; None after the time, and when the listener is closed."""
        if not self._waiting and self.closed is None:
            self._woken.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._woken.wait()
            except TimeoutError:
                return None
        return self._waiting.popleft() if self._waiting else None


_LIMITS: Final = FeedLimits()


class LiveFeed:
    """`snapshot` makes the data of a snapshot for a caller."""

    def __init__(self, snapshot: Callable[[VisibleNames], Mapping[str, Any]], limits: FeedLimits = _LIMITS) -> None:
        self.limits = limits
        self._snapshot = snapshot
        self._boot = secrets.token_hex(4)
        self._sequence = 0
        self._kept: deque[Notice] = deque(maxlen=_KEPT)
        self._listeners: dict[FeedListener, str] = {}
        self._is_closed = False

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def publish(self, kind: NoticeKind, data: Mapping[str, Any] | None = None, *, subject: str | None = None) -> None:
        self._sequence += 1
        notice = Notice(kind=kind, sequence=self._sequence, subject=subject, data=bounded_detail(data or {}))
        self._kept.append(notice)
        for listener in [one for one in self._listeners if not one.put(notice)]:
            del self._listeners[listener]

    @contextmanager
    def listening(self, caller: str, last_id: str | None) -> Iterator[FeedListener]:
        """A listener that first gets what it missed after `last_id`, or else a snapshot.

        `TooManyListenersError` if there are too many, of all callers or of this one.
        """
        if self._is_closed:
            raise TooManyListenersError("The server is ending: connect again in a moment")
        if len(self._listeners) >= self.limits.listeners:
            raise TooManyListenersError(
                f"{self.limits.listeners} listeners are connected: ask for the resources themselves"
            )
        if Counter(self._listeners.values())[caller] >= self.limits.of_one_caller:
            raise TooManyListenersError(
                f"This caller has {self.limits.of_one_caller} listeners already: close one of them"
            )
        listener = FeedListener(self._missed(last_id), self.limits.queue)
        self._listeners[listener] = caller
        try:
            yield listener
        finally:
            self._listeners.pop(listener, None)

    def text(self, notice: Notice, names: VisibleNames) -> str:
        """The notice as a server-sent event; without data where the caller may not see it, so that its id counts."""
        is_snapshot = notice.kind is NoticeKind.SNAPSHOT
        data = self._snapshot(names) if is_snapshot else notice.seen_by(names)
        number = self._sequence if is_snapshot else notice.sequence
        return event_text(notice.kind if data is not None else None, data, f"{self._boot}-{number}")

    def close(self) -> None:
        """End all listeners."""
        self._is_closed = True
        for listener in self._listeners:
            listener.close("The server is ending: connect again in a moment")

    def _missed(self, last_id: str | None) -> list[Notice]:
        """The kept notices after this id; a snapshot where some of them are not kept any more."""
        boot, _, number = (last_id or "").partition("-")
        if boot == self._boot and number.isascii() and number.isdecimal() and len(number) < 16:
            after = int(number)
            first = self._sequence - len(self._kept)
            if first <= after <= self._sequence and self._sequence - after < self.limits.queue:
                return [one for one in self._kept if one.sequence > after]
        return [Notice(kind=NoticeKind.SNAPSHOT, sequence=self._sequence)]


def event_text(kind: str | None, data: Mapping[str, Any] | None, event_id: str | None = None) -> str:
    """The text of one event. JSON in ASCII has no line breaks, so it is one line."""
    lines = [] if event_id is None else [f"id: {event_id}"]
    if kind is not None:
        lines += [f"event: {kind}", f"data: {json.dumps(data, separators=(',', ':'))}"]
    return "\n".join(lines) + "\n\n"


def bounded_detail(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without a detail of more than 8 KiB: many of them are kept, and the resources have it."""
    detail = data.get("detail")
    if detail is None or len(json.dumps(detail)) <= _MAX_DETAIL:
        return data
    return {**data, "detail": None}
