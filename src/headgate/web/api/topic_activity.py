"""`GET /api/v1/topics/NAME/activity`: bytes written and read in each hour, and by which actors."""

from collections import defaultdict
from heapq import nlargest
from itertools import islice
from typing import Any, Final

from pydantic import Field

from headgate.lineage.estate import Estate, NoTableError
from headgate.lineage.graph import READ, WRITE
from headgate.lineage.questions import DAY_MS, HOUR_MS
from headgate.tables.reader import Condition
from headgate.web.api.models import ApiModel, Kind, Name, Time
from headgate.web.visible_names import VisibleNames

MAX_DAYS: Final = 31
_MOST_ROWS: Final = 200_000

Row = dict[str, Any]


class ActorHoursModel(ApiModel):
    """One actor in one direction; `hours` are its bytes in each hour."""

    kind: Kind
    name: Name
    direction: str
    bytes: int
    first_seen: Time
    last_seen: Time
    hours: list[int]


class TopicActivityModel(ApiModel):
    """Bytes by hour, the oldest first; `since` is the beginning of the first one."""

    topic: str
    since: Time
    until: Time
    hour_ms: int = Field(description="the length of an hour")
    written: list[int]
    read: list[int]
    actors: list[ActorHoursModel]
    truncated: bool


def activity_document(estate: Estate, topic: str, names: VisibleNames, *, now_ms: int, days: int, limit: int) -> Row:
    """The actors with most bytes first. Those without names are added up by kind, and come last."""
    until = now_ms - now_ms % HOUR_MS + HOUR_MS
    since = until - days * DAY_MS
    hours = days * 24
    sums = {WRITE: [0] * hours, READ: [0] * hours}
    actors: dict[tuple[str, str | None, str], Row] = {}
    more = False
    for row in _rows(estate, topic, since, until):
        if row is None:
            more = True
            break
        place = (row["hour"] - since) // HOUR_MS
        sums[row["direction"]][place] += row["bytes"]
        name = row["app_id"] if names.has(row["app_id"]) else None
        key = (row["actor_kind"], name, row["direction"])
        actor = actors.get(key)
        if actor is None:
            actor = actors[key] = {"kind": key[0], "name": name, "direction": key[2], "bytes": 0}
            actor |= {"first_seen": row["first_seen"], "last_seen": row["last_seen"], "hours": defaultdict(int)}
        actor["bytes"] += row["bytes"]
        actor["first_seen"] = min(actor["first_seen"], row["first_seen"])
        actor["last_seen"] = max(actor["last_seen"], row["last_seen"])
        actor["hours"][place] += row["bytes"]
    first = nlargest(limit, actors.values(), key=lambda one: (one["name"] is not None, one["bytes"], one["name"] or ""))
    shown = [one | {"hours": [one["hours"].get(place, 0) for place in range(hours)]} for one in first]
    head = {"topic": topic, "since": since, "until": until, "hour_ms": HOUR_MS}
    counts = {"written": sums[WRITE], "read": sums[READ]}
    return head | counts | {"actors": shown, "truncated": more or len(actors) > limit}


def _rows(estate: Estate, topic: str, since: int, until: int) -> Any:
    """The rows of these hours; None at the end where there are too many."""
    where = (Condition("topic", "=", topic), Condition("hour", ">=", since), Condition("hour", "<", until))
    columns = ("hour", "actor_kind", "app_id", "direction", "first_seen", "last_seen", "bytes")
    try:
        rows = estate.of_one_cluster(estate.rows("activity_hours", *where, columns=("cluster_id", *columns)))
    except NoTableError:
        return
    yield from islice(rows, _MOST_ROWS)
    if next(rows, None) is not None:
        yield None
