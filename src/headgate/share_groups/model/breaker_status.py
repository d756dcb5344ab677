"""The status of a share group's circuit breaker, as tag 10001 of ShareGroupDescribe and `--circuit-breaker` have it.

The order of the fields is the order of the JSON keys. None is a value that is not known, for instance in the status of
a group without members, which is derived from its configs alone. `extra` holds the keys that a newer gateway adds, so
that `--json` shows them too; they are written after the known ones.
"""

import json
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, TypeVar, get_args

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
