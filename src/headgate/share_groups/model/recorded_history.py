"""The recorded events of a share group, as a back-test needs them: when it was paused, and which settings it has."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headgate.share_groups.model.backtest import PausedPeriod
from headgate.share_groups.model.breaker import BreakerRules
from headgate.share_groups.model.group_configs import GroupSettings, settings_of
from headgate.share_groups.model.group_state import BREAKER_PRINCIPAL


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event of the group; `changes` are those of `config_changed`, and None is the default again."""

    at: int
    event: str
    by: str | None = None
    changes: tuple[tuple[str, str | None], ...] = ()


def recorded_event(at: int, event: str, by: str | None, detail: str) -> RecordedEvent:
    """The event of a row of `breaker_events`; details of another form have no changes."""
    try:
        changes = json.loads(detail)["changes"] if event == "config_changed" else {}
        named = tuple((str(name), None if value is None else str(value)) for name, value in changes.items())
    except (ValueError, KeyError, TypeError, AttributeError):
        named = ()
    return RecordedEvent(at=at, event=event, by=by, changes=named)


def pauses(events: Iterable[RecordedEvent]) -> Iterator[tuple[int, int | None]]:
    """The times from which and until which the group was paused, by its breaker or an operator; None where it still is.

    An operator's resume ends every pause, an automatic one only that of the breaker.
    """
    reasons: set[str] = set()
    since = 0
    for one in sorted(events, key=lambda event: (event.at, event.event == "resumed")):
        if one.event in {"tripped", "paused"}:
            since = since if reasons else one.at
            reasons.add(one.event)
        elif one.event == "resumed" and reasons:
            reasons -= {"tripped"} if one.by == BREAKER_PRINCIPAL else {"tripped", "paused"}
            if not reasons:
                yield since, one.at
    if reasons:
        yield since, None


def paused_periods(events: Iterable[RecordedEvent], *, end: int) -> list[PausedPeriod]:
    """The seconds in which the group was paused; a pause without an end lasts to `end`.

    A pause begins with the second after its event: the counts that trip a breaker may have been written in the very
    second of the trip, because the leader's seconds begin at other moments.
    """
    found: list[PausedPeriod] = []
    for since, until in pauses(events):
        begin = since // 1000 + 1
        if until is not None:
            found.append(PausedPeriod(begin=begin, end=max(until // 1000, begin)))
        elif begin < end:
            found.append(PausedPeriod(begin=begin, end=end))
    return found


def recorded_settings(events: Iterable[RecordedEvent]) -> GroupSettings:
    """The settings after all recorded changes; a config without a recorded change has its default."""
    values: dict[str, str] = {}
    for one in sorted(events, key=lambda event: event.at):
        for name, value in one.changes:
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
    return settings_of(values)


def rules_of(settings: GroupSettings) -> BreakerRules:
    return BreakerRules(
        threshold_percent=settings.threshold_percent,
        window_ms=settings.window_ms,
        min_messages=settings.min_messages,
    )
