"""How `headgate share-groups` shows its answers: tables in the manner of Kafka's own tool, and JSON.

One rule: pure, and a gateway's answer is shown whatever it holds: what is missing or null is a dash, and what others
wrote (names, reasons) is escaped.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from headgate.cli.columns import NAME_WIDTH, or_dash, table, widest
from headgate.cli.logs import escaped
from headgate.share_groups.admin import BreakerStatus, DlqTopology
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
    """The breaker, then why the group is paused, when it resumes by itself, and who resumed it last."""
    said = status.document
    row = (
        _cell(said.get("group")),
        _yes_no(said.get("enabled")),
        _yes_no(said.get("paused")),
        _cell(said.get("generation")),
        _cell(said.get("delivered")),
        _cell(said.get("dlq_written")),
        _rate(said.get("dlq_rate")),
        _percent(said.get("threshold_percent")),
        _cell(said.get("min_messages")),
        _cell(said.get("window_ms")),
        _cell(said.get("limit")) + (" (unprotected)" if said.get("limit_unprotected") is True else ""),
        _cell(said.get("dlq_topic")),
    )
    shown = _fitted([_BREAKER, row])
    if reasons := _reasons(said):
        shown += "\n" + _fitted([_REASONS, *map(_reason_row, reasons)])
    if said.get("auto_resume_at") is not None:
        shown += f"\nResumes by itself at {_time(said['auto_resume_at'])}.\n"
    if isinstance(last := said.get("last_resume"), Mapping):
        by, at = _cell(last.get("by")), _time(last.get("at"))
        shown += f"\nLast resumed by {by} at {at}: {_cell(last.get('reason'))}\n"
    return shown


def breaker_note(status: BreakerStatus) -> str | None:
    """What must be said of a state that the gateway did not describe itself."""
    if status.is_whole:
        return None
    name = escaped(str(status.document.get("group")))
    if not status.is_known:
        return (
            f"share group '{name}' does not exist yet: no member has joined. This is what its configs say; whether it "
            "is paused is told when somebody has joined"
        )
    return f"share group '{name}' has none of Headgate's configs: it is neither counted nor paused"


def steering_text(group: str, status: BreakerStatus | None, *, paused: bool) -> str:
    name = escaped(group)
    reasons = _reasons(status.document) if status is not None else []
    if paused:
        first = f"Share group '{name}' is paused.\n"
    elif reasons:
        first = f"Share group '{name}' is still paused.\n"
    else:
        first = f"Share group '{name}' is resumed.\n"
    return first + ("\n" + _fitted([_REASONS, *map(_reason_row, reasons)]) if reasons else "")


def steering_json(group: str, status: BreakerStatus | None, reason: str, *, paused: bool) -> dict[str, Any]:
    """What the gateway tells; of a group that nobody describes yet, what was asked for and done."""
    told = None if status is None else status.document.get("paused")
    if status is None or told is None:
        remaining = [{"code": OPERATOR, "text": reason, "by": None, "since": None}] if paused else []
        return {"group": group, "paused": paused, "reason": reason, "remaining_reasons": remaining}
    return {"group": group, "paused": told, "reason": reason, "remaining_reasons": _reasons(status.document)}


def topology_text(topology: DlqTopology) -> str:
    if not topology.topics:
        return "No share group has a dead-letter topic.\n"
    rows = [
        (
            escaped(one.topic),
            _yes_no(one.is_shared),
            _yes_no(one.has_conflict),
            ", ".join(map(escaped, one.groups)),
        )
        for one in topology.topics
    ]
    return _fitted([_TOPOLOGY, *rows])


def topology_json(topology: DlqTopology) -> dict[str, Any]:
    return {
        "dlq_topics": [
            {"topic": one.topic, "groups": list(one.groups), "shared": one.is_shared, "conflict": one.has_conflict}
            for one in topology.topics
        ]
    }


def _fitted(rows: Sequence[Sequence[str]]) -> str:
    """Names as wide as Kafka's tool has them, other columns as wide as they need."""
    columns = range(len(rows[0]) - 1)
    widths = [widest(rows, place, max(len(rows[0][place]), NAME_WIDTH if place == 0 else 0)) for place in columns]
    return table(rows, widths)


def _reasons(said: Mapping[str, Any]) -> list[Any]:
    reasons = said.get("pause_reasons")
    return reasons if isinstance(reasons, list) else []


def _reason_row(reason: object) -> tuple[str, str, str, str]:
    said = reason if isinstance(reason, Mapping) else {"text": reason}
    return _cell(said.get("code")), _time(said.get("since")), _cell(said.get("by")), _cell(said.get("text"))


def _cell(value: object) -> str:
    return escaped(or_dash(value))


def _yes_no(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, "-") if isinstance(value, bool) else "-"


def _rate(value: object) -> str:
    return f"{100 * value:.2f}%" if isinstance(value, int | float) else "-"


def _percent(value: object) -> str:
    return "-" if value is None else f"{_cell(value)}%"


def _time(value: object) -> str:
    """Epoch milliseconds as UTC."""
    try:
        return datetime.fromtimestamp(int(str(value)) / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return _cell(value)
