"""The status of a share group's circuit breaker, as tag 10001 of ShareGroupDescribe and `--circuit-breaker` have it.

The order of the fields is the order of the JSON keys. None is a value that is not known, for instance in the status of
a group without members, which is derived from its configs alone.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

STATUS_TAG = 10001  # of a group in ShareGroupDescribe; Kafka's own tags go to 3
T = TypeVar("T", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseReason:
    """A reason why a group is paused; the group resumes when no reason is left."""

    code: str | None
    text: str | None
    by: str | None
    since: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastResume:
    """The last time that the group was resumed, as far as the answering worker has seen it."""

    reason: str | None
    by: str | None
    at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerStatus:
    """The breaker of one group at one moment; `phase` is reserved."""

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

    def document(self) -> dict[str, Any]:
        """The object of `share-groups --circuit-breaker --json`."""
        reasons = None if self.pause_reasons is None else [asdict(one) for one in self.pause_reasons]
        return asdict(self) | {"pause_reasons": reasons}

    def encode(self) -> bytes:
        return json.dumps(self.document(), separators=(",", ":")).encode()


def decode_status(group: str, field: bytes) -> BreakerStatus | None:
    """Reads the JSON of another gateway: a value of an unexpected type is None, and so is all that is not an object."""
    try:
        document = json.loads(field)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    reasons, last = document.get("pause_reasons"), document.get("last_resume")
    rate = document.get("dlq_rate")
    return BreakerStatus(
        group=group,
        enabled=_boolean(document, "enabled"),
        paused=_boolean(document, "paused"),
        pause_reasons=tuple(map(_reason, reasons)) if isinstance(reasons, list) else None,
        phase=_value(document, "phase", str),
        generation=_value(document, "generation", int),
        window_ms=_value(document, "window_ms", int),
        delivered=_value(document, "delivered", int),
        dlq_written=_value(document, "dlq_written", int),
        dlq_rate=rate if isinstance(rate, int | float) else None,
        threshold_percent=_value(document, "threshold_percent", int),
        min_messages=_value(document, "min_messages", int),
        auto_resume_at=_value(document, "auto_resume_at", int),
        last_resume=_last_resume(last) if isinstance(last, dict) else None,
        dlq_topic=_value(document, "dlq_topic", str),
        limit=_value(document, "limit", int),
        limit_unprotected=_boolean(document, "limit_unprotected"),
    )


def _reason(found: object) -> PauseReason:
    document = found if isinstance(found, dict) else {"text": str(found)}
    return PauseReason(
        code=_value(document, "code", str),
        text=_value(document, "text", str),
        by=_value(document, "by", str),
        since=_value(document, "since", int),
    )


def _last_resume(document: Mapping[str, object]) -> LastResume:
    return LastResume(
        reason=_value(document, "reason", str), by=_value(document, "by", str), at=_value(document, "at", int)
    )


def _value(document: Mapping[str, object], name: str, kind: type[T]) -> T | None:
    found = document.get(name)
    return found if isinstance(found, kind) and not isinstance(found, bool) else None


def _boolean(document: Mapping[str, object], name: str) -> bool | None:
    found = document.get(name)
    return found if isinstance(found, bool) else None
