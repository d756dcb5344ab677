"""The circuit breaker of KIP-1316: a rolling window of dead letters for each group, and the status that describes it.

`dlq_written / (delivered + dlq_written)` is compared with the threshold at the end of each one-second bucket, in whole
numbers. Seconds are those of the leader's monotonic clock at which it read the counts. Nothing here pauses a group: the
totals of a window over its threshold are returned at the end of every bucket until the window is reset.

The status is tag 10001 of ShareGroupDescribe, and the JSON of `--circuit-breaker`. The order of its fields is the order
of the JSON keys. None is a value that is not known, for instance in the status of a group without members, which is
derived from its configs alone. `extra` holds the keys that a newer gateway adds, so that `--json` shows them too; they
are written after the known ones.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from math import floor
from typing import Any, TypeVar, get_args

# A leader that was delayed evaluates this many ends of buckets one by one, and no older ones.
CATCH_UP_S = 60
MAX_GROUPS = 10_000

STATUS_TAG = 10001  # of a group in ShareGroupDescribe; Kafka's own tags go to 3
BREAKER_TRIPPED = "DLQ_CIRCUIT_BREAKER_TRIPPED"  # the code of the breaker's pause; its text names threshold and window
# The fields that are configs of the group, or follow from them.
CONFIG_FIELDS = (
    "enabled",
    "window_ms",
    "threshold_percent",
    "min_messages",
    "auto_resume_at",
    "dlq_topic",
    "limit",
    "limit_unprotected",
)


# --- window -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    threshold_percent: int
    window_ms: int
    min_messages: int

    @property
    def width_s(self) -> int:
        """The window in buckets; a fraction of a second counts as a whole bucket."""
        return -(-self.window_ms // 1000)

    def trips(self, delivered: int, dlq_written: int) -> bool:
        total = delivered + dlq_written
        return total >= max(self.min_messages, 1) and 100 * dlq_written >= self.threshold_percent * total


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTotals:
    """The counts of a window over its threshold."""

    delivered: int
    dlq_written: int
    threshold_percent: int
    window_ms: int


@dataclass(slots=True)
class _Bucket:
    second: int
    delivered: int = 0
    dlq_written: int = 0


class BreakerWindow:
    """The window of one group. A bucket waits until its end is evaluated, then counts until it leaves the window."""

    __slots__ = ("_delivered", "_dlq_written", "_evaluated", "_inside", "_waiting", "_width_s")

    def __init__(self, window_ms: int) -> None:
        self._width_s = -(-window_ms // 1000)
        self.reset()

    def reset(self) -> None:
        self._waiting: deque[_Bucket] = deque()
        self._inside: deque[_Bucket] = deque()
        self._delivered = 0
        self._dlq_written = 0
        self._evaluated: int | None = None

    @property
    def is_empty(self) -> bool:
        return not self._waiting and not self._inside

    @property
    def kept_seconds(self) -> int:
        """Seconds of which counts are kept."""
        return len(self._waiting) + len(self._inside)

    def count(self, now: float, delivered: int, dlq_written: int) -> None:
        second = floor(now)
        if self._evaluated is None:
            self._evaluated = second - 1
        elif second <= self._evaluated:  # the end of that bucket was evaluated: count it in the open one
            second = self._evaluated + 1
        if self._waiting and self._waiting[-1].second >= second:
            bucket = self._waiting[-1]
        else:
            bucket = _Bucket(second)
            self._waiting.append(bucket)
            if len(self._waiting) > CATCH_UP_S:
                self._advance(self._waiting[0].second)
        bucket.delivered += delivered
        bucket.dlq_written += dlq_written

    def totals(self, now: float) -> tuple[int, int]:
        """Delivered and dead-lettered records of the window that ends with the current bucket."""
        begin = floor(now) - self._width_s
        delivered, dlq_written = self._delivered, self._dlq_written
        for bucket in self._inside:
            if bucket.second > begin:
                break
            delivered -= bucket.delivered
            dlq_written -= bucket.dlq_written
        for bucket in self._waiting:
            if bucket.second > begin:
                delivered += bucket.delivered
                dlq_written += bucket.dlq_written
        return delivered, dlq_written

    def evaluate(self, now: float, rules: BreakerRules | None) -> WindowTotals | None:
        """The totals at the first end of a bucket since the last call that trips; without rules nothing trips."""
        ended = floor(now) - 1
        if rules is not None:
            self._width_s = rules.width_s
        if self._evaluated is None:
            return None
        totals = None
        for second in range(max(self._evaluated + 1, ended - CATCH_UP_S + 1), ended + 1):
            self._advance(second)
            if totals is None and rules is not None and rules.trips(self._delivered, self._dlq_written):
                totals = WindowTotals(
                    delivered=self._delivered,
                    dlq_written=self._dlq_written,
                    threshold_percent=rules.threshold_percent,
                    window_ms=rules.window_ms,
                )
        return totals

    def _advance(self, second: int) -> None:
        """Move the window so that it ends with this second."""
        while self._waiting and self._waiting[0].second <= second:
            bucket = self._waiting.popleft()
            self._inside.append(bucket)
            self._delivered += bucket.delivered
            self._dlq_written += bucket.dlq_written
        while self._inside and self._inside[0].second <= second - self._width_s:
            bucket = self._inside.popleft()
            self._delivered -= bucket.delivered
            self._dlq_written -= bucket.dlq_written
        self._evaluated = second if self._evaluated is None else max(self._evaluated, second)


class Breakers:
    """The windows of all groups, and the number of records that were left out of them, by reason."""

    __slots__ = ("_max", "_windows", "left_out", "old_generation", "too_old")

    def __init__(self, *, max_groups: int = MAX_GROUPS) -> None:
        self._max = max_groups
        self._windows: dict[str, BreakerWindow] = {}
        self.old_generation = 0
        self.too_old = 0
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._windows)

    def ignored(self) -> dict[str, int]:
        """Records that were left out of all windows, by reason."""
        return {"old_generation": self.old_generation, "too_old": self.too_old, "no_room": self.left_out}

    def count(
        self,
        group: str,
        now: float,
        *,
        generation: int,
        current_generation: int,
        age_ms: int,
        window_ms: int,
        delivered: int,
        dlq_written: int,
    ) -> None:
        """Count the records of one generation that a worker counted `age_ms` ago."""
        records = delivered + dlq_written
        if records == 0:
            return
        if generation < current_generation:
            self.old_generation += records
            return
        if age_ms > window_ms:
            self.too_old += records
            return
        window = self._windows.get(group)
        if window is None:
            if len(self._windows) >= self._max:
                self.left_out += records
                return
            window = self._windows[group] = BreakerWindow(window_ms)
        window.count(now, delivered, dlq_written)

    def totals(self, group: str, now: float) -> tuple[int, int]:
        window = self._windows.get(group)
        return (0, 0) if window is None else window.totals(now)

    def evaluate(self, now: float, rules_of: Callable[[str], BreakerRules | None]) -> list[tuple[str, WindowTotals]]:
        """The groups to pause; `rules_of` returns None for a group that is not evaluated now."""
        tripped = []
        for group, window in list(self._windows.items()):
            totals = window.evaluate(now, rules_of(group))
            if totals is not None:
                tripped.append((group, totals))
            elif window.is_empty:
                del self._windows[group]
        return tripped

    def reset(self, group: str) -> None:
        """Empty the group's window, after a trip or a resume."""
        self._windows.pop(group, None)

    def reset_all(self) -> None:
        """Empty all windows: a new leader starts with empty ones (KIP-1316, open question 1)."""
        self._windows.clear()


# --- status -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseReason:
    """A reason why a group is paused; the group resumes when no reason is left."""

    code: str | None
    text: str | None
    by: str | None
    since: int | None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastResume:
    """The last time that the group was resumed, as far as the answering worker has read it from the events."""

    reason: str | None
    by: str | None
    at: int | None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerStatus:
    """The breaker of one group at one moment; `phase` is reserved.

    `spooled` is the number of dead letters in the spool that wait for their topic; parked ones are not among them.
    """

    group: str
    enabled: bool | None = None
    paused: bool | None = None
    pause_reasons: tuple[PauseReason, ...] | None = None
    phase: str | None = None
    generation: int | None = None
    window_ms: int | None = None
    delivered: int | None = None
    dlq_written: int | None = None
    dlq_rate: float | None = None
    threshold_percent: int | None = None
    min_messages: int | None = None
    auto_resume_at: int | None = None
    last_resume: LastResume | None = None
    dlq_topic: str | None = None
    limit: int | None = None
    limit_unprotected: bool | None = None
    spooled: int | None = None
    oldest_spooled_at: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def without_configs(self) -> "BreakerStatus":
        """The status for a caller without DESCRIBE_CONFIGS on the group: no value of a config, and none made of one."""
        hidden: dict[str, Any] = dict.fromkeys(CONFIG_FIELDS)
        reasons = tuple(
            replace(one, text=None) if one.code == BREAKER_TRIPPED else one for one in self.pause_reasons or ()
        )
        return replace(self, **hidden, pause_reasons=reasons)

    def document(self) -> dict[str, Any]:
        """The object of `share-groups --circuit-breaker --json`."""
        document: dict[str, Any] = json_of(self)
        return document

    def encode(self) -> bytes:
        return json.dumps(self.document(), separators=(",", ":")).encode()


def json_of(value: object) -> Any:
    """A status, or a part of one, as the value that `json` writes."""
    if isinstance(value, tuple):
        return [json_of(one) for one in value]
    if isinstance(value, PauseReason | LastResume | BreakerStatus):
        return {one.name: json_of(getattr(value, one.name)) for one in _known(type(value))} | dict(value.extra)
    return value


T = TypeVar("T", PauseReason, LastResume, BreakerStatus)


def decode_status(group: str, encoded: bytes) -> BreakerStatus | None:
    """Reads the JSON of another gateway: a value of an unexpected type is None, and so is all that is not an object."""
    try:
        document = json.loads(encoded)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    status = _read(BreakerStatus, document | {"group": group})
    reasons, last = document.get("pause_reasons"), document.get("last_resume")
    return replace(
        status,
        pause_reasons=tuple(map(_reason, reasons)) if isinstance(reasons, list) else None,
        last_resume=_read(LastResume, last) if isinstance(last, dict) else None,
    )


def _reason(found: object) -> PauseReason:
    return _read(PauseReason, found if isinstance(found, dict) else {"text": str(found)})


def _read(cls: type[T], document: Mapping[str, object]) -> T:
    """A `cls` of the values in the document that have the types of its fields; None for the others."""
    values: dict[str, Any] = {
        one.name: _checked(document.get(one.name), get_args(one.type) or (one.type,)) for one in _known(cls)
    }
    return cls(**values, extra={name: value for name, value in document.items() if name not in values})


def _known(cls: type[PauseReason | LastResume | BreakerStatus]) -> "tuple[Field[Any], ...]":
    return tuple(one for one in fields(cls) if one.name != "extra")


def _checked(value: object, kinds: tuple[object, ...]) -> object:
    """The value if its type is one of these exactly, so that True is not an int; an int is also a float."""
    is_number = float in kinds and type(value) is int
    return value if is_number or type(value) in kinds else None
