"""`GET /api/v1/health`: the topics that this process reads, gateways, the tables, and the last runs of the pipeline.

Gateways have no interface of their own for this: a worker is known by what it has written to Headgate's topics, and
one that has nothing to write is not seen.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from heapq import nlargest
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

import headgate
from headgate.tables.definitions import TABLES
from headgate.tables.reader import Condition
from headgate.web.access import AccessControl
from headgate.web.api.answers import Answers, Rendered, json_answer
from headgate.web.api.estate_tables import EstateTables
from headgate.web.api.models import HealthModel, RejectedModel, RunModel, WorkersModel, errors
from headgate.web.visible_names import VisibleNames

_RUN_COLUMNS = tuple(RunModel.model_fields)
_MOST_REJECTED = 20
_MOST_COUNTED = 1_000
_REJECTED_COLUMNS = tuple(RejectedModel.model_fields)
_WORKERS_MS = 2 * 3_600_000  # a use that lasts is reported every 15 minutes
_WORKERS_STEP_MS = 5 * 60_000
_MOST_WORKER_ROWS = 200_000
_MOST_WORKERS = 1_000


def health_router(
    tables: EstateTables, answers: Answers, access: AccessControl, problems: Callable[[], dict[str, str]]
) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["health"])

    @router.get("/health", response_class=Response, responses={200: {"model": HealthModel}, 304: {}, **errors()})
    async def health(request: Request, names: Annotated[VisibleNames, Depends(access.visible_names)]) -> Response:
        """Whether all topics that this process reads are available, and how fresh the tables are."""
        found = problems()

        def make() -> Rendered:
            head = {"ready": not found, "problems": found, "version": headgate.__version__}
            stored = {"tables": _tables(tables), "pipeline": _last_runs(tables)}
            # What was rejected may have any names, and the folder is for those who operate it.
            rejected = None if names.are_limited else _rejected(tables)
            folder = None if names.are_limited else str(tables.root)
            return json_answer(head | stored | {"tables_path": folder, "rejected": rejected})

        stamps = await tables.stamps(TABLES)
        return await answers.of_versions(request, names, stamps, make, variant=repr(sorted(found.items())))

    @router.get(
        "/health/workers", response_class=Response, responses={200: {"model": WorkersModel}, 304: {}, **errors()}
    )
    async def workers(request: Request, names: Annotated[VisibleNames, Depends(access.visible_names)]) -> Response:
        """The workers of gateways that reported something in the last two hours; counted anew every five minutes."""
        now_ms = tables.now_ms() // _WORKERS_STEP_MS * _WORKERS_STEP_MS

        def make() -> Rendered:
            return json_answer(_workers(tables, now_ms))

        return await answers.of_versions(request, names, (now_ms,), make)

    return router


def _tables(tables: EstateTables) -> list[dict[str, Any]]:
    summaries = ((name, tables.reader.summary(table)) for name, table in TABLES.items())
    return [
        {"name": name, "version": one.version, "rows": one.rows, "bytes": one.bytes, "updated": one.updated}
        for name, one in summaries
        if one is not None
    ]


def _rejected(tables: EstateTables) -> dict[str, Any]:
    """The newest of all, and how many there are, as far as they are counted: by their times, which are read first."""
    table, count = TABLES["rejected_facts"], 0

    def times() -> Iterator[int]:
        nonlocal count
        for row in tables.reader.stream(table, columns=("at",)) or ():
            count += 1
            yield row["at"]

    last = nlargest(_MOST_REJECTED, times())
    since = [Condition("at", ">=", min(last))] if last else []
    rows = tables.reader.stream(table, where=since, columns=_REJECTED_COLUMNS) or ()
    newest = nlargest(_MOST_REJECTED, rows, key=lambda row: (row["at"], row["topic"], row["offset"]))
    return {"facts": newest, "count": min(count, _MOST_COUNTED), "more": count > _MOST_COUNTED}


def _workers(tables: EstateTables, now_ms: int) -> dict[str, Any]:
    """The workers by name; `truncated` also where there were too many rows to read all of them."""
    since = now_ms - _WORKERS_MS
    columns = ("writer", "boot", "at")
    found = tables.reader.stream(TABLES["activity_intervals"], where=[Condition("at", ">=", since)], columns=columns)
    rows = iter(found or ())
    last: dict[str, int] = {}
    boots: defaultdict[str, set[str]] = defaultdict(set)
    for row in islice(rows, _MOST_WORKER_ROWS):
        if row["writer"]:
            last[row["writer"]] = max(last.get(row["writer"], 0), row["at"])
            boots[row["writer"]].add(row["boot"])
    is_cut = next(rows, None) is not None
    listed = [{"worker": name, "last_seen": last[name], "starts": len(boots[name])} for name in sorted(last)]
    return {"workers": listed[:_MOST_WORKERS], "since": since, "truncated": is_cut or len(listed) > _MOST_WORKERS}


def _last_runs(tables: EstateTables) -> list[dict[str, Any]]:
    """The last run of each query."""
    last: dict[str, dict[str, Any]] = {}
    for row in tables.reader.stream(TABLES["pipeline_runs"], columns=_RUN_COLUMNS) or ():
        known = last.get(row["query"])
        if known is None or (row["started_at"], row["at"]) >= (known["started_at"], known["at"]):
            last[row["query"]] = row
    return [last[query] for query in sorted(last)]
