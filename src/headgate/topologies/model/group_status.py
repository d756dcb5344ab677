"""The status of one group's topology description as the answering worker has it: `headgate topology status`.

It travels as tagged field 10002 of a group in StreamsGroupDescribe, UTF-8 JSON, and only in the response to a request
that has the same tag: Kafka's own clients never see it. The order of the fields is the order of the JSON keys. A value
of an unexpected type that another gateway sent is None.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

STATUS_TAG = 10002  # of a StreamsGroupDescribe request and of a group in its response; Kafka has no tags there
_HASH_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffStatus:
    """The window of this worker: no member is solicited before `until`, in epoch milliseconds; `active`: it goes on.

    `attempts` counts the solicitations and failed pushes at this epoch since the last one that succeeded. `epoch` None
    is the window of deletions that failed before a classic join.
    """

    epoch: int | None = None
    active: bool | None = None
    until: int | None = None
    attempts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPush:
    """The last push that this worker received from a member of the group and checked; `error_code` is its response."""

    at: int | None = None
    member: str | None = None
    epoch: int | None = None
    error_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionStatus:
    """`version` is INCARNATION/EPOCH/HASH of the stored description, `pushed_by` its member; None if not known.

    `selected`: the gateway stores descriptions of this group. `available`: the worker has read its topics.
    """

    selected: bool | None = None
    available: bool | None = None
    version: str | None = None
    pushed_by: str | None = None
    unconfirmed: bool | None = None
    failed_epoch: int | None = None
    backoff: BackoffStatus | None = None
    last_push: LastPush | None = None
    worker: int | None = None

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def encode(self) -> bytes:
        return json.dumps(self.document(), separators=(",", ":")).encode()


def version_text(incarnation: str, epoch: int, content_hash: str | None) -> str:
    digits = "-" if content_hash is None else content_hash.removeprefix("sha256:")[:_HASH_DIGITS]
    return f"{incarnation}/{epoch}/{digits}"


def decode_description_status(encoded: bytes) -> DescriptionStatus | None:
    """None when it is not a JSON object."""
    try:
        found = json.loads(encoded)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    backoff, push = found.get("backoff"), found.get("last_push")
    return DescriptionStatus(
        selected=_boolean(found, "selected"),
        available=_boolean(found, "available"),
        version=_text(found, "version"),
        pushed_by=_text(found, "pushed_by"),
        unconfirmed=_boolean(found, "unconfirmed"),
        failed_epoch=_number(found, "failed_epoch"),
        backoff=_backoff(backoff) if isinstance(backoff, dict) else None,
        last_push=_push(push) if isinstance(push, dict) else None,
        worker=_number(found, "worker"),
    )


def _backoff(found: dict[str, Any]) -> BackoffStatus:
    return BackoffStatus(
        epoch=_number(found, "epoch"),
        active=_boolean(found, "active"),
        until=_number(found, "until"),
        attempts=_number(found, "attempts"),
    )


def _push(found: dict[str, Any]) -> LastPush:
    return LastPush(
        at=_number(found, "at"),
        member=_text(found, "member"),
        epoch=_number(found, "epoch"),
        error_code=_number(found, "error_code"),
    )


def _number(found: dict[str, Any], key: str) -> int | None:
    value = found.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _boolean(found: dict[str, Any], key: str) -> bool | None:
    value = found.get(key)
    return value if isinstance(value, bool) else None


def _text(found: dict[str, Any], key: str) -> str | None:
    value = found.get(key)
    return value if isinstance(value, str) else None
