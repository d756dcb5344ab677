"""`/api/v1/share-groups`: what gateways have decided about share groups, their rates of dead letters and their events.

The state comes from Headgate's topics through a port, so it is current, and there without any table; the rest comes
from tables, and is empty while these do not exist.
"""

from collections import defaultdict
from dataclasses import asdict
from heapq import nlargest
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from headgate.lineage.estate import NoTableError, absent
from headgate.lineage.graph import SHARE_GROUP
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables, LoadedEstate, bounded
from headgate.web.api.models import errors
from headgate.web.api.parameters import After, Cluster, Contains, Limit, page_after
from headgate.web.api.share_group_models import ShareGroupModel, ShareGroupsModel
from headgate.web.paths import NameInPath
from headgate.web.share_states import SharePort, share_group_row
from headgate.web.visible_names import VisibleNames

_KIND: Final = frozenset({SHARE_GROUP})
_TABLES: Final = ("breaker_events", "dlq_rates")
_DISABLED: Final = "share_groups.enable is false in the configuration of this process"
_EVENT_COLUMNS: Final = (
    *("event_id", "event", "at", "by", "reason", "generation"),
    *("dlq_written", "delivered", "threshold_percent", "window_ms", "resume_at"),
)
_MINUTE_MS: Final = 60_000

Row = dict[str, Any]


def share_groups_router(
    tables: EstateTables, answers: Answers, access: AccessControl, port: SharePort | None
) -> APIRouter:
    router = APIRouter(prefix="/api/v1/share-groups", tags=["share groups"])
    names_of = Depends(access.visible_names)

    async def estate_or_none(cluster: str | None) -> LoadedEstate | None:
        try:
            return await tables.estate(cluster=cluster, as_of_ms=None)
        except NoTableError:
            return None

    def known(estate: LoadedEstate | None) -> set[str]:
        seen = {one.name for one in estate.map.summaries(_KIND)} if estate is not None else set()
        return seen | set(port.groups() if port is not None else ())

    @router.get("", response_class=Response, responses={200: {"model": ShareGroupsModel}, 304: {}, **errors()})
    async def share_groups(
        request: Request,
        names: Annotated[VisibleNames, names_of],
        contains: Contains = "",
        after: After = "",
        paused: Annotated[bool, Query(description="only groups that are paused")] = False,
        limit: Limit = 100,
        cluster: Cluster = None,
    ) -> Response:
        """Share groups by name, and whether they are paused and why."""
        estate = await estate_or_none(cluster)
        low = contains.lower()
        found = [
            name
            for name in sorted(names.among(known(estate)))
            if low in name.lower() and (not paused or (port is not None and port.of(name).is_paused))
        ]
        page, following = page_after(found, after, limit)
        document = {
            "share_groups": [share_group_row(name, port, names) for name in found[page]],
            "count": len(found),
            "next": following,
            "problem": _problem(port),
        }
        versions = (*(estate.stamps if estate is not None else ()), port.changes if port is not None else 0)
        return await answers.of_versions(
            request, names, versions, lambda: json_answer(document), variant=str(_problem(port))
        )

    @router.get("/{name}", response_class=Response, responses={200: {"model": ShareGroupModel}, 304: {}, **errors(404)})
    async def share_group(
        request: Request,
        name: NameInPath,
        names: Annotated[VisibleNames, names_of],
        minutes: Annotated[int, Query(ge=1, le=1_440, description="rates of the last so many minutes")] = 60,
        events: Annotated[int, Query(ge=1, le=1_000, description="at most so many events")] = 20,
        cluster: Cluster = None,
    ) -> Response:
        """A share group: its state and settings, the topics that it reads, its rates of dead letters and its events."""
        estate = await estate_or_none(cluster)
        all_names = known(estate)
        head = share_group_row(name, port, names)
        settings = asdict(port.of(name).settings) if port is not None else None
        if settings is not None:
            settings.pop("dlq_topic")
        sharing = _sharing(name, port, names)
        now_ms = tables.now_ms()

        def make() -> Rendered:
            if name not in all_names or not names.has(name):
                raise absent("share group", name, names.among(all_names))
            of_cluster = [] if cluster is None else [Condition("cluster_id", "=", cluster)]
            since = now_ms - minutes * _MINUTE_MS
            return json_answer(
                head
                | {"settings": settings, "dlq_topic_shared_with": sharing}
                | {"reads": _reads(estate, name, names), "rates": _rates(tables, of_cluster, name, since)}
                | {"events": _events(tables, of_cluster, name, events), "problem": _problem(port)}
            )

        stamps = await tables.stamps(_TABLES)
        own = (*(estate.stamps if estate is not None else ()), port.changes if port is not None else 0)
        versions = (*stamps, *own, now_ms)
        return await answers.of_versions(request, names, versions, make, variant=str(_problem(port)))

    return router


def _problem(port: SharePort | None) -> str | None:
    return _DISABLED if port is None else port.problem


def _sharing(name: str, port: SharePort | None, names: VisibleNames) -> list[str | None]:
    """The other groups with the same dead-letter topic; None for each that the caller may not see."""
    topic = port.of(name).settings.dlq_topic if port is not None else None
    if port is None or topic is None:
        return []
    others = sorted(other for other in port.groups_of_topic(topic) if other != name)
    shown: list[str | None] = [other for other in others if names.has(other)]
    return shown + [None] * (len(others) - len(shown))


def _reads(estate: LoadedEstate | None, name: str, names: VisibleNames) -> list[Row]:
    if estate is None or not estate.map.has(SHARE_GROUP, name):
        return []
    before, _ = estate.map.uses(SHARE_GROUP, name)
    rows = [{"topic": topic if names.has(topic) else None, **use._asdict()} for _, topic, use in before]
    return [row for row in rows if row["topic"] is not None] + [row for row in rows if row["topic"] is None]


def _rates(tables: EstateTables, of_cluster: list[Condition], group: str, since_ms: int) -> list[Row]:
    """The rates of each minute, summed over all topics and partitions."""
    where = [*of_cluster, Condition("group", "=", group), Condition("minute", ">=", since_ms)]
    columns = ("minute", "processed", "dead_lettered")
    rows = tables.reader.stream(TABLES["dlq_rates"], where=where, columns=columns)
    sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in bounded(rows) if rows is not None else ():
        sums[row["minute"]][0] += row["processed"]
        sums[row["minute"]][1] += row["dead_lettered"]
    return [
        {
            "minute": minute,
            "processed": processed,
            "dead_lettered": dead_lettered,
            "dlq_rate": dead_lettered / processed if processed else None,
        }
        for minute, (processed, dead_lettered) in sorted(sums.items())
    ]


def _events(tables: EstateTables, of_cluster: list[Condition], group: str, limit: int) -> list[Row]:
    """The newest first."""
    where = [*of_cluster, Condition("group", "=", group)]
    rows = tables.reader.stream(TABLES["breaker_events"], where=where, columns=_EVENT_COLUMNS)
    return nlargest(limit, rows if rows is not None else (), key=lambda row: (row["at"], row["event_id"]))
