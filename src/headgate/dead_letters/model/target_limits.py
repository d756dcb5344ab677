"""What the configs of a target topic mean for records that are replayed with their original timestamps.

Kafka deletes by timestamp: a record that is older than the retention of its topic can be gone before it is read.
Brokers reject timestamps that are too far from their clock, and then a whole transaction fails.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

TimestampMode = Literal["original", "now"]
_DEFAULT_MAX_BYTES: Final = 1_048_588
TOO_LARGE: Final = "too_large"
BAD_TIMESTAMP: Final = "timestamp_out_of_range"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """The limits of one topic; None is no limit. `is_dlq`: the topic is marked as a dead-letter topic."""

    topic: str
    max_bytes: int
    retention_ms: int | None
    before_max_ms: int | None
    after_max_ms: int | None
    sets_timestamps: bool
    is_dlq: bool

    def refusal(self, *, oldest_at: int | None, now_ms: int, timestamps: TimestampMode) -> str | None:
        """Why no record may be written with these timestamps; None when they may."""
        if self.is_dlq:
            return f"{self.topic} is a dead-letter topic: dead letters are never replayed into one"
        if timestamps == "now" or self.sets_timestamps or oldest_at is None:
            return None
        age_ms = now_ms - oldest_at
        if self.retention_ms is not None and age_ms >= self.retention_ms:
            return (
                f"the oldest record is {_hours(age_ms)} old, and {self.topic} deletes records after "
                f"{_hours(self.retention_ms)} (retention.ms): use --timestamp now, or raise retention.ms"
            )
        if self.before_max_ms is not None and age_ms > self.before_max_ms:
            return (
                f"the oldest record is {_hours(age_ms)} old, and {self.topic} rejects records older than "
                f"{_hours(self.before_max_ms)} (message.timestamp.before.max.ms): use --timestamp now"
            )
        return None

    def skip_reason(self, *, size: int, timestamp_ms: int | None, now_ms: int) -> str | None:
        """Why the broker would reject this record, and with it the whole transaction; None when it would not."""
        if size > self.max_bytes:
            return TOO_LARGE
        if timestamp_ms is None or self.sets_timestamps:
            return None
        if self.before_max_ms is not None and now_ms - timestamp_ms > self.before_max_ms:
            return BAD_TIMESTAMP
        if self.after_max_ms is not None and timestamp_ms - now_ms > self.after_max_ms:
            return BAD_TIMESTAMP
        return None


def limits_of(topic: str, configs: Mapping[str, str | None]) -> TargetLimits:
    """The limits by a topic's configs, as the broker describes them."""
    deletes = "delete" in (configs.get("cleanup.policy") or "delete")
    return TargetLimits(
        topic=topic,
        max_bytes=_number(configs.get("max.message.bytes")) or _DEFAULT_MAX_BYTES,
        retention_ms=_number(configs.get("retention.ms")) if deletes else None,
        before_max_ms=_number(configs.get("message.timestamp.before.max.ms")),
        after_max_ms=_number(configs.get("message.timestamp.after.max.ms")),
        sets_timestamps=configs.get("message.timestamp.type") == "LogAppendTime",
        is_dlq=(configs.get("errors.deadletterqueue.group.enable") or "").lower() == "true",
    )


def _number(text: str | None) -> int | None:
    """A limit; None where it is absent, or negative, which means no limit."""
    if text is None or not text.lstrip("-").isdigit() or int(text) < 0:
        return None
    return int(text)


def _hours(duration_ms: int) -> str:
    hours = duration_ms / 3_600_000
    return (
        f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} h" if hours >= 1 else f"{duration_ms / 1000:.0f} s"
    )
