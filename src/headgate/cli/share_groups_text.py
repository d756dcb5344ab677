"""The output of `headgate share-groups`: tables in the style of Kafka's own tool, and JSON.

Pure. A value that is not known is a dash; names and reasons are escaped, because clients choose them.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, assert_never

from headgate.cli.columns import NAME_WIDTH, or_dash, table, widest
from headgate.cli.escaping import escaped
from headgate.share_groups.admin import DescribedBreaker, DlqTopology, StatusSource
from headgate.share_groups.model.breaker import BreakerStatus, PauseReason, json_of
from headgate.share_groups.model.group_state import OPERATOR

_BREAKER = (
    "GROUP",
    "ENABLED",
    "PAUSED",
    "GENERATION",
    "DELIVERED",
    "DLQ-WRITTEN",
    "DLQ-RATE",
    "THRESHOLD",
    "MIN-MESSAGES",
    "WINDOW-MS",
    "LIMIT",
    "DLQ-TOPIC",
)
_REASONS = ("PAUSE-REASON", "SINCE", "BY", "TEXT")
_TOPOLOGY = ("DLQ-TOPIC", "SHARED", "CONFLICT", "GROUPS")


def breaker_text(status: BreakerStatus) -> str:
    """The breaker, the reasons of its pause, when it resumes automatically, and who resumed it last."""
    row = (
        _cell(status.group),
        _yes_no(status.enabled),
        _yes_no(status.paused),
        _cell(status.generation),
        _cell(status.delivered),
        _cell(status.dlq_written),
        "-" if status.dlq_rate is None else f"{100 * status.dlq_rate:.2f}%",
        "-" if status.threshold_percent is None else f"{status.threshold_percent}%",
        _cell(status.min_messages),
        _cell(status.window_ms),
        _cell(status.limit) + (" (unprotected)" if status.limit_unprotected else ""),
        _cell(status.dlq_topic),
    )
    shown = _fitted([_BREAKER, row])
    if status.pause_reasons:
        shown += "\n" + _reasons_table(status.pause_reasons)
    if status.spooled:
        shown += f"\nDead letters in the spool: {status.spooled}, the oldest since {_time(status.oldest_spooled_at)}.\n"
    if status.auto_resume_at is not None:
        shown += f"\nResumes automatically at {_time(status.auto_resume_at)}.\n"
    if (last := status.last_resume) is not None:
        shown += f"\nLast resumed by {_cell(last.by)} at {_time(last.at)}: {_cell(last.reason)}\n"
    return shown


def breaker_note(described: DescribedBreaker) -> str | None:
    """Explains a status that does not come from the gateway itself."""
    name = escaped(described.status.group)
    match described.source:
        case StatusSource.GATEWAY if described.status.enabled is None:
            return f"configs of share group '{name}' are not shown: they require DESCRIBE_CONFIGS on the group"
        case StatusSource.GATEWAY:
            return None
        case StatusSource.CONFIGS:
            return (
                f"share group '{name}' has no members yet: its status is derived from its configs, and whether it is "
                "paused is shown when a member has joined"
            )
        case StatusSource.NO_CONFIGS:
            return f"share group '{name}' has none of Headgate's configs: it is neither counted nor paused"
        case _:
            assert_never(described.source)


def action_text(group: str, status: BreakerStatus | None, *, paused: bool) -> str:
    reasons = () if status is None else status.pause_reasons or ()
    state = "paused" if paused else "still paused" if reasons else "resumed"
    return f"Share group '{escaped(group)}' is {state}.\n" + ("\n" + _reasons_table(reasons) if reasons else "")


def action_json(group: str, status: BreakerStatus | None, reason: str, *, paused: bool) -> dict[str, Any]:
    """The status after a pause or resume; while the group cannot be described, the change that was requested."""
    if status is None or status.paused is None:
        remaining = [PauseReason(code=OPERATOR, text=reason, by=None, since=None)] if paused else []
        is_paused = paused
    else:
        remaining, is_paused = list(status.pause_reasons or ()), status.paused
    return {
        "group": group,
        "paused": is_paused,
        "reason": reason,
        "remaining_reasons": [json_of(one) for one in remaining],
    }


def topology_text(topology: DlqTopology) -> str:
    if not topology.topics:
        return "No share group has a dead-letter topic.\n"
    rows = [
        (
            escaped(one.topic),
            _yes_no(one.is_shared),
            _yes_no(one.has_conflict),
            ", ".join(map(escaped, one.groups)) or "-",
        )
        for one in topology.topics
    ]
    parked = "".join(
        f"{escaped(one.topic)}: {some.number} dead letters of share group '{escaped(some.group)}' are parked in the "
        f"spool: {escaped(some.reason)}\n"
        for one in topology.topics
        for some in one.parked
    )
    return _fitted([_TOPOLOGY, *rows]) + (f"\n{parked}" if parked else "")


def topology_json(topology: DlqTopology) -> dict[str, Any]:
    return {
        "dlq_topics": [
            {
                "topic": one.topic,
                "groups": list(one.groups),
                "shared": one.is_shared,
                "conflict": one.has_conflict,
                "parked": [{"group": some.group, "reason": some.reason, "number": some.number} for some in one.parked],
            }
            for one in topology.topics
        ]
    }


def _fitted(rows: Sequence[Sequence[str]]) -> str:
    """The first column is at least as wide as in Kafka's tool, the others as wide as their widest cell."""
    columns = range(len(rows[0]) - 1)
    widths = [widest(rows, place, max(len(rows[0][place]), NAME_WIDTH if place == 0 else 0)) for place in columns]
    return table(rows, widths)


def _reasons_table(reasons: Sequence[PauseReason]) -> str:
    rows = [(_cell(one.code), _time(one.since), _cell(one.by), _cell(one.text)) for one in reasons]
    return _fitted([_REASONS, *rows])


def _cell(value: object) -> str:
    return escaped(or_dash(value))


def _yes_no(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _time(value: int | None) -> str:
    """Epoch milliseconds as UTC."""
    if value is None:
        return "-"
    try:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return _cell(value)
